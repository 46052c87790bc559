"""The paper's synthetic regression task."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int

# Paper, Sec. V-A: weights from N(0, 0.1), features from N(0, 0.5).
WEIGHT_SPREAD = 0.1
FEATURE_SPREAD = 0.5
SPREADS = ("std", "variance")
ROWS_AT_ONCE = 4096


def load_synthetic(
    *, d: int = 10, n_train: int = 10_000, n_test: int = 10_000, spread: str = "std", seed: int = 0
) -> dict[str, Any]:
    """Generate x (n, 3, d) and y (n,) in float32, the sites being x(1), x(2), x(3).

    Weights, training rows and test rows have random streams of their own, so a longer training part begins with the
    shorter one and keeps the weights and the test rows.
    """
    n_train, n_test = check_int("n_train", n_train, minimum=1), check_int("n_test", n_test, minimum=1)
    weights = synthetic_weights(d, spread=spread, seed=seed)
    _, train_stream, test_stream = _streams(seed)
    std = _std(FEATURE_SPREAD, spread)
    return {
        "rows": _rows(train_stream, n_train, d, std, weights),
        "test_rows": _rows(test_stream, n_test, d, std, weights),
        "feature_names": ("x(1)", "x(2)", "x(3)"),
        "target_name": "y",
    }


def synthetic_weights(d: int, *, spread: str = "std", seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the true W(1) (d,), W(2) (d, d) and W(3) (d, d, d), float64.

    ``spread`` reads the paper's N(0, 0.1) and N(0, 0.5): the second number as standard deviation or as variance.

    >>> [tuple(w.shape) for w in synthetic_weights(2)]
    [(2,), (2, 2), (2, 2, 2)]
    """
    check_int("d", d, minimum=1)
    check_int("seed", seed, minimum=0)
    check_choice("spread", spread, SPREADS)
    stream, std = _streams(seed)[0], _std(WEIGHT_SPREAD, spread)
    first, second, third = (torch.from_numpy(std * stream.standard_normal((d,) * order)) for order in (1, 2, 3))
    return first, second, third


def synthetic_target(x: Tensor, weights: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Compute the target (n,) of x (n, 3, d) (paper, Eq. synthetic).

    y = Σ w(1)_i x(1)_i + Σ w(2)_ij x(1)_i x(2)_j + Σ w(3)_ijk x(1)_i x(2)_j x(3)_k

    >>> synthetic_target(torch.ones(1, 3, 2), (torch.ones(2), torch.ones(2, 2), torch.ones(2, 2, 2)))
    tensor([14.])
    """
    first, second, third = weights
    parts = []
    for rows in x.split(ROWS_AT_ONCE):
        x1, x2, x3 = rows.unbind(1)
        matrix = second + torch.einsum("nk,ijk->nij", x3, third)
        vector = first + torch.einsum("nj,nij->ni", x2, matrix)
        parts.append((x1 * vector).sum(-1))
    return torch.cat(parts)


def _rows(
    stream: np.random.Generator, n: int, d: int, std: float, weights: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    x = torch.from_numpy(std * stream.standard_normal((n, 3, d)))
    return x.float(), synthetic_target(x, weights).float()


def _streams(seed: int) -> list[np.random.Generator]:
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(3)]


def _std(spread_value: float, spread: str) -> float:
    return spread_value if spread == "std" else math.sqrt(spread_value)
