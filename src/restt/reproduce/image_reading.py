"""Accuracies out of the image cells' files."""

from __future__ import annotations

from typing import Any

from restt.reproduce.cells import Cell
from restt.reproduce.store import Store
from restt.reproduce.tables import NOT_YET, mean_std

# The three accuracies, never mixed.
THREE = {
    "final": "final epoch",
    "selected": "epoch selected on held-out training images",
    "best_on_test": "best epoch on the test images",
}


def accuracies(store: Store, cell: Cell, kind: str) -> list[float | None] | None:
    """One accuracy per seed; None while the cell is missing or has no such accuracy."""
    found = store.load(cell)
    values: list[float | None] | None = None if found is None else found["result"].get(kind)
    return values


def shown_accuracy(store: Store, cell: Cell, kind: str) -> str:
    """Mean ± standard deviation, or "not yet"."""
    values = accuracies(store, cell, kind)
    return NOT_YET if values is None else mean_std(values)


def mean_of(store: Store, cell: Cell) -> float | None:
    """The better of final and selected, in the mean over seeds: neither looks at the test images."""
    means = [_mean(values) for kind in ("final", "selected") if (values := accuracies(store, cell, kind))]
    return max(means, default=None)


def averaged(store: Store, cell: Cell) -> float | None:
    """Accuracy of the seeds' mean output."""
    found = store.load(cell)
    value: Any = None if found is None else found["result"].get("averaged")
    return value


def _mean(values: list[float | None]) -> float:
    """Over all seeds; a failed one counts as no hit at all."""
    return sum(value or 0.0 for value in values) / len(values)
