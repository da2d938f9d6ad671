"""Which problem a caller sees for an error of the service."""

from __future__ import annotations

import logging

from reticent.errors import BudgetExhausted
from reticent.service import traces
from reticent.service.http.batching import Overloaded, Stopping
from reticent.service.http.problems import Problem
from reticent.service.requests import Halted, KeyReused, RowsNeeded

log = logging.getLogger("reticent.service")


def as_problem(error: Exception, name: str) -> Problem:
    """An error in the route `name` as a problem. Of an unexpected one the caller learns only that it happened."""
    if isinstance(error, Problem):
        return error
    log.error("in %s: %s", name, traces.rendered(error))
    return Problem("internal")


def to_problem(error: Exception) -> Problem | None:
    """The problem for an error of the answering service, or None if it is not an expected one."""
    if isinstance(error, KeyReused):
        return Problem("key-reused")
    if isinstance(error, BudgetExhausted):
        return Problem("rows-needed", str(error)) if isinstance(error, RowsNeeded) else Problem("no-answers-left")
    if isinstance(error, Overloaded):
        return Problem("busy", "", {"Retry-After": "1"})
    if isinstance(error, Stopping):
        return Problem("closing", "", {"Retry-After": "5"})
    if isinstance(error, Halted):
        return Problem("halted", "", {"Retry-After": "5"} if error.soon else {})
    return None
