"""The commands that make a service and run it: schema, fit, serve, ask, status, backup and restore.

Everything slow is imported inside the command that needs it.
"""

from __future__ import annotations

import json as json_format
import math
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter, Token

from reticent.errors import OneAnswerWarning

if TYPE_CHECKING:
    from reticent.plan.advise import Advice, Option
    from reticent.plan.everlasting import Everlasting
    from reticent.predictors.everlasting import EverlastingPredictor
    from reticent.predictors.rows import Rows
    from reticent.service.answer_file import AnswerFile
    from reticent.service.answering import AnsweringService
    from reticent.service.client import Client
    from reticent.service.home import Home
    from reticent.service.schema import Schema
    from reticent.service.tables import Table

Learner = Literal["auto", "linear", "trees", "thresholds", "private"]
Flag = Parameter(negative="")

OPTIONS = {
    "host": "--host", "port": "--port", "certificate": "--tls-cert", "private_key": "--tls-key",
    "password": "$RETICENT_TLS_PASSWORD", "behind_proxy": "--behind-proxy",
}  # fmt: skip  # of `serve`, by the fields of a Binding
ADDRESS = "address"  # beside the store, in the folder of a predictor: where it is served
BETTER = 0.01  # of all answers: what another way must gain before `fit` asks whether it is meant
PLANNED = {"linear": "linear", "trees": "other", "thresholds": "thresholds", "private": "private"}
FOURIER = (
    "One-shot and chain are here private models on random Fourier features, which follow a smooth boundary; only "
    "Python makes them: PrivateLogisticRegression(fourier_features=…). --learner private is linear. Compare such a "
    "model with trees, both without privacy, on public rows before you spend anything."
)
SHRINKS = (
    "PHASES SHRINK: this one learned from fewer rows than the one before. If it goes on, answers will end: see "
    "`reticent plan everlasting`, and --client-share"
)
FEW = 20  # classes that the plan names
TREE_ROWS = 100  # a teacher that is a tree needs so many


