"""Trains over copies of the window, site by site (alternating least squares): for too many products of lags.

A plain train over [1, u] keeps all other cores orthogonal. A residual one,

    y_0 = 0,    y_n = y_{n-1} + Σ_i u_i (y_{n-1} W_{n,i}) + u U_n,    output = h0 + y_P · v,

is with state [y, 1] a plain train of bond r + 1, see :meth:`restt.ResTT.cores`; its output is affine in the weights of
one site.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve

# Below this a core's normal equations could be singular to rounding.
LEAST_PENALTY = 1e-13
# A sweep over the cores that lowers the error by less than this share of it was the last.
LEAST_GAIN = 1e-4


def evaluate(cores: Sequence[np.ndarray], windows: np.ndarray) -> np.ndarray:  # (T, L) -> (T,)
    """The train at each window."""
    state = np.ones((len(windows), 1))
    for core in cores:
        outer = (state[:, :, None] * windows[:, None, :]).reshape(len(windows), -1)
        state = state @ core[:, 0] + outer @ core[:, 1:].reshape(-1, core.shape[2])
    return state[:, 0]


def fit_train(
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
        before, error = error, float(np.mean((evaluate(cores, windows) - targets) ** 2))
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
    return _ridge(table, targets, alpha).reshape(cores[n].shape)


def _ridge(table: np.ndarray, targets: np.ndarray, alpha: float) -> np.ndarray:
    """Least squares with a penalty of ``alpha`` times a bound of the largest eigenvalue."""
    gram = table.T @ table
    gram[np.diag_indices_from(gram)] += max(alpha, LEAST_PENALTY) * np.linalg.norm(gram, np.inf)
    return np.asarray(cho_solve(cho_factor(gram), table.T @ targets))


def _moved_right(core: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left, width, right = core.shape
    q, r = np.linalg.qr(core.reshape(left * width, right))
    return q.reshape(left, width, -1), np.einsum("ab,bic->aic", r, after)


def _moved_left(before: np.ndarray, core: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left, width, right = core.shape
    q, r = np.linalg.qr(core.reshape(left, width * right).T)
    return np.einsum("aib,cb->aic", before, r), q.T.reshape(-1, width, right)


def fit_residual_train(
    windows: np.ndarray,  # (T, L)
    targets: np.ndarray,  # (T,)
    order: int,
    bond: int,
    alpha: float,
    sweeps: int,
    rng: np.random.RandomState,
) -> list[np.ndarray]:
    """Cores (left, 1 + L, right) over [1, u] of the residual train."""
    lags = windows.shape[1]
    chains = [0.1 * rng.standard_normal((lags, bond, bond)) / bond**0.5 for _ in range(order)]
    entries = [rng.standard_normal((lags, bond)) for _ in range(order)]
    head, level = rng.standard_normal(bond) / bond**0.5, float(targets.mean())
    error = math.inf
    for _ in range(sweeps):
        for n in range(order):
            left = _states(windows, chains[:n], entries[:n], bond)
            right, after = _readers(windows, chains[n + 1 :], entries[n + 1 :], head)
            seen = np.einsum("tk,ti,tl->tikl", left, windows, right).reshape(len(windows), -1)
            own = np.einsum("ti,tl->til", windows, right).reshape(len(windows), -1)
            table = np.hstack([seen, own, np.ones((len(windows), 1))] if n else [own, np.ones((len(windows), 1))])
            found = _ridge(table, targets - after - (left * right).sum(axis=1), alpha)
            if n:
                chains[n] = found[: lags * bond**2].reshape(lags, bond, bond)
            entries[n], level = found[-1 - lags * bond : -1].reshape(lags, bond), float(found[-1])
        states = _states(windows, chains, entries, bond)
        found = _ridge(np.hstack([states, np.ones((len(states), 1))]), targets, alpha)
        head, level = found[:-1], float(found[-1])
        before, error = error, float(np.mean((states @ head + level - targets) ** 2))
        if not error < before * (1 - LEAST_GAIN):
            break
    return _cores(chains, entries, head, level)


def _states(windows: np.ndarray, chains: list[np.ndarray], entries: list[np.ndarray], bond: int) -> np.ndarray:
    """The state (T, r) after these sites."""
    y = np.zeros((len(windows), bond))
    for chain, entry in zip(chains, entries, strict=True):
        y = y + np.einsum("tk,ti,ikl->tl", y, windows, chain, optimize=True) + windows @ entry
    return y


def _readers(
    windows: np.ndarray, chains: list[np.ndarray], entries: list[np.ndarray], head: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:  # (T, r), (T,)
    """Output = after + reader · state before these sites."""
    reader, after = np.tile(head, (len(windows), 1)), np.zeros(len(windows))
    for chain, entry in zip(reversed(chains), reversed(entries), strict=True):
        after = after + ((windows @ entry) * reader).sum(axis=1)
        reader = reader + np.einsum("tl,ti,ikl->tk", reader, windows, chain, optimize=True)
    return reader, after


def _cores(
    chains: list[np.ndarray], entries: list[np.ndarray], head: np.ndarray, level: float
) -> list[np.ndarray]:  # P of (left, 1 + L, right)
    lags, bond = entries[0].shape
    cores = []
    for chain, entry in zip(chains, entries, strict=True):
        core = np.zeros((bond + 1, 1 + lags, bond + 1))
        core[:, 0] = np.eye(bond + 1)
        core[:bond, 1:, :bond] = chain.transpose(1, 0, 2)
        core[bond, 1:, :bond] = entry
        cores.append(core)
    cores[0] = cores[0][bond:]
    cores[-1] = (cores[-1] @ np.append(head, level))[..., None]
    return cores
