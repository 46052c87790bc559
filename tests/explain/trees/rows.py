"""Tables for trees, rows that try every corner of them, and games played by a model's own predictions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import torch
from torch import Tensor

from restt.explain import Trees
from tests.explain.brute import coalitions

Predict = Callable[[np.ndarray], np.ndarray]


def table(rows: int = 120, columns: int = 5, missing: bool = True, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, some of them missing, and a target with interactions of two and three columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns)).round(2)
    x[:, 1] = rng.integers(0, 4, rows)
    y = x[:, 0] * x[:, 1] + x[:, 2] + x[:, 0] * x[:, 2] * x[:, 3]
    if missing:
        x[rng.random(x.shape) < 0.1] = np.nan
    return x, y


def hard_rows(trees: Trees, x: np.ndarray, seed: int = 0) -> np.ndarray:
    """The rows, far ones, rows of missing values, and values at every threshold and next to it in both precisions."""
    rng = np.random.default_rng(seed)
    rows = [x, 1e6 * rng.normal(size=x.shape), 1e-30 * rng.normal(size=x.shape)]
    if np.isnan(x).any():
        rows.append(np.full((1, x.shape[1]), np.nan))
    for column in range(x.shape[1]):
        if column not in trees.columns:
            continue
        at, _ = trees.grid(trees.columns.index(column), None, None)
        single = at.astype(np.float32)
        near = [at, single, np.nextafter(single, np.float32(np.inf)), np.nextafter(single, np.float32(-np.inf))]
        near += [np.nextafter(at, np.inf), np.nextafter(at, -np.inf)]
        values = np.unique(np.concatenate(near).astype(np.float64))
        found = x[rng.integers(0, len(x), len(values))].copy()
        found[:, column] = values
        rows.append(found)
    return np.concatenate(rows)


def joint_game(predict: Predict, row: np.ndarray, background: np.ndarray) -> Tensor:  # (2^N, O)
    """v(T) with the columns outside T those of background rows, averaged."""
    values = []
    for chosen in coalitions(len(row)).numpy():
        values.append(_outputs(predict, np.where(chosen, row, background)).mean(0))
    return torch.from_numpy(np.stack(values))


def marginal_game(predict: Predict, row: np.ndarray, background: np.ndarray) -> Tensor:  # (2^N, O)
    """v(T) with every column outside T drawn on its own, over all combinations of the background's values."""
    every = np.array(list(product(*background.T)), dtype=np.float64)
    return joint_game(predict, row, every)


def _outputs(predict: Predict, rows: np.ndarray) -> np.ndarray:  # (B, O)
    found = np.asarray(predict(rows), dtype=np.float64)
    return found[:, None] if found.ndim == 1 else found
