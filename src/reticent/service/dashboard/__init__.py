"""The dashboard: one page that loads nothing from elsewhere and shows only what is public.

The page is static, so anyone who reaches the service may load it. All numbers come from requests that carry a key.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

HERE = Path(__file__).parent

# No inline code runs, nothing is loaded from or sent elsewhere, and no other page may frame this one.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}

# The path under which a file is served, the file, and its media type.
FILES = (
    ("/", "index.html", "text/html; charset=utf-8"),
    ("/dashboard/app.js", "app.js", "text/javascript; charset=utf-8"),
    ("/dashboard/parts.js", "parts.js", "text/javascript; charset=utf-8"),
    ("/dashboard/quality.js", "quality.js", "text/javascript; charset=utf-8"),
    ("/dashboard/style.css", "style.css", "text/css; charset=utf-8"),
    ("/dashboard/icon.svg", "icon.svg", "image/svg+xml"),
    ("/dashboard/uplot.js", "uplot/uplot.js", "text/javascript; charset=utf-8"),
    ("/dashboard/uplot.css", "uplot/uplot.css", "text/css; charset=utf-8"),
)


def static_routes() -> list[BaseRoute]:
    """The page and its files."""
    return [Route(path, _static(HERE / name, kind), methods=["GET"]) for path, name, kind in FILES]


def _static(path: Path, kind: str) -> Callable[[Request], Awaitable[Response]]:
    body = path.read_bytes()
    packed = gzip.compress(body, mtime=0)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'

    async def get(request: Request) -> Response:
        headers = {**HEADERS, "ETag": tag}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(packed, 200, {**headers, "Content-Encoding": "gzip"}, kind)
        return Response(body, 200, headers, kind)

    return get
