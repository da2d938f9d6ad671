"""Everything that is guarded, how it is made and used; and what happens to it in forked processes, tried for real.

Run as a script, in a process without threads of its own: `python forks.py FOLDER [NAME …]` prints a line of JSON for
every name, with all that a forked process was wrongly allowed. `--blind` takes the check out of the guard first.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from reticent import labellers, mechanisms
from reticent.audit.predictor_states import PredictorStates
from reticent.concepts import Thresholds
from reticent.data.rows import RowStore
from reticent.labellers.base import TableLabeller
from reticent.learners import PrivateLogisticRegression
from reticent.noise import Noise
from reticent.predictors import EverlastingPredictor, GenericBBL, PrivatePredictor
from reticent.predictors.bbl_phases import BBLPhase
from reticent.privacy import Guarantee, Ledger, MemoryLedgerStore, guard
from reticent.privacy.events import PureDP, RenyiDP
from reticent.service.answering import AnsweringService
from reticent.service.datasets.fingerprint import Fingerprint
from reticent.service.datasets.records import RecordLog
from reticent.service.datasets.registry import Registry
from reticent.service.home import Home
from reticent.service.keys import KeyTable, make_key
from reticent.service.labels import FeedbackRequest, LabelledRequest
from reticent.service.requests import Request, digest
from reticent.service.store.later_labels import LabelledTransaction, SlotLabel, TaughtPart
from reticent.service.store.protocol import Entry, OpenedPhase, Transaction
from reticent.service.store.sqlite import SQLiteStore
from reticent.service.store.verification import verify
from waiting import LIMIT

BUDGET: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
TEACHERS: dict[str, Any] = {"teachers": 1000, **BUDGET}
TORN, CLEAR = np.array([[500, 500]]), np.array([[10, 990]])
X = np.linspace(0, 1, 4000)[:, None]
Y = (X[:, 0] < 0.5).astype(np.int64)
Use = Callable[[Any, Any], Any]


def whole_state(thing: Any) -> Hashable:
    """A hash of all that an object holds, however deep; its guards are left out."""
    return PredictorStates().keep(thing, Noise())


@dataclass(frozen=True)
class Recipe:
    """How to make an object, how to use it, and on which data; `open` is what a forked process may still read."""

    make: Callable[[Path], Any]
    uses: dict[str, tuple[Use, Any]]
    open: tuple[str, ...] = ()
    look: Callable[[Any], Hashable] = whole_state
    counts: bool = True  # whether the uses change what it holds


def call(name: str, *more: Any) -> Use:
    return lambda thing, data: getattr(thing, name)(data, *more)


def bare(name: str) -> Use:
    """A method without an argument that it could look at."""
    return lambda thing, data: getattr(thing, name)()


def read(name: str) -> Use:
    return lambda thing, data: getattr(thing, name)


# Of a labeller's class, or of public numbers alone: they neither draw nor count.
DECLARED = (
    "takes", "protects_queries", "options", "spec", "is_compared", "is_automatic", "offers",
    "answers_left", "closed", "accuracy", "chances", "expected_answers",
)  # fmt: skip


def labeller(make: Callable[[], Any], votes: Any = CLEAR, **more: Any) -> Recipe:
    made = make()
    kept = {"state": (bare("state"), None), "resume": (call("resume"), {"asked": 0, **more.pop("secrets", {})})}
    return Recipe(
        lambda _: make(),
        {**(kept if made.resumable else {}), "label": (call("label"), votes), **more.pop("uses", {})},
        (*DECLARED, *more.pop("open", ()), *(() if made.resumable else kept)),
    )


def everlasting(**options: Any) -> EverlastingPredictor:
    given: dict[str, Any] = {"learner": Thresholds(), "epsilon": 8, "delta": 1e-5, "classes": (0, 1), **options}
    return EverlastingPredictor(**given).fit(X, Y)


def everlasting_recipe(**options: Any) -> Recipe:
    nothing: dict[str, Any] = {"asked": 0, "answered": 0, "closed": False, "labeller": {"asked": 0}}
    return Recipe(
        lambda folder: everlasting(folder=folder, **options),
        {
            "clock": (bare("clock"), None),
            "replay": (call("replay", nothing), []),
            "add_unlabelled": (call("add_unlabelled"), X[:3]),
            "add_labelled": (call("add_labelled", [0, 1, 1]), X[:3]),
            "withdraw_labelled": (call("withdraw_labelled"), [0]),
            "feedback": (call("feedback", [1]), ["0" * 32]),
            "predict": (call("predict"), X[:3]),
            "answer": (call("answer"), X[:3]),
            "probabilities": (call("probabilities"), X[:3]),
            "turn_over": (bare("turn_over"), None),
            "save": (lambda thing, data: thing.save(Path(thing.folder) / "state"), None),
        },
        (
            "fit", "fit_with_noise", "load", "learned", "learn_elsewhere", "phase", "phase_", "event_",
            "answers_left_in_phase_", "answered_", "rows_gathered_", "client_cap_", "rows_of_client", "one_answer_",
            "learning_", "drift_", "comparison_", "spent_besides_", "quality_", "alarms_", "alarm_since_", "models_",
            "labelled_waiting_", "phase_rows_", "labelled_from_", "open_slots_", "takes_feedback_", "takes_labelled_",
            "learns_from_queries_", "dtype_", "engine_", "closes_early_", "model_", "no_probabilities_",
            "wait_until_learned",
        ),
    )  # fmt: skip


def bbl(**options: Any) -> GenericBBL:
    phase = BBLPhase(teachers=100, shard=10, answers=50, vote_delta=1e-6, **options.pop("votes"))
    given: dict[str, Any] = {"epsilon": 9, "delta": 1e-6, "phases": [phase], **options}
    return GenericBBL(Thresholds(), **given).fit(X[:1000], Y[:1000])


def bbl_recipe(**options: Any) -> Recipe:
    return Recipe(
        lambda _: bbl(**{**options, "votes": dict(options["votes"])}),
        {"predict": (call("predict"), X[:3]), "answer": (call("answer"), X[:3])},
        (
            "fit", "fit_with_noise", "n_required", "check_parameters", "check_size", "phase_", "phase_number_",
            "answers_left_in_phase_",
        ),
    )


def private_recipe(**options: Any) -> Recipe:
    given: dict[str, Any] = {"epsilon": 1, "queries": 9, **options}
    return Recipe(
        lambda _: PrivatePredictor(Thresholds(), **given).fit(X, Y),
        {"predict": (call("predict"), X[:2])},
        ("fit", "fit_with_noise", "setup", "n_required", "check_size", "queries_left_"),
    )


def rows_recipe(**options: Any) -> Recipe:
    def append(thing: Any, data: Any) -> None:
        thing.append(data, np.zeros(2, dtype=np.int64))

    return Recipe(
        lambda folder: RowStore(10, 1, dtype=np.float64, classes=2, folder=folder, **options),
        {
            "append": (append, np.zeros((2, 1))),
            "rows": (bare("rows"), None),
            "erase": (call("erase"), [0]),
            "take_back": (call("take_back"), 0),
            "delete": (bare("delete"), None),
        },
        ("release",),
        look=len,
    )


def home_of(folder: Path) -> Home:
    place = folder / "home"
    return Home(place) if place.exists() else Home.create(place, everlasting(), 'name = "home"\n')


def stored(thing: Any) -> Hashable:
    """What is on the disk, read by a connection of its own."""
    store = thing if isinstance(thing, SQLiteStore) else thing.store if isinstance(thing, Home) else thing.home.store
    found = verify(store.path)
    return found.length, found.head, tuple(sorted(one.name for one in store.path.parent.glob("phase-*")))


def entry(thing: SQLiteStore) -> Transaction:
    phase = thing.position.phase
    return Transaction(time=1, phase=phase, entries=[Entry("ann", 0, phase, 0)])


def lesson(thing: SQLiteStore) -> LabelledTransaction:
    part = TaughtPart(thing.position.labelled, bytes(8), bytes(4))
    return LabelledTransaction(time=1, phase=thing.position.phase, client="ann", part=part, count=1)


def next_phase(thing: SQLiteStore) -> OpenedPhase:
    return OpenedPhase(thing.position.phase + 1, 1, 1, "{}", "seal")


def asked(rows: int = 2) -> list[Request]:
    return [Request("ann", X[:rows].copy(), None, digest(b""))]


RECIPES: dict[str, Recipe] = {
    "AboveThreshold": Recipe(
        lambda _: mechanisms.AboveThreshold(0, epsilon=1, halts=9),
        {"ask": (call("ask"), 10**6), "state": (bare("state"), None), "resume": (call("resume"), [9, -1, 0])},
        ("halts_left", "refuse_if_closed"),
    ),
    "BetweenThresholds": Recipe(
        lambda _: mechanisms.BetweenThresholds(-1000, 1000, **BUDGET, halts=9),
        {"ask": (call("ask"), 0), "state": (bare("state"), None), "resume": (call("resume"), [9, -1, 0])},
        ("halts_left", "refuse_if_closed"),
    ),
    "mechanisms.StableMajority": Recipe(
        lambda _: mechanisms.StableMajority(**BUDGET, halts=9),
        {"ask": (call("ask", 1000), 500), "ask_counts": (call("ask_counts"), [500, 500])},
        ("halts_left",),
    ),
    "ConfidentGNMax": Recipe(
        lambda _: mechanisms.ConfidentGNMax(threshold=700, sigma_threshold=40, sigma_answer=20, queries=9, answers=9),
        {"ask": (call("ask"), [10, 990])},
        ("queries_left", "answers_left"),
    ),
    "Greedy": labeller(lambda: labellers.Greedy(**TEACHERS, answers=9)),
    "TableLabeller": labeller(
        lambda: TableLabeller(
            labellers.greedy_table(1000, order=2, divergence=1), event=RenyiDP(Fraction(2), Fraction(1)), answers=9
        )
    ),
    "Poll": labeller(
        lambda: labellers.Poll(**TEACHERS, answers=9),
        uses={"draw_polls": (call("draw_polls"), 1), "label_polls": (call("label_polls"), [[1] * 7])},
    ),
    "TwoCoin": labeller(
        lambda: labellers.TwoCoin(**{**TEACHERS, "epsilon": 4}, query_epsilon=1, query_delta=1e-6),
        TORN,
        secrets={"used": 0, "closed": False, "threshold": 0},
        open=("expected_hits",),
    ),
    "Gaussian": labeller(lambda: labellers.Gaussian(**TEACHERS, answers=9)),
    "Bit": labeller(lambda: labellers.Bit(**TEACHERS, answers=9)),
    "GNMax": labeller(lambda: labellers.GNMax(**TEACHERS, answers=9), open=("answer_event", "sigma")),
    "Gumbel": labeller(lambda: labellers.Gumbel(**TEACHERS, answers=9), open=("answer_event", "rate")),
    "Confident": labeller(lambda: labellers.Confident(**TEACHERS, answers=9)),
    "labellers.SparseVector": labeller(lambda: labellers.SparseVector(**TEACHERS, halts=9), TORN),
    "Ledger": Recipe(
        lambda _: Ledger(Guarantee(epsilon=1.0)),
        {
            "charge": (call("charge"), PureDP(Fraction(1, 10))),
            "remaining": (call("remaining"), PureDP(Fraction(1, 10))),
            "events": (read("events"), None),
            "spent": (read("spent"), None),
        },
        ("accounting",),
        look=lambda thing: str(thing._store._counts),
    ),
    "MemoryLedgerStore": Recipe(
        lambda _: MemoryLedgerStore(),
        {
            "transaction": (bare("transaction"), None),
            "terms": (bare("terms"), None),
            "agree": (call("agree"), "terms"),
            "counts": (bare("counts"), None),
            "append": (call("append", 1), "event"),
        },
        look=lambda thing: (thing._terms is None, sum(thing._counts.values())),
    ),
    "PrivatePredictor": private_recipe(),
    "PrivatePredictor flip": private_recipe(method="flip"),
    "PrivatePredictor net": private_recipe(method="net", epsilon=30, queries=3),
    "GenericBBL": bbl_recipe(labeller="gaussian", votes={"vote_epsilon": 8}),
    "GenericBBL between": bbl_recipe(votes={"vote_epsilon": 8, "halts": 5, "band": 60}),
    "EverlastingPredictor": everlasting_recipe(),
    "EverlastingPredictor trusted": everlasting_recipe(training_stream="trusted"),
    "EverlastingPredictor chain": everlasting_recipe(
        learner=PrivateLogisticRegression(epsilon=8, delta=1e-5, row_norm=1)
    ),
    "EverlastingPredictor truth": everlasting_recipe(
        learner=PrivateLogisticRegression(epsilon=8, delta=1e-5, row_norm=1), truth="both", phase_rows=50
    ),
    "RowStore": rows_recipe(),
    "RowStore on disk": rows_recipe(memory_limit=0),
    "SQLiteStore": Recipe(
        lambda folder: home_of(folder).store,
        {
            "write": (lambda thing, data: thing.write(entry(thing)), None),
            "mark": (lambda thing, data: thing.mark("noted", time=1), None),
            "begin_phase": (lambda thing, data: thing.begin_phase(next_phase(thing), time=1), None),
            "delete_expired": (call("delete_expired"), 1),
            "wipe": (bare("wipe"), None),
            "refresh": (bare("refresh"), None),
            "stored_answer": (call("stored_answer", "key", 1), "ann"),
            "unfinished_requests": (bare("unfinished_requests"), None),
            "journal": (lambda thing, data: list(thing.journal()), None),
            "write_labelled": (lambda thing, data: thing.write_labelled(lesson(thing)), None),
            "withdraw_labelled": (
                lambda thing, data: thing.withdraw_labelled("ann", [0], phase=thing.position.phase, time=1), None,
            ),
            "write_labels": (call("write_labels"), [SlotLabel(bytes(16), "ann", 0)]),
            "slot_labels": (bare("slot_labels"), None),
            "stored_receipt": (call("stored_receipt", "key", 1), "ann"),
            "labelled_since": (call("labelled_since"), 0),
            "clients": (bare("clients"), None),
            "tail": (call("tail"), 1),
            "phases": (call("phases"), 1),
        },
        ("create", "close", "verify"),
        look=stored,
    ),
    "Home": Recipe(
        home_of,
        {"wipe": (bare("wipe"), None)},
        ("create", "close", "state", "next_rows", "may_lack_answers"),
        look=stored,
        counts=False,
    ),
    "AnsweringService": Recipe(
        lambda folder: AnsweringService(home_of(folder), elsewhere=False),
        {
            "answer": (call("answer"), asked()),
            "maintain": (bare("maintain"), None),
            "add_labelled": (call("add_labelled"), LabelledRequest("ann", X[:1], np.zeros(1, int), None, None, b"")),
            "withdraw_labelled": (call("withdraw_labelled", [0]), "ann"),
            "feedback": (call("feedback"), [FeedbackRequest("ann", np.zeros(1, int), ["0" * 32])]),
            "taught": (call("taught"), 0),
        },
        (
            "columns",
            "no_probabilities",
            "classes",
            "status",
            "clients",
            "charged",
            "added",
            "tail",
            "verify",
            "needs_maintenance",
            "interrupt",
            "wait_until_learned",
            "close",
        ),
        look=stored,
    ),
    "RecordLog": Recipe(
        lambda folder: RecordLog.create(folder / "records.sqlite", {}),
        {
            "append": (lambda thing, data: thing.append([{"name": "a"}], time=1), None),
            "verify": (bare("verify"), None),
        },
        ("create", "close"),
        look=lambda thing: len(thing.rows),
    ),
    "Registry": Recipe(
        lambda folder: Registry(folder / "data", create=True),
        {
            "add": (lambda thing, data: thing.add("patients", epsilon=1), None),
            "charge": (
                lambda thing, data: thing.charge(data, purpose="fit", epsilon=1, delta=0), Fingerprint(1, "a", ("a",)),
            ),
            "raise_cap": (lambda thing, data: thing.raise_cap("patients", epsilon=2), None),
            "verify": (bare("verify"), None),
        },
        ("named", "known", "with_same_columns", "close"),
        look=lambda thing: len(thing._log.rows),
    ),
    "KeyTable": Recipe(
        lambda folder: KeyTable(folder / "keys.sqlite"),
        {
            "add": (call("add"), make_key("one", ["ask"])[1]),
            "change": (lambda thing, data: thing.change("one", quota=3), None),
            "rotate": (lambda thing, data: thing.rotate("one"), None),
            "revoke": (lambda thing, data: thing.revoke("one"), None),
            "all": (bare("all"), None),
            "version": (bare("version"), None),
        },
        ("close",),
        look=lambda thing: thing._connection.total_changes,
    ),
}


# ── what a forked process may do ──────────────────────────────────────────────────────────────────────────────────


class Touched(BaseException):
    """Someone looked at data."""


class Untouchable:
    """Data that tell when anybody looks at them."""

    def __getattribute__(self, name: str) -> Any:
        raise Touched(name)

    def _touched(self, *_: Any) -> Any:
        raise Touched

    __array__ = __bool__ = __eq__ = __float__ = __getitem__ = __index__ = __int__ = __iter__ = __len__ = _touched
    __hash__ = _touched


class Counted:
    """`os.urandom` with a count of its calls: no noise is drawn without it."""

    def __init__(self) -> None:
        self.calls, self._real = 0, os.urandom

    def __call__(self, count: int) -> bytes:
        self.calls += 1
        return self._real(count)


def refusals(thing: Any, recipe: Recipe, noise: Counted) -> list[str]:
    """What a process that may do nothing with a thing could do all the same."""
    wrong = []
    for name, (use, data) in recipe.uses.items():
        for argument in (Untouchable(), data):
            before = recipe.look(thing), noise.calls
            try:
                use(thing, argument)
            except RuntimeError as error:
                if "forked process" not in str(error):
                    wrong.append(f"{name}: {error!r}")
            except Touched:
                wrong.append(f"{name} looked at the data")
            except BaseException as error:
                wrong.append(f"{name}: {error!r}")
            else:
                wrong.append(f"{name} was allowed")
            if (recipe.look(thing), noise.calls) != before:
                wrong.append(f"{name} changed something, or drew noise")
    return wrong


def in_fork(run: Callable[[], list[str]]) -> list[str]:
    """What `run` returns in a forked process."""
    receiver, sender = os.pipe()
    if not (child := os.fork()):
        signal.setitimer(signal.ITIMER_REAL, LIMIT)  # the end of one that hangs
        try:
            os.write(sender, json.dumps(run()).encode())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        told = pipe.read()
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        return ["the forked process did not come to its end"]
    return [str(one) for one in json.loads(told)]


def in_thread(run: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run()))
    thread.start()
    thread.join()
    return found[0]


def as_if_ids_came_again(run: Callable[[], list[str]], parent: int) -> list[str]:
    """In a process whose id is that of the parent: the parent is gone, say, and its id was given out again."""
    os.getpid = lambda: parent
    return run()


def as_if_python_knew_nothing(run: Callable[[], list[str]], forks: int) -> list[str]:
    """In a process that a library forked: Python did not count it."""
    guard._forks = forks
    return run()


def with_the_lock_taken(thing: Any, run: Callable[[], list[str]]) -> list[str]:
    """Fork while another thread is using the thing: in the child its lock is taken for ever."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with thing._guard.claim():
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        return in_fork(run)
    finally:
        done.set()
        thread.join()


