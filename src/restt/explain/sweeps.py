"""Steps that all sweeps share: slices that fit into memory, polynomials in the order, quadrature, whitening."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Step = Callable[[Tensor], Tensor]

# Directions of a site's covariance below this share of its largest are rounding: hats sum to one, so one always is.
LEAST_VARIANCE = 1e-12


@dataclass
class Memory:
    """Numbers of 8 bytes each; blocks of products fit a processor's cache, rows a small machine or an accelerator."""

    cpu: int = 2**24
    accelerator: int = 2**28
    block: int = 2**21  # of products and rows
    pairs: int = 2**22  # of matrices of all sites for a block of pairs of products
    rows: int = 256  # rows of x beside a block of products


MEMORY = Memory()


def slices(count: int, step: int) -> Iterator[slice]:
    """Consecutive slices of at most ``step``.

    >>> list(slices(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return (slice(start, min(count, start + step)) for start in range(0, count, step))


def row_chunks(rows: int, numbers_per_row: int, device: torch.device) -> Iterator[slice]:
    """Slices of rows of which so many numbers each fit into memory."""
    budget = MEMORY.cpu if device.type == "cpu" else MEMORY.accelerator
    return slices(rows, max(1, budget // max(1, numbers_per_row)))


def by_order(state: Tensor, steps: Iterable[tuple[Step, Step]], highest: int) -> Tensor:  # (…) -> (orders, …)
    """Coefficients of 1, t … t^highest of a product of linear maps ``absent + t·present``, applied to a state.

    >>> two, three = torch.tensor(2.0), torch.tensor(3.0)
    >>> by_order(torch.tensor(1.0), [(two.mul, three.mul)] * 2, 2).tolist()  # (2 + 3t)²
    [4.0, 12.0, 9.0]
    """
    state = state[None]
    for absent, present in steps:
        kept, grown = absent(state), present(state[:highest])
        known = len(kept) - 1
        kept[1:] += grown[:known]
        state = torch.cat([kept, grown[known:]]) if len(grown) > known else kept
    return state


def legendre(count: int, like: Tensor) -> tuple[Tensor, Tensor]:  # (K,), (K,)
    """Gauss–Legendre nodes and weights on [0, 1], exact up to the polynomial degree 2·count - 1."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return torch.from_numpy((nodes + 1) / 2).to(like), torch.from_numpy(weights / 2).to(like)


def whitening(covariances: Tensor) -> tuple[list[Tensor], list[Tensor]]:  # (N, I, I) -> N of (I, K_n), of (I, K_n)
    """Maps with x - mean = ψ @ mix.T and ψ = (x - mean) @ unmix for uncorrelated ψ of variance 1."""
    mixes, unmixes = [], []
    for covariance in covariances:
        variances, directions = torch.linalg.eigh(covariance)
        kept = variances > LEAST_VARIANCE * variances.amax().clamp(min=torch.finfo(torch.float64).tiny)
        deviations, directions = variances[kept].sqrt(), directions[:, kept]
        mixes.append(directions * deviations)
        unmixes.append(directions / deviations)
    return mixes, unmixes
