"""Frames of pandas and polars: columns chosen by name, words and missing values handled inside of each shard."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from reticent.data.tables import take
from reticent.teachers import PATEClassifier, Teachers
from reticent.teachers.missing import takes_nan

Array = NDArray[Any]
Maker = Callable[[dict[str, Any]], Any]

ROWS, SHARDS = 500, 8
generator = np.random.default_rng(0)
AGE = generator.integers(18, 90, ROWS)
JOB = np.array(["nurse", "smith", "cook"])[generator.integers(0, 3, ROWS)]
INCOME = generator.normal(size=ROWS)
ILL = AGE + 40 * (JOB == "cook") + 10 * INCOME > 65
GAPS = np.where(np.arange(ROWS) % 7 == 0, np.nan, INCOME)
FIRST = np.arange(100)


def categories(columns: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(columns).astype({"job": "category"})


def coded(columns: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(columns).with_columns(pl.col("job").cast(pl.Categorical))


MAKERS: dict[str, Maker] = {
    "pandas": pd.DataFrame,
    "pandas, categories": categories,
    "polars": pl.DataFrame,
    "polars, categories": coded,
}
every_frame = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def people(make: Maker, **others: Any) -> Any:
    return make({"age": AGE, "job": JOB, "income": INCOME} | others)


def by_name(number: Any = None) -> Pipeline:
    """Scales numbers and encodes words, each chosen by the name of its column; the order of columns is another."""
    columns = ColumnTransformer(
        [
            ("words", OneHotEncoder(handle_unknown="ignore"), ["job"]),
            ("numbers", number or StandardScaler(), ["income", "age"]),
        ]
    )
    return make_pipeline(columns, LogisticRegression())


IMPUTED = by_name(make_pipeline(SimpleImputer(), StandardScaler()))


@every_frame
def test_columns_are_chosen_by_name_and_words_encoded_in_each_shard(make: Maker) -> None:
    frame = people(make)
    teachers = Teachers(by_name(), shards=SHARDS, classes=(False, True)).fit(frame, ILL)
    votes = teachers.votes(take(frame, FIRST))
    assert teachers.feature_names_in_.tolist() == ["age", "job", "income"]
    assert np.mean(votes.argmax(axis=1) == ILL[FIRST]) > 0.9
    # A shard by itself gives the same votes: nothing was learned from the others.
    alone = by_name().fit(take(frame, np.arange(3, ROWS, SHARDS)), ILL[3::SHARDS])
    some = take(frame, FIRST[:30])
    assert np.array_equal(teachers.ask(some, np.full((30, 1), 3))[:, 0], alone.predict(some))


@every_frame
def test_a_student_learns_from_frames(make: Maker) -> None:
    frame = people(make)
    known: dict[str, Any] = {"epsilon": 8, "delta": 1e-4, "classes": (False, True), "unsafe_seed": 0}
    model = PATEClassifier(by_name(), by_name(), n_teachers=10, queries="passive", **known)
    model.fit(take(frame, np.arange(100, ROWS)), ILL[100:], public=take(frame, FIRST))
    assert model.feature_names_in_.tolist() == ["age", "job", "income"]
    assert np.mean(model.predict(take(frame, FIRST)) == ILL[FIRST]) > 0.8
    with pytest.raises(ValueError, match="by the same names and in the same order"):
        model.fit(frame, ILL, public=frame[["job", "age", "income"]])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("teacher", [None, LogisticRegression()])
def test_frames_of_numbers_are_learned_from_as_arrays_are(make: Maker, teacher: Any) -> None:
    table = np.column_stack([AGE / 50, INCOME])
    frame = make({"age": AGE / 50, "income": INCOME})
    private = np.arange(100, ROWS)
    first, second = (
        PATEClassifier(teacher, epsilon=1, delta=1e-4, classes=(False, True), unsafe_seed=0)
        .fit(take(rows, private), ILL[private], public=take(rows, FIRST))
        .predict(rows)
        for rows in (table, frame)
    )
    assert np.array_equal(first, second)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_labels_and_groups_may_be_columns_of_frames(make: Maker) -> None:
    frame = make({"age": AGE, "income": INCOME, "ill": ILL, "person": [f"p{row // 3}" for row in range(ROWS)]})
    teachers = Teachers(shards=SHARDS, classes=(False, True))
    rows = frame[["age", "income"]]
    columns = teachers.fit(rows, frame["ill"], groups=frame["person"]).votes(rows)
    arrays = teachers.fit(np.column_stack([AGE, INCOME]), ILL, groups=np.arange(ROWS) // 3)
    assert np.array_equal(columns, arrays.votes(np.column_stack([AGE, INCOME])))


@every_frame
def test_texts_are_a_column_for_each_teacher_to_take_apart(make: Maker) -> None:
    texts = ColumnTransformer([("text", TfidfVectorizer(), "job")])
    teachers = Teachers(make_pipeline(texts, LogisticRegression()), shards=SHARDS, classes=(False, True))
    frame = people(make)
    assert teachers.fit(frame, JOB == "cook").votes(take(frame, FIRST))[:, 1].tolist() == [
        SHARDS * (job == "cook") for job in JOB[FIRST]
    ]


def test_texts_may_be_the_column_of_an_array() -> None:
    texts = ColumnTransformer([("text", TfidfVectorizer(), 0)])
    teachers = Teachers(make_pipeline(texts, LogisticRegression()), shards=SHARDS, classes=(False, True))
    assert teachers.fit(JOB[:, None], JOB == "cook").votes([["cook"], ["smith"]]).tolist() == [[0, 8], [8, 0]]


def test_frames_that_are_not_in_memory_are_refused() -> None:
    with pytest.raises(TypeError, match=r"X must be a frame in memory, got a LazyFrame: call its \.collect\(\)"):
        Teachers(shards=SHARDS, classes=(False, True)).fit(people(pl.DataFrame).lazy(), ILL)


def test_names_on_one_side_only_are_warned_of_once() -> None:
    frame = pd.DataFrame({"age": AGE, "income": INCOME})
    for fitted, asked in ((frame, frame.to_numpy()), (frame.to_numpy(), frame)):
        teachers = Teachers(shards=SHARDS, classes=(False, True)).fit(fitted, ILL)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(3):
                votes = teachers.votes(asked)
            teachers.votes(fitted)
        assert len(told) == 1
        assert "feature names" in str(told[0].message)
        assert np.array_equal(votes, teachers.votes(fitted))


# ── missing values ────────────────────────────────────────────────────────────────────────────────────────────────

HOLES = [None if np.isnan(value) else float(value) for value in GAPS]
NULLABLE: dict[str, Callable[[], Any]] = {
    "pandas, NaN": lambda: people(pd.DataFrame, income=GAPS),
    "pandas, nullable": lambda: people(
        pd.DataFrame, income=pd.array(HOLES, dtype="Float64"), age=pd.array(AGE, dtype="Int64")
    ),
    "polars, null": lambda: people(pl.DataFrame, income=HOLES),
}


@pytest.mark.parametrize("make", NULLABLE.values(), ids=NULLABLE)
def test_missing_values_are_imputed_in_each_shard(make: Callable[[], Any]) -> None:
    frame = make()
    teachers = Teachers(IMPUTED, shards=SHARDS, classes=(False, True)).fit(frame, ILL)
    votes = teachers.votes(take(frame, FIRST))
    assert np.mean(votes.argmax(axis=1) == ILL[FIRST]) > 0.85
    alone = Teachers(IMPUTED, shards=SHARDS, classes=(False, True)).fit(people(pd.DataFrame, income=GAPS), ILL)
    assert np.array_equal(votes, alone.votes(people(pd.DataFrame, income=GAPS).iloc[FIRST]))


@pytest.mark.parametrize("make", NULLABLE.values(), ids=NULLABLE)
@pytest.mark.parametrize("teacher", [None, by_name()], ids=["default", "scaled only"])
def test_missing_values_are_refused_where_nobody_imputes_them(make: Callable[[], Any], teacher: Any) -> None:
    frame = make()[["age", "income"]] if teacher is None else make()
    with pytest.raises(ValueError, match="X must be finite: it holds NaN or inf; impute in a pipeline"):
        Teachers(teacher, shards=SHARDS, classes=(False, True)).fit(frame, ILL)
    with pytest.raises(ValueError, match=r"must be finite: it holds NaN or inf"):
        PATEClassifier(teacher, teacher, epsilon=1, delta=1e-4, classes=(False, True), queries="passive").fit(
            frame, ILL, public=take(frame, FIRST)
        )


@pytest.mark.parametrize(
    ("columns", "taken"),
    [
        ([("a", SimpleImputer(), ["age"]), ("b", OneHotEncoder(), ["job"])], True),
        ([("a", StandardScaler(), ["age"]), ("b", OneHotEncoder(), ["job"])], False),
        ([("a", "passthrough", ["age"]), ("b", SimpleImputer(), ["income"])], False),
        ([("a", "drop", ["age"]), ("b", SimpleImputer(), ["income"])], True),
        ([("a", make_pipeline(StandardScaler(), SimpleImputer()), ["age"])], True),
        ([("a", make_pipeline(StandardScaler(), LogisticRegression()), ["age"])], False),
    ],
)
def test_what_columns_do_to_missing_values(columns: list[Any], taken: bool) -> None:
    assert takes_nan(make_pipeline(ColumnTransformer(columns), LogisticRegression())) == taken
    assert takes_nan(make_pipeline(ColumnTransformer(columns), HistGradientBoostingClassifier())) or not taken


# ── one vote ──────────────────────────────────────────────────────────────────────────────────────────────────────


def shifted(fit: Callable[[Any, Array], Teachers]) -> int:
    """How many votes on a question change when a row is replaced by one with a new word and a huge number; the most."""
    places = np.arange(ROWS) == 7
    frame = people(pd.DataFrame)
    other = people(pd.DataFrame, job=np.where(places, "spy", JOB), income=np.where(places, 1e6, INCOME))
    votes = [fit(rows, labels).votes(take(frame, FIRST)) for rows, labels in ((frame, ILL), (other, ILL ^ places))]
    return int(np.abs(votes[0] - votes[1]).sum(axis=1).max()) // 2


def test_a_replaced_row_of_a_frame_moves_one_vote() -> None:
    assert shifted(Teachers(by_name(), shards=SHARDS, classes=(False, True)).fit) == 1


def test_twin_that_fits_the_columns_on_all_rows_moves_many() -> None:
    class Pooled(Teachers):
        def fit(self, X: Any, y: Any, groups: Any = None) -> Any:
            self.columns = by_name()[0].fit(X)
            return super().fit(self.columns.transform(X), y, groups)

        def votes(self, X: Any) -> Any:
            return super().votes(self.columns.transform(X))

    assert shifted(lambda X, y: Pooled(LogisticRegression(), shards=SHARDS, classes=(False, True)).fit(X, y)) > 1


def by_type() -> Pipeline:
    """Takes for numbers what has the type of numbers."""
    numbers, words = make_column_selector(dtype_include=np.number), make_column_selector(dtype_exclude=np.number)
    columns = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(handle_unknown="ignore"), words))
    return make_pipeline(columns, LogisticRegression())


def test_a_row_that_changes_the_type_of_a_column_is_no_neighbour() -> None:
    """It would move every teacher; so types are public, and private rows with other types than public ones refused."""
    frame = people(pd.DataFrame)
    other = frame.astype({"age": object})
    other.loc[7, "age"] = "unknown"
    asked = frame.iloc[:20].astype({"age": object})
    first, second = (Teachers(by_type(), shards=SHARDS, classes=(False, True)).fit(X, ILL) for X in (frame, other))
    assert np.abs(first.votes(frame.iloc[:20]) - second.votes(asked)).max() > 1
    model = PATEClassifier(by_type(), epsilon=1, delta=1e-4, n_teachers=SHARDS, classes=(False, True))
    with pytest.raises(TypeError, match=r"X must have the column types of public.* column 'age' is object, not int64;"):
        model.fit(other, ILL, public=frame.iloc[:50])
    coded = frame.astype({"job": "category"})
    spy = frame.assign(job=np.where(np.arange(ROWS) == 7, "spy", JOB)).astype({"job": "category"})
    with pytest.raises(TypeError, match="column 'job' has other categories; give both the types of a schema"):
        model.fit(spy, ILL, public=coded.iloc[:50])
