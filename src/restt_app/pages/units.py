"""Explanations in the units of y or as probabilities: the one place where pages and servers ask the library for them.

See :meth:`restt.explain.LocalExplanation.on`: Aumann–Shapley values, which sum to the prediction of a row less that of
the average row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from restt.explain.links import link_of


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
    found = local.on()
    return Contributions(
        found.names,
        found.values,
        found.base,
        found.predictions,
        local.predictions,
        local.base,
        local.orders,
        local.data,
    )


def link(model: Any, scores: np.ndarray) -> np.ndarray:  # (B, D) -> (B, D)
    """From the model's own scale to y's units or probabilities."""
    found = link_of(model)
    return scores if found is None else found(scores)
