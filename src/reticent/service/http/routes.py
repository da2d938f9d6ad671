"""The routes of a service, and the application that they make up."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as StarletteRequest
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from reticent.service.dashboard import static_routes
from reticent.service.http import openapi
from reticent.service.http.answer_log import AnswerLogView
from reticent.service.http.calls import Call, headers_by_name
from reticent.service.http.failures import as_problem
from reticent.service.http.labels import LabelRoutes
from reticent.service.http.problems import Problem
from reticent.service.http.responses import JSON, compressible
from reticent.service.http.service import Service, counted_status

Handler = Callable[[Call], Awaitable[Response]]


class Endpoint:
    """A handler as an application: errors become problem documents, and every call is counted."""

    def __init__(self, service: Service, handler: Handler, name: str) -> None:
        self._service, self._handler, self._name = service, handler, name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        started = time.perf_counter()
        try:
            response = await self._handler(Call(scope, receive, headers_by_name(scope["headers"])))
        except Exception as error:
            response = as_problem(error, self._name).response()
        status = counted_status(response.status_code, response.headers)
        self._service.metrics.count(self._name, status, time.perf_counter() - started)
        await response(scope, receive, send)


def make_app(service: Service) -> Starlette:
    """The application of a service. It closes the answering service when it stops."""
    made = {
        "/v2/models/{name}/infer": ("POST", service.infer),
        "/v2/models/{name}/versions/{version}/infer": ("POST", service.infer),
        "/invocations": ("POST", service.invoke),
        "/v2": ("GET", service.server),
        "/v2/health/live": ("GET", service.live),
        "/v2/health/ready": ("GET", service.ready),
        "/v2/models/{name}": ("GET", service.model),
        "/v2/models/{name}/versions/{version}": ("GET", service.model),
        "/v2/models/{name}/ready": ("GET", service.model_ready),
        "/v2/models/{name}/versions/{version}/ready": ("GET", service.model_ready),
        "/ping": ("GET", service.ping),
        "/health": ("GET", service.ping),
        "/version": ("GET", service.mlflow_version),
        "/guarantee": ("GET", service.guarantee),
        "/status": ("GET", service.status),
        "/events": ("GET", service.events),
        "/metrics": ("GET", service.prometheus),
    }
    labels = LabelRoutes(service)
    if service.truth in ("rows", "both"):
        made["/v2/models/{name}/labelled"] = ("POST", labels.labelled)
        made["/v2/models/{name}/labelled/withdraw"] = ("POST", labels.withdraw)
    if service.truth in ("feedback", "both"):
        made["/v2/models/{name}/feedback"] = ("POST", labels.feedback)
    routes: list[BaseRoute] = [
        Route(path, Endpoint(service, handler, handler.__name__), methods=[method])
        for path, (method, handler) in made.items()
    ]
    document = openapi.document(
        service.name,
        service.rules,
        service.most_rows,
        service.version,
        offered=service.offered,
        truth=service.truth,
    )
    routes += [*_described(service, document), *_dashboard(service)]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        service.closing.set()
        await service.batcher.close()
        service.answering.close()

    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _no_route})
    app.router.redirect_slashes = False
    app.state.service = service
    return app


def _described(service: Service, document: dict[str, Any]) -> list[BaseRoute]:
    # Only callers who may see the metadata of the model may see the names of columns.
    both = document, openapi.without_columns(document)
    encoded, pages_made = [msgspec.json.encode(one) for one in both], [openapi.page(one) for one in both]

    def hidden(call: Call) -> bool:
        try:
            service.admit(call, "observe")
        except Problem:
            return True
        return False

    async def openapi_json(call: Call) -> Response:
        return compressible(call, encoded[hidden(call)], {}, JSON)

    async def docs(call: Call) -> Response:
        page, policy = pages_made[hidden(call)]
        return compressible(call, page, {"Content-Security-Policy": policy}, "text/html; charset=utf-8")

    pages: dict[str, Handler] = {"/openapi.json": openapi_json, "/docs": docs}
    return [Route(path, Endpoint(service, one, path[1:]), methods=["GET"]) for path, one in pages.items()]


def _dashboard(service: Service) -> list[BaseRoute]:
    """The page of the dashboard and what it reads, or a redirection to the documentation."""
    if not service.dashboard:

        async def to_docs(request: StarletteRequest) -> Response:
            return RedirectResponse("/docs", 307)

        return [Route("/", to_docs, methods=["GET"])]
    view = AnswerLogView(service)
    return [
        *static_routes(),
        Route("/dashboard/ledger", Endpoint(service, view.ledger, "dashboard_ledger"), methods=["GET"]),
        Route("/dashboard/verify", Endpoint(service, view.verify, "dashboard_verify"), methods=["POST"]),
    ]


async def _no_route(request: StarletteRequest, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})
    return Problem({404: "not-found", 405: "wrong-method"}.get(status, "internal"), "", headers).response()
