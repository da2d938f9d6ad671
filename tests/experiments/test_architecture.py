"""The walks of the page on architecture, traced."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from experiments import architecture
from experiments.tracing import PACKAGE, Walk

HOPS = {"row": 6, "query": 11}  # 12 are allowed: a walk that becomes longer needs a reason
HANDED_OVER = {"row": 13, "query": 20}  # hops, visits to helpers, and the reading that recognises a table


@pytest.fixture(scope="module")
def walks() -> dict[str, Walk]:
    return architecture.walks()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["row", "query"])
def test_no_walk_becomes_longer(walks: dict[str, Walk], name: str) -> None:
    hops = walks[name].hops(*architecture.ENDS[name])
    assert len(hops) <= HOPS[name]
    assert len(walks[name].edges) <= HANDED_OVER[name]
    assert {end for _, end in hops} >= set(architecture.ENDS[name])


@pytest.mark.slow
def test_the_walks_start_where_people_do_and_pass_the_seams(walks: dict[str, Walk]) -> None:
    row, query = (walks[name].hops(*architecture.ENDS[name]) for name in ("row", "query"))
    assert row[0][0] == "cli.fit"
    assert query[0][0] == "service.http.server"
    assert {"predictors.everlasting", "predictors.engines.votes", "data.executor"} <= {end for _, end in row}
    assert {"service.answering", "predictors.engines.votes", "service.store.sqlite"} <= {end for _, end in query}


@pytest.mark.slow
def test_rows_are_read_in_data_alone(walks: dict[str, Walk]) -> None:
    """Nothing but `data` is visited on the way to the teachers."""
    visited = {end for _, end in walks["row"].visits(*architecture.ENDS["row"])}
    assert {one.partition(".")[0] for one in visited} == {"data"}


def _module(name: str, text: str) -> dict[str, Any]:
    """A made-up module of the package."""
    found: dict[str, Any] = {}
    exec(compile(text, str(PACKAGE / f"{name}.py"), "exec"), found)
    return found


def test_a_detour_is_noticed() -> None:
    """A twin with one more module on the way has one more hop, and a helper on the way is a visit."""
    end = _module("end", "def learn(rows): return len(rows)")
    helper = _module("helper", "def read(rows): return list(rows)")
    direct = _module("direct", "def fit(rows): return learn(read(rows))")
    detour = _module("detour", "def hand_on(rows): return learn(rows)")
    direct |= {"learn": end["learn"], "read": helper["read"]}
    detour |= {"learn": end["learn"]}

    def walk(fit: FunctionType) -> Walk:
        with Walk(0.5) as found:
            fit([0.25, 0.5])
        return found

    fit = FunctionType(direct["fit"].__code__, direct)
    short = walk(fit)
    assert short.hops("end") == [("direct", "end")]
    assert short.visits("end") == [("direct", "helper")]
    long = walk(FunctionType(fit.__code__, direct | {"learn": detour["hand_on"]}))
    assert long.hops("end") == [("direct", "detour"), ("detour", "end")]


def test_another_number_is_not_followed() -> None:
    end = _module("end", "def learn(rows): return len(rows)")
    start = _module("start", "def fit(rows): return learn(rows)") | {"learn": end["learn"]}
    with Walk(0.75) as found:
        FunctionType(start["fit"].__code__, start)([0.25, 0.5])
    assert found.edges == []
