"""What `reticent status` says of labels that arrive later, of quality and of alarms; all of it is public."""

from __future__ import annotations

from typing import Any

SHOWN = 5  # phases


def later_labels(found: dict[str, Any]) -> list[str]:
    """Where later labels come from, and how many labelled rows there are; of feedback nothing: its presence is secret.

    Parameters
    ----------
    found : dict
        The status.
    """
    source, rows = found["truth"], found["phase_rows"]
    received = (
        f"labelled rows: {found['labelled_received']:,} received in all, {found['labelled_waiting']:,} wait for the "
        "next phases"
    )
    if source == "rows":
        return [f"next phase: begins after {rows:,} labelled rows (reticent teach)", received]
    gathered = (
        f"next phase: learns from {rows:,} queries whose labels come back (reticent feedback); there are "
        f"{found['rows_gathered']:,} rows, at most {found['client_cap']:,} from one client"
    )
    return [gathered, received] if source == "both" else [gathered]


def quality(found: dict[str, Any]) -> list[str]:
    """How well the last phases answered, and the alarm that stands.

    Parameters
    ----------
    found : dict
        The status.
    """
    lines = [_of_phase(one, found["classes"]) for one in found.get("quality", ())[-SHOWN:]]
    if alarms := found.get("alarms", ())[-SHOWN:]:
        raised = ", ".join(f"in phase {one['phase']} after {one['answered']:,} answers" for one in alarms)
        lines.append(f"alarms raised: {raised}")
    if found.get("alarm_since") is not None:
        lines.append(f"ALARM: quality is lost since phase {found['alarm_since']}")
    return lines


def _of_phase(one: dict[str, Any], classes: list[Any]) -> str:
    if one["right"] is None:
        return f"quality of phase {one['phase']}: not known, too few labels came"
    low, high = max(0.0, one["low"]), min(1.0, one["high"])
    recalls = ", ".join(
        f"{label} {'too few rows' if share is None else f'{share:.1%}'}"
        for label, share in zip(classes, one["recall"], strict=True)
    )
    right = min(1.0, max(0.0, one["right"]))
    return (
        f"quality of phase {one['phase']}: {right:.1%} right (95% interval {low:.1%} to {high:.1%}, from "
        f"{one['rows']:,} rows); of each class: {recalls}"
    )
