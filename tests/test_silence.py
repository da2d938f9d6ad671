"""Private work gives no warnings, in any thread or process, and its log reaches nobody but the data holder."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import joblib
import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import BaggingClassifier, GradientBoostingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from reticent import PrivacyWarning, Teachers
from reticent.silence import holders_log, silent
from reticent.teachers.models import seeded

Array = NDArray[Any]


def complain() -> None:
    """Give a warning as Python does, and one as NumPy does."""
    warnings.warn("a row is odd", stacklevel=1)
    np.float64(1e308) * np.array([10.0])


@contextlib.contextmanager
def recorded(action: Any = "always") -> Iterator[list[str]]:
    """What is warned of, with filters that were set before."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(action)
        yield told
    told += [str(one.message) for one in found]


@pytest.mark.parametrize("action", ["error", "always", "default", "once"])
def test_nothing_is_said_in_private_work(action: str) -> None:
    with recorded(action) as told, silent():
        complain()
    assert told == []


@pytest.mark.parametrize("action", ["error", "always"])
def test_filters_that_are_set_between_two_works_change_nothing(action: Any) -> None:
    with recorded() as told:
        with silent():
            complain()
        warnings.simplefilter(action)  # from now on before the filter of the first work
        with silent():
            complain()
    assert told == []


def test_filters_that_are_set_inside_of_private_work_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with recorded() as told:
        with silent():
            for action in ("always", "default"):
                with warnings.catch_warnings():
                    warnings.simplefilter(action)
                    complain()
            with warnings.catch_warnings(record=True):  # kept by the one who asked, and seen by nobody else
                warnings.simplefilter("always")
                complain()
        complain()
    assert len(told) == 2  # those of the end
    assert capsys.readouterr().err == ""


def test_whoever_shows_warnings_is_asked_outside_of_private_work_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    with warnings.catch_warnings():
        monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: shown.append(str(message)))
        with silent(), warnings.catch_warnings():
            warnings.simplefilter("always")
            complain()
        warnings.simplefilter("always")
        warnings.warn("something public", stacklevel=1)
    assert shown == ["something public"]


def test_other_work_is_heard_before_between_and_after() -> None:
    with recorded() as told:
        for _ in range(2):
            complain()
            with silent():
                complain()
                with silent():
                    complain()
                complain()
        complain()
    assert len(told) == 6


def test_an_error_ends_the_silence() -> None:
    with recorded() as told:
        with pytest.raises(ZeroDivisionError), silent():
            raise ZeroDivisionError
        complain()
    assert len(told) == 2


def test_what_follows_from_public_numbers_is_said() -> None:
    with silent(), pytest.warns(PrivacyWarning, match="public"):
        warnings.warn("public", PrivacyWarning, stacklevel=1)


def test_as_a_decorator_it_can_be_entered_again() -> None:
    @silent()
    def work(depth: int) -> int:
        complain()
        return 0 if depth == 0 else 1 + work(depth - 1)

    with recorded() as told:
        assert work(3) == 3
    assert told == []
    assert work.__name__ == "work"


# ── threads and processes ─────────────────────────────────────────────────────────────────────────────────────────


def side_by_side(work: Callable[[Callable[[], None]], None]) -> list[str]:
    """What is said if a thread does private work, and the main thread warns of something in the middle of it."""
    begun, said = threading.Event(), threading.Event()

    def middle() -> None:
        begun.set()
        said.wait()
        complain()

    with recorded() as told:
        thread = threading.Thread(target=work, args=(middle,))
        thread.start()
        begun.wait()
        warnings.warn("something public", stacklevel=1)
        said.set()
        thread.join()
    return told


def test_a_thread_is_silent_and_the_main_thread_is_heard() -> None:
    def work(middle: Callable[[], None]) -> None:
        with silent():
            middle()

    assert side_by_side(work) == ["something public"]


