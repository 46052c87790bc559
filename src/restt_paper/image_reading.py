"""Accuracies out of the image cells' files."""

from __future__ import annotations

from typing import Any

from restt_paper.cells import Cell
from restt_paper.store import Store
from restt_paper.tables import NOT_YET, mean_std

# The three accuracies, never mixed.
THREE = {
    "final": "final epoch",
    "selected": "epoch selected on held-out training images",
    "best_on_test": "best epoch on the test images",
}


def shown_accuracy(store: Store, cell: Cell, kind: str) -> str:
    """Mean ± standard deviation; "not yet" while the cell is missing, "–" where it has no such accuracy."""
    found = store.load(cell)
    if found is None:
        return NOT_YET
    values = found["result"].get(kind)
    return "–" if values is None else mean_std(values)


def final_accuracies(store: Store, cell: Cell) -> list[float] | None:
    """Each seed's accuracy after the last epoch; a failed one counts as no hit at all."""
    found = store.load(cell)
    return None if found is None else [value or 0.0 for value in found["result"]["final"]]


def mean_final(store: Store, cell: Cell) -> float | None:
    """Accuracy after the last epoch, in the mean over seeds."""
    values = final_accuracies(store, cell)
    return None if values is None else sum(values) / len(values)


def averaged(store: Store, cell: Cell, *, of_views: bool = False) -> float | None:
    """Accuracy of the seeds' mean output, ``of_views`` averaged over the views of each image too."""
    found = store.load(cell)
    if found is None:
        return None
    result = found["result"]
    value: Any = result.get("of_views", {}).get("averaged") if of_views else result.get("averaged")
    return value
