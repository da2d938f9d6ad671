"""A conformance test for labellers, of this package or your own: declarations, count, copies, and exact laws."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import time
import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from reticent.audit.hockey_stick import exact
from reticent.audit.laws import Law, law
from reticent.audit.neighbours import Vector, count_vectors
from reticent.errors import BudgetExhausted
from reticent.exact import Number
from reticent.labellers import ABSTAINS, REGISTRY, Labeller, LabellerSpec, PollingLabeller, find
from reticent.labellers.base import OF_QUERIES
from reticent.labellers.registry import LabellerLike
from reticent.noise import Noise, Seeded
from reticent.privacy import accounting
from reticent.privacy.events import SeededRelease, is_seeded

Outcome = Literal["passed", "failed", "skipped"]

MOST_ASKED = 1000  # questions put to a labeller that closes by itself, to see whether it keeps count
ALIKE = 1e-9  # laws closer than this are equal, up to tails that were not walked
TAIL_BITS = 40
FORK_SECONDS = 600  # after which a forked process that was not refused is ended


@dataclass(frozen=True)
class Check:
    """One check of a labeller: its name, its outcome, and why it failed or was skipped."""

    name: str
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True)
class Conformance:
    """What `check_labeller` found, one check after the other."""

    labeller: str
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(each for each in self.checks if each.outcome == "failed")

    def __str__(self) -> str:
        lines = [f"{each.outcome:8} {each.name}{': ' if each.why else ''}{each.why}" for each in self.checks]
        return "\n".join([f"labeller {self.labeller!r}", *lines])


def check_labeller(
    labeller: LabellerLike,
    *,
    teachers: int = 3,
    classes: int = 2,
    epsilon: Number = 3,
    delta: Number = 0.05,
    answers: int = 2,
    most_paths: int = 5000,
) -> Conformance:
    """Test a labeller: what it declares, that it keeps to its budget, and its exact laws on neighbouring votes.

    Laws are found by running the real code on every outcome of its noise (see `law`). So keep the instance small: few
    teachers, few answers, and options that draw little noise. What cannot be walked is skipped, and the report says so;
    a skipped check has shown nothing. Checked are

    - *declarations*: there is a name, which no other labeller of this package has; the class attributes agree with
      the constructor and with each other;
    - *budget*: the event is within (ε, δ), and marked where the noise is not that of the operating system;
    - *votes*: malformed votes are refused, and not counted;
    - *count*: every answer counts, also to a repeated question, and a closed labeller refuses;
    - *copies*: it cannot be copied, pickled, or used in a forked process;
    - *resume*: an equal labeller continues at the same count, with the same law;
    - *rows*: answers to adaptive questions, and to a batch, are within (ε, δ) and within the event for all votes that
      differ in one teacher;
    - *stateless*: where declared, the answer to one question has the same law whatever another question was;
    - *polls*: a `PollingLabeller` counts answers to polls, which have the law of answers to all votes.

    What a labeller with a memory reveals of its questions (`query_share`) is not checked: it needs a proof, and a test
    of its own.

    Parameters
    ----------
    labeller : str, type[Labeller] or LabellerSpec
        What to test.
    teachers : int, default 3
        Number of teachers that vote.
    classes : int, default 2
        Number of classes they vote on.
    epsilon, delta : float or Fraction, default 3 and 0.05
        The budget. δ must be far above 2^-40, the share of the noise that is not walked.
    answers : int, default 2
        Number of questions, at least 2 for all checks.
    most_paths : int, default 5000
        Number of outcomes of the noise that are walked at most for one law.

    Returns
    -------
    Conformance
        The outcome of each check.

    Raises
    ------
    AssertionError
        If a check fails. The message is the report.

    >>> print(check_labeller("greedy"))
    labeller 'greedy'
    passed   declarations
    passed   budget
    passed   votes
    passed   count
    passed   copies
    passed   resume
    passed   rows
    passed   stateless
    skipped  polls: it asks all teachers
    """
    trial = _Trial(find(labeller), teachers, classes, Fraction(epsilon), Fraction(delta), answers, most_paths)
    checks = (
        ("declarations", trial.declarations),
        ("budget", trial.budget),
        ("votes", trial.votes),
        ("count", trial.count),
        ("copies", trial.copies),
        ("resume", trial.resume),
        ("rows", trial.rows),
        ("stateless", trial.stateless),
        ("polls", trial.polls),
    )
    report = Conformance(_name(trial.kind) or trial.kind.__name__, tuple(_run(name, check) for name, check in checks))
    if report.failed:
        raise AssertionError(str(report))
    return report


def _name(kind: type[Labeller]) -> str:
    """The name that a class declares; empty if there is none."""
    name = getattr(kind, "name", None)
    return name if isinstance(name, str) else ""


class _Skipped(Exception):
    """A check that does not apply, or cannot be carried out."""


def _run(name: str, check: Callable[[], None]) -> Check:
    try:
        check()
    except _Skipped as why:
        return Check(name, "skipped", str(why))
    except Exception as error:  # whatever a labeller of someone else's does
        kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        return Check(name, "failed", f"{kind}{error}")
    return Check(name, "passed")


def _expect(truth: bool, why: str) -> None:
    if not truth:
        raise AssertionError(why)


@dataclass
class _Trial:
    """The checks, and the labellers they make."""

    spec: LabellerSpec
    teachers: int
    classes: int
    epsilon: Fraction
    delta: Fraction
    answers: int
    most_paths: int

    @property
    def kind(self) -> type[Labeller]:
        return self.spec.kind

    def make(self, noise: Noise | None = None, *, answers: int | None = None, classes: int | None = None) -> Labeller:
        return self.spec.make(
            teachers=self.teachers,
            classes=self.classes if classes is None else classes,
            epsilon=self.epsilon,
            delta=self.delta,
            answers=self.answers if answers is None else answers,
            unsafe_noise=noise,
        )

    @property
    def split(self) -> Vector:
        """Votes on which the teachers are as evenly split as can be."""
        share, more = divmod(self.teachers, self.classes)
        return tuple(share + (each < more) for each in range(self.classes))

    # ── from outside ──────────────────────────────────────────────────────────────────────────────────────────────

    def declarations(self) -> None:
        kind = self.kind
        _expect(bool(_name(kind)), f"name must be a text, and {kind.__name__} declares none")
        same = REGISTRY.get(kind.name, kind)
        _expect(same is kind, f"name must not be {kind.name!r}, which is the name of {same.__name__} of this package")
        for one in ("several_classes", "counted", "closes_early", "abstains", "stateless", "resumable", "scales"):
            _expect(isinstance(getattr(kind, one), bool), f"{one} must be True or False")
        _expect(not (kind.stateless and kind.closes_early), "stateless must be False if votes decide when it closes")
        _expect(kind.counted or kind.closes_early, "closes_early must be True where no number of answers is set")
        if kind.query_share is not None:
            _expect(0 < kind.query_share < 1, "query_share must be in (0, 1)")
            lacking = set(OF_QUERIES) - set(kind.options())
            _expect(not lacking, f"query_share needs the options {', '.join(OF_QUERIES)}")
        _expect(copy.deepcopy(self.spec) == self.spec, "a specification must be equal to its copy")
        made = self.make()
        _expect((made.answers is not None) == kind.counted, "answers must be a number if, and only if, it is counted")
        if not kind.several_classes:
            _expect(_refuses(ValueError, lambda: self.make(classes=3)), "several_classes is False: refuse 3 classes")
        if not kind.abstains:
            for even in (True, False):
                found = made.expected_answers(self.answers, split=even)
                _expect(0 < found <= self.answers, "expected_answers must be from 1 to the answers asked for")

    def budget(self) -> None:
        plain, seeded = self.make(), self.make(Seeded(unsafe_seed=0))
        fits = accounting.fits(plain.event, epsilon=self.epsilon, delta=self.delta)
        _expect(fits, f"the event is not within epsilon={float(self.epsilon):g}, delta={float(self.delta):g}")
        _expect(not is_seeded(plain.event), "the event must not be marked where the noise is the operating system's")
        _expect(seeded.event == SeededRelease(plain.event), "unsafe_noise must mark the event, and change nothing else")

    def votes(self) -> None:
        made = self.make(Seeded(unsafe_seed=0))
        wrong: tuple[Any, ...] = (
            [[self.teachers + 1] + [0] * (self.classes - 1)],
            [[self.teachers] + [0] * self.classes],
            [[-1, self.teachers + 1] + [0] * (self.classes - 2)],
            [[0.5, self.teachers - 0.5] + [0] * (self.classes - 2)],
        )
        for votes in wrong:
            _expect(
                _refuses((TypeError, ValueError), lambda votes=votes: made.label(votes)),  # type: ignore[misc]
                "malformed votes must be refused",
            )
        _expect(made.asked == 0, "refused votes must not count")
        _expect(len(made.label(np.empty((0, self.classes), np.int64))) == 0, "no questions have no labels")
        _expect(made.asked == 0 and not made.closed, "no questions must cost nothing")

    def count(self) -> None:
        least = ABSTAINS if self.kind.abstains else 0
        for size in (1, MOST_ASKED):
            made, given = self.make(Seeded(unsafe_seed=1)), 0
            most = MOST_ASKED if made.answers is None else made.answers + 1
            while not made.closed and given < most:
                labels = made.label([self.split] * size)  # one question over and over: a repetition counts too
                given += len(labels)
                _expect(labels.dtype == np.int64 and bool(np.isin(labels, range(least, self.classes)).all()),
                        f"labels must be integers from {least} to {self.classes - 1}")  # fmt: skip
                _expect(made.asked == given, f"asked is {made.asked} after {given} labels: every answer must count")
                _expect(len(labels) == size or made.closed, "fewer labels than questions only if it is closed")
            if made.answers is not None:
                _expect(given <= made.answers, f"{given} labels were given, and answers is {made.answers}")
                _expect(self.kind.closes_early or given == made.answers, "all answers must be given")
                _expect(made.closed, "it must be closed once all answers are given")
            if made.closed:
                _expect(_refuses(BudgetExhausted, lambda made=made: made.label([self.split])),  # type: ignore[misc]
                        "a closed labeller must raise BudgetExhausted")  # fmt: skip
                _expect(made.asked == given, "a refused question must not count")

    def copies(self) -> None:
        made = self.make()
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            refused = _refuses(TypeError, lambda copied=copied: copied(made))  # type: ignore[misc]
            _expect(refused, f"{copied.__name__} must raise TypeError: two copies would spend one budget")
        if hasattr(os, "fork"):
            _expect(_refused_in_fork(made, [self.split]), "a forked process must be refused with RuntimeError")

    def resume(self) -> None:
        first = self.make(Seeded(unsafe_seed=2))
        if not self.kind.resumable:
            _expect(_refuses(NotImplementedError, first.state), "state must raise NotImplementedError")
            raise _Skipped("declared as not resumable")
        first.label([self.split])
        state = json.loads(json.dumps(first.state()))
        second = self.make()
        second.resume(state)
        same = all(getattr(first, one) == getattr(second, one) for one in ("asked", "answers_left", "closed"))
        _expect(same, "asked, answers_left and closed must be those of the labeller that was stopped")
        _expect(second.state() == state, "the state must be the same after resume")
        _expect(_refuses(ValueError, lambda: second.resume(state)), "resume must come before the first answer")
        asked = self.questions()
        if asked < 2:
            raise _Skipped(f"the count was checked; the law of 2 answers takes more than most_paths={self.most_paths}")

        def run(noise: Noise, *, broken: bool) -> Hashable:
            made = self.make(noise, answers=asked)
            labels = made.label([self.split]).tolist()
            if broken:
                state, made = made.state(), self.make(noise, answers=asked)
                made.resume(state)
            return tuple(labels), _label(made, self.split), made.closed

        whole, parts = (self.law(lambda noise, broken=broken: run(noise, broken=broken)) for broken in (False, True))  # type: ignore[misc]
        _expect(exact(whole, parts).delta(0)[0] < ALIKE, "answers must have the same law after resume")

    # ── exact laws ────────────────────────────────────────────────────────────────────────────────────────────────

    def law(self, run: Callable[[Noise], Hashable]) -> Law:
        return law(run, tail_bits=TAIL_BITS, most_paths=self.most_paths)

    def questions(self) -> int:
        """As many questions as can be walked, at most `answers`: 0 if not even one."""
        paths = 0

        def run(noise: Noise) -> Hashable:
            nonlocal paths
            paths += 1
            return _label(self.make(noise), self.split)

        try:
            self.law(run)
        except RuntimeError as error:
            if "most_paths" in str(error):
                return 0
            raise
        found, each = 1, max(1, paths // 2)  # every path is walked twice
        while found < self.answers and each ** (found + 1) <= self.most_paths:
            found += 1
        return found

    def rows(self) -> None:
        asked = self.questions()
        if asked == 0:
            raise _Skipped(f"the law of one answer takes more than most_paths={self.most_paths}")
        event = self.make(answers=asked).event
        shares = (Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(1))
        claimed = {at: accounting.delta(event, epsilon=at) for at in (share * self.epsilon for share in shares)}

        def adaptive(noise: Noise, votes: Vector) -> Hashable:
            """After the label 1 the next question is the mirrored one."""
            made = self.make(noise, answers=asked)
            found: list[int | None] = []
            for _ in range(asked):
                found.append(_label(made, votes[::-1] if found and found[-1] == 1 else votes))
            return tuple(found), made.closed

        def batch(noise: Noise, votes: Vector) -> Hashable:
            """Questions that are mirrored in turn: noise that they share would show."""
            made = self.make(noise, answers=asked)
            return tuple(made.label([votes[:: 1 - 2 * (each % 2)] for each in range(asked)]).tolist()), made.closed

        pairs = sorted(set(count_vectors(self.classes, self.teachers)))
        for kind, run in (("adaptive questions", adaptive), ("a batch", batch)):
            laws = {votes: self.law(lambda noise, votes=votes, run=run: run(noise, votes))  # type: ignore[misc]
                    for votes in {one for pair in pairs for one in pair}}  # fmt: skip
            for first, second in pairs:
                pair, where = exact(laws[first], laws[second]), f"{kind} with votes {first} and {second}"
                upper = pair.delta(self.epsilon)[1]
                _expect(upper <= self.delta, f"{where}: delta at epsilon={float(self.epsilon):g} is {upper:.3g}, "
                                             f"above {float(self.delta):g}")  # fmt: skip
                for at, most in claimed.items():
                    lower = pair.delta(at)[0]
                    _expect(lower <= most, f"{where}: delta at epsilon={float(at):g} is {lower:.3g}, and the event "
                                           f"says {most:.3g}")  # fmt: skip

    def stateless(self) -> None:
        if not self.kind.stateless:
            raise _Skipped("declared as not stateless")
        if self.questions() < 2:
            raise _Skipped(f"the law of 2 answers takes more than most_paths={self.most_paths}")
        for other in (self.split, (0,) * (self.classes - 1) + (self.teachers,)):
            for view in (self._one_by_one, self._together):
                laws = [self.law(lambda noise, votes=votes, other=other, view=view: view(noise, votes, other))  # type: ignore[misc]
                        for votes in self._all_votes()]  # fmt: skip
                far = max(exact(laws[0], each).delta(0)[0] for each in laws[1:])
                _expect(far < ALIKE, f"the answer to one question depends on another question, by {far:.3g}")

    def polls(self) -> None:
        made = self.make(Seeded(unsafe_seed=3))
        if not isinstance(made, PollingLabeller):
            raise _Skipped("it asks all teachers")
        given = 0
        while not made.closed and given <= MOST_ASKED:
            given += len(made.label_polls(self._polled(made, self.split, 2)))
            _expect(made.asked == given, f"asked is {made.asked} after {given} labels: every poll must count")
        _expect(made.answers is None or given == made.answers, "all answers must be given")
        if self.questions() == 0:
            raise _Skipped(f"the count was checked; the law of one answer takes more than most_paths={self.most_paths}")

        def asked(noise: Noise, votes: Vector) -> Hashable:
            polling = self.make(noise)
            assert isinstance(polling, PollingLabeller)
            return int(polling.label_polls(self._polled(polling, votes, 1))[0])

        for votes in self._all_votes():
            counted = self.law(lambda noise, votes=votes: _label(self.make(noise), votes))  # type: ignore[misc]
            polled = self.law(lambda noise, votes=votes: asked(noise, votes))  # type: ignore[misc]
            far = exact(counted, polled).delta(0)[0]
            _expect(far < ALIKE, f"answers to a poll and to all votes have other laws, by {far:.3g}")

    def _polled(self, made: PollingLabeller, votes: Vector, questions: int) -> Any:
        """The votes of the teachers that are drawn, where the first teachers vote for the first class, and so on."""
        return np.repeat(np.arange(self.classes), votes)[made.draw_polls(questions)]

    def _one_by_one(self, noise: Noise, question: Vector, other: Vector) -> Hashable:
        made = self.make(noise)
        made.label([question])
        return _label(made, other), made.answers_left, made.closed

    def _together(self, noise: Noise, question: Vector, other: Vector) -> Hashable:
        made = self.make(noise)
        return tuple(made.label([question, other]).tolist())[1:], made.answers_left, made.closed

    def _all_votes(self) -> Iterator[Vector]:
        yield from sorted({one for pair in count_vectors(self.classes, self.teachers) for one in pair})


def _label(made: Labeller, votes: Vector) -> int | None:
    """The label of one question; None where it is not answered."""
    found = [] if made.closed else made.label([votes]).tolist()
    return found[0] if found else None


def _refuses(kinds: type[Exception] | tuple[type[Exception], ...], call: Callable[[], object]) -> bool:
    try:
        call()
    except kinds:
        return True
    except Exception:  # another error than the one that is promised
        return False
    return False


def _refused_in_fork(made: Labeller, votes: list[Vector]) -> bool:
    """Whether a forked process is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: the child ends at once
        child = os.fork()
    if child == 0:
        refused = False
        try:
            refused = _refuses(RuntimeError, lambda: made.label(votes))
        finally:
            os._exit(0 if refused else 1)
    for _ in range(FORK_SECONDS * 100):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)  # it waits for a lock that the fork left locked: no refusal
    os.waitpid(child, 0)
    return False
