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
_ITERATIONS = 60


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
    def of_covariance(cls, covariance: np.ndarray) -> Axes:
        """Of features with this covariance (B, B); a mode with coefficients u is K α with α = ``directions`` u."""
        squares, vectors = np.linalg.eigh(covariance)
        kept = _large(squares)
        roots = np.sqrt(squares[kept])
        return cls(vectors[:, kept] * roots, vectors[:, kept] / roots)


def _large(squares: np.ndarray) -> np.ndarray:
    return squares > _SMALLEST_SHARE * max(float(squares.max(initial=0.0)), np.finfo(float).tiny)


def class_mode(
    axes: Axes,
    numbers: np.ndarray,  # (B,) which class each row is
    weights: np.ndarray,  # (B,); 0 leaves a row out
    classes: int,
    penalty: float,
    start: np.ndarray | None = None,  # (M + 1, K)
    tolerance: float = 1e-6,
) -> np.ndarray:  # (M + 1, K)
    """Coefficients of the logits, the last row a constant that is not penalised.

    They minimise Σ_i w_i (-log softmax(φ_i u + b)_(y_i)) + penalty/2 ‖u‖², until a step gains less than ``tolerance``
    of it.

    >>> axes = Axes.of_features(np.array([[-1.0], [0.0], [1.0]]))
    >>> mode = class_mode(axes, np.array([0, 1, 1]), np.ones(3), 2, 1.0)
    >>> bool((axes.values @ mode[:-1] + mode[-1]).argmax(axis=1)[-1] == 1)
    True
    """
    used = weights > 0
    values, count = axes.values[used], weights[used]
    target = np.zeros((len(values), classes))
    rows, own, weight = np.arange(len(values)), numbers[used], float(count.sum())
    target[rows, own] = 1.0
    curvature = 0.25 * np.append(count @ values**2, weight) + np.append(np.full(values.shape[1], penalty), 0.0)
    roots = np.sqrt(curvature)[:, None]

    def objective(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        found = scaled.reshape(-1, classes) / roots
        logits = values @ found[:-1] + found[-1]
        logits -= logits.max(axis=1, keepdims=True)
        likely = np.exp(logits)
        total = likely.sum(axis=1, keepdims=True)
        loss = float(count @ (np.log(total[:, 0]) - logits[rows, own])) + 0.5 * penalty * float((found[:-1] ** 2).sum())
        slope = (likely / total - target) * count[:, None]
        gradient = np.vstack([values.T @ slope + penalty * found[:-1], slope.sum(axis=0)])
        return loss, (gradient / roots).ravel()

    first = np.zeros((len(roots), classes)) if start is None else start
    options = {"maxiter": _ITERATIONS, "gtol": 1e2 * tolerance * np.sqrt(weight), "ftol": tolerance}
    found = minimize(objective, (first * roots).ravel(), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(-1, classes) / roots
