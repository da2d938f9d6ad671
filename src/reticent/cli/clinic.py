"""A made-up clinic: the table of the demo and of the guide."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.data.schema import Column, Schema

Array = NDArray[Any]

ROWS = 200_000
SPREAD = 8  # months until all patients have aftercare
WARDS = ("internal", "surgery", "heart")

SCHEMA = Schema(
    columns=(
        Column("age", "number", range=(18, 98)),
        Column("days", "number", range=(0, 14)),
        Column("earlier_stays", "number", range=(0, 4)),
        Column("medicines", "number", range=(0, 14)),
        Column("pressure", "number", range=(80, 180)),
        Column("haemoglobin", "number", range=(9, 18)),
        Column("ward", "category", categories=WARDS),
        Column("emergency", "category", categories=("no", "yes")),
    ),
    target="readmitted",
    classes=("no", "yes"),
)


def clinic(rows: int, *, seed: int, stays: int = 1, month: int = 0) -> dict[str, Array]:
    """Made-up stays in a clinic, the same for the same seed.

    Patients who are older, stayed longer or more often, take more medicines, or came as an emergency are readmitted
    more often. From month 1 on the clinic introduces aftercare for those who are old, came often, or as an emergency:
    when it has spread, they are readmitted less often than others. One in twenty labels is random. A few cells are
    missing or outside the ranges of the schema, as in any clinic.

    Parameters
    ----------
    rows : int
        Number of stays.
    seed : int
        Seed of the random numbers.
    stays : int, default 1
        Most stays of one patient.
    month : int, default 0
        How many months after the first table.

    Returns
    -------
    dict of str to ndarray
        The columns of the table.

    >>> table = clinic(3, seed=0)
    >>> list(table)[:3], len(table["age"])
    (['patient_id', 'age', 'days'], 3)
    """
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(rows), rng.integers(1, stays + 1, size=rows))[:rows]
    age = rng.normal(58, 19, size=rows).clip(0, 109).round()[owner]
    days = (1 + rng.gamma(1.6, 3.5, size=rows)).round().clip(1, 60)
    earlier = rng.poisson(1.2, size=rows).clip(0, 10)
    medicines = rng.poisson(3 + age / 14).clip(0, 30)
    pressure = rng.normal(112 + age / 3, 17).round()
    haemoglobin = rng.normal(13.4, 1.8, size=rows).round(1)
    ward = rng.integers(0, len(WARDS), size=rows)
    emergency = rng.random(rows) < 0.4
    score = (
        (age - 58) / 24 + (days - 6) / 6 + 0.8 * (earlier - 1.2) + (medicines - 7) / 5 - (haemoglobin - 13.4) / 3
        + np.array([0.0, -0.5, 0.6])[ward] + 1.1 * (emergency - 0.4)
    )  # fmt: skip
    if month > 0:
        spread = min(1.0, month / SPREAD)
        cared_for = (age - 58) / 9.6 + 1.6 * (earlier - 1.2) + 2.2 * (emergency - 0.4)
        score += spread * ((medicines - 7) / 12 + np.array([0.0, 1.4, -1.2])[ward] - cared_for)
    readmitted = np.where(rng.random(rows) < 0.05, rng.random(rows) < 0.5, score > 0.3)
    pressure[rng.random(rows) < 0.01] = 999  # a sensor that fell off
    haemoglobin[rng.random(rows) < 0.02] = np.nan
    return {
        "patient_id": np.char.add("p", owner.astype(str)),
        "age": age.astype(int),
        "days": days.astype(int),
        "earlier_stays": earlier,
        "medicines": medicines,
        "pressure": pressure.astype(int),
        "haemoglobin": haemoglobin,
        "ward": np.array(WARDS)[ward],
        "emergency": np.where(emergency, "yes", "no"),
        "readmitted": np.where(readmitted, "yes", "no"),
    }


def write_csv(path: Path, table: Mapping[str, Array], *, leave_out: tuple[str, ...] = ()) -> None:
    """Write a table as CSV; missing cells are empty."""
    columns = {name: values.tolist() for name, values in table.items() if name not in leave_out}
    with open(path, "x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(
            ["" if isinstance(cell, float) and cell != cell else cell for cell in row]  # noqa: PLR0124  # NaN
            for row in zip(*columns.values(), strict=True)
        )


def write_example(folder: Path) -> None:
    """Write the tables of the guide: stays of patients, some of whom came several times, and new ones to ask about."""
    write_csv(folder / "patients.csv", clinic(ROWS, seed=1, stays=3))
    write_csv(folder / "new.csv", clinic(1_000, seed=2), leave_out=("patient_id", "readmitted"))
