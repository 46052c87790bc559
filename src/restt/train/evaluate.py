"""Loss and metrics of each run on held-out rows."""

from __future__ import annotations

import torch
from torch import Tensor

from restt.train.losses import RowLoss
from restt.train.rows import Rows
from restt.train.stacked import Stacked

# Rows evaluated at once; their states are the memory an evaluation needs.
EVALUATION_ROWS = 1024
# Metrics of which more is better; of the loss and of the others, less is.
RISING = ("accuracy", "r2")


def metric_names(classes: bool) -> tuple[str, ...]:
    """``accuracy`` for classes; ``rmse`` and ``r2`` for values."""
    return ("loss", "accuracy") if classes else ("loss", "rmse", "r2")


@torch.no_grad()
def evaluate(
    model: Stacked,
    rows: Rows,
    loss: RowLoss,
    classes: bool,
    weights: dict[str, Tensor] | None = None,  # (S, …) each
    at_once: int | None = None,
) -> dict[str, list[float]]:  # S values each
    """Mean loss and metrics of each run on its own rows, each row counted by its weight.

    R² is the mean over outputs of 1 − Σ(y−f)²/Σ(y−ȳ)², RMSE the root of the mean over rows and outputs.
    """
    model.module.eval()
    sums = _sums_that_fit(model, rows, loss, classes, weights, min(EVALUATION_ROWS, at_once or EVALUATION_ROWS))
    model.module.train()
    total, count = sums["loss"].cpu(), sums["count"].cpu()
    found = {"loss": (total / count).tolist()}
    if classes:
        found["accuracy"] = (sums["hits"].cpu() / count).tolist()
    else:
        errors, means = sums["errors"].cpu(), sums["values"].cpu() / count[:, None]
        spread = sums["squares"].cpu() - count[:, None] * means.square()
        found["rmse"] = (errors.mean(-1) / count).sqrt().tolist()
        found["r2"] = (1 - errors / spread.clamp(min=torch.finfo(torch.float64).tiny)).mean(-1).tolist()
    return found


def _sums_that_fit(
    model: Stacked, rows: Rows, loss: RowLoss, classes: bool, weights: dict[str, Tensor] | None, at_once: int
) -> dict[str, Tensor]:
    while True:
        try:
            return _sums(model, rows, loss, classes, weights, at_once)
        except torch.OutOfMemoryError:
            if at_once == 1:
                raise
            at_once = (at_once + 1) // 2
        if model.device.type == "cuda":
            torch.cuda.empty_cache()


def _sums(
    model: Stacked, rows: Rows, loss: RowLoss, classes: bool, weights: dict[str, Tensor] | None, at_once: int
) -> dict[str, Tensor]:
    sums: dict[str, Tensor] = {}
    sizes = torch.tensor(rows.sizes, device=rows.target.device)[:, None]
    for start in range(0, max(rows.sizes), at_once):
        place = torch.arange(start, min(start + at_once, max(rows.sizes)), device=rows.target.device)
        if rows.index is None:
            x, target = rows.x[place].unsqueeze(0), rows.target[place].unsqueeze(0)
            weight = None if rows.weight is None else rows.weight[place].unsqueeze(0)
        else:
            chosen = rows.index[:, place]
            x, target = rows.x[chosen], rows.target[chosen]
            weight = None if rows.weight is None else rows.weight[chosen]
        counted = (place < sizes).double()  # (S, B)
        if weight is not None:
            counted = counted * weight
        output = model(x, weights)
        parts = {"loss": (loss(output, target).double() * counted).sum(1), "count": counted.sum(1)}
        if classes:
            parts["hits"] = ((output.argmax(-1) == target.argmax(-1)) * counted).sum(1)
        else:
            values, counted = target.double(), counted.unsqueeze(-1)
            parts["errors"] = ((output - target).double().square() * counted).sum(1)
            parts["values"] = (values * counted).sum(1)
            parts["squares"] = (values.square() * counted).sum(1)
        sums = {name: part + sums[name] if name in sums else part for name, part in parts.items()}
    return sums
