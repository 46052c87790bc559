"""A residual train over copies of the window, core by core: each order adds to the state, and skips keep what is there.

    y_0 = 0,    y_n = y_{n-1} + Σ_i u_i (y_{n-1} W_{n,i}) + u U_n,    output = h0 + y_P · v

With state [y, 1] it is a plain train over [1, u] of bond r + 1, see :meth:`restt.ResTT.cores`. The output is affine in
the weights of one site, so each site in turn solves a ridge regression (alternating least squares).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from restt.volterra.train import LEAST_GAIN, LEAST_PENALTY


def fitted_residual_train(
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


def _ridge(table: np.ndarray, targets: np.ndarray, alpha: float) -> np.ndarray:
    gram = table.T @ table
    gram[np.diag_indices_from(gram)] += max(alpha, LEAST_PENALTY) * np.linalg.norm(gram, np.inf)
    return np.asarray(cho_solve(cho_factor(gram), table.T @ targets))


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
