"""Multinomial logistic regression in torch: the paper's LR for images (Sec. V, limited data).

The paper names neither penalty nor optimiser, and its 9.8 % are a failed training. Here the convex problem

    mean cross-entropy + ½ · weight_decay · ‖weights and biases‖²

is solved: all rows in every step, from zero, by Adam with a rate that goes down to zero. Without the decay there would
be nothing to converge to, since a few rows of many pixels are linearly separable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from restt_baselines.network import NetworkClassifier
from restt_baselines.networks.layers import Linear

TASKS = ("classification",)


class Softmax(nn.Module):
    """Logits that are linear in the columns, for each run. The problem is convex, so all start at zero."""

    def __init__(self, columns: int, outputs: int, runs: int) -> None:
        super().__init__()
        self.runs = runs
        self.head = Linear(columns, outputs, runs)

    def forward(self, x: Tensor) -> Tensor:  # (B, C) or (S, B, C) -> (S, B, O)
        return self.head(x if x.dim() == 3 else x.unsqueeze(0))


@dataclass(kw_only=True, eq=False, repr=False)
class SoftmaxClassifier(NetworkClassifier):
    """Multinomial logistic regression with an L2 penalty of ``weight_decay`` / 2; see :class:`Network`.

    The scaling suits images; for tables whose columns have different scales take ``scaling="standard"``.
    """

    images = True
    exact_predictions = True

    epochs: int = 300
    batch_size: int | None = None
    lr: float = 0.1
    weight_decay: float = 1e-3
    schedule: str = "cosine"
    scaling: str = "shared"

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> nn.Module:
        return Softmax(columns, outputs, runs)


def make(task: str, **params: Any) -> SoftmaxClassifier:
    """The estimator.

    >>> make("classification", epochs=100).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]).predict([[0.5], [2.5]])
    array([0, 1])
    """
    return SoftmaxClassifier(**params)
