"""Explanations in the units of y or as probabilities: the one place where pages and servers ask the library for them.

Shapley values are exact on the model's own scale (before the transform of y is undone, before the softmax). They are
carried to y by the mean slope along the straight line from the average row to the row: they sum to its prediction less
that of the average row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_NODES = 24  # of the Gauss–Legendre rule along the line; the rest is spread so that sums are exact


@dataclass(frozen=True, eq=False)
class Contributions:
    """What each column adds to the predictions of rows: ``base + values.sum(1) == predictions``."""

    names: tuple[str, ...]
    values: np.ndarray  # (B, C, D)
    base: np.ndarray  # (D,)
    predictions: np.ndarray  # (B, D)
    scores: np.ndarray  # (B, D), on the model's own scale, as are the next two
    own_base: np.ndarray  # (D,)
    orders: np.ndarray  # (B, orders + 1, D)
    data: np.ndarray  # (B, C)


def contributions(model: Any, X: Any) -> Contributions:
    """Contributions of the columns to predictions, or to probabilities of the classes (of two, the second's).

    Examples
    --------
    >>> import numpy as np
    >>> from restt import ResTTNetRegressor
    >>> X = np.random.default_rng(0).random((60, 3))
    >>> model = ResTTNetRegressor(epochs=20, random_state=0).fit(X, X[:, 0])
    >>> found = contributions(model, X[:4])
    >>> bool(np.allclose(found.base + found.values.sum(1)[:, 0], model.predict(X[:4])))
    True
    """
    local = model.explain_local(X)
    scores, base = local.predictions.numpy(), local.base.numpy()
    shapley = local.values.numpy()
    start, ends = link(model, base[None])[0], link(model, scores)
    carried = np.einsum("bij,bcj->bci", _mean_slopes(model, base, scores), shapley)
    gap = (ends - start) - carried.sum(axis=1)  # of the quadrature
    sizes = np.abs(carried)
    total = sizes.sum(axis=1, keepdims=True)
    carried = carried + gap[:, None] * np.divide(sizes, total, out=np.zeros_like(sizes), where=total > 0)
    orders = local.orders.numpy()
    return Contributions(local.names, carried, start, ends, scores, base, orders, local.data)


def link(model: Any, scores: np.ndarray) -> np.ndarray:  # (B, D) -> (B, D)
    """From the model's own scale to y's units or probabilities."""
    if not hasattr(model, "classes_"):
        mean, scale = np.asarray(model.target_.mean)[None], np.asarray(model.target_.scale)
        # The scale of a constant y is 0.
        standardised = np.divide(scores - mean, scale, out=np.zeros_like(scores), where=scale > 0)
        return np.asarray(model.target_.decode(standardised)).reshape(scores.shape)
    if scores.shape[1] == 1:
        return 1 / (1 + np.exp(-scores))
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def _mean_slopes(model: Any, base: np.ndarray, scores: np.ndarray) -> np.ndarray:  # (B, D, D)
    """Mean derivative of the link along the line from the average row's scores to each row's."""
    rows, outputs = scores.shape
    if outputs == 1 or not hasattr(model, "classes_"):
        gap = scores - base
        change = link(model, scores) - link(model, base[None])
        slope = np.divide(change, gap, out=np.zeros_like(gap), where=np.abs(gap) > 1e-12)
        return np.asarray(slope[:, :, None] * np.eye(outputs))
    places, weights = np.polynomial.legendre.leggauss(_NODES)
    found = np.zeros((rows, outputs, outputs))
    for place, weight in zip((places + 1) / 2, weights / 2, strict=True):
        shares = link(model, base + place * (scores - base))
        found += weight * (shares[:, :, None] * np.eye(outputs) - shares[:, :, None] * shares[:, None, :])
    return found
