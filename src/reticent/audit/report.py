"""The audit of every mechanism in the catalogue, and of its broken twins, as one table."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from reticent.audit.catalogue import CatalogueEntry, Run
from reticent.audit.lower_bound import empirical, prospect
from reticent.audit.neighbours import divergences, worst_case
from reticent.exact import upward
from reticent.noise import system

TAIL_BITS = 44  # what is left out of the exact laws is less than the rounding allowed below
ROUNDING = 2.0**-40  # how far the certified upper bound on δ may lie above a claim that is met with equality
CONFIDENCE = 0.999  # that no empirical bound in the whole table exceeds the truth

Twins = Mapping[str, Mapping[str, Run]]  # mechanism → name of the twin → the same run, broken


class TwinError(ValueError):
    """A file of twins that cannot be used, or a twin that cannot be run."""


@dataclass(frozen=True)
class TwinResult:
    """What the audit found on a broken twin.

    Parameters
    ----------
    name : str
        What is broken.
    exact_delta : float
        Certified lower bound on its δ at the claimed ε.
    rejected : bool
        Whether that refutes the claim.
    """

    name: str
    exact_delta: float
    rejected: bool


@dataclass(frozen=True)
class AuditRow:
    """What the audit found on one mechanism."""

    mechanism: str
    epsilon: float
    delta: float
    exact_delta: float
    exact_passed: bool
    empirical_epsilon: float
    empirical_event: str
    empirical_passed: bool
    twins: tuple[TwinResult, ...]

    @property
    def passed(self) -> bool:
        """Whether the mechanism keeps its claim and each broken twin is rejected. There must be at least one twin."""
        caught = len(self.twins) > 0 and all(twin.rejected for twin in self.twins)
        return self.exact_passed and self.empirical_passed and caught


def examine(entry: CatalogueEntry, *, twins: Twins, runs: int, confidence: float, jobs: int | None = None) -> AuditRow:
    """Audit one entry: its exact laws, then runs on the most promising pair, then its twins.

    Parameters
    ----------
    entry : CatalogueEntry
        What to audit.
    twins : dict
        Mechanism → name of the twin → its run.
    runs : int
        Runs on each input of the pair.
    confidence : float
        Probability with which the empirical bound holds, at least.
    jobs : int, optional
        Workers of joblib.

    Returns
    -------
    AuditRow
    """
    pairs = divergences(entry.run, entry.neighbours, tail_bits=TAIL_BITS)
    bounds = [pair.delta(entry.epsilon) for _, _, pair in pairs]
    lower, upper = max(low for low, _ in bounds), max(high for _, high in bounds)
    first, second, _ = max(
        pairs,
        key=lambda item: prospect(item[2].first, item[2].second, delta=entry.delta, runs=runs, confidence=confidence),
    )
    seen = empirical(
        partial(entry.run, system),
        first,
        second,
        delta=entry.delta,
        epsilon=entry.epsilon,
        runs=runs,
        confidence=confidence,
        jobs=jobs,
        quiet=True,
    )
    return AuditRow(
        mechanism=entry.name,
        epsilon=upward(entry.epsilon),
        delta=upward(entry.delta),
        exact_delta=upper,
        exact_passed=lower <= entry.delta and upper <= float(entry.delta) + ROUNDING,
        empirical_epsilon=seen.epsilon_lower,
        empirical_event=seen.event,
        empirical_passed=seen.passed is True,
        twins=tuple(reject(entry, *twin) for twin in twins.get(entry.name, {}).items()),
    )


def reject(entry: CatalogueEntry, name: str, run: Run) -> TwinResult:
    """Put a twin to the test that the entry passes. Rejected means that its claim is certainly false."""
    try:
        lower = worst_case(run, entry.neighbours, epsilon=entry.epsilon, tail_bits=TAIL_BITS).lower
    except Exception as error:
        raise TwinError(f"{name!r} of {entry.name} raises {type(error).__name__}: {error}") from error
    return TwinResult(name, lower, rejected=lower > entry.delta)


def load_twins(path: Path, entries: Sequence[CatalogueEntry]) -> Twins:
    """Return the mapping `TWINS` of a Python file, checked against the names of the entries."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TwinError(f"twins must be in a Python file, got {path}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise TwinError(f"{path} raises {type(error).__name__}: {error}") from error
    twins = getattr(module, "TWINS", None)
    if not isinstance(twins, Mapping) or not all(isinstance(named, Mapping) for named in twins.values()):
        raise TwinError(f"{path} must define TWINS, a mapping of mechanism → name → run")
    unknown = twins.keys() - {entry.name for entry in entries}
    if unknown:
        raise TwinError(f"{path} has twins of mechanisms that do not exist: {', '.join(sorted(map(str, unknown)))}")
    return twins


def to_json(rows: Sequence[AuditRow], *, runs: int, twins: str) -> dict[str, Any]:
    """Return the whole table as a JSON object. Later versions add fields and never rename one.

    `twins` names the file or module that the twins come from.
    """
    return {
        "passed": all(row.passed for row in rows),
        "runs": runs,
        "confidence": CONFIDENCE,
        "twins": twins,
        "mechanisms": [asdict(row) | {"passed": row.passed} for row in rows],
    }
