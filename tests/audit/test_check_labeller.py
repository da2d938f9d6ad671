"""The conformance test of labellers: it passes those of this package and one of a user's, and rejects every twin."""

from __future__ import annotations

from typing import Any

import pytest

from own_labeller import TWINS, Laplace
from reticent.audit import check_labeller
from reticent.labellers import (
    NAMES,
    Bit,
    Confident,
    Gaussian,
    GNMax,
    Greedy,
    Gumbel,
    Labeller,
    LabellerSpec,
    Poll,
    SparseVector,
    TwoCoin,
)

SMALL: list[tuple[LabellerSpec, dict[str, Any], set[str]]] = [
    (Greedy.spec(), {"teachers": 4, "answers": 3}, {"polls"}),
    (Poll.spec(poll=1, flip=0.5), {}, set()),
    (TwoCoin.spec(steepness=1.5), {}, {"stateless", "polls"}),
    (Gaussian.spec(), {}, {"polls"}),
    (Bit.spec(), {}, {"polls"}),
    (Gumbel.spec(), {"classes": 3}, {"polls"}),
    (GNMax.spec(), {"classes": 2}, {"resume", "stateless", "polls"}),
    (Confident.spec(), {}, {"resume", "stateless", "polls"}),
    (SparseVector.spec(halts=1), {}, {"resume", "stateless", "polls"}),
    (Laplace.spec(), {}, {"polls"}),
]


def test_no_labeller_is_left_out() -> None:
    assert {spec.kind.name for spec, _, _ in SMALL} == {*NAMES, "laplace"}


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "size", "skipped"), SMALL, ids=[spec.kind.name for spec, _, _ in SMALL])
def test_labellers_conform(spec: LabellerSpec, size: dict[str, Any], skipped: set[str]) -> None:
    report = check_labeller(spec, **size)
    assert {each.name for each in report.checks if each.outcome == "skipped"} == skipped, str(report)
    assert not report.failed


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
def test_twins_are_rejected(twin: type[Laplace]) -> None:
    with pytest.raises(AssertionError) as caught:
        check_labeller(twin)
    assert TWINS[twin] in str(caught.value)


class Nameless(Labeller):
    """Declares no name."""

    def _label(self, counts: Any) -> Any:
        return counts[:, 0] * 0


@pytest.mark.parametrize("labeller", [Nameless, Nameless.spec()])
def test_a_labeller_without_a_name_is_rejected(labeller: Any) -> None:
    with pytest.raises(AssertionError) as caught:
        check_labeller(labeller)
    assert str(caught.value).startswith("labeller 'Nameless'\n")
    assert "failed   declarations: name must be a text, and Nameless declares none" in str(caught.value)


class FirstTeacher(Poll):
    """A twin: every poll is of the first teacher."""

    def draw_polls(self, questions: int) -> Any:
        return super().draw_polls(questions) * 0


def test_a_subclass_of_a_labeller_needs_a_name_of_its_own() -> None:
    with pytest.raises(AssertionError, match="failed   declarations: name must not be 'poll'"):
        check_labeller(FirstTeacher.spec(poll=1, flip=0.5), most_paths=1)


@pytest.mark.slow
def test_a_poll_of_one_teacher_is_rejected() -> None:
    with pytest.raises(AssertionError, match="failed   polls: answers to a poll and to all votes have other laws"):
        check_labeller(FirstTeacher.spec(poll=1, flip=0.5))


def test_what_cannot_be_walked_is_reported_as_skipped() -> None:
    report = check_labeller(Laplace, most_paths=1)
    skipped = {each.name: each.why for each in report.checks if each.outcome == "skipped"}
    assert skipped["rows"] == "the law of one answer takes more than most_paths=1"
    assert {"rows", "stateless", "resume"} <= set(skipped)
