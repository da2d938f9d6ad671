"""httpx, for servers on a machine that is busy with others: five seconds, as it waits by itself, may be too short."""

from __future__ import annotations

from functools import partial

import httpx

from waiting import LIMIT

get = partial(httpx.get, timeout=LIMIT)
post = partial(httpx.post, timeout=LIMIT)
stream = partial(httpx.stream, timeout=LIMIT)
Client = partial(httpx.Client, timeout=LIMIT)
