"""Errors as RFC 9457 problem documents. None of them repeats what a caller sent."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"

# What may go wrong, by the fragment of /docs that explains it: status, title, and what a caller can do.
KINDS: dict[str, tuple[int, str, str]] = {
    "malformed": (400, "The request cannot be read", "Send what the documentation of the endpoint describes."),
    "wrong-tensors": (400, "The tensors do not fit the model", "Compare them with the metadata of the model."),
    "wrong-table": (400, "The table does not fit the model", "Compare its columns with the metadata of the model."),
    "no-key": (401, "A key is needed", "Send a key as 'Authorization: Bearer …'."),
    "not-allowed": (403, "The key does not allow this", "Use a key with the scope that is named."),
    "foreign-page": (403, "Pages of other sites may not ask", "Serve with keys to be reached by other names."),
    "through-proxy": (403, "Without keys, no proxy may pass requests on", "Make a key first: reticent keys add."),
    "not-found": (404, "There is nothing here", "See /docs for what there is."),
    "wrong-method": (405, "The method is not allowed here", "Use one of those in the Allow header."),
    "too-slow": (408, "The request came too slowly", "Send it again, faster or in smaller pieces."),
    "too-large": (413, "The request is too large", "Send fewer rows at a time."),
    "wrong-type": (415, "The media type or encoding is not known", "Use one of those that are named."),
    "key-reused": (422, "The Idempotency-Key was used for another body", "Use a new key for a new question."),
    "too-many-requests": (429, "The rate of this key is used up", "Wait as long as Retry-After says."),
    "quota-used-up": (429, "More is asked than the key's quota has left", "Whoever runs the service can raise it."),
    "day-used-up": (429, "More labelled rows are sent than the key has left today", "Send them tomorrow."),
    "internal": (500, "Something went wrong here", "Nothing that was not recorded was answered. Try again."),
    "busy": (503, "Too many requests are waiting", "Wait as long as Retry-After says."),
    "halted": (503, "Answering has stopped", "Whoever runs the service must start it again."),
    "no-answers-left": (503, "No answers are left", "The privacy that was promised allows no more of them for now."),
    "rows-needed": (503, "No answers are left until labelled rows come", "Send labelled rows, or ask again later."),
    "closing": (503, "The service is closing", "Try again later."),
}


class Problem(Exception):
    """An error for the caller. `detail` names parameters and limits, never what was sent."""

    def __init__(self, kind: str, detail: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.status, self.title, advice = KINDS[kind]
        self.detail = detail or advice
        self.headers = dict(headers or {})
        super().__init__(self.title)

    def response(self) -> Response:
        """The problem as a response; `error` repeats the detail for clients of the Open Inference Protocol."""
        body = {
            "type": f"/docs#{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "error": f"{self.title}: {self.detail}",
        }
        return Response(msgspec.json.encode(body), self.status, self.headers, MEDIA_TYPE)