class UsageError(Exception):
    """A request that cannot be met as it was put; the message says what would do, `code` is that of the exit."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


def number(_: object, tokens: Sequence[Token]) -> Fraction | int:
    """A number exactly as it was written: 0.1, 1e-6, 1/3."""
    try:
        found = Fraction(tokens[0].value)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"must be a number such as 10, 0.1 or 1e-6, got {tokens[0].value!r}") from None
    return found.numerator if found.denominator == 1 else found


def _answers(_: object, tokens: Sequence[Token]) -> int | str:
    word = tokens[0].value
    if word == "endless":
        return word
    if not (word.isascii() and word.isdecimal() and int(word) > 0):
        raise ValueError(f"must be a whole number, or endless, got {word!r}")
    return int(word)


Number = Annotated[float, Parameter(converter=number)]  # an exact number, in truth


# ── schema ────────────────────────────────────────────────────────────────────────────────────────────────────────


def schema(table: Path, *, target: str | None = None, group: str | None = None, out: Path | None = None) -> int:
    """Draft a schema for a table, from its header alone.

    Ranges, categories and classes are left empty: they are to be filled in from what is known about the columns, never
    from the rows. A Parquet or Arrow file also declares the types of its columns.

    Parameters
    ----------
    table
        A CSV, Parquet or Arrow file.
    target
        The column to be predicted.
    group
        The column that says whose row it is, if someone may have several.
    out
        A file to write the draft into; without it, it is printed.
    """
    from reticent.service import tables
    from reticent.service.schema import draft

    with refusing():
        found = tables.open_table(table)
        text = draft(found.names, found.types, target=target, group=group)
    if out is None:
        print(text, end="")
        return 0
    try:
        with open(out, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"--out: {out} exists; delete it, or name another file") from None
    except OSError as error:
        raise UsageError(f"--out: {out}: {error.strerror}") from error
    print(f"Drafted {out} from the names of the {len(found.names)} columns; no row was read.")
    print("Fill in the ranges, categories and classes from what is known about them, then: reticent fit --schema …")
    return 0


# ── fit ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def fit(
    table: Path,
    *,
    name: str,
    epsilon: Number,
    delta: Number,
    target: str | None = None,
    group: str | None = None,
    schema: Path | None = None,
    learner: Learner = "auto",
    answers: Annotated[int | str, Parameter(converter=_answers)] = "endless",
    drift: Literal["none", "slow", "fast"] = "none",
    client_share: Number = 1,
    client_phases: int = 1,
    yes: Annotated[bool, Flag] = False,
    quiet: Annotated[bool, Flag] = False,
) -> int:
    """Make a predictor from a table, ready to be served.

    The plan is printed first, from the header, the schema and the number of rows; only then are the rows read.

    Parameters
    ----------
    table
        A CSV, Parquet or Arrow file.
    name
        What the predictor is called from now on.
    epsilon
        The privacy of everybody in the table, and of everybody in the queries.
    delta
        The probability with which that may fail; well below one in the number of rows.
    target
        The column to be predicted, if the schema does not say.
    group
        The column that says whose row it is: all rows of one are protected together.
    schema
        The public description of the columns; `reticent schema` drafts one.
    learner
        What answers: teachers that vote (linear, trees, thresholds), or private, a private linear model a phase. auto
        takes, of linear and private, what advice expects to lose least to a linear model that is not private.
    answers
        How many queries will be answered, or endless.
    drift
        How fast what is to be learned changes, for the advice.
    client_share
        The share of what a phase learns from that may come from one client. Whoever asks also teaches, so give less
        than 1 if clients have keys and are not trusted: 0.01 if hundreds will ask. The default is 1, since fewer
        clients than 1/share leave each phase smaller than the one before, and one client alone would end the service.
    client_phases
        With a group: into how many phases the queries of one client may enter; each costs epsilon and delta. Later
        queries of a client are answered, and not learned from.
    yes
        Go on although another way would be better.
    quiet
        Show no progress.
    """
    from reticent.service import home, tables

    with refusing():
        folder = home.folder_of(name)
        if folder.exists():
            raise UsageError(f"there is a predictor {name!r} already; choose another --name, or delete {folder}")
        _check_writable(folder.parent)
        found = tables.open_table(table)
        rules = _rules(found, schema, target, group)
        with _bar("counting rows", None, quiet) as advance:
            rows = found.count(advance)
        if rows == 0:
            raise UsageError(f"{table} has no rows")
        choice = _choose(rules, rows, learner, epsilon=epsilon, delta=delta, answers=answers, drift=drift)
        print(_told(choice, rules, table, _who_teaches(choice, rules, client_share, client_phases)))
        if not choice.plan.phases or not choice.plan.sustained:
            raise UsageError(_what_would_do(choice))
        if (better := choice.better(rules)) is not None:
            _confirm(better, yes)
        predictor = _predictor(
            rules, choice, epsilon=epsilon, delta=delta, client_share=client_share, client_phases=client_phases
        )
        learned_from = _read(found, rules, rows, quiet)
        with _bar("learning", None, quiet), warnings.catch_warnings():
            warnings.simplefilter("ignore", OneAnswerWarning)  # told below
            predictor.fit(learned_from.X, _labels(rules)[learned_from.codes], groups=learned_from.groups)
        with _bar("writing it down", None, quiet):
            home.Home.create(folder, predictor, _model(rules, choice, rows, epsilon, delta)).close()
    print(f"\n{predictor.guarantee_.explain()}\n\nIt is in {folder}. Next: reticent serve {shlex.quote(name)}")
    if predictor.one_answer_ is not None:
        print(_of_no_use(predictor.one_answer_))
    return 0


def _of_no_use(one: object) -> str:
    """That the released model gives one answer to everybody: a function of that model, and of nothing else."""
    return (
        f"ONE ANSWER: the model of this phase gives {one!r} to everybody, so it is of no use. More rows, a larger "
        "epsilon or narrower ranges may help"
    )


def _check_writable(root: Path) -> None:
    """Refuse at once if nothing can be kept there, rather than after all rows are learned from."""
    there = next(one for one in (root, *root.absolute().parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"no predictor can be kept in {root}: {there} cannot be written; set RETICENT_HOME")


def _rules(table: Table, path: Path | None, target: str | None, group: str | None) -> Schema:
    """The schema, with what the command line says besides."""
    from reticent.service import tables
    from reticent.service.schema import Schema

    if path is None:
        options = [*(["--target", target] if target else []), *(["--group", group] if group else [])]
        command = shlex.join(["reticent", "schema", str(table.path), *options, "--out", "schema.toml"])
        raise UsageError(
            "a schema is needed: ranges, categories and classes are not read off private rows. Draft one from the "
            f"header with: {command} (then fill it in, and add --schema schema.toml)"
        )
    rules = Schema.read(path)
    if target is not None and target != rules.target:
        raise UsageError(f"--target {target!r} is not the target of {path}, which is {rules.target!r}")
    if group is not None and rules.group not in (None, group):
        raise UsageError(f"--group {group!r} is not the group of {path}, which is {rules.group!r}")
    rules = rules if group is None else replace(rules, group=group)
    tables.check_columns(table, _wanted(rules))
    for column in rules.columns:
        if column.kind == "number" and table.types.get(column.name) == "category":
            raise UsageError(f"{path}: the column {column.name!r} is a number, but the file declares another type")
    return rules


def _wanted(rules: Schema) -> list[str]:
    """The columns that `fit` reads."""
    return [*(one.name for one in rules.columns), rules.target, *([] if rules.group is None else [rules.group])]


def _numbers(rules: Schema) -> set[str]:
    return {one.name for one in rules.columns if one.kind == "number"}


class _Choice:
    """What was chosen, the plan for it, and all that advice says; `phases` are the predictor's parameters for them."""

    def __init__(
        self, learner: str, answers: int | str, phases: dict[str, Any], plan: Everlasting, advice: Advice
    ) -> None:
        self.learner, self.answers, self.phases, self.plan, self.advice = learner, answers, phases, plan, advice

    @property
    def against(self) -> str:
        """The model that losses are against, in words."""
        from reticent.plan.advise import REFERENCES

        return "trees, without privacy" if self.learner == "trees" else REFERENCES[self.advice.reference]

    @property
    def way(self) -> str:
        """What advice calls it."""
        if self.learner == "private":
            return "chain"
        return "endless votes" if self.answers == "endless" else "finite votes"

    def option(self, way: str) -> Option:
        """What advice says of a way."""
        return next(one for one in self.advice.options if one.way == way)

    def better(self, rules: Schema) -> str | None:
        """What would be better, in words; None if nothing would by much."""
        if rules.group is not None and self.learner != "private" and len(self.plan.phases) > 1:
            least = self.plan.phases[1].teachers
            return (
                f"with a group, all queries of a client stay together, and the next phase needs {least:,} clients or "
                "more, as it has one teacher or less for each. If there will not be so many, give a number for "
                "--answers that one phase can give, or take --learner private"
            )
        best, mine = self.advice.best, self.option(self.way)
        if not mine.possible or mine.loss - best.loss < BETTER:
            return None
        # --learner private is linear: it is what advice means by a private model only if a linear model suits the data.
        served = self.advice.reference == "linear" and best.way in ("one-shot", "chain") and self.learner != "private"
        how = " (--learner private)" if served else f", from Python: {best.estimator}"
        return (
            f"{best.way} is expected to lose {best.loss:.1%} of all answers to {self.against}, and {self.way} "
            f"{mine.loss:.1%}. Better take {best.way}{how}"
        )


