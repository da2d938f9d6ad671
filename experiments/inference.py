"""How far attacks through `predict` get: measured on a9a and kept, since its rows are read from a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from experiments import datasets
from experiments.table import Table
from reticent.audit.inference import Array, InferenceResult, label_inference, membership_inference, most_advantage
from reticent.audit.inference import telling_queries as telling
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.teachers import Teachers

EPSILONS, DELTA, ANSWERS, TEACHERS, ROWS = (1, 4), 1e-6, 100, 800, 40_000
VICTIMS, RUNS, POOL = 2, 100, 3_000
MEASURED = Path(__file__).with_name("inference.json")


def tables() -> list[Table]:
    """Mean and greatest advantages over the targets, as measured."""
    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    columns = ("predictor", "attack", "mean advantage", "greatest", "ε shown, at most", "advantage allowed")
    rows = []
    for result in kept["results"]:
        advantages, shown = result["advantages"], result["epsilons"]
        allowed = "" if result["epsilon"] is None else f"{most_advantage(epsilon=result['epsilon'], delta=DELTA):.2f}"
        numbers = f"{np.mean(advantages):.2f}", f"{max(advantages):.2f}", f"{max(shown):.2f}"
        rows.append((result["predictor"], result["attack"], *numbers, allowed))
    return [Table(f"Attacks on {VICTIMS} rows of a9a, {RUNS} runs on either side", columns, tuple(rows))]


def measure(folder: Path) -> None:
    """Attack predictors trained on the a9a of a folder, and keep the results in `inference.json` beside this module.

    Parameters
    ----------
    folder : Path
        The folder with the files of the data sets.
    """
    table, labels = datasets.load("a9a", folder)
    order = np.random.default_rng(0).permutation(table.shape[0])
    rows, y = np.asarray(table[order].todense()), labels[order]
    results = results_on(rows[:ROWS], y[:ROWS], rows[ROWS : ROWS + POOL], victims=VICTIMS, runs=RUNS)
    kept = {"made by": "reticent experiment inference --data DIR", "results": results}
    MEASURED.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


class Majority:
    """The majority of the same teachers, without noise."""

    def __init__(self, teachers: Teachers) -> None:
        self.teachers = teachers

    def predict(self, X: Array) -> Array:
        """The class with the most votes.

        Parameters
        ----------
        X : array
            The queries.
        """
        found: Array = np.asarray(self.teachers.votes(X)).argmax(axis=1)
        return found


def results_on(X: Array, y: Array, pool: Array, *, victims: int, runs: int) -> list[dict[str, Any]]:
    """Both attacks on every predictor, on the first rows whose label decides a majority on some row of the pool.

    Parameters
    ----------
    X : array
        The training rows.
    y : array
        Their labels.
    pool : array
        Rows that the attacker may ask about.
    victims : int
        The number of rows that are attacked.
    runs : int
        The number of runs of each attack, on each side.
    """

    def teachers(X: Array, y: Array) -> Teachers:
        return Teachers(shards=TEACHERS, classes=(0, 1)).fit(X, y)

    def private(epsilon: float) -> Any:
        return lambda X, y: EverlastingPredictor(
            epsilon=epsilon, delta=DELTA, answers=ANSWERS, classes=(0, 1), rows_per_teacher=len(X) // TEACHERS
        ).fit(X, y)

    predictors: list[tuple[str, Any, float | None]] = [
        *[(f"EverlastingPredictor, ε = {epsilon}", private(epsilon), epsilon) for epsilon in EPSILONS],
        ("the same teachers, no noise", lambda X, y: Majority(teachers(X, y)), None),
        ("one decision tree", lambda X, y: DecisionTreeClassifier(random_state=0).fit(X, y), None),
    ]
    found: dict[tuple[str, str, float | None], list[InferenceResult]] = {}
    base = teachers(X, y)
    attacked, before = 0, Majority(base).predict(pool)
    for index in range(1, len(X)):
        if attacked == victims:
            break
        turned = y.copy()
        turned[index] = 1 - y[index]
        changed = teachers(X, turned)
        if (before == Majority(changed).predict(pool)).all():
            continue
        attacked += 1
        for attack in ("label", "membership"):
            row, label = (X[index], 1 - y[index]) if attack == "label" else (X[index - 1], y[index - 1])
            other = X.copy(), y.copy()
            other[0][index], other[1][index] = row, label
            queries = telling(base, teachers(*other), pool, ANSWERS)
            for name, train, epsilon in predictors:
                asked = np.concatenate([queries[:1], X[index : index + 1]]) if epsilon is None else queries
                times = 40 if epsilon is None else runs  # where there is no noise all runs are the same
                how: dict[str, Any] = {"index": index, "runs": times, "delta": DELTA, "refit": False, "queries": asked}
                result = (
                    label_inference(train, X, y, label=label, **how)
                    if attack == "label"
                    else membership_inference(train, X, y, other=(row, label), **how)
                )
                found.setdefault((name, attack, epsilon), []).append(result)
    return [
        {
            "predictor": name,
            "attack": attack,
            "epsilon": epsilon,
            "advantages": [round(result.advantage, 4) for result in results],
            "epsilons": [round(result.epsilon_lower, 4) for result in results],
        }
        for (name, attack, epsilon), results in found.items()
    ]