def test_the_twins_that_swap_filters_are_told_apart() -> None:
    """`catch_warnings` in a thread silences all of them; left to the main thread, as it was, it silences none."""

    def swapping(middle: Callable[[], None]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            middle()

    def as_it_was(middle: Callable[[], None]) -> None:
        middle()

    assert side_by_side(swapping) == []
    assert len(side_by_side(as_it_was)) == 3


def test_threads_that_private_work_starts_are_silent() -> None:
    def work() -> None:
        thread = threading.Thread(target=complain)
        thread.start()
        thread.join()

    with recorded() as told, silent():
        work()
    assert told == []
    with recorded() as told:
        work()
    assert len(told) == 2


def test_two_threads_that_end_in_either_order_leave_nothing_behind() -> None:
    for last in (0, 1):
        ends = [threading.Event(), threading.Event()]
        together = threading.Barrier(3)

        def work(end: threading.Event, together: threading.Barrier = together) -> None:
            with silent():
                together.wait()
                end.wait()
                complain()

        with recorded() as told:
            threads = [threading.Thread(target=work, args=(end,)) for end in ends]
            for thread in threads:
                thread.start()
            together.wait()
            for place in (1 - last, last):
                ends[place].set()
                threads[place].join()
            complain()
        assert len(told) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_is_in_no_private_work_but_that_of_the_thread_that_forked_it() -> None:
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        with silent():
            begun.set()
            over.wait()

    def heard(inside: contextlib.AbstractContextManager[None]) -> int:
        """How many warnings a thread of a child gives."""
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            with inside:
                child = os.fork()
                if child == 0:
                    thread = threading.Thread(target=complain)
                    thread.start()
                    thread.join()
                    os._exit(len(found))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    found = heard(contextlib.nullcontext()), heard(silent())
    over.set()
    thread.join()
    assert found == (2, 0)


class Complaining(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Warns of whatever it is given."""

    def fit(self, X: Array, y: Array) -> Complaining:
        complain()
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Array) -> Array:
        complain()
        return np.full(len(X), self.classes_[0])


X = np.arange(40.0)[:, None]
Y = np.arange(40) // 4 % 2


@pytest.mark.parametrize("backend", ["threading", "sequential"])
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_teachers_are_silent_in_threads(backend: str, n_jobs: int | None) -> None:
    with recorded("error") as told, joblib.parallel_config(backend):
        inner = BaggingClassifier(Complaining(), n_estimators=2, n_jobs=n_jobs)
        teachers = Teachers(inner, shards=4, classes=(0, 1), n_jobs=n_jobs).fit(X, Y)
        assert teachers.votes(X[:3]).tolist() == [[4, 0]] * 3  # none of them failed
    assert told == []


@pytest.mark.slow
@pytest.mark.parametrize("which", ["teachers", "inside of a teacher"])
def test_teachers_are_silent_in_processes(which: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Also in processes that a teacher starts: scikit-learn hands its filters on to them."""
    with recorded("always") as told, joblib.parallel_config("loky"):
        outer, inner = (2, None) if which == "teachers" else (None, 2)
        estimator = BaggingClassifier(Complaining(), n_estimators=2, n_jobs=inner)
        teachers = Teachers(estimator, shards=2, classes=(0, 1), n_jobs=outer).fit(X, Y)
        assert teachers.votes(X[:3]).tolist() == [[2, 0]] * 3
    assert told == []
    assert capfd.readouterr().err == ""


def test_a_filter_that_is_sent_to_a_process_silences_all() -> None:
    with recorded(), silent():
        sent = pickle.loads(pickle.dumps(warnings.filters[0]))
    assert sent == ("ignore", None, Warning, None, 0)


VERBOSE = {
    "network": MLPClassifier(verbose=True, max_iter=2),
    "descent": SGDClassifier(verbose=1, max_iter=2),
    "boosting": GradientBoostingClassifier(verbose=1, n_estimators=2),
    "vectors": SVC(verbose=True),
    "pipeline": Pipeline([("scale", StandardScaler()), ("net", MLPClassifier(verbose=True, max_iter=2))], verbose=True),
    "search": GridSearchCV(SGDClassifier(verbose=1), {"max_iter": [2]}, cv=2, verbose=3),
    "numpy": SVC(verbose=np.True_),
}


@pytest.mark.parametrize("estimator", VERBOSE.values(), ids=VERBOSE)
def test_verbose_teachers_print_nothing(estimator: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Native code writes to the file descriptor, so that is what is watched."""
    X, y = np.arange(80.0)[:, None], np.arange(80) // 4 % 2
    assert Teachers(estimator, shards=4, classes=(0, 1)).fit(X, y).votes(X[:3]).sum(axis=1).tolist() == [4, 4, 4]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("given", [-1, 0, False])
def test_verbose_that_is_off_stays_as_it_is(given: object) -> None:
    assert seeded(SGDClassifier(verbose=given), 0).get_params()["verbose"] is given


# ── the log ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_log_about_private_data_reaches_those_who_ask_for_it(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    log = holders_log("reticent.test_silence")
    with caplog.at_level(1):
        log.warning("three teachers failed")
    assert caplog.records == []
    assert capsys.readouterr().err == ""
    log.addHandler(caplog.handler)
    try:
        log.warning("three teachers failed")
    finally:
        log.removeHandler(caplog.handler)
    assert caplog.messages == ["three teachers failed"]


def test_an_ordinary_logger_is_a_twin_that_is_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(1):
        logging.getLogger("reticent.twin").warning("three teachers failed")
    assert caplog.messages == ["three teachers failed"]
