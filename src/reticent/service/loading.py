"""What an operator is told if a predictor cannot continue from its folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reticent.predictors.state import MissingPart, NeedlessPart
from reticent.service import traces
from reticent.service.home import Home
from reticent.service.store.protocol import Damaged


@contextmanager
def explained(home: Home) -> Iterator[None]:
    """Explain errors of loading the predictor of a folder: what to add to the command, or that it is damaged."""
    try:
        yield
    except Damaged:
        raise
    except NeedlessPart as error:
        article = "an" if error.name == "engine" else "a"
        raise ValueError(
            f"{home.name} was not fitted with {article} {error.name} of your own: leave out --{error.name}, or in "
            f"Python the parameter {error.name}"
        ) from None
    except MissingPart as error:
        raise ValueError(
            f"{error.wanted}: {home.name} was fitted with one of your own, {error.kind}, which is not "
            f"part of its folder. Add --{error.name} module:{error.kind} to the command; in Python, pass "
            f"{error.name}={error.kind} to AnsweringService"
        ) from None
    except (ValueError, KeyError) as error:
        raise Damaged(
            f"the service cannot continue from {home.state} and the store: {traces.message_of(error)}"
        ) from error
