"""What is guaranteed, to whom, and what the numbers mean."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from typing import Any, Literal, cast

from reticent.exact import Number, exp_fractions, rational
from reticent.privacy.parameters import check_choice, check_delta, check_epsilon, check_flag, float_above

Unit = Literal["row", "group"]
Protects = Literal["rows", "labels", "rows and queries"]

# Every value implies itself and those to its right.
_UNITS = ("group", "row")
_PROTECTS = ("rows and queries", "rows", "labels")


@dataclass(frozen=True, kw_only=True, slots=True)
class Guarantee:
    """(ε, δ)-differential privacy under replace-one neighbours, for rows or for groups of rows.

    For every two data sets that differ in one unit, and every set of outputs, the probability of the set under one is
    at most e^ε times its probability under the other, plus δ.

    Guarantees are partially ordered: `a <= b` means that `a` implies `b`.

    Parameters
    ----------
    epsilon : float
        Privacy-loss bound ε. Exact fractions are rounded up to the next float.
    delta : float, default 0.0
        Failure probability δ, in [0, 1). Exact fractions are rounded up.
    unit : {"row", "group"}, default "row"
        What neighbours differ in.
    protects : {"rows", "labels", "rows and queries"}, default "rows"
        What is protected.
    neighbours : {"replace-one"}, default "replace-one"
        Data sets of equal size that differ in the contents of one unit.
    seeded : bool, default False
        Whether the noise was seeded. If so, nobody is protected.

    Examples
    --------
    >>> Guarantee(epsilon=0.5) <= Guarantee(epsilon=1, delta=1e-6)
    True
    """

    epsilon: float
    delta: float = 0.0
    unit: Unit = "row"
    protects: Protects = "rows"
    neighbours: Literal["replace-one"] = "replace-one"
    seeded: bool = False

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        epsilon, delta = _rounded_up(self.epsilon, "epsilon"), _rounded_up(self.delta, "delta")
        if delta >= 1:
            raise ValueError(f"delta must be in [0, 1), got {self.delta}, which rounds up to 1")
        for name, accepted in (("unit", _UNITS), ("protects", _PROTECTS), ("neighbours", ("replace-one",))):
            check_choice(getattr(self, name), name, accepted)
        check_flag(self.seeded, "seeded")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    # ── order ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def __le__(self, other: Guarantee) -> bool:
        """Return whether this guarantee implies the other."""
        if not isinstance(other, Guarantee):
            return NotImplemented
        return (
            self.epsilon <= other.epsilon
            and self.delta <= other.delta
            and _UNITS.index(self.unit) <= _UNITS.index(other.unit)
            and _PROTECTS.index(self.protects) <= _PROTECTS.index(other.protects)
            and self.seeded <= other.seeded
        )

    def __ge__(self, other: Guarantee) -> bool:
        return other <= self if isinstance(other, Guarantee) else NotImplemented

    def __lt__(self, other: Guarantee) -> bool:
        return self <= other and self != other if isinstance(other, Guarantee) else NotImplemented

    def __gt__(self, other: Guarantee) -> bool:
        return other < self if isinstance(other, Guarantee) else NotImplemented

    # ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def to_json(self) -> str:
        """Return a JSON object that `from_json` reads back to an equal guarantee, to the last bit."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, data: str | bytes | Mapping[str, Any]) -> Guarantee:
        """Read a guarantee that `to_json` wrote.

        Parameters
        ----------
        data : str, bytes or mapping
            The JSON object. All fields but `epsilon` may be missing.
        """
        fields = data if isinstance(data, Mapping) else json.loads(data)
        if not isinstance(fields, Mapping):
            raise ValueError("a guarantee must be a JSON object")
        unknown = sorted(set(fields) - set(cls.__dataclass_fields__))
        if unknown or "epsilon" not in fields:
            names = ", ".join(cls.__dataclass_fields__)
            raise ValueError(f"a guarantee must have the fields {names} and no others; all but epsilon may be left out")
        return cls(**cast("dict[str, Any]", dict(fields)))

    # ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def explain(self) -> str:
        """Return the guarantee in plain words.

        >>> words = Guarantee(epsilon=1.0, delta=1e-6).explain()
        >>> "at most e^1 = 2.72 times as likely" in words, "with probability at most one in a million" in words
        (True, True)
        """
        return "\n\n".join(
            paragraph
            for paragraph in (
                _SEEDED if self.seeded else "",
                f"Who is protected. {_WHO[self.unit]} {_WHAT[self.protects]}",
                f"Against what. {_AGAINST}",
                f"How well. {self._odds()}{self._chance()}",
                f"What is compared. {_NEIGHBOURS[self.unit]}",
                f"What is not protected. {_NOT_PROTECTED}{_NOT_QUERIES[self.protects]}",
            )
            if paragraph
        )

    def _odds(self) -> str:
        epsilon = _six(self.epsilon)
        factor = _factor(self.epsilon) if self.epsilon < 700 else "more than 10^300"
        return (
            f"Whatever someone concludes about a {self.unit} from what was released, that conclusion is at most "
            f"e^{epsilon} = {factor} times as likely as it would have been had the {self.unit} held something "
            f"else (epsilon = {epsilon}; the smaller, the better; 0 would mean that nothing can be learned)"
        )

    def _chance(self) -> str:
        if self.delta == 0:
            return ", and to this there is no exception (delta = 0)."
        return (
            f", except with probability at most {_one_in(self.delta)} (delta = {_six(self.delta)}), for which nothing "
            "is promised."
        )


