"""Warnings about a predictor that several commands print."""

from __future__ import annotations

PHASES_SHRINK = (
    "PHASES SHRINK: this phase learned from fewer rows than the one before. If that goes on, answers will end: see "
    "`reticent plan everlasting` and --client-share"
)


def one_answer(label: object) -> str:
    """The released model answers nearly every query alike: a function of what was released, and nothing else."""
    return (
        f"ONE ANSWER: the model of this phase answers {label!r} to nearly every query. If other labels are not that "
        "rare, check the classes: a label that is not listed counts as the first. More rows, a larger epsilon, "
        f"narrower ranges, or fewer rows of {label!r} may help"
    )
