"""`reticent fit`: make a predictor from a table, by a plan that is printed before a row is read."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from dataclasses import replace
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from reticent.cli.charging import charge, in_words, recognise
from reticent.cli.compare import compared_learner, comparison, in_advance
from reticent.cli.compare import in_words as compared_in_words
from reticent.cli.errors import UsageError, as_usage_errors
from reticent.cli.fit_plan import BetterOption, FitChoice, Learner, choose
from reticent.cli.notices import one_answer
from reticent.cli.options import Flag, Number, whole_number
from reticent.cli.progress import progress_bar
from reticent.cli.truth_options import NOTHING_LATER, Truth, TruthOptions
from reticent.errors import OneAnswerWarning, PrivacyWarning

if TYPE_CHECKING:
    from reticent.cli.private_schema import TableSource
    from reticent.data.rows import Rows
    from reticent.data.schema import Schema
    from reticent.predictors.everlasting import EverlastingPredictor
    from reticent.privacy.guarantee import Guarantee
    from reticent.service.tables import TableFile


def fit(
    table: Path,
    *,
    name: str,
    epsilon: Number,
    delta: Number,
    target: str | None = None,
    group: str | None = None,
    classes: str | None = None,
    schema: Path | None = None,
    label_share: Number = 0.02,
    schema_share: Number = 0.1,
    categories: str | None = None,
    leave_out: str | None = None,
    learner: Learner = "auto",
    answers: Annotated[int | str, Parameter(converter=whole_number("endless", least=1))] = "endless",
    drift: Literal["none", "slow", "fast"] = "none",
    client_share: Number = 1,
    client_phases: Annotated[int, Parameter(converter=whole_number(least=1))] = 1,
    data: str | None = None,
    again: Flag = False,
    compare: Flag = False,
    yes: Flag = False,
    quiet: Flag = False,
    later: Truth = None,
) -> int:
    """Make a predictor from a table, ready to be served.

    The plan is printed first, from the header, the schema and the number of rows. Only then are the rows read.
    Without a schema, ranges and categories are found privately, with a share of epsilon and delta.

    Parameters
    ----------
    table
        A CSV, Parquet or Arrow file.
    name
        The name of the new predictor.
    epsilon
        Privacy-loss bound ε for everyone in the table and everyone whose queries are learned from.
    delta
        Probability δ with which that bound may fail; choose it well below one over the number of rows.
    target
        The column to predict, if the schema does not name it.
    group
        The column that names the person a row belongs to: all rows of one person are protected together.
    classes
        The labels, separated by commas: no,yes. Any other label counts as the first; if there are many, fit stops.
    schema
        The public description of the columns; `reticent schema` drafts one. Without it, one is found privately.
    label_share
        The share of epsilon for a private count of labels that are not among the classes, before anything else is
        spent; 0 counts none.
    schema_share
        Without a schema: the share of the budget for finding one.
    categories
        Without a schema: columns that are categories although they look like numbers, separated by commas.
    leave_out
        Without a schema: columns that are not learned from, separated by commas.
    learner
        What answers: teachers that vote (linear, trees, thresholds); private, one private linear model per phase; or
        private-model, one private linear model that never learns from queries, so that its guarantee protects the rows
        only. auto takes linear, private or private-model, whichever is expected to lose least to a linear model
        without privacy; with --client-share or --client-phases, linear or private. (Other commands take --learner
        module:object, for a predictor that was made in Python with a learner of your own.)
    answers
        The number of queries to answer, or endless.
    drift
        How fast the data change over time. It decides the advice, and how long phases are.
    client_share
        The largest share of a phase's rows that may come from one client. Queries are learned from, so choose less than
        1 if clients have keys and are not trusted: 0.01 if hundreds will ask. The default is 1, since with fewer than
        1/share clients each phase is smaller than the one before, and a single client would end the service.
    client_phases
        With a group: the number of phases that the queries of one client may enter; each costs epsilon and delta. Later
        queries of that client are answered, but not learned from.
    data
        The data set whose budget pays (see `reticent data`); by default the one that has these rows, or a new one.
    again
        Pay once more for rows whose budget is spent: its cap is raised by epsilon and delta.
    compare
        Compare a linear model with one on random Fourier features first, privately and within the same epsilon and
        delta, and make the better one; with --learner private-model or auto.
    yes
        Continue although another option is better.
    quiet
        Show no progress.
    """
    from reticent.cli.label_check import checked_label_share, price_of_labels
    from reticent.cli.private_schema import SchemaPurchase, checked_schema_share, search
    from reticent.predictors.parameters import CheckedParameters
    from reticent.service import home, tables

    later = later or NOTHING_LATER
    _check_options(learner, later, client_share, compare=compare)
    with as_usage_errors():
        folder = _new_folder(name)
        share = checked_schema_share(schema_share)
        label_part = checked_label_share(label_share)
        found = tables.open_table(table)
        declared = None if schema is None else _read_schema(found, schema, target, group, classes)
        if declared is not None and (categories or leave_out):
            raise UsageError("--categories and --leave-out are for a table without a schema: edit the schema instead")
        with progress_bar("counting rows", quiet=quiet) as advance:
            rows = found.count(advance)
        if rows == 0:
            raise UsageError(f"{table} has no rows")
        if compare:
            learner = compared_learner(learner, drift=drift)
        labels = price_of_labels(rows, epsilon=epsilon, share=label_part)
        options: dict[str, Any] = {
            "answers": answers, "drift": drift, "client_share": client_share, "client_phases": client_phases,
            "later": later,
        }  # fmt: skip
        purchase, kept = None, _schema_file(folder, bought=declared is None)
        if declared is None:
            wanted = search(
                found, rows, target=target, classes=classes, group=group, categories=categories, leave_out=leave_out,
                quiet=quiet,
            )  # fmt: skip
            purchase = SchemaPurchase.planned(
                wanted, rows, learner, epsilon=epsilon - labels, delta=delta, share=share, labels=labels,
                options=options,
            )  # fmt: skip
            choice = purchase.choice
        else:
            choice = choose(
                declared, rows, learner, epsilon=epsilon - labels, delta=delta, labels_price=labels, **options
            )
        planned = _predictor(choice, compare, client_share=client_share, client_phases=client_phases)
        promised = CheckedParameters.of(planned.get_params(deep=False)).guarantee(
            grouped=choice.schema.group is not None, seeded=False
        )
        _show(choice, table, promised, client_share, client_phases, compare=compare)
        if compare:
            print("\n" + in_advance(planned.learner, rows, grouped=choice.schema.group is not None))
        if (better := choice.better()) is not None:
            _confirm(better, yes)
        source = None if purchase is None else purchase.search.source
        _pay(found, source, choice, promised, rows, name=name, data=data, again=again, quiet=quiet)
        if purchase is not None:
            choice = purchase.made(kept)
            _show(choice, table, promised, client_share, client_phases)
        predictor = _predictor(choice, compare, client_share=client_share, client_phases=client_phases)
        training = read_rows(found, choice.schema, rows, quiet=quiet)
        _learn(predictor, choice.schema, training, quiet=quiet)
        if purchase is not None:
            purchase.split.rest.check(predictor.event_)
        with progress_bar("saving", quiet=quiet):
            home.Home.create(folder, predictor, _model(choice, rows, epsilon, delta, share)).close()
    _report(predictor, choice, rows, folder)
    return 0


def _check_options(learner: str, later: TruthOptions, client_share: Any, *, compare: bool) -> None:
    if not 0 < client_share <= 1:
        raise UsageError(f"--client-share must be above 0 and at most 1, got {float(client_share):g}")
    later.check(learner, compare=compare)


def _pay(
    table: TableFile,
    source: TableSource | None,
    choice: FitChoice,
    promised: Guarantee,
    rows: int,
    *,
    name: str,
    data: str | None,
    again: bool,
    quiet: bool,
) -> None:
    """Charge the data set for all that follows; first for the check of labels, which may end it there."""
    from reticent.cli.label_check import check_labels
    from reticent.cli.private_schema import TableSource
    from reticent.exact import rational
    from reticent.service.datasets.registry import Price

    group, labels = choice.schema.group, choice.labels_price
    recognised = recognise(table, rows=rows, data=data, quiet=quiet)
    known: dict[str, Any] = {"predictor": name, "group": group, "data": data}
    whole = rational(promised.epsilon, "epsilon")
    rest = Price("fit", whole - labels, promised.delta)
    if not labels:
        receipt, note = charge(table, recognised, **rest._asdict(), again=again, **known), None
    else:
        source = source or TableSource(table, rows, group, quiet=quiet)
        first = charge(
            table, recognised, purpose="labels", epsilon=labels, delta=0, again=again, ahead_of=rest, **known
        )
        note = check_labels(source, choice.schema, first, epsilon=labels, whole=whole)
        receipt = charge(table, recognised, **rest._asdict(), **known)
        receipt = receipt._replace(is_new=first.is_new, raised=first.raised)
    print(f"\n{in_words(receipt)}" + ("" if note is None else f"\n{note}"), flush=True)


def _report(predictor: EverlastingPredictor, choice: FitChoice, rows: int, folder: Path) -> None:
    """Print what was made, what it promises and cost, what to expect, and what comes next."""
    if predictor.comparison_ is not None:
        print("\n" + compared_in_words(predictor.comparison_))
    schema, promised, name = choice.schema, predictor.guarantee_, shlex.quote(folder.name)
    made = "one private model" if not choice.has_phases else f"a predictor ({choice.option_name})"
    who = "each row of the table" if schema.group is None else f"all rows of one {schema.group!r} together"
    queries = "and each query" if choice.has_phases else "and not queries"
    if choice.later.takes_rows:
        queries = f"each row that is taught later, {queries}"
    if choice.has_phases and schema.group is not None:
        queries = "and all queries of one client together"
        if choice.later.takes_rows:
            who = f"all rows of one {schema.group!r} together, also those that are taught later"
    print(
        f"\nMade: {made} of {rows:,} rows and {len(schema.columns):,} column{'s' * (len(schema.columns) > 1)}, in "
        f"{folder}\n"
        f"Protects: {who}, {queries}, with ε = {promised.epsilon:g}, δ = {promised.delta:g}\n"
        f"Spent: {'; '.join(choice.spending())}\n"
        f"Expect: {choice.expectation()}\n"
        f"Next: reticent serve {name} (or reticent status {name} for the guarantee in words)"
    )
    if predictor.one_answer_ is not None:
        print(one_answer(predictor.one_answer_))


def _new_folder(name: str) -> Path:
    """Where the predictor will be. Refuse at once if nothing can be saved there, not after rows are learned from."""
    from reticent.service import home

    folder = home.folder_of(name)
    if folder.exists():
        raise UsageError(f"there is a predictor {name!r} already; choose another --name, or delete {folder}")
    root = folder.parent
    existing = next(folder for folder in (root, *root.absolute().parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"no predictor can be saved in {root}: {existing} is not writable; set RETICENT_HOME")
    return folder


def _schema_file(folder: Path, *, bought: bool) -> Path:
    """Where a schema that is bought will be; refuse to write over one that was."""
    file = folder.with_name(f"{folder.name}.schema.toml")
    if bought and file.exists():
        raise UsageError(f"{file} is a schema that was paid for: use it for free with --schema, or take another --name")
    return file


def _show(
    choice: FitChoice,
    table: Path,
    promised: Guarantee,
    client_share: Any,
    client_phases: int,
    *,
    compare: bool = False,
) -> None:
    """Print a plan; refuse one that cannot be kept."""
    print(choice.text(table, promised, client_share=client_share, client_phases=client_phases, compare=compare))
    if not choice.holds:
        raise UsageError(choice.required())


def _read_schema(
    table: TableFile, path: Path, target: str | None, group: str | None, classes: str | None
) -> Schema:
    """The schema, with the group that the command line names; it must fit the table and the options."""
    from reticent.cli.private_schema import labels_of
    from reticent.data.cells import as_text
    from reticent.data.schema import Schema
    from reticent.service import tables

    schema = Schema.read(path)
    if not schema.target:
        if target is None or classes is None:
            raise UsageError(f"{path} describes columns only: add --target and --classes")
        schema = replace(schema, target=target, classes=labels_of(classes))
    elif classes is not None and set(map(as_text, labels_of(classes))) != set(map(as_text, schema.classes)):
        raise UsageError(f"--classes {classes} are not the classes of {path}")
    if target is not None and target != schema.target:
        raise UsageError(f"--target {target!r} is not the target of {path}, which is {schema.target!r}")
    if group is not None and schema.group not in (None, group):
        raise UsageError(f"--group {group!r} is not the group of {path}, which is {schema.group!r}")
    schema = schema if group is None else replace(schema, group=group)
    tables.check_readable(table, _columns_read(schema))
    for column in schema.columns:
        if column.kind == "number" and table.types.get(column.name) == "category":
            raise UsageError(f"{path}: the column {column.name!r} is a number, but the file declares another type")
    return schema


def _columns_read(schema: Schema) -> list[str]:
    columns = [*(column.name for column in schema.columns), schema.target]
    return columns if schema.group is None else [*columns, schema.group]


def _confirm(better: BetterOption, yes: bool) -> None:
    print(f"\n{better.title.capitalize()}: {better.words}.")
    if yes:
        return
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        if input("Continue anyway? [y/N] ").strip().lower() in ("y", "yes"):
            return
        raise UsageError("nothing was read or made")
    raise UsageError(f"{better.title}: add --yes to continue, or {better.instead}")


def _predictor(choice: FitChoice, compare: bool, *, client_share: Any, client_phases: int) -> EverlastingPredictor:
    from reticent.predictors.everlasting import EverlastingPredictor

    learner: Any = None
    if compare:
        learner = comparison(choice.schema.row_norm, epsilon=choice.epsilon, delta=choice.delta)
    elif choice.learner == "trees":
        from sklearn.tree import DecisionTreeClassifier

        learner = DecisionTreeClassifier(random_state=0)
    elif choice.learner == "thresholds":
        from reticent.concepts import Thresholds

        learner = Thresholds(both_orientations=True)  # the order of classes does not say which one lies below
    elif choice.learner in ("private", "private-model"):
        from reticent.learners.logistic import PrivateLogisticRegression

        learner = PrivateLogisticRegression(
            epsilon=choice.epsilon, delta=choice.delta, row_norm=choice.schema.row_norm
        )
    return EverlastingPredictor(
        learner,
        epsilon=choice.epsilon,
        delta=choice.delta,
        besides=choice.besides,
        answers=choice.answers,
        classes=list(choice.schema.classes),
        engine="auto" if choice.has_phases else "model",
        **choice.phases,
        **choice.later.predictor_parameters(),
        client_share=client_share,
        client_phases=client_phases,
    )


def _learn(predictor: EverlastingPredictor, schema: Schema, training: Rows, *, quiet: bool) -> None:
    from reticent.data.labels import ClassLabels

    with progress_bar("learning", quiet=quiet), warnings.catch_warnings():
        warnings.simplefilter("ignore", OneAnswerWarning)  # printed later
        warnings.filterwarnings("ignore", "delta=.* is not below 1/", PrivacyWarning)  # printed in the plan
        labels = ClassLabels(schema.ascending_classes, training.class_indices)
        predictor.fit(training.X, labels, groups=training.groups)


def read_rows(table: TableFile, schema: Schema, rows: int, *, quiet: bool = False) -> Rows:
    """Read all rows of a table as numbers.

    Rows that would take too much memory are kept in an unnamed file.

    Parameters
    ----------
    table : TableFile
        The table, with all columns of the schema.
    schema : Schema
        What cells mean.
    rows : int
        The number of rows that were counted; a table that has changed since is refused.
    quiet : bool, default False
        Show no progress.

    Returns
    -------
    Rows
        Numbers, class indices in the ascending order of the classes, and the name of each row's group if the schema
        has groups.
    """
    import numpy as np

    from reticent.cli.private_schema import group_names
    from reticent.data.rows import RowStore
    from reticent.service.tables import check_unchanged

    store = RowStore(rows, schema.width, dtype=np.float64, classes=len(schema.classes), memory_limit=1 << 30)
    known: dict[str, int] = {}  # groups by their text, so that a group is the same in a CSV file as elsewhere
    groups = None if schema.group is None else np.empty(rows, dtype=np.int64)
    numbers = {column.name for column in schema.columns if column.kind == "number"}
    with progress_bar("reading rows", rows, quiet=quiet) as advance:
        for chunk in table.chunks(_columns_read(schema), advance, numbers=numbers, as_floats=True):
            start = len(store)
            encoded = schema.encode(chunk)
            if start + len(encoded) > rows:
                check_unchanged(table, start + len(encoded), rows)
            store.append(encoded, schema.class_indices(chunk[schema.target]))
            if groups is not None and schema.group is not None:
                names = group_names(chunk[schema.group], table, schema.group)
                groups[start : start + len(names)] = [known.setdefault(each, len(known)) for each in names]
    check_unchanged(table, len(store), rows)
    if groups is None:
        return store.rows()
    spelled = np.fromiter(known, dtype=object, count=len(known))
    return store.rows()._replace(groups=spelled[groups])  # names: rows that are taught later may have the same


def _model(choice: FitChoice, rows: int, epsilon: Any, delta: Any, share: Fraction) -> str:
    """The text of model.toml: the schema and, under [model], how the predictor was made. All of it is public."""
    from reticent.data.schema import toml

    made: dict[str, Any] = {
        "epsilon": str(epsilon),
        "delta": str(delta),
        "learner": choice.learner,
        "answers": choice.answers,
        "rows": rows,
        "features": list(choice.schema.features),
        "reticent": version("reticent"),
    }
    if choice.besides is not None:
        made |= {"phase_epsilon": str(choice.epsilon), "phase_delta": str(choice.delta)}
    if choice.labels_price:
        made["labels_epsilon"] = str(choice.labels_price)
    if choice.schema_price is not None:
        made["schema_share"] = str(share)
    made |= choice.later.toml(choice.plan.truth)
    return choice.schema.to_toml() + "\n[model]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in made.items())
