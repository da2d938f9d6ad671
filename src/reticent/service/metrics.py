"""Metrics for Prometheus: public numbers only, and what was released: the test for drift, quality, alarms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST
REPEAT = "repeat"  # in place of a status: only its owner may learn whether its body was that of the first request
UNCOUNTED = frozenset({"feedback"})  # endpoints that no number shows: whether anyone gave feedback is secret
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

# Of the status: name, meaning, whether it only grows.
NUMBERS = (
    ("phase", "The number of the phase, from 1 on", False),
    ("answers_in_phase", "Answers that the phase gives in total; 2^53 if it never ends", False),
    ("answers_left_in_phase", "Answers that the phase still gives; 2^53 if it never ends", False),
    ("phase_never_ends", "Whether the phase never ends", False),
    ("answered", "Answers given in total", True),
    ("rows", "Rows that the phase learned from", False),
    ("teachers", "Teachers of the phase", False),
    ("rows_gathered", "Rows gathered for the next phase", False),
    ("rows_wanted", "Rows that the next phase learns from", False),
    ("client_cap", "Rows of the next phase that may come from one client", False),
    ("learning", "Whether the next phase is learning now", False),
    ("ledger_length", "Rows in the answer log", True),
    ("labelled_received", "Labelled rows that came after the first phase had begun", True),
    ("labelled_waiting", "Labelled rows that wait for the next phases", False),
)


class Metrics:
    """Counters of one service, each with a registry of its own."""

    def __init__(self, status: Callable[[], Any]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "reticent_requests", "Requests, by endpoint and status", ["endpoint", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "reticent_request_seconds", "Time from the request to its answer", ["endpoint"],
            buckets=BUCKETS, registry=self._registry,
        )  # fmt: skip
        self.waiting = 0
        waiting = Gauge("reticent_waiting", "Requests that wait for an answer", registry=self._registry)
        waiting.set_function(lambda: self.waiting)
        self.replayed = Counter("reticent_replayed", "Repeats of an Idempotency-Key", registry=self._registry)
        self._registry.register(_Status(status))
        # Looking up a child by its labels costs more than counting: there are few, so they are kept.
        self._counts: dict[tuple[str, int | str], Any] = {}
        self._times: dict[str, Any] = {}

    def count(self, endpoint: str, status: int | str, seconds: float) -> None:
        """A request that was answered, by its status, or as a `REPEAT`; not if its endpoint is `UNCOUNTED`."""
        if endpoint in UNCOUNTED:
            return
        child = self._counts.get((endpoint, status))
        if child is None:
            child = self._counts[endpoint, status] = self._requests.labels(endpoint, str(status))
            self._times.setdefault(endpoint, self._seconds.labels(endpoint))
        child.inc()
        self._times[endpoint].observe(seconds)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self._registry)


class _Status(Collector):
    """The public numbers of the answering service, read when they are asked for."""

    def __init__(self, status: Callable[[], Any]) -> None:
        self._status = status

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        status = self._status()
        for name, meaning, grows in NUMBERS:
            family = CounterMetricFamily if grows else GaugeMetricFamily
            yield family(f"reticent_{name}", meaning, value=float(getattr(status, name)))
        for name in ("epsilon", "delta"):
            yield GaugeMetricFamily(
                f"reticent_{name}", f"The {name} that is promised", value=float(getattr(status.guarantee, name))
            )
        for name, meaning, holds in (
            ("tested", "Whether the last phase ended with a private test of drift", status.drift != "not tested"),
            ("found", "Whether that test found that questions had drifted", status.drift == "found"),
        ):
            yield GaugeMetricFamily(f"reticent_drift_{name}", meaning, value=float(holds))
        yield GaugeMetricFamily("reticent_halted", "Whether answering has stopped", value=float(bool(status.halted)))
        yield from _quality(status)


def _quality(status: Any) -> Iterable[Metric]:
    """What was released of the quality of the last phase that was judged, and the alarms."""
    rows = GaugeMetricFamily("reticent_phase_rows", "Labelled rows, or slots for labels, of a phase")
    if status.phase_rows is not None:
        rows.add_metric((), status.phase_rows)
    yield rows
    last = status.quality[-1] if status.quality else None
    for name, field, meaning in (
        ("quality", "right", "Share of right answers in the last phase that was judged"),
        ("quality_low", "low", "Lower end of its 95 % interval"),
        ("quality_high", "high", "Upper end of its 95 % interval"),
        ("quality_phase", "phase", "The phase that was judged last"),
    ):
        family = GaugeMetricFamily(f"reticent_{name}", meaning)
        if last is not None and (value := getattr(last, field)) is not None:
            family.add_metric((), float(value))
        yield family
    recall = GaugeMetricFamily(
        "reticent_recall", "Share of the rows of a class that got it as an answer", labels=["class"]
    )
    for label, value in zip(status.classes, () if last is None else last.recall, strict=False):
        if value is not None:
            recall.add_metric((str(label),), value)
    yield recall
    yield GaugeMetricFamily("reticent_alarm", "Whether an alarm stands", value=float(status.alarm_since is not None))
    yield CounterMetricFamily("reticent_alarms", "Alarms that were raised", value=float(len(status.alarms)))