def _rounded_up(value: Number, name: str) -> float:
    # Floats stand for the decimal that the caller wrote; other numbers are rounded up.
    if isinstance(value, float):
        return float(value)
    try:
        return float_above(rational(value, name))
    except OverflowError:
        raise ValueError(f"{name} must be at most 1e308") from None


def _six(value: float) -> str:
    """Six figures, rounded up."""
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(repr(value))):g}"


def _factor(epsilon: float) -> str:
    """e^ε to three figures, or to two of e^ε − 1 where it is close to 1, rounded up so that "at most" stays true."""
    digits = max(0, 2 - math.floor(epsilon / math.log(10)), min(15, 1 - math.floor(math.log10(math.expm1(epsilon)))))
    scaled = math.ceil(exp_fractions(rational(epsilon, "epsilon"), 128)[1] * 10**digits)
    whole, rest = divmod(scaled, 10**digits)
    return f"{whole:,}.{rest:0{digits}d}" if digits else f"{whole:,}"


_WORDS = {3: "a thousand", 6: "a million", 9: "a billion", 12: "a trillion"}


def _one_in(delta: float) -> str:
    odds = 1 / rational(delta, "delta")
    exponent = len(str(odds.numerator)) - 1 if odds.denominator == 1 else 0
    if exponent in _WORDS and odds == 10**exponent:
        return f"one in {_WORDS[exponent]}"
    whole = odds.numerator // odds.denominator
    if whole >= 10**15:
        return f"one in 10^{len(str(whole)) - 1}"
    # Rounded down to three figures, so that the stated chance is never too small.
    step = 10 ** max(0, len(str(whole)) - 3)
    return f"one in {whole // step * step:,}" if whole >= 2 else f"{_percent(rational(delta, 'delta'))} %"


def _percent(share: Fraction) -> int:
    return -(-100 * share.numerator // share.denominator)


_SEEDED = (
    "NOBODY IS PROTECTED. This run was SEEDED: its noise came from a generator that anyone who knows the seed can run "
    "again, to remove the noise and read the data. What follows is what the same run would have promised with noise "
    "from the operating system. Use a seeded run for tests only, never on data about people."
)
_WHO = {
    "row": "Every single row of the data, each by itself. A person who has several rows is protected less: k rows "
    "together have k times the epsilon, and a larger delta.",
    "group": "Every group of rows that the data holder named (for instance all rows of one person), as a whole, "
    "however many rows it has.",
}
_WHAT = {
    "rows": "All of its contents are protected: every feature and the label.",
    "labels": "Only the labels are protected; the features are taken to be known.",
    "rows and queries": "All of its contents are protected: every feature and the label. The same holds for every "
    "query put to the service: its contents are protected from everyone but the one who asked.",
}
_AGAINST = (
    "Anyone who sees all that was released, however much they know besides (even all the other rows), whatever "
    "computing power they have, and whatever they learn later."
)
_NEIGHBOURS = {
    "row": "Two data sets of the same size that differ in the contents of one row (replace-one neighbours).",
    "group": "Two data sets of the same size that differ in the rows of one group (replace-one neighbours, by groups).",
}
_NOT_PROTECTED = (
    "The number of rows, the columns, the classes and every parameter of the computation are treated as public. Facts "
    "about the population are not hidden either: if the data show that smoking causes cancer, that will be learned, "
    "and it bears on a smoker whether or not their row was used."
)
_NOT_QUERIES = {
    "rows": " Queries put to what was released are not protected.",
    "labels": " Features, and queries put to what was released, are not protected.",
    "rows and queries": " The fact, time and frequency of queries are not protected.",
}
