"""Other targets and columns of the data sets, for the settings that advice is measured on."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rows = tuple[Any, Integers]

FLIGHT = ("month", "dow", "day", "hour", "minute", "distance")
TABLES = {  # raw tables: the file, and its delimiter
    "adult": ("adult.csv.gz", ","),
    "bank": ("bank_additional.csv.gz", ";"),
    "meps": ("meps_2015.csv.gz", ","),
}


def cells(kind: str, folder: Path) -> dict[str, list[str]]:
    """The columns of a raw table, as text."""
    name, delimiter = TABLES[kind]
    with gzip.open(folder / "raw" / name, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=delimiter))
    return {column: [row[column].strip() for row in rows] for column in rows[0]}


def numbers(table: dict[str, list[str]], left_out: tuple[str, ...]) -> Floats:
    """The columns whose cells are all numbers, as they are."""
    columns = []
    for name, texts in table.items():
        if name not in left_out:
            try:
                columns.append([float(text) for text in texts])
            except ValueError:
                continue
    return np.array(columns).T


def mixed(table: dict[str, list[str]], left_out: tuple[str, ...]) -> Floats:
    """Numbers as they are, and one column of zeros and ones per category of all other columns."""
    columns: list[Any] = []
    for name, texts in table.items():
        if name in left_out:
            continue
        try:
            columns.append([float(text) for text in texts])
        except ValueError:
            found = np.array(texts)
            columns += [(found == each).astype(float) for each in np.unique(found)]
    return np.array(columns).T


def _adult_mixed(folder: Path) -> Rows:
    table = cells("adult", folder)
    return mixed(table, ("income", "education")), _is(table["income"], ">50K")


def _adult_hours(folder: Path) -> Rows:
    table = cells("adult", folder)
    return mixed(table, ("hours_per_week", "native_country")), _above(table["hours_per_week"], 40)


def _adult_sex(folder: Path) -> Rows:
    table = cells("adult", folder)
    return numbers(table, ("sex",)), _is(table["sex"], "Male")


def _bank_mixed(folder: Path) -> Rows:
    table = cells("bank", folder)
    return mixed(table, ("y",)), _is(table["y"], "yes")


def _bank_contact(folder: Path) -> Rows:
    table = cells("bank", folder)
    return numbers(table, ("contact", "y")), _is(table["contact"], "cellular")


def _meps_blood_pressure(folder: Path) -> Rows:
    table = cells("meps", folder)
    return numbers(table, ("HIBPDX", "FAMILY", "HIGH_USE")), _is(table["HIBPDX"], "1")


def _meps_poor(folder: Path) -> Rows:
    """The 12 columns from education to limits on which income may depend, without those of diseases."""
    table = cells("meps", folder)
    some = ("REGION31", "AGE31X", "SEX", "RACEV1X", "MARRY31X", "HIDEG", "EDUCYR", "PCS42", "MCS42", "EMPST31",
            "INSCOV", "TTLPX")  # fmt: skip
    return numbers({name: table[name] for name in some}, ()), (np.array(table["POVCAT"], dtype=float) <= 2).astype(int)


def _adult_married(folder: Path) -> Rows:
    table = cells("adult", folder)
    return mixed(table, ("marital_status", "relationship", "native_country")), np.char.startswith(
        np.array(table["marital_status"]), "Married"
    ).astype(np.int64)


def _bank_single(folder: Path) -> Rows:
    table = cells("bank", folder)
    return mixed(table, ("marital", "month", "day_of_week", "y")), _is(table["marital"], "single")


def _meps_pain(folder: Path) -> Rows:
    table = cells("meps", folder)
    return numbers(table, ("JTPAIN31", "ARTHDX", "FAMILY", "HIGH_USE")), _is(table["JTPAIN31"], "1")


def _adult_graduates(folder: Path) -> Rows:
    table = cells("adult", folder)
    return mixed(table, ("education", "education_num", "native_country")), _above(table["education_num"], 12)


def _bank_graduates(folder: Path) -> Rows:
    table = cells("bank", folder)
    return mixed(table, ("education", "month", "y")), _is(table["education"], "university.degree")


def _meps_limits(folder: Path) -> Rows:
    table = cells("meps", folder)
    left_out = ("ACTLIM31", "WLKLIM31", "SOCLIM31", "FAMILY", "HIGH_USE")
    return numbers(table, left_out), _is(table["ACTLIM31"], "1")


def _meps_insured(folder: Path) -> Rows:
    """Private insurance, by age, sex, work, income and eight other numbers."""
    table = cells("meps", folder)
    some = ("REGION31", "AGE31X", "SEX", "RACEV1X", "MARRY31X", "EDUCYR", "ACTDTY31", "RTHLTH31", "PCS42", "MCS42",
            "EMPST31", "TTLPX")  # fmt: skip
    return numbers({name: table[name] for name in some}, ()), _is(table["INSCOV"], "1")


def _flights_late(folder: Path) -> Rows:
    """Six raw numbers of a flight, and departure in minutes of the day: late by a quarter hour."""
    with np.load(folder / "flights3m.npz") as file:
        some = {each: file[each][3::50].astype(np.float64) for each in FLIGHT}
        late = (file["delay"][3::50] > 15).astype(np.int64)
    return np.column_stack([*some.values(), 60 * some["hour"] + some["minute"]]), late


def _flights_hot(folder: Path) -> Rows:
    """Months, days of the week, hours and both airports, as zeros and ones, and distance: late by a quarter hour."""
    with np.load(folder / "flights3m.npz") as file:
        parts = [np.eye(int(file[each].max()) + 1)[file[each][7::60]] for each in ("month", "dow", "hour")]
        parts += [np.eye(len(file["airports"]))[file[each][7::60]] for each in ("origin", "dest")]
        distance = file["distance"][7::60, None] / 5_000
        return np.column_stack([*parts, distance]), (file["delay"][7::60] > 15).astype(np.int64)


def _covtype(folder: Path, wanted: int | None, *, raw: bool) -> Rows:
    with np.load(folder / "covtype.npz") as file:
        X, y = file["X"].astype(np.float64), file["y7"].astype(np.int64)
    return X if raw else from_0_to_1(X), y - 1 if wanted is None else (y == wanted).astype(np.int64)


def _covtype_two(folder: Path) -> Rows:
    """Spruce and lodgepole pine alone, in raw columns."""
    X, y = _covtype(folder, None, raw=True)
    return X[y <= 1], y[y <= 1]


def _wilderness(folder: Path) -> Rows:
    """The first of the four areas, by ten raw numbers."""
    with np.load(folder / "covtype.npz") as file:
        X = file["X"].astype(np.float64)
    return X[:, :10], X[:, 10].astype(np.int64)


def _soils(folder: Path) -> Rows:
    """Lodgepole pine, by areas and soils alone: 44 columns of zeros and ones, most of them rare."""
    X, y = _covtype(folder, 2, raw=True)
    return X[:, 10:], y


def _round_digits(folder: Path) -> Rows:
    X, digit = _digits(folder, tuple(range(10)), 2)
    return X, np.isin(digit, (0, 6, 8, 9)).astype(np.int64)


def _low_digits(folder: Path) -> Rows:
    X, digit = _digits(folder, tuple(range(10)), 4)
    return X, (digit < 5).astype(np.int64)


def _digits(folder: Path, some: tuple[int, ...], side: int) -> Rows:
    """Digits of some kinds, each pixel the mean of a square."""
    with np.load(folder / "mnist_parity.npz") as file:
        X, digit = file["X"], file["digit"].astype(np.int64)
    chosen = np.isin(digit, some)
    images = X[chosen].reshape(-1, 28 // side, side, 28 // side, side) / 255
    return images.mean(axis=(2, 4)).reshape(len(images), -1), np.searchsorted(some, digit[chosen])


def _kdd_distinct(folder: Path) -> Rows:
    """Every record once."""
    with np.load(folder / "kdd99.npz") as file:
        X, y, first = csr(file), file["y"], file["first_occurrence"]
    return X[np.flatnonzero(first)].toarray(), (y[first] > 0).astype(np.int64)


def _kdd_half(folder: Path) -> Rows:
    """Every other column of distinct records."""
    X, y = _kdd_distinct(folder)
    return X[:, ::2], y


def _flights_on_schedule(folder: Path) -> Rows:
    """Flights from New York, without what is known at departure."""
    with np.load(folder / "nycflights13.npz") as file:
        X, y, names = csr(file), file["y"], file["feature_names"]
    return X[:, np.flatnonzero(names != "dep_delay")].toarray(), (y > 0).astype(np.int64)


def _left_late(folder: Path) -> Rows:
    """Flights from New York that left late, by all but the delay."""
    with np.load(folder / "nycflights13.npz") as file:
        X, names = csr(file), file["feature_names"]
    delay = X[:, np.flatnonzero(names == "dep_delay")].toarray()[:, 0]
    others = [at for at, name in enumerate(names) if name != "dep_delay" and not name.startswith("dest=")]
    return X[:, others].toarray(), (delay > 15 / 120).astype(np.int64)


def _business(folder: Path) -> Rows:
    """News of business and of science alone."""
    with np.load(folder / "agnews_sports.npz") as file:
        X, y = folded(csr(file), 100), file["y4"].astype(np.int64)
    some = np.unique(y)[[0, 3]]
    chosen = np.isin(y, some)
    return X[chosen], (y[chosen] == some[1]).astype(np.int64)


def _topics(folder: Path) -> Rows:
    with np.load(folder / "agnews_sports.npz") as file:
        return folded(csr(file), 128), file["y4"].astype(np.int64)


def _texts(name: str, columns: int) -> Callable[[Path], Rows]:
    def read(folder: Path) -> Rows:
        with np.load(folder / f"{name}.npz") as file:
            return folded(csr(file), columns), (file["y"] > 0).astype(np.int64)

    return read


def _frequent_words(name: str, columns: int) -> Callable[[Path], Rows]:
    """Which of the most frequent words occur, as unit rows."""

    def read(folder: Path) -> Rows:
        with np.load(folder / f"{name}.npz") as file:
            X, y = csr(file), file["y"]
        most = np.argsort(-np.asarray((X > 0).sum(axis=0)).ravel())[:columns]
        found = (X[:, np.sort(most)] > 0).toarray().astype(np.float64)
        return found / np.maximum(1, np.linalg.norm(found, axis=1, keepdims=True)), (y > 0).astype(np.int64)

    return read


def _svmlight(folder: Path, name: str, columns: int) -> Rows:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(folder / f"{name}.svm.bz2"), n_features=columns)
    return X.toarray(), (y == y.max()).astype(np.int64)


def _phishing_rotated(folder: Path) -> Rows:
    """Columns of phishing sites, mixed by a rotation and then of scales from 1 to 1,000: no column is one of them."""
    X, y = _svmlight(folder, "phishing", 68)
    rotation = np.linalg.qr(np.random.default_rng(5).normal(size=(68, 68)))[0]
    return X @ rotation * np.geomspace(1, 1e3, 68), y


def _mushrooms_hard(folder: Path) -> Rows:
    """Every third column of mushrooms."""
    X, y = _svmlight(folder, "mushrooms", 112)
    return X[:, ::3], y


def _mushrooms_rotated(folder: Path) -> Rows:
    X, y = _svmlight(folder, "mushrooms", 112)
    return X @ np.linalg.qr(np.random.default_rng(7).normal(size=(112, 112)))[0], y


def _phishing_half(folder: Path) -> Rows:
    """Every other column of phishing sites."""
    X, y = _svmlight(folder, "phishing", 68)
    return X[:, 1::2], y


def _adult_third(folder: Path) -> Rows:
    """Every third column of a9a."""
    X, y = _svmlight(folder, "a9a", 123)
    return X[:, ::3], y


def _phishing_products(folder: Path) -> Rows:
    """Twelve columns of phishing sites, and their products."""
    X, y = _svmlight(folder, "phishing", 68)
    return _products(X[:, 20:32]), y


def _products(X: Floats) -> Floats:
    """Columns, and all products of two."""
    first, second = np.triu_indices(X.shape[1])
    return np.column_stack([X, X[:, first] * X[:, second]])


def _elec_products(folder: Path) -> Rows:
    X, y = _dense(folder, "elec2")
    return _products(X), y


def _skin_differences(folder: Path) -> Rows:
    """Differences of colours, and the sum of all, in units of 255."""
    X, y = _dense(folder, "skin_nonskin")
    return np.column_stack([X[:, 0] - X[:, 1], X[:, 1] - X[:, 2], X.sum(axis=1)]) / 255, y


def _w8a_even(folder: Path) -> Rows:
    """As many negatives as positives."""
    X, y = _svmlight(folder, "w8a", 300)
    positives, negatives = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    some = np.concatenate([positives, negatives[:: len(negatives) // len(positives)]])
    return X[some], y[some]


def _dense(folder: Path, name: str) -> tuple[Floats, Integers]:
    with np.load(folder / f"{name}.npz") as file:
        return file["X"].astype(np.float64), (file["y"] > 0).astype(np.int64)


def _skin_squares(folder: Path) -> Rows:
    """Three colours as they are, and their squares and products."""
    X, y = _dense(folder, "skin_nonskin")
    return np.column_stack([X, X * X, X[:, [0, 0, 1]] * X[:, [1, 2, 2]]]), y


def _elec_units(folder: Path) -> Rows:
    """Prices and demands in units from 1 to 10⁵."""
    X, y = _dense(folder, "elec2")
    return X * 10.0 ** np.array([3, 0, 5, 1, 4, 2]), y


def _elec_lagged(folder: Path) -> Rows:
    """Prices and demands, and those of half an hour before."""
    X, y = _dense(folder, "elec2")
    return np.column_stack([X[1:], X[:-1]]), y[1:]


def _donors_units(folder: Path) -> Rows:
    """Ten columns in units from 1 to 10⁴, without the one that nearly tells the class."""
    X, y = _dense(folder, "donors")
    best = np.argmax(np.abs(np.nan_to_num([np.corrcoef(column, y)[0, 1] for column in X.T])))
    kept = np.delete(X, best, axis=1)
    return kept * np.geomspace(1e4, 1, kept.shape[1]), y


def _skin_logs(folder: Path) -> Rows:
    """Logarithms of three colours, scaled."""
    X, y = _dense(folder, "skin_nonskin")
    return from_0_to_1(np.log1p(X)), y


def from_0_to_1(X: Floats) -> Floats:
    """Columns scaled by their ranges."""
    low, high = X.min(axis=0), X.max(axis=0)
    return np.asarray((X - low) / np.where(high > low, high - low, 1))


def folded(rows: Any, columns: int) -> Floats:
    """Counts of words folded into a few columns, as unit rows."""
    words = rows.shape[1]
    fold = sparse.csr_matrix((np.ones(words), (np.arange(words), np.arange(words) % columns)), shape=(words, columns))
    dense = (rows @ fold).toarray()
    return np.asarray(dense / np.maximum(1, np.linalg.norm(dense, axis=1, keepdims=True)))


def csr(file: Any) -> Any:
    """The matrix of a file that holds the arrays of one."""
    parts = (file["data"].astype(np.float64), file["indices"].astype(np.int32), file["indptr"])
    return sparse.csr_matrix(parts, shape=tuple(file["shape"]))


def _is(texts: list[str], one: str) -> Integers:
    return np.array([text == one for text in texts], dtype=np.int64)


def _above(texts: list[str], limit: float) -> Integers:
    return (np.array(texts, dtype=float) > limit).astype(np.int64)


READERS: dict[str, Callable[[Path], Rows]] = {
    "adult mixed": _adult_mixed,
    "adult hours": _adult_hours,
    "adult sex": _adult_sex,
    "bank mixed": _bank_mixed,
    "bank contact": _bank_contact,
    "meps blood pressure": _meps_blood_pressure,
    "meps poor": _meps_poor,
    "flights3m hot": _flights_hot,
    "covtype spruce": lambda folder: _covtype(folder, 1, raw=False),
    "covtype krummholz raw": lambda folder: _covtype(folder, 7, raw=True),
    "covtype seven": lambda folder: _covtype(folder, None, raw=False),
    "digits 3 8": lambda folder: _digits(folder, (3, 8), 2),
    "digits ten": lambda folder: _digits(folder, tuple(range(10)), 4),
    "kdd99 distinct": _kdd_distinct,
    "nycflights13 schedule": _flights_on_schedule,
    "agnews topics": _topics,
    "sst2 folded": _texts("sst2_phrases", 200),
    "imdb words": _frequent_words("imdb", 1_000),
    "phishing rotated": _phishing_rotated,
    "mushrooms third": _mushrooms_hard,
    "w8a even": _w8a_even,
    "skin squares": _skin_squares,
    "elec2 units": _elec_units,
    "adult graduates": _adult_graduates,
    "adult third": _adult_third,
    "bank graduates": _bank_graduates,
    "meps limits": _meps_limits,
    "meps insured": _meps_insured,
    "covtype wilderness": _wilderness,
    "covtype soils": _soils,
    "digits round": _round_digits,
    "digits 1 7": lambda folder: _digits(folder, (1, 7), 4),
    "kdd99 half": _kdd_half,
    "enron folded": _texts("enron_spam", 64),
    "imdb few words": _frequent_words("imdb", 200),
    "sst2 words": _frequent_words("sst2_phrases", 250),
    "phishing products": _phishing_products,
    "elec2 products": _elec_products,
    "skin differences": _skin_differences,
    "adult married": _adult_married,
    "bank single": _bank_single,
    "meps pain": _meps_pain,
    "flights3m late": _flights_late,
    "covtype two raw": _covtype_two,
    "digits 4 9": lambda folder: _digits(folder, (4, 9), 2),
    "digits low": _low_digits,
    "nycflights13 left late": _left_late,
    "agnews business": _business,
    "enron words": _frequent_words("enron_spam", 300),
    "spam words": _frequent_words("spamassassin", 150),
    "urls folded": _texts("phishing_urls", 64),
    "mushrooms rotated": _mushrooms_rotated,
    "phishing half": _phishing_half,
    "elec2 lagged": _elec_lagged,
    "donors units": _donors_units,
    "skin logs": _skin_logs,
}
