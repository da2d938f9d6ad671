"""Makes the files of an older version that today's code must still open. Run it with the version that is to be kept:

    git worktree add ../0.1.0 184635a
    PYTHONPATH=../0.1.0/src python tests/compatibility/make.py tests/compatibility/0.1.0.tar.xz

The archive holds saved states, folders of predictors, backups and key files, and `expected.json`: what each of them
knew, in words and labels, never in codes. Classes are in an order that is not sorted throughout, so that an index into
them that is read with another order in mind gives wrong labels. All rows and keys are made up.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from reticent import cli
from reticent.concepts import Thresholds
from reticent.learners.logistic import PrivateLogisticRegression
from reticent.learners.thresholds import ThresholdLearner
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.service import backup
from reticent.service.answering import AnsweringService
from reticent.service.home import KEYS, Home
from reticent.service.keys import KeyTable, make_key
from reticent.service.requests import Answered, Request, digest
from reticent.service.store import schema, verification

Array = NDArray[Any]

TWO, THREE = ("yes", "no"), ("mid", "low", "high")  # neither is sorted
MODEL = 'name = "clinic"\n'
NOW = 1_700_000_000  # seconds since 1970, by the clock of all that is asked by `asked`
SCHEMA = """\
target = "ill"
classes = ["yes", "no"]

[[columns]]
name = "age"
range = [0, 100]

