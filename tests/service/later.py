"""Small predictors that take later labels, and what is sent to them, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from shop import MODEL

from reticent import PrivateLogisticRegression
from reticent.concepts import Thresholds
from reticent.predictors.everlasting import EverlastingPredictor
from reticent.service.answering import AnsweringService
from reticent.service.home import Home
from reticent.service.labels import FeedbackRequest, LabelledRequest, LabelReceipt
from reticent.service.requests import Answered, Request, digest

CLASSES = ("no", "yes")


def rows_of(seed: int, count: int, columns: int = 2) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, (count, columns))


def chain(**options: Any) -> EverlastingPredictor:
    X = rows_of(0, 400)
    given: dict[str, Any] = {"epsilon": 8, "delta": 1e-5, "classes": CLASSES, "client_share": 1, **options}
    learner = PrivateLogisticRegression(epsilon=8, delta=1e-5, row_norm=2)
    return EverlastingPredictor(learner, **given).fit(X, np.where(X[:, 0] < 0, "yes", "no"))


def votes(**options: Any) -> EverlastingPredictor:
    X = rows_of(0, 400, 1)
    given: dict[str, Any] = {"epsilon": 20, "delta": 1e-5, "classes": CLASSES, "client_share": 1, **options}
    return EverlastingPredictor(Thresholds(), **given).fit(X, np.where(X[:, 0] < 0, "yes", "no"))


def answering_of(folder: Path, predictor: EverlastingPredictor) -> AnsweringService:
    return opened(Home.create(folder, predictor, MODEL))


def opened(home: Home) -> AnsweringService:
    return AnsweringService(home, elsewhere=False)


def ask(service: AnsweringService, key: str, count: int, client: str = "ann") -> Answered:
    rows = rows_of(sum(key.encode()), count, service.columns)
    (found,) = service.answer([Request(client, rows, key, digest(key.encode()))])
    if isinstance(found, Exception):
        raise found
    return found


def lesson(
    service: AnsweringService, key: str | None, count: int, client: str = "owner", label: int = 1
) -> LabelledRequest:
    rows = rows_of(sum((key or "").encode()), count, service.columns)
    return LabelledRequest(client, rows, np.full(count, label), None, key, digest((key or "").encode()))


def teach(service: AnsweringService, key: str | None, count: int, **options: Any) -> LabelReceipt:
    found = service.add_labelled(lesson(service, key, count, **options))
    if isinstance(found, Exception):
        raise found
    return found


def tell(service: AnsweringService, tickets: Any, label: int = 1, client: str = "ann") -> None:
    error = service.feedback([FeedbackRequest(client, np.full(len(tickets), label), tickets=list(tickets))])
    if error is not None:
        raise error


def tell_by_key(service: AnsweringService, key: str, numbers: Any, label: int = 1, client: str = "ann") -> None:
    labels = np.full(len(numbers), label)
    error = service.feedback([FeedbackRequest(client, labels, idempotency_key=key, numbers=list(numbers))])
    if error is not None:
        raise error


def gathered(service: AnsweringService) -> tuple[list[list[float]], list[int]]:
    """What the next phase would train on: rows, and their labels."""
    intake = service._predictor._machine.intake
    rows = intake.next_rows().training
    return np.round(rows.X, 6).tolist(), rows.class_indices.tolist()


def labels_given(service: AnsweringService) -> list[int]:
    """The labels of all open slots, in order; −1 for none."""
    intake: Any = service._predictor._machine.intake
    found = [one for slots in (intake._slots, intake._held) if slots is not None for one in slots.places.contents()[2]]
    return [int(one) for one in found]
