"""Kernels by least squares over all distinct products of lags, and kernels as trains and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement, permutations

import numpy as np

# Penalties tried, as shares of the largest squared singular value; leave-one-out picks.
PENALTIES = np.logspace(-15, 1, 33)
# Singular values of the tensor below this share are rounding.
ROUNDING = 1e-12


def exact_kernels(
    windows: np.ndarray,  # (T, L)
    targets: np.ndarray,  # (T,)
    order: int,
    alpha: str | float,
) -> tuple[list[np.ndarray], float]:
    """Symmetric kernels of ridge regression over the products of up to ``order`` lags, and the penalty.

    A product of multiplicity m (its permutations) is weighed by √(m · binomial(order, degree)): the penalty is then the
    norm that the kernel (1 + u·u')^order has, the same for every permutation. h0 is free of it.
    """
    lags = windows.shape[1]
    multisets = [m for degree in range(1, order + 1) for m in combinations_with_replacement(range(lags), degree)]
    weights = np.sqrt([_permutations(m) * math.comb(order, len(m)) for m in multisets])
    table = np.empty((len(windows), len(multisets)))
    for place, (members, weight) in enumerate(zip(multisets, weights, strict=True)):
        table[:, place] = weight * windows[:, members].prod(axis=1)
    means, level = table.mean(axis=0), targets.mean()
    u, s, v = np.linalg.svd(table - means, full_matrices=False)
    projected = u.T @ (targets - level)
    largest = float(s[0] ** 2) if len(s) and s[0] > 0 else 1.0
    choices = PENALTIES if alpha == "auto" else np.array([float(alpha)])
    errors = [_leave_one_out(u, s, projected, targets - level, share * largest) for share in choices]
    chosen = float(choices[int(np.argmin(errors))])
    coefficients = v.T @ (_shrunk(s, chosen * largest) * projected)
    kernels = [np.array(level - means @ coefficients), *(np.zeros((lags,) * p) for p in range(1, order + 1))]
    for members, weight, coefficient in zip(multisets, weights, coefficients, strict=True):
        share = coefficient * weight / _permutations(members)
        for turned in set(permutations(members)):
            kernels[len(members)][turned] = share
    return kernels, chosen


def _permutations(members: Sequence[int]) -> int:
    count = math.factorial(len(members))
    for member in set(members):
        count //= math.factorial(members.count(member))
    return count


def _shrunk(s: np.ndarray, penalty: float) -> np.ndarray:
    kept = s > max(s.max(initial=0.0), 1e-300) * np.finfo(float).eps * len(s)
    return np.where(kept, s / (np.where(kept, s, 1.0) ** 2 + penalty), 0.0)


def _leave_one_out(u: np.ndarray, s: np.ndarray, projected: np.ndarray, targets: np.ndarray, penalty: float) -> float:
    """Mean squared error of each row predicted from all others, in closed form."""
    shares = s * _shrunk(s, penalty)
    leverage = (u**2) @ shares + 1 / len(targets)
    residual = targets - u @ (shares * projected)
    return float(np.mean((residual / np.maximum(1 - leverage, 1e-12)) ** 2))


def train_of_kernels(kernels: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A tensor train over [1, u] at each of ``order`` sites whose kernels these are: cores (left, 1+L, right)."""
    order = len(kernels) - 1
    lags = kernels[1].shape[0]
    tensor = np.zeros((1 + lags,) * order)
    for degree, kernel in enumerate(kernels):
        for sites in combinations(range(order), degree):
            place = tuple(slice(1, None) if site in sites else 0 for site in range(order))
            tensor[place] = kernel / math.comb(order, degree)
    cores, rest = [], tensor.reshape(1, -1)
    for _ in range(order - 1):
        left = rest.shape[0]
        u, s, v = np.linalg.svd(rest.reshape(left * (1 + lags), -1), full_matrices=False)
        kept = max(1, int((s > ROUNDING * s[0]).sum()))
        cores.append(u[:, :kept].reshape(left, 1 + lags, kept))
        rest = s[:kept, None] * v[:kept]
    return [*cores, rest.reshape(-1, 1 + lags, 1)]


def kernels_of_train(cores: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The symmetric kernels of a train over [1, u], index = order."""
    order, lags = len(cores), cores[0].shape[1] - 1
    tensor = np.ones((1, 1))
    for core in cores:
        tensor = np.einsum("pl,lir->pir", tensor, core).reshape(-1, core.shape[2])
    tensor = tensor.reshape((1 + lags,) * order)
    kernels = []
    for degree in range(order + 1):
        total = np.zeros((lags,) * degree)
        for sites in combinations(range(order), degree):
            total = total + tensor[tuple(slice(1, None) if site in sites else 0 for site in range(order))]
        turned = [np.transpose(total, axes) for axes in permutations(range(degree))]
        kernels.append(np.asarray(sum(turned) / len(turned)))
    return kernels
