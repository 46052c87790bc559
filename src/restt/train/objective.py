"""Losses of single rows, and losses and metrics of held-out rows, for all runs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import huber_loss, mse_loss

from restt._common.errors import shown
from restt._common.ranks import ALONE, Ranks
from restt.train.data import RunData
from restt.train.runs import RunsView

LOSSES = ("mse", "cross-entropy", "binary-cross-entropy", "huber")

# Rows evaluated at once; their states are the memory an evaluation needs.
EVALUATION_ROWS = 1024

RowLoss = Callable[[Tensor, Tensor], Tensor]


def row_loss(name: str) -> RowLoss:
    """Return the loss of single rows: outputs (S, B, O) and targets (S or 1, B, O) -> (S, B).

    MSE and Huber (quadratic up to 1) are means over the O outputs, as torch's are. Cross-entropy takes outputs as
    logits and any distribution over classes as target; binary cross-entropy takes every output as a logit of its own
    with a target in [0, 1], and is their mean.

    >>> row_loss("mse")(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 0.0]]]))
    tensor([[0.5000]])
    """
    if name == "mse":
        return lambda output, target: mse_loss(output, target.expand_as(output), reduction="none").mean(-1)
    if name == "huber":
        return lambda output, target: huber_loss(output, target.expand_as(output), reduction="none").mean(-1)
    if name == "binary-cross-entropy":
        return lambda output, target: (torch.nn.functional.softplus(output) - target * output).mean(-1)
    return lambda output, target: -(target * output.log_softmax(-1)).sum(-1)


def read_targets(
    y: Tensor,  # (M,) classes or values, or (M, O) values
    outputs: int,
    loss: str,
    dtype: torch.dtype,
    device: torch.device,
    name: str = "y",
) -> Tensor:  # (M, O)
    """Check targets for a loss: whole numbers are classes and become one-hot, floats stay.

    >>> read_targets(torch.tensor([2, 0]), 3, "mse", torch.float32, torch.device("cpu")).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    if is_classes(y):
        if y.dim() != 1:
            raise ValueError(f"{name} must have shape (M,) where it holds classes, got {tuple(y.shape)}")
        if len(y) and (int(y.min()) < 0 or int(y.max()) >= outputs):
            raise ValueError(
                f"{name} must hold classes 0 … {outputs - 1}, one for each output of the module, "
                f"got values from {int(y.min())} to {int(y.max())}"
            )
        return torch.nn.functional.one_hot(y.to(device).long(), outputs).to(dtype)
    if y.dim() == 1:
        y = y.unsqueeze(-1)
    if y.dim() != 2 or y.shape[1] != outputs:
        raise ValueError(f"{name} must have shape (M,) or (M, {outputs}), got {tuple(y.shape)}")
    targets = y.to(device, dtype)
    if not bool(targets.isfinite().all()):
        raise ValueError(f"{name} must be finite, got NaN or infinite values")
    if loss == "cross-entropy" and bool((targets < 0).any()):
        raise ValueError(f"{name} must hold classes or probabilities for cross-entropy, got negative values")
    if loss == "binary-cross-entropy" and bool(((targets < 0) | (targets > 1)).any()):
        raise ValueError(f"{name} must hold classes or values in [0, 1] for binary-cross-entropy, got others")
    return targets


def is_classes(y: Tensor) -> bool:
    """Whether targets are classes (whole numbers) and not values (floats)."""
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a torch.Tensor, got {shown(y)} of type {type(y).__name__}")
    return not y.dtype.is_floating_point


@torch.no_grad()
def evaluate(
    model: RunsView,
    data: RunData,
    loss: RowLoss,
    classes: bool,
    weights: dict[str, Tensor] | None = None,  # (S, …) each
    ranks: Ranks = ALONE,
) -> dict[str, list[float]]:  # S values each
    """Mean loss and metrics of each run on its own rows, each row counted by its weight.

    Classes have ``accuracy``; values ``rmse``, the root of the mean over rows and outputs, and ``r2``, the mean over
    outputs of 1 − Σ(y−f)²/Σ(y−ȳ)². Each rank looks at its part of the rows, and the sums are those of all.
    """
    model.module.eval()
    begin, end = ranks.part(max(data.sizes))
    # A rank without a row evaluates one that does not count.
    rows = range(begin, end) or range(1)
    sizes = torch.tensor(data.sizes, device=data.target.device)[:, None]
    sums: dict[str, Tensor] = {}
    for start in rows[::EVALUATION_ROWS]:
        place = torch.arange(start, min(start + EVALUATION_ROWS, rows.stop), device=data.target.device)
        x, target, weight = data.take(place[None] if data.index is None else data.index[:, place])
        counted = ((place < sizes) * (begin < end)).double()  # (S, B)
        if weight is not None:
            counted = counted * weight
        output = model(data.features(x), weights)
        parts = {"loss": (loss(output, target).double() * counted).sum(1), "count": counted.sum(1)}
        if classes:
            parts["hits"] = ((output.argmax(-1) == target.argmax(-1)) * counted).sum(1)
        else:
            values, counted = target.double(), counted.unsqueeze(-1)
            parts["errors"] = ((output - target).double().square() * counted).sum(1)
            parts["values"] = (values * counted).sum(1)
            parts["squares"] = (values.square() * counted).sum(1)
        sums = {name: part + sums[name] if name in sums else part for name, part in parts.items()}
    model.module.train()
    ranks.add(list(sums.values()))
    sums = {name: value.cpu() for name, value in sums.items()}
    count = sums["count"]
    scores = {"loss": sums["loss"] / count}
    if classes:
        scores["accuracy"] = sums["hits"] / count
    else:
        errors, means = sums["errors"], sums["values"] / count[:, None]
        spread = sums["squares"] - count[:, None] * means.square()
        scores["rmse"] = (errors.mean(-1) / count).sqrt()
        scores["r2"] = (1 - errors / spread.clamp(min=torch.finfo(torch.float64).tiny)).mean(-1)
    return {name: values.tolist() for name, values in scores.items()}
