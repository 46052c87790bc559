"""Classes under a learned prior: the mode of the posterior with a logistic likelihood (Laplace).

A function drawn from a Gaussian prior with covariance K = Φ Φᵀ over the rows is f = Φ u with u ~ N(0, 1). The mode of
the posterior of u, given classes, is therefore a logistic regression on the features Φ with an L2 penalty, and so is
one given only some of the rows: a fold needs no decomposition of its own. In the principal axes of Φ the curvature is
nearly diagonal, which the search is preconditioned by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

# Axes with less than this share of the largest variance are as good as absent.
_SMALLEST_SHARE = 1e-6


@dataclass(frozen=True, eq=False)
class Axes:
    """Features of rows in their principal axes: Φ = ``values`` · ``directions``ᵀ, ``directions`` orthonormal."""

    values: np.ndarray  # (B, M): columns orthogonal to each other
    directions: np.ndarray  # (F, M)

    @classmethod
    def of_features(cls, features: np.ndarray) -> Axes:
        """Of features (B, F)."""
        left, sizes, right = np.linalg.svd(features, full_matrices=False)
        kept = _large(sizes**2)
        return cls(left[:, kept] * sizes[kept], right[kept].T)

    @classmethod
    def of_covariance(cls, covariance: np.ndarray, most: int | None = None) -> Axes:
        """Of features with this covariance (B, B); a mode with coefficients u is K α with α = ``directions`` u.

        ``most``: the largest number of axes.
        """
        squares, vectors = np.linalg.eigh(covariance)
        kept = _large(squares)
        kept[: max(0, len(kept) - (most or len(kept)))] = False
        roots = np.sqrt(squares[kept])
        return cls(vectors[:, kept] * roots, vectors[:, kept] / roots)


def _large(squares: np.ndarray) -> np.ndarray:
    return squares > _SMALLEST_SHARE * max(float(squares.max(initial=0.0)), np.finfo(float).tiny)


def class_modes(
    axes: Axes,
    labels: np.ndarray,  # (B,): numbers of classes
    weights: np.ndarray,  # (F, B); 0 leaves a row out
    classes: int,
    penalty: float,
    start: np.ndarray | None = None,  # (F, M + 1, K)
    tolerance: float = 1e-6,
    iterations: int = 60,
) -> np.ndarray:  # (F, M + 1, K)
    """Coefficients of the logits under each of several weights of the rows, the last row a constant.

    They minimise Σ_i w_i (-log softmax(φ_i u + b)_(y_i)) + penalty/2 ‖u‖², until a step gains less than ``tolerance``
    of it. The searches go side by side: rows' features are read once for all of them.

    >>> axes = Axes.of_features(np.array([[-1.0], [0.0], [1.0]]))
    >>> mode = class_modes(axes, np.array([0, 1, 1]), np.ones((1, 3)), 2, 1.0)[0]
    >>> bool((axes.values @ mode[:-1] + mode[-1]).argmax(axis=1)[-1] == 1)
    True
    """
    searches, rows = weights.shape
    width = axes.values.shape[1]
    target = np.eye(classes)[labels][:, None]  # (B, 1, K)
    each = weights.T[:, :, None]  # (B, F, 1)
    squares = weights @ axes.values**2  # (F, M)
    curvature = 0.25 * np.column_stack([squares, weights.sum(axis=1)])
    curvature[:, :-1] += penalty
    roots = np.sqrt(curvature)[:, :, None]

    def objective(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        found = scaled.reshape(searches, width + 1, classes) / roots
        slopes = found[:, :-1].transpose(1, 0, 2).reshape(width, searches * classes)
        logits = (axes.values @ slopes).reshape(rows, searches, classes) + found[:, -1]
        logits -= logits.max(axis=2, keepdims=True)
        likely = np.exp(logits)
        total = likely.sum(axis=2, keepdims=True)
        loss = float((each * (np.log(total) - (logits * target).sum(axis=2, keepdims=True))).sum())
        loss += 0.5 * penalty * float((found[:, :-1] ** 2).sum())
        residuals = (likely / total - target) * each  # (B, F, K)
        by_slope = (
            (axes.values.T @ residuals.reshape(rows, searches * classes))
            .reshape(width, searches, classes)
            .transpose(1, 0, 2)
        )
        gradient = np.concatenate([by_slope + penalty * found[:, :-1], residuals.sum(axis=0)[:, None]], axis=1)
        return loss, (gradient / roots).ravel()

    first = np.zeros((searches, width + 1, classes)) if start is None else start
    options = {"maxiter": iterations, "gtol": 1e2 * tolerance * np.sqrt(weights[0].sum()), "ftol": tolerance}
    found = minimize(objective, (first * roots).ravel(), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(searches, width + 1, classes) / roots