def in_multiprocessing(run: Callable[[], list[str]]) -> list[str]:
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=lambda: queue.put(run()))
    process.start()
    process.join()
    return ["the process did not come to its end"] if process.exitcode else list(queue.get())


def faults(name: str, folder: Path, noise: Counted, *, blinded: bool) -> dict[str, list[str]]:
    """All that is wrong with one recipe, by the way in which a process came about."""
    recipe = RECIPES[name]
    folder.mkdir()
    thing = recipe.make(folder)

    def run() -> list[str]:
        return refusals(thing, recipe, noise)

    parent, forks = os.getpid(), guard._forks
    if blinded:
        return {"child": in_fork(run)}
    found = {
        "child": in_fork(run),
        "grandchild": in_fork(lambda: in_fork(run)),
        "fork by a thread": in_thread(lambda: in_fork(run)),
        "fork by multiprocessing": in_multiprocessing(run),
        "fork with the lock taken": with_the_lock_taken(thing, run),
        "id used again": in_fork(lambda: as_if_ids_came_again(run, parent)),
        "fork unknown to Python": in_fork(lambda: as_if_python_knew_nothing(run, forks)),
    }
    return {**found, "parent": goes_on(thing, recipe)}


def goes_on(thing: Any, recipe: Recipe) -> list[str]:
    """What is wrong in the process that made the thing: it must go on, and its use must count."""
    wrong, before, counted = [], recipe.look(thing), False
    for name, (use, data) in recipe.uses.items():
        try:
            use(thing, data)
        except (ValueError, LookupError, OSError, RuntimeError) as error:
            if "forked process" in str(error):
                wrong.append(f"{name} was refused")
        counted = counted or recipe.look(thing) != before
    if recipe.counts and not counted:
        wrong.append("nothing was counted")
    if isinstance(thing, (AnsweringService, Home, SQLiteStore)):
        wrong += [] if stored(thing) else ["the store is damaged"]
        thing.close()
    return wrong


def blind() -> None:
    """The twin: a guard that sees no fork."""
    guard.Guard.elsewhere = False  # type: ignore[method-assign,assignment]
    guard.Guard.check = lambda self: None  # type: ignore[method-assign]


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of forks beside threads
    place, names = Path(sys.argv[1]), [one for one in sys.argv[2:] if one != "--blind"]
    os.urandom = counted = Counted()
    if without := "--blind" in sys.argv:
        blind()
    for number, one in enumerate(names or RECIPES):
        print(json.dumps([one, faults(one, place / str(number), counted, blinded=without)]), flush=True)
