"""A private count of the labels that are not among the declared classes, before anything is learned from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from reticent.data.schema import Schema
from reticent.mechanisms.counts import laplace_count, laplace_tail
from reticent.mechanisms.release import Release
from reticent.noise import Noise
from reticent.privacy.parameters import check_epsilon
from reticent.silence import silent

FALSE_ALARM = Fraction(1, 100_000)  # the probability, at most, that noise alone is taken for labels
FEW = 100  # one row in so many may have another label: a table has gaps and slips of the pen


@dataclass(frozen=True, kw_only=True)
class LabelCheck:
    """Counts, with noise, the rows whose label is not among the classes.

    Such a label counts as the first class. If a class is misspelled, all of its rows do, and the model is useless.

    Guarantee. ε-differential privacy for a replaced row (with groups: for a replaced group, of which one row counts).

    Why. A replaced row changes the label of one row, so it moves the count by at most one. Whether too many labels are
    other ones is a function of the noisy count and of public numbers. See docs/data/label_check.md.

    Source. New; a single count with discrete Laplace noise.

    Parameters
    ----------
    epsilon : Fraction
        Privacy-loss bound ε of the count.
    rows : int
        The number of rows, or of groups.

    >>> check = LabelCheck(epsilon=Fraction(1, 50), rows=5_000)
    >>> check.visible, check.most, check.useful, check.too_many(2_500), check.too_many(100)
    (542, 542, True, True, False)
    >>> LabelCheck(epsilon=Fraction(1, 50), rows=100_000).most
    1000
    """

    epsilon: Fraction
    rows: int

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @property
    def visible(self) -> int:
        """What noise alone exceeds with a probability of one in a hundred thousand at most."""
        return laplace_tail(rate=self.epsilon, probability=FALSE_ALARM)

    @property
    def most(self) -> int:
        """The largest noisy count with which learning goes on: that of noise, or one row in a hundred."""
        return max(self.visible, self.rows // FEW)

    @property
    def useful(self) -> bool:
        """Whether the noise leaves something to see: labels of half of the rows would exceed it."""
        return 2 * self.visible <= self.rows

    def too_many(self, noisy: int) -> bool:
        """Whether a noisy count says that a class is misspelled, or missing from the list.

        Parameters
        ----------
        noisy : int
            The noisy count.
        """
        return noisy > self.most

    @silent()
    def release(self, schema: Schema, labels: Iterable[Any], unsafe_noise: Noise | None = None) -> Release[int]:
        """Count the labels that are not among the classes of a schema, with noise.

        Parameters
        ----------
        schema : Schema
            The classes, and how labels are compared with them.
        labels : iterable of arrays or lists
            The labels of all rows, some at a time; with groups, of one row of each.
        unsafe_noise : Noise or None, default None
            For tests only; None draws from the operating system.
        """
        count = sum(int(np.count_nonzero(schema.other_labels(some))) for some in labels)
        return laplace_count(count, epsilon=self.epsilon, unsafe_noise=unsafe_noise)