def _choose(
    rules: Schema,
    rows: int,
    learner: str,
    *,
    epsilon: Any,
    delta: Any,
    answers: int | str,
    drift: Literal["none", "slow", "fast"],
) -> _Choice:
    """By public numbers alone."""
    from reticent.plan.advise import DRIFT_GROWTH, advise
    from reticent.plan.everlasting import everlasting

    if learner == "thresholds" and (rules.width != 1 or len(rules.classes) != 2):
        raise UsageError("--learner thresholds is for two classes and one column, which is a number")
    common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "classes": len(rules.classes), "answers": answers}
    advice = advise(
        rows,
        rules.width,
        drift=drift,
        black_box=learner == "trees",
        concept="thresholds" if learner == "thresholds" else None,
        **common,
    )
    if learner == "auto":
        votes = "endless votes" if answers == "endless" else "finite votes"
        ranked = [one for one in advice.options if one.way in (votes, "chain") and one.possible]
        # With groups, votes of later phases take as many clients as teachers, which few services have.
        votes_do = ranked and ranked[0].way == votes and not (rules.group is not None and answers == "endless")
        learner = "linear" if votes_do else "private"
    phases: dict[str, Any] = {"rows_per_teacher": TREE_ROWS if learner == "trees" else "auto"}
    if drift != "none":
        phases |= {"growth": DRIFT_GROWTH, "max_rows": rows}  # short phases, as advised: they follow what drifts
    plan = everlasting(
        rows,
        rules.width,
        learner=PLANNED[learner],  # type: ignore[arg-type]
        phases=4,
        **phases,
        **common,
    )
    return _Choice(learner, answers, phases, plan, advice)


def _told(choice: _Choice, rules: Schema, table: Path, teaching: list[str]) -> str:
    """The plan and the advice, as text."""
    from reticent.plan.advise import CHECK

    of = f"{len(rules.columns)} columns ({rules.width} numbers a row)"
    lines = [
        f"The plan, from the header of {table.name}, the schema and the number of rows; no row was read yet.",
        of + ("" if rules.group is None else f", grouped by {rules.group!r}"),
        f"{len(rules.classes)} classes: {_few(rules.classes)}; any other label counts as {rules.classes[0]!r}",
        "",
        str(choice.plan),
        *teaching,
        "",
        f"What each way is expected to lose, of all answers, to {choice.against}:",
    ]
    for one in choice.advice.options:
        mark = "→" if one.way == choice.way else " "
        lines.append(f"{mark} {one.way:14} {f'{one.loss:.1%}' if one.possible else 'cannot be done: ' + one.why}")
    if choice.advice.reference == "linear":
        lines.append(CHECK.format(how="--learner trees"))
    elif choice.learner == "trees":
        lines.append(FOURIER)
    return "\n".join(lines)


def _few(values: Sequence[Any]) -> str:
    """Public values in a line; the first ones, where there are many."""
    said = [repr(one) for one in values]
    return ", ".join(said if len(said) <= FEW else [*said[:FEW], "…"])