[[columns]]
name = "ward"
categories = ["b", "a"]
"""


# ── rows and their true labels ────────────────────────────────────────────────────────────────────────────────────


def column(rows: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).random((rows, 1))


def two(X: Array) -> Array:
    return np.where(X[:, 0] < 0.5, "no", "yes")  # thresholds give code 1, here "no", below


def three(X: Array) -> Array:
    return np.where(X[:, 0] < 1 / 3, "low", np.where(X[:, 0] < 2 / 3, "mid", "high"))


# ── saved states ──────────────────────────────────────────────────────────────────────────────────────────────────


def states(folder: Path) -> dict[str, Any]:
    """Predictors that were saved: by labeller, by kind of teacher, with groups, as a chain; some after a phase."""
    sure: dict[str, Any] = {"epsilon": 40, "delta": 1e-5, "client_share": 1, "rows_per_teacher": 10}
    X, known = column(600), {}

    def saved(name: str, model: EverlastingPredictor, ask: Array, clients: Any = None, **how: Any) -> None:
        told = model.predict(ask, clients)
        model.save(folder / f"{name}.state")
        known[name] = described(model, **how) | {"answers": told.tolist()}

    for labeller in ("greedy", "poll", "gaussian", "bit", "two-coin"):
        many: Any = 300 if labeller == "bit" else "endless"  # its noise takes long to find for more
        model = EverlastingPredictor(Thresholds(), classes=TWO, labeller=labeller, answers=many, **sure)
        saved(labeller, model.fit(X, two(X)), column(150, seed=1))
    model = EverlastingPredictor(Thresholds(), classes=TWO, labeller="two-coin", **sure).fit(X, two(X))
    saved("two-coin-second-phase", model, column(1300, seed=2))
    for labeller in ("gnmax", "gumbel"):
        tree = DecisionTreeClassifier(random_state=0)
        model = EverlastingPredictor(tree, classes=THREE, labeller=labeller, **sure).fit(X, three(X))
        saved(labeller, model, column(150, seed=1))
    model = EverlastingPredictor(classes=TWO, **sure).fit(X, two(X))
    saved("linear-second-phase", model, column(1300, seed=2))
    model = EverlastingPredictor(LogisticRegression(C=100), classes=TWO, answers=200, **sure).fit(X, two(X))
    saved("logistic", model, column(50, seed=1))
    model = EverlastingPredictor(classes=TWO, **{**sure, "client_share": 0.1}).fit(X, two(X), groups=np.arange(600))
    saved("groups", model, column(100, seed=1), [f"client {one // 2}" for one in range(100)])
    model = EverlastingPredictor(Thresholds(), classes=TWO, training_stream="trusted", **sure).fit(X, two(X))
    model.add_unlabelled(column(80, seed=3))
    saved("trusted", model, column(50, seed=1))

    X = column(3000)
    learner = PrivateLogisticRegression(epsilon=20, delta=1e-5, row_norm=2)
    model = EverlastingPredictor(learner, epsilon=20, delta=1e-5, classes=TWO).fit(X - 0.5, two(X))
    saved("chain", model, column(100, seed=1) - 0.5, shift=0.5)
    learner = ThresholdLearner(bits=8, epsilon=20)
    model = EverlastingPredictor(learner, epsilon=20, delta=0, classes=TWO)
    model.fit((256 * X).astype(np.int64), two(X))
    saved("chain-of-thresholds", model, (256 * column(100, seed=1)).astype(np.int64), whole=True)
    return known


def described(model: EverlastingPredictor, *, shift: float = 0.0, whole: bool = False) -> dict[str, Any]:
    """What a predictor knows, by labels: the votes of its teachers or what its model says, and the rows it gathered."""
    labels, asked = [str(one) for one in model.classes_], np.linspace(0.02, 0.98, 25)[:, None]
    queries: Array = (256 * asked).astype(np.int64) if whole else asked - shift
    engine: Any = model.engine_
    if hasattr(engine, "teachers"):
        votes = engine.teachers.votes(queries)
        sayings: Any = [dict(zip(labels, one, strict=True)) for one in votes.tolist()]
    else:
        sayings = [labels[one] for one in engine.label(queries)]
    gathered = model._machine.gathered() if model.rows_gathered_ else None
    return {
        "classes": labels,
        "queries": queries.tolist(),
        "sayings": sayings,
        "gathered": None if gathered is None else {
            "X": gathered.X.tolist(), "labels": [labels[one] for one in gathered.class_indices],
        },
        "phase": model.phase_,
        "left": model.answers_left_in_phase_,
        "answered": model.answered_,
        "guarantee": model.guarantee_.explain(),
    }  # fmt: skip


# ── folders ───────────────────────────────────────────────────────────────────────────────────────────────────────


def folders(root: Path) -> dict[str, Any]:
    """Folders of predictors that were served, by where they stood when the server ended."""
    known: dict[str, Any] = {}
    X = column(400)
    sure: dict[str, Any] = {"epsilon": 40, "delta": 1e-5, "classes": TWO, "client_share": 1, "rows_per_teacher": 10}

    def votes(**options: Any) -> EverlastingPredictor:
        return EverlastingPredictor(Thresholds(), **{**sure, **options}).fit(X, two(X))

    def served(name: str, model: EverlastingPredictor, sizes: list[int], *, clients: int = 2, **end: Any) -> None:
        home = Home.create(root / name, model, MODEL, now=NOW)
        answering = AnsweringService(home, elsewhere=False, clock=lambda: 1000 * NOW)
        known[name] = asked(answering, sizes, clients, **end)

    served("new", votes(), [])
    served("mid-phase", votes(), [5, 120, 1, 3])
    served("end-of-phase", votes(), [300, 500], tidied=False)
    served("next-phase", votes(), [300, 450, 100])
    served("killed", votes(), [5, 120, 1], killed=True)
    served("killed-in-next-phase", votes(), [300, 450, 100], killed=True)
    served("two-coin", votes(labeller="two-coin"), [50, 60])
    grouped = EverlastingPredictor(**{**sure, "client_share": 0.1}).fit(X, two(X), groups=np.arange(400))
    served("groups", grouped, [9] * 20, clients=13)
    learner = PrivateLogisticRegression(epsilon=20, delta=1e-5, row_norm=2)
    rows = column(3000)
    chain = EverlastingPredictor(learner, epsilon=20, delta=1e-5, classes=TWO, client_share=1).fit(rows, two(rows))
    served("chain", chain, [1000, 40])
    return known


def asked(
    answering: AnsweringService, sizes: list[int], clients: int, *, tidied: bool = True, killed: bool = False
) -> dict[str, Any]:
    """Ask an answering service under keys; what it said, and where it stood in the end."""
    told = []
    for place, size in enumerate(sizes):
        who, key = f"client {place % clients}", f"key {place}"
        rows = column(size, seed=100 + place)
        (one,) = answering.answer([Request(who, rows, key, digest(key.encode()))])
        assert isinstance(one, Answered), one
        if tidied and not killed:
            answering.maintain()
        told.append({"client": who, "key": key, "seed": 100 + place, "rows": size, "labels": one.labels})
    now, folder = answering.status(), answering.home.folder
    if killed:  # what a process that dies leaves behind: its log is not yet in the file
        copy = folder.with_name("copy")
        shutil.copytree(folder, copy)
        answering.close()
        shutil.rmtree(folder)
        copy.rename(folder)
        (folder / "store.sqlite-shm").unlink()
        assert (folder / "store.sqlite-wal").stat().st_size
    else:
        answering.close()
    known = {name: getattr(now, name) for name in ("phase", "answers_left_in_phase", "answered", "rows_gathered")}
    return known | {"length": now.ledger_length, "head": now.ledger_head, "told": told, "classes": answering.classes}


def by_commands(root: Path, work: Path) -> dict[str, Any]:
    """A predictor as people make one: by `reticent fit`, with keys, answers from a file, and backups."""
    os.environ["RETICENT_HOME"] = str(root)
    rng = np.random.default_rng(0)
    rows = [(int(age), "ab"[age % 2], "yes" if age > 50 else "no") for age in rng.integers(0, 100, 800)]
    (work / "patients.csv").write_text("age,ward,ill\n" + "".join(f"{a},{w},{i}\n" for a, w, i in rows))
    (work / "new.csv").write_text("ward,age\n" + "".join(f"{'ab'[one % 2]},{one}\n" for one in range(0, 100, 4)))
    (work / "schema.toml").write_text(SCHEMA)

    def reticent(*arguments: object) -> None:
        assert cli.main([str(one) for one in arguments]) == 0, arguments

    reticent("fit", work / "patients.csv", "--schema", work / "schema.toml", "--epsilon", 40, "--delta", "1e-5",
             "--learner", "linear", "--name", "clinic", "--yes", "--quiet")  # fmt: skip
    tokens = keys(root / "clinic" / KEYS)
    reticent("ask", "clinic", "--table", work / "new.csv", "--out", work / "answers.csv", "--quiet")
    reticent("backup", "clinic", work / "clinic.backup", "--quiet")
    shutil.copytree(root / "clinic", root / "retired")
    reticent("ask", "clinic", "--table", work / "new.csv", "--out", work / "more.csv", "--quiet")
    reticent("backup", "retired", work / "clinic-final.backup", "--final", "--quiet")
    return {
        "tokens": tokens,
        "answers": (work / "answers.csv").read_text(),
        "folders": {name: where(root / name) for name in ("clinic", "retired")},
        "backups": {
            "clinic.backup": {"goes_on": False, "length": where(root / "retired")["length"] - 2},
            "clinic-final.backup": {"goes_on": True, "length": where(root / "retired")["length"] - 1},
        },
    }


def where(folder: Path) -> dict[str, Any]:
    found = verification.verify(folder / "store.sqlite")
    return {"length": found.length, "head": found.head, "counted": found.counted}


def keys(path: Path) -> dict[str, Any]:
    """A file of keys: some that open, one that was revoked, one that was rotated."""
    table, tokens = KeyTable(path), {}
    for name, options in {
        "ward 3": {"quota": 500},
        "watch": {"scopes": ["observe"]},
        "admin": {"scopes": ["admin"]},
        "slow": {"rate": 2.5, "burst": 9},
        "gone": {},
        "turned": {},
    }.items():
        tokens[name], key = make_key(name, **options)  # type: ignore[arg-type]
        table.add(key)
    table.revoke("gone")
    before = tokens["turned"]
    tokens["turned"], _ = table.rotate("turned")
    table.close()
    return {"good": {one: tokens[one] for one in tokens if one != "gone"}, "bad": [tokens["gone"], before]}


# ── all of it ─────────────────────────────────────────────────────────────────────────────────────────────────────


def main(target: str) -> None:
    """Make the archive."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for name in ("states", "folders", "commands", "work"):
            (root / name).mkdir()
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(schema.__file__).parent, capture_output=True,
                                text=True, check=False).stdout.strip()  # fmt: skip
        expected = {
            "commit": commit,
            "sqlite": sqlite3.sqlite_version,
            "versions": {"store": schema.VERSION, "backup": backup.VERSION},
            "states": states(root / "states"),
            "folders": folders(root / "folders"),
            "commands": by_commands(root / "commands", root / "work"),
        }
        for one in root.glob("*/*/lock"):
            one.unlink()
        (root / "expected.json").write_text(json.dumps(expected))
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for name in ("expected.json", "states", "folders", "commands", "work/clinic.backup",
                         "work/clinic-final.backup"):  # fmt: skip
                archive.add(root / name, arcname=name, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(*sys.argv[1:])
