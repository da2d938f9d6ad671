"""Every whole number of every command is read by one converter, which rounds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import command_line
import pytest
from command_line import Reticent, check_refused
from cyclopts import App, Token

from reticent.cli.app import app
from reticent.cli.plan import plan_app, planning_functions

run, clinic = pytest.fixture(command_line.run), pytest.fixture(command_line.clinic)


def commands(found: App) -> Iterator[App]:
    """An application, and all commands below it."""
    yield found
    for name in found:
        if not name.startswith("-"):
            yield from commands(found[name])


def whole_numbers() -> list[Any]:
    every = [*commands(app), *(plan_app(name, function) for name, function in planning_functions().items())]
    return [
        pytest.param(argument, id=f"{one.name[0]} {argument.name}")
        for one in every
        if one.default_command is not None
        for argument in one.assemble_argument_collection()
        if int in (argument.hint, *get_args(argument.hint))
    ]


def test_whole_numbers_are_found() -> None:
    found = {one.id for one in whole_numbers()}
    assert {"fit --client-phases", "serve --port", "add --quota", "set-limits --burst", "mechanisms --jobs"} <= found
    assert {"reticent plan threshold --bits", "reticent plan advise --answers"} <= found


@pytest.mark.parametrize("argument", whole_numbers())
@pytest.mark.parametrize("word", ["1.6", "2.5", "20000.7", "1/3", "1e-1"])
def test_nothing_is_rounded(argument: Any, word: str) -> None:
    with pytest.raises(ValueError, match="must be a whole number"):
        argument.parameter.converter(int, [Token(value=word)])
    assert argument.parameter.converter(int, [Token(value="1e3")]) == 1_000


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("fit t.csv --name x --epsilon 1 --delta 1e-6 --client-phases 1.6", "--client-phases: must be a whole number"),
        ("keys add clinic y --quota 1.5", "--quota: must be a whole number, got '1.5'"),
        ("keys add clinic y --rate 2 --burst 2.5", "--burst: must be a whole number, got '2.5'"),
        ("keys set clinic y --quota 2.5", "--quota: must be a whole number, or none, got '2.5'"),
        ("serve clinic --port 8399.5", "--port: must be a whole number, got '8399.5'"),
        ("plan threshold --bits 6.5 --error 0.1 --epsilon 1 --delta 1e-6", "--bits: must be a whole number"),
        ("plan threshold --depth 2.5 --error 0.1", "--depth: must be a whole number, or auto, got '2.5'"),
        ("plan advise 20000.7 20", "must be a whole number, got '20000.7'"),
        ("plan advise 20000 20 --epsilon 1 --delta 1e-6 --answers 100.5", "--answers: must be a whole number"),
    ],
)
def test_commands_refuse_what_is_not_whole(run: Reticent, command: str, message: str) -> None:
    check_refused(run(*command.split()), message)