def _who_teaches(choice: _Choice, rules: Schema, share: Any, phases: int) -> list[str]:
    """Whose rows and queries are learned from, in words."""
    if rules.group is None and len(choice.plan.phases) < 2:
        return []
    if rules.group is None and share == 1:
        return ["Each query is learned from, whoever asks: one client may give all rows of a phase (--client-share)."]
    if rules.group is None:
        least = math.ceil(1 / share) if 0 < share < 1 else 1
        return [
            f"No client gives more than {float(share):.3g} of the rows of a phase (--client-share): with fewer than "
            f"{least:,} clients each phase is smaller than planned, and so are all that follow."
        ]
    if choice.learner != "private":
        return ["With a group, there are no more teachers than groups, and later no more than clients."]
    told = ["With a group, the first row of each counts, and of the queries the first of each client in a phase."]
    if len(choice.plan.phases) > 1:
        told.append(
            f"A client enters {phases} phase{'s' if phases > 1 else ''} at most (--client-phases): its later queries "
            "are answered, and not learned from. Where too few clients are new, the next phase keeps the model."
        )
    return told


def _what_would_do(choice: _Choice) -> str:
    plan = choice.plan
    if plan.phases:
        return "this cannot be sustained: " + plan.why
    ways = [f"{plan.rows_required:,} rows"]
    if plan.epsilon_required > plan.guarantee.epsilon:
        ways.append(f"--epsilon {plan.epsilon_required:.3g}")
    if plan.finite:
        ways.append(f"--answers {plan.finite}")
    if choice.learner in ("linear", "thresholds"):
        ways.append("--learner private")
    found = f"{plan.rows:,} rows are too few for this; what would do: {', or '.join(ways)}"
    if choice.learner == "trees":
        return (
            f"{found}. A private model needs far fewer rows, but --learner private is linear: it helps only if a "
            "linear model is nearly as good as trees on your data"
        )
    return found


def _confirm(better: str, yes: bool) -> None:
    print(f"\nAnother way would be better: {better}.")
    if yes:
        return
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        if input("Go on all the same? [y/N] ").strip().lower() in ("y", "yes"):
            return
        raise UsageError("nothing was read or made")
    raise UsageError(f"another way would be better ({better}); add --yes to go on all the same")


def _predictor(
    rules: Schema, choice: _Choice, *, epsilon: Any, delta: Any, client_share: Any, client_phases: int
) -> EverlastingPredictor:
    from reticent.predictors.everlasting import EverlastingPredictor

    learner: Any = None
    if choice.learner == "trees":
        from sklearn.tree import DecisionTreeClassifier

        learner = DecisionTreeClassifier(random_state=0)
    elif choice.learner == "thresholds":
        from reticent.concepts import Thresholds

        learner = Thresholds(both_orientations=True)  # which class lies below is not for the order of classes to say
    elif choice.learner == "private":
        from reticent.learners.logistic import PrivateLogisticRegression

        learner = PrivateLogisticRegression(epsilon=epsilon, delta=delta, row_norm=rules.row_norm)
    return EverlastingPredictor(
        learner,
        epsilon=epsilon,
        delta=delta,
        answers=choice.answers,
        classes=list(rules.classes),
        **choice.phases,
        client_share=client_share,
        client_phases=client_phases,
    )


def _labels(rules: Schema) -> Any:
    import numpy as np

    return np.asarray(rules.classes)


def _read(table: Table, rules: Schema, rows: int, quiet: bool) -> Rows:
    """All rows of the table as numbers; in a file without a name, where they would take too much memory."""
    import numpy as np

    from reticent.data.cells import as_text
    from reticent.predictors.rows import RowStore

    store = RowStore(rows, rules.width, dtype=np.float64, classes=len(rules.classes), memory_limit=1 << 30)
    numbers: dict[str, int] = {}  # of groups, by their text: as much a group in a CSV file as elsewhere
    groups = None if rules.group is None else np.empty(rows, dtype=np.int64)
    with _bar("reading rows", rows, quiet) as advance:
        for chunk in table.chunks(_wanted(rules), advance, numbers=_numbers(rules)):
            start = len(store)
            encoded = rules.encode(chunk)
            if start + len(encoded) > rows:
                raise UsageError(f"{table.path} has changed while it was read")
            store.append(encoded, rules.codes(chunk[rules.target]))
            if groups is not None and rules.group is not None:
                names = [as_text(one) for one in chunk[rules.group]]
                if "" in names:  # whose row it is cannot be told, so nobody who might be meant would be protected
                    raise UsageError(
                        f"{table.path}: the column {rules.group!r} must name the group of every row; row "
                        f"{start + names.index('') + 1:,} names none"
                    )
                groups[start : start + len(names)] = [numbers.setdefault(one, len(numbers)) for one in names]
    if len(store) < rows:
        raise UsageError(f"{table.path} has changed while it was read")
    return store.rows()._replace(groups=groups)


def _model(rules: Schema, choice: _Choice, rows: int, epsilon: Any, delta: Any) -> str:
    """The text of model.toml: the schema, and under [model] how the predictor was made. All of it is public."""
    from reticent.service.schema import toml

    made: dict[str, Any] = {
        "epsilon": str(epsilon),
        "delta": str(delta),
        "learner": choice.learner,
        "answers": choice.answers,
        "rows": rows,
        "features": list(rules.features),
        "reticent": version("reticent"),
    }
    return rules.to_toml() + "\n[model]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in made.items())


