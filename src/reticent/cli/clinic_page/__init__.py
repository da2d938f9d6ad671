"""The demo's page: how often two predictors of the made-up clinic are right, month by month."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reticent.service import dashboard

HERE = Path(__file__).parent
OWN = (
    ("/", "index.html", "text/html; charset=utf-8"),
    ("/page.js", "page.js", "text/javascript; charset=utf-8"),
    ("/page.css", "page.css", "text/css; charset=utf-8"),
)
FILES = {path: (HERE / name, kind) for path, name, kind in OWN} | {
    path: (dashboard.HERE / name, kind) for path, name, kind in dashboard.FILES if path != "/"
}


class Page:
    """A server of the page on this machine, in a thread, for as long as its block lasts.

    Parameters
    ----------
    numbers : callable
        Returns what the page shows. It is called from other threads.
    host : str
        The address to listen on; the port is any that is free.
    """

    def __init__(self, numbers: Callable[[], dict[str, Any]], host: str) -> None:
        self._server = ThreadingHTTPServer((host, 0), _handler(numbers))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self.url = f"http://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(numbers: Callable[[], dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/numbers":
                self._send(json.dumps(numbers()).encode(), "application/json")
            elif (found := FILES.get(self.path)) is not None:
                self._send(found[0].read_bytes(), found[1])
            else:
                self.send_error(404)

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            for name, value in (*dashboard.HEADERS.items(), ("Content-Type", kind), ("Content-Length", len(body))):
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Write nothing: the terminal shows the demo."""

    return Handler
