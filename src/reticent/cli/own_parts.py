"""Parts of a predictor that a user wrote: they are not saved with it, so commands that open it take their names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import import_module
from typing import Annotated, Any

from cyclopts import Parameter

from reticent.cli.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class OwnParts:
    """The parts of a predictor that are not in its folder, each written as module:object.

    Parameters
    ----------
    learner
        The learner that the predictor was fitted with, if it is your own, as module:object; not one of the names that
        `reticent fit --learner` takes. Python must be able to import the module: set $PYTHONPATH.
    labeller
        The class of its labeller, if it is your own, as module:object.
    engine
        The class of its engine, if it is your own, as module:object.
    """

    learner: str | None = None
    labeller: str | None = None
    engine: str | None = None

    def imported(self) -> dict[str, Any]:
        """The objects, by the parameter of `AnsweringService`; those that were not named are left out."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: _imported(name, written) for name, written in named.items() if written is not None}


Own = Annotated[OwnParts | None, Parameter(name="*")]


def _imported(option: str, written: str) -> Any:
    module, _, name = written.partition(":")
    if not module or not name.isidentifier():
        raise UsageError(f"--{option} must be module:object, as in my_package.parts:Mine, got {written!r}")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--{option} {written}: there is no module {error.name!r}; install it, or set $PYTHONPATH"
        ) from None
    except AttributeError:
        raise UsageError(f"--{option} {written}: the module {module!r} has no {name!r}") from None