# ── serve ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def serve(
    name: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8341,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    behind_proxy: Annotated[bool, Flag] = False,
) -> int:
    """Answer queries over HTTP, until Ctrl-C, SIGTERM or the end of the terminal; the dashboard is at /.

    Either way what was taken is answered first. The exit code is 0 after SIGTERM, as supervisors expect. If nothing can
    be answered any more, it is 75 where another start may help, 65 where the store is damaged, and 70 after an error in
    the program.

    Parameters
    ----------
    name
        The predictor, as it was named for `reticent fit`.
    host
        Where to listen; other than this machine only with keys, and with TLS or a proxy.
    port
        Where to listen.
    tls_cert
        A certificate, with its chain, in PEM.
    tls_key
        Its private key, in PEM; if that is encrypted, $RETICENT_TLS_PASSWORD opens it.
    behind_proxy
        A proxy in front takes care of TLS.
    """
    from reticent.service import traces
    from reticent.service.http.batching import WAITING_NUMBERS, WAITING_ROWS, Batcher
    from reticent.service.http.server import Binding, serve
    from reticent.service.http.service import Service
    from reticent.service.processes import ending_in_good_order

    with traces.by_place(), refusing(serving=True), ending_in_good_order(code=0), ExitStack() as cleanup:
        folder = existing_folder(name)
        desk = _desk(name)
        until_served = cleanup.enter_context(ExitStack())
        until_served.callback(desk.close)
        ring = _keyring(folder, desk)
        binding = Binding(
            host=host,
            port=port,
            certificate=tls_cert,
            private_key=tls_key,
            password=None if tls_key is None else os.environ.get("RETICENT_TLS_PASSWORD"),
            behind_proxy=behind_proxy,
        )
        binding.check(ring, OPTIONS)
        _check_free(host, port)
        batcher = Batcher(desk, waiting_rows=max(1, min(WAITING_ROWS, WAITING_NUMBERS // desk.columns)))
        service = Service(name, _schema(desk.home), desk, batcher, keyring=ring)
        address = folder / ADDRESS
        address.write_text(binding.address, encoding="utf-8")
        cleanup.callback(address.unlink, missing_ok=True)
        print(f"{name}: {binding.address} (dashboard; /docs says how to ask). Ctrl-C ends it.", flush=True)
        until_served.pop_all()  # from here on the service closes the desk, when all is answered
        serve(service, binding)
    if desk.halt is None:
        return 0
    print(f"reticent: {name} has stopped answering: {desk.halt.words(folder)}", file=sys.stderr)
    return desk.halt.code


def _check_free(host: str, port: int) -> None:
    """Refuse an address that is not this machine's, or a port in use, before a server says so in other words."""
    import errno
    import socket

    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the second for a name that no DNS can hold
        raise UsageError(f"--host must be a name or an address of this machine, got {host!r}") from None
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(address)
            except OSError as error:
                option = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
                why = f"cannot listen at {host}, port {port}: {error.strerror}"
                raise UsageError(f"{why}; choose another {option}") from None


def _desk(name: str, *, records: bool = False) -> AnsweringService:
    from reticent.service import halting
    from reticent.service.answering import AnsweringService
    from reticent.service.home import Home
    from reticent.service.store.schema import VERSION, kept_path

    folder = existing_folder(name)
    with _bar("opening", None, False):
        home = Home(folder, records=records)
        desk = AnsweringService(home)
    if not records:
        halting.clear(folder)
    if (before := home.store.upgraded) is not None:
        print(
            f"reticent: the store was upgraded from version {before} to {VERSION}; as it was, it is kept in "
            f"{kept_path(home.store.path, before)} until the phase is over",
            file=sys.stderr,
        )
    return desk


def _schema(home: Home) -> Schema:
    return _schema_of(home.folder, home.model)


def _schema_of(folder: Path, text: str) -> Schema:
    """The schema in the model.toml of a predictor; what is wrong with it is said with its place."""
    from reticent.service.home import MODEL
    from reticent.service.schema import Schema, SchemaError

    try:
        return Schema.from_toml(text)
    except SchemaError as error:
        raise SchemaError(f"{folder / MODEL}: {error}") from None


def _keyring(folder: Path, desk: AnsweringService) -> Any:
    from reticent.service.home import KEYS
    from reticent.service.http.access import Keyring
    from reticent.service.keys import KeyTable

    return Keyring(KeyTable(folder / KEYS), used=desk.charged())


# ── ask ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def ask(
    name: str,
    *,
    table: Path,
    out: Path,
    url: str | None = None,
    key_file: Path | None = None,
    resume: Annotated[bool, Flag] = False,
    quiet: Annotated[bool, Flag] = False,
) -> int:
    """Ask for the labels of all rows of a table.

    If a server of this name runs on this machine, or a URL is given, it is asked; else the predictor is opened and
    asked here, with the same counts and records. A question that is lost on the way is repeated, and counts once.

    Parameters
    ----------
    name
        The predictor.
    table
        A CSV, Parquet or Arrow file with the columns of the schema.
    out
        A CSV file to write the answers into, one a row, in the order of the table.
    url
        The address of a server.
    key_file
        A file with the key to ask with; else it is taken from $RETICENT_KEY.
    resume
        Go on with an --out that was not finished. What was asked last is asked again under the same idempotency key,
        so it is not paid for twice, if that is done within a day.
    quiet
        Show no progress.
    """
    from reticent.service import tables
    from reticent.service.answer_file import AnswerFile, check_out

    with refusing(), ExitStack() as cleanup:
        found = tables.open_table(table)
        check_out(out, resume)
        asking = cleanup.enter_context(_asking(name, url, _key(key_file)))
        tables.check_columns(found, asking.columns)
        with _bar("counting rows", None, quiet) as advance:
            rows = found.count(advance)
        answers = cleanup.enter_context(AnswerFile(out, asking.target, rows, table.stat().st_size, asking.who))
        advance = cleanup.enter_context(_bar("asking", rows, quiet))
        try:
            _ask_all(found, asking, answers, advance)
        except BaseException as error:
            answers.leave(error)
            raise
        answers.finish()
    print(f"{rows:,} answers in {out}")
    return 0


AT_ONCE = 10_000  # rows a question


def _ask_all(table: Table, asking: _Asking, answers: AnswerFile, advance: Callable[[int], None]) -> None:
    """Ask for what is not answered yet, in parts that are made smaller where the server takes no more at once."""
    from reticent.service.client import ServiceError

    size, skip = AT_ONCE, answers.done
    advance(skip)
    for chunk in table.chunks(asking.columns, None, rows=AT_ONCE, numbers=asking.numbers):
        left = len(chunk[asking.columns[0]])
        start, skip = min(left, skip), max(0, skip - left)
        while start < left:
            part = slice(start, min(left, start + (answers.pending or size)))
            key = answers.begin(part.stop - part.start)
            try:
                labels = asking.ask({each: values[part] for each, values in chunk.items()}, key)
            except ServiceError as error:
                if error.kind != "too-large" or part.stop - part.start == 1:
                    raise
                size = (part.stop - part.start) // 2  # what is refused costs nothing
                answers.pending = None
                continue
            answers.add(labels)
            advance(part.stop - part.start)
            start = part.stop


class _Asking:
    """Who answers: a server, or the predictor itself. `who` asks; a question has an idempotency key of theirs."""

    def __init__(
        self, kinds: dict[str, str], target: str, who: str, ask: Callable[[dict[str, Any], str], list[Any]]
    ) -> None:
        self.columns, self.target, self.who, self.ask = list(kinds), target, who, ask
        self.numbers = {name for name, kind in kinds.items() if kind == "number"}


@contextmanager
def _asking(name: str, url: str | None, key: str | None) -> Iterator[_Asking]:
    from reticent.service.home import AlreadyServed

    if url is None:
        try:
            desk = _desk(name)
        except AlreadyServed:
            url = _address(name)
        else:
            with ExitStack() as cleanup:
                cleanup.callback(desk.close)
                rules = _schema(desk.home)
                here: dict[str, str] = {one.name: one.kind for one in rules.columns}
                yield _Asking(here, rules.target, "here", lambda chunk, key: _here(desk, rules, chunk, key))
            return
    from reticent.service.client import Client

    with Client(url, model=name, key=key) as client:
        kinds, target = _kinds(name, client)
        who = "nobody" if key is None else key.partition(".")[0]  # the id of the key, which is no secret
        yield _Asking(kinds, target, who, lambda chunk, key: _there(client, _typed(chunk, kinds), key))


def _there(client: Client, columns: dict[str, Any], key: str) -> list[Any]:
    """Answers of a server."""
    return list(client.ask(columns, idempotency_key=key).tolist())


def _typed(chunk: dict[str, Any], kinds: dict[str, str]) -> dict[str, Any]:
    """Columns as they are sent: a CSV file has text where the service wants numbers."""
    from reticent.data.cells import as_numbers, as_text

    return {
        name: as_numbers(chunk[name]) if kind == "number" else [as_text(one) for one in chunk[name]]
        for name, kind in kinds.items()
    }


def _here(desk: AnsweringService, rules: Schema, chunk: dict[str, Any], key: str) -> list[Any]:
    """Answers of the desk itself; it counts and stores them as it would for a server."""
    from reticent.service.keys import ANONYMOUS
    from reticent.service.requests import Request, digest

    rows = rules.encode(chunk)
    (found,) = desk.answer([Request(ANONYMOUS, rows, key, digest(rows.tobytes()))])
    if isinstance(found, Exception):
        raise found
    return found.labels


def _address(name: str) -> str:
    """Where the server that runs says that it listens."""
    from reticent.service.http.server import HOST, PORT

    with suppress(OSError):
        return (existing_folder(name) / ADDRESS).read_text(encoding="utf-8").strip()
    return f"http://{HOST}:{PORT}"


def _kinds(name: str, client: Client) -> tuple[dict[str, str], str]:
    """The columns and the target: from the predictor's folder if it is on this machine, else as the server tells."""
    from reticent.service import home

    folder = home.folder_of(name)
    if (folder / home.MODEL).is_file():
        rules = _schema_of(folder, home.read_model(folder))
        return {one.name: one.kind for one in rules.columns}, rules.target
    found = client.metadata()
    text = {one["name"] for one in found["inputs"] if one["datatype"] == "BYTES"}
    return {one: "category" if one in text else "number" for one in found["parameters"]["columns"]}, "answer"


def _key(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get("RETICENT_KEY") or None
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"--key-file: {path} cannot be read, or holds no key") from None


# ── status ────────────────────────────────────────────────────────────────────────────────────────────────────────


def status(
    name: str | None = None,
    *,
    verify: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
    key_file: Path | None = None,
) -> int:
    """Say what a predictor promises, and where it stands; without a name, which predictors there are.

    Parameters
    ----------
    name
        The predictor.
    verify
        Check every row of the ledger, and that all counts add up.
    json
        Print a JSON object instead of text.
    key_file
        A file with the key to ask a running server with; else it is taken from $RETICENT_KEY.
    """
    from reticent.service import home
    from reticent.service.store import verification

    if name is None:
        print("\n".join(home.names()) or "there are no predictors yet: make one by reticent fit")
        return 0
    with refusing():
        folder = existing_folder(name)
        found = _status(name, _key(key_file))
        if verify:
            with _bar("checking the ledger", None, json):
                checked = verification.verify(folder / home.STORE)
            found["verified"] = asdict(checked)
    if json:
        print(json_format.dumps(found, indent=2, ensure_ascii=False, default=str))
        return 0
    print(_in_words(name, found))
    return 0


def _status(name: str, key: str | None) -> dict[str, Any]:
    from reticent.service.client import Client
    from reticent.service.home import AlreadyServed
    from reticent.service.store.verification import can_be_written

    if not can_be_written(folder := existing_folder(name)):
        return _status_of_copy(name, folder)
    try:
        desk = _desk(name, records=True)
    except AlreadyServed:
        url = _address(name)
        with Client(url, model=name, key=key) as client:
            return {**client.status(), "words": client.guarantee()["words"], "served": url, "retired": None}
    return _closed_status(name, folder, desk)


def _closed_status(name: str, folder: Path, desk: AnsweringService) -> dict[str, Any]:
    from reticent.service import halting

    try:
        now, retired, halt = desk.status(), desk.home.store.retired, halting.last(folder)
        found = {"model": name, **asdict(now), "words": now.guarantee.explain(), "served": None, "retired": retired}
        if halt is not None:
            found |= {"halted": halt.words(folder), "halt": asdict(halt)}
        return found
    finally:
        desk.close()


def _status_of_copy(name: str, folder: Path) -> dict[str, Any]:
    """Where a predictor stands whose folder can only be read: it is opened in a copy, which is removed."""
    from tempfile import TemporaryDirectory

    from reticent.service import backup
    from reticent.service.answering import AnsweringService
    from reticent.service.home import Home

    with TemporaryDirectory() as scratch:  # mode 0700
        print(f"reticent: {folder} can only be read: it is copied to {scratch}, which is then removed", file=sys.stderr)
        backup.copy(folder, Path(scratch) / name)
        return _closed_status(name, folder, AnsweringService(Home(Path(scratch) / name, records=True)))


def _in_words(name: str, found: dict[str, Any]) -> str:
    left, halted = found["answers_left"], found["halted"]
    lines = [
        f"{name}: {'served at ' + found['served'] if found['served'] else 'not served now'}",
        "",
        found["words"],
        "",
        f"phase {found['phase']}, which learned from {found['rows']:,} rows"
        + (f" by {found['teachers']:,} teachers" if found["teachers"] else ""),
        f"answered: {found['answered']:,} in all; left in this phase: {found['answers_left_in_phase']:,} of "
        f"{found['answers_in_phase']:,}" + ("" if left is None else f"; left in all: {left:,}"),
        f"gathered for the next phase: {found['rows_gathered']:,} of {found['rows_wanted']:,} rows, at most "
        f"{found['client_cap']:,} of one client",
        f"drift before this phase: {found['drift']}",
        f"ledger: {found['ledger_length']:,} rows, head {found['ledger_head']}",
    ]
    if past := found.get("past"):
        given = ", ".join(f"{one['answers']:,} in phase {one['number']} (from {one['rows']:,} rows)" for one in past)
        lines.insert(6, f"answers of the phases before: {given}")
        if left is None and found["teachers"] and found["rows"] < past[-1]["rows"]:
            lines.append(SHRINKS)
    if found.get("one_answer") is not None:
        lines.append(_of_no_use(found["one_answer"]))
    if halted:
        lines.append(f"HALTED: {halted}")
    if "halt" in found:
        lines += [f"  {line}" for line in found["halt"]["trace"].splitlines()]
    if found["retired"]:
        from reticent.service.home import RETIREMENT

        lines.append(f"RECORDS ONLY: nothing is answered any more: {RETIREMENT[found['retired']]}")
    if "verified" in found:
        counted = found["verified"]["counted"]
        phases = ", ".join(f"{many:,} in phase {phase}" for phase, many in counted.items())
        lines.append(
            f"verified: {found['verified']['length']:,} rows are chained without a gap, and count {phases}, as the "
            "phases do"
        )
    return "\n".join(lines)


# ── backup and restore ────────────────────────────────────────────────────────────────────────────────────────────


def backup(name: str, file: Path, *, final: Annotated[bool, Flag] = False, quiet: Annotated[bool, Flag] = False) -> int:
    """Copy a predictor into one file, also while it is served. The file is as secret as the table.

    Parameters
    ----------
    name
        The predictor.
    file
        A new file.
    final
        Retire the predictor first: it answers no more, and the backup goes on in its place. Stop its server before.
    quiet
        Show no progress.
    """
    from reticent.service import backup

    with refusing():
        folder = existing_folder(name)
        if not file.parent.is_dir():
            raise UsageError(f"there is no folder {file.parent}")
        with _bar("copying", None, quiet):
            made = backup.write(folder, file, final=final)
    print(f"{name} is in {file}: phase {made.phase}, {made.length:,} rows of its ledger, head {made.head}.")
    if final:
        print(f"{name} answers no more. To go on, once: reticent restore {shlex.quote(str(file))} --name …")
    else:
        print("Restored, it can answer only if nothing is answered after this; else it holds records.")
    return 0


def restore(file: Path, *, name: str, head: str | None = None, quiet: Annotated[bool, Flag] = False) -> int:
    """Make a predictor of a backup: one that goes on, if no answer is missing from it, else one to read records of.

    A final backup goes on. Another one does not know what was answered after it was made; those answers would be given
    a second time, at the cost of the same people.

    Parameters
    ----------
    file
        What `reticent backup` wrote.
    name
        What the predictor is called from now on.
    head
        The last hash of the ledger when the predictor that was backed up stopped for good. If the backup ends with it,
        no answer is missing, and it goes on. That it is the last one is your word; nothing else can know.
    quiet
        Show no progress.
    """
    from reticent.service import backup, home

    with refusing():
        folder = home.folder_of(name)
        if not file.is_file():
            raise UsageError(f"there is no file {file}")
        with _bar("restoring", None, quiet):
            made, goes_on = backup.restore(file, folder, head=head)
    print(f"{name} is as {made.name} was, in phase {made.phase}, after {made.length:,} rows of its ledger.")
    if goes_on:
        print(
            f"It goes on from there. Keys are as they were too: revoke again what was revoked since. Next: reticent "
            f"serve {shlex.quote(name)}"
        )
    else:
        print(
            "It holds records only, and answers nothing: the one that was backed up may have answered since. If you "
            "know that it did not, delete this one and restore with --head, the last hash of its ledger."
        )
    return 0


# ── for all of them ───────────────────────────────────────────────────────────────────────────────────────────────


def existing_folder(name: str) -> Path:
    """The folder of a predictor, which must exist."""
    from reticent.service import home

    folder = home.folder_of(name)
    if not (folder / home.STORE).is_file():
        known = home.names()
        there = f"there are: {', '.join(known)}" if known else "there are none yet"
        raise UsageError(f"there is no predictor {name!r}; {there} (reticent fit makes one)")
    return folder


@contextmanager
def refusing(*, serving: bool = False) -> Iterator[None]:
    """What the parts refuse, as one line; none of them repeats a value of a table. What nobody expected, by its place.

    For one that is `serving` the exit code tells a supervisor whether another start may help.
    """
    import sqlite3

    from reticent.errors import BudgetExhausted, InsufficientData
    from reticent.service import halting, traces

    refusals = (ValueError, TypeError, BudgetExhausted, InsufficientData, OSError, RuntimeError, sqlite3.Error)
    try:
        yield
    except refusals as error:
        raise UsageError(_said(error), halting.code_of_refusal(error) if serving else 2) from error
    except UsageError:
        raise
    except Exception as error:
        where = traces.rendered(error)
        raise UsageError(f"an error that was not expected: {where}", halting.CODES["program"]) from None


def _said(error: Exception) -> str:
    import sqlite3

    from reticent.service import traces

    if getattr(error, "kind", None) in ("no-key", "not-allowed"):  # of a ServiceError
        return "the server wants a key that allows this: give one by $RETICENT_KEY or --key-file"
    if getattr(error, "kind", None) == "key-reused" or type(error).__name__ == "KeyReused":
        return (
            "--resume: what was asked last was other rows: put the table back as it was, or begin anew with another "
            "--out"
        )
    if isinstance(error, sqlite3.Error):
        return f"the store or the keys cannot be used: {error}"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return traces.said(error)


@contextmanager
def _bar(what: str, total: int | None, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while something goes on; it is told how many rows are done."""
    from reticent.service.tables import progress

    with progress(quiet=quiet) as bars:
        task = bars.add_task(what, total=total)
        yield lambda rows: bars.advance(task, rows)


def register(app: App) -> None:
    """Add the commands of the service to a command line."""
    for command in (schema, fit, serve, ask, status, backup, restore):
        app.command(command)
