"""A train over [1, u] at a bond of one's choice, core by core: for windows with too many products of lags."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve

# Below this a core's normal equations could be singular to rounding.
LEAST_PENALTY = 1e-13
# A sweep over the cores that lowers the error by less than this share of it was the last.
LEAST_GAIN = 1e-4


def evaluated(cores: Sequence[np.ndarray], windows: np.ndarray) -> np.ndarray:  # (T, L) -> (T,)
    """The train at each window."""
    state = np.ones((len(windows), 1))
    for core in cores:
        outer = (state[:, :, None] * windows[:, None, :]).reshape(len(windows), -1)
        state = state @ core[:, 0] + outer @ core[:, 1:].reshape(-1, core.shape[2])
    return state[:, 0]


def fitted_train(
    windows: np.ndarray,  # (T, L)
    targets: np.ndarray,  # (T,)
    order: int,
    bond: int,
    alpha: float,
    sweeps: int,
    rng: np.random.RandomState,
) -> list[np.ndarray]:
    """Alternating least squares: each core in turn solves its own ridge regression, the others orthogonal."""
    features = np.concatenate([np.ones((len(windows), 1)), windows], axis=1)  # (T, 1+L)
    width = features.shape[1]
    bonds = [1, *(min(bond, width ** min(n, order - n)) for n in range(1, order)), 1]
    cores = [rng.standard_normal((bonds[n], width, bonds[n + 1])) for n in range(order)]
    for n in range(order - 1, 0, -1):
        cores[n - 1], cores[n] = _moved_left(cores[n - 1], cores[n])
    error = math.inf
    for _ in range(sweeps):
        for forward in (True, False):
            for n in range(order) if forward else range(order - 1, -1, -1):
                cores[n] = _solved(cores, n, features, targets, alpha)
                if forward and n < order - 1:
                    cores[n], cores[n + 1] = _moved_right(cores[n], cores[n + 1])
                elif not forward and n > 0:
                    cores[n - 1], cores[n] = _moved_left(cores[n - 1], cores[n])
        before, error = error, float(np.mean((evaluated(cores, windows) - targets) ** 2))
        if not error < before * (1 - LEAST_GAIN):
            break
    return cores


def _solved(cores: list[np.ndarray], n: int, features: np.ndarray, targets: np.ndarray, alpha: float) -> np.ndarray:
    left, right = np.ones((len(features), 1)), np.ones((len(features), 1))
    for core in cores[:n]:
        left = np.einsum("ta,ti,aib->tb", left, features, core, optimize=True)
    for core in reversed(cores[n + 1 :]):
        right = np.einsum("tb,ti,aib->ta", right, features, core, optimize=True)
    table = np.einsum("ta,ti,tb->taib", left, features, right).reshape(len(features), -1)
    gram = table.T @ table
    gram[np.diag_indices_from(gram)] += max(alpha, LEAST_PENALTY) * np.linalg.norm(
        gram, np.inf
    )  # at least the largest eigenvalue
    found = cho_solve(cho_factor(gram), table.T @ targets)
    return np.asarray(found).reshape(cores[n].shape)


def _moved_right(core: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left, width, right = core.shape
    q, r = np.linalg.qr(core.reshape(left * width, right))
    return q.reshape(left, width, -1), np.einsum("ab,bic->aic", r, after)


def _moved_left(before: np.ndarray, core: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left, width, right = core.shape
    q, r = np.linalg.qr(core.reshape(left, width * right).T)
    return np.einsum("aib,cb->aic", before, r), q.T.reshape(-1, width, right)
