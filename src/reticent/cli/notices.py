"""Warnings about a predictor that several commands print."""

from __future__ import annotations

PHASES_SHRINK = (
    "PHASES SHRINK: this phase learned from fewer rows than the one before. If that goes on, answers will end: see "
    "`reticent plan everlasting` and --client-share"
)


def one_answer(label: object) -> str:
    """The released model answers every query alike: a function of that model, and of nothing else."""
    return (
        f"ONE ANSWER: the model of this phase answers {label!r} to every query, so it is useless. Check that the "
        "classes are spelled as in the table: a label that is not listed counts as the first. If they are, more "
        "rows, a larger epsilon or narrower ranges may help"
    )
