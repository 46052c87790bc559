"""Drawing the weights of each run, Gaussian or, for the chain cores, rotations of the state.

A(n) = Σ_i x(n,i) W(n,1)_i keeps the length of every state, for every x, exactly when W_i W_jᵀ + W_j W_iᵀ = 0 for
i ≠ j. Multiplication by the units of the complex numbers, quaternions or octonions has that property (they are the
normed division algebras: |x·y| = |x||y|), so the state is read as r/d such numbers with d = 2, 4 or 8 at least the
number of features, multiplied by x, and turned by a random rotation Q(n):

    y A(n) = (x(n) · y) Q(n),    |y A(n)| = |x(n)| |y|

Where d does not divide r, the few entries left over are multiplied by x with random signs; beyond 8 features, groups
of 8 take rotations of their own. Lengths then hold in the mean, with fluctuations smaller than Gaussian cores'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor

from restt.init.variances import WeightVariances

_ALGEBRAS = (1, 2, 4, 8)  # dimensions of the normed division algebras over the reals
_DRAWN: ContextVar[bool] = ContextVar("weights are drawn", default=True)


@contextmanager
def undrawn() -> Iterator[None]:
    """Modules that are made here have no weights yet: they are still to be loaded, or drawn with a seed."""
    before = _DRAWN.set(False)
    try:
        yield
    finally:
        _DRAWN.reset(before)


def weights_are_drawn() -> bool:
    """Whether a new module draws its weights; not within :func:`undrawn`."""
    return _DRAWN.get()


def draw_weights(
    shapes: Mapping[str, tuple[int, ...]],  # role -> shape without the runs axis
    variances: WeightVariances,
    init: str,
    generators: Sequence[torch.Generator],  # one per run
    dtype: torch.dtype,
) -> dict[str, Tensor]:  # role -> (S, *shape)
    """Random weights of every run, role by role in the order of ``shapes``, on the CPU in float32 or float64.

    All are Gaussian but for ``init="orthogonal"``, whose chain cores of sites 2…N-1 rotate the state. Entries that the
    model does not use (padding, absent connections) are drawn too; the caller clears them.
    """
    drawn = torch.float64 if dtype == torch.float64 else torch.float32
    weights = {role: torch.empty(len(generators), *shape, dtype=drawn) for role, shape in shapes.items()}
    by_run = {role: noise.unbind() for role, noise in weights.items()}
    for run, generator in enumerate(generators):
        for role, noises in by_run.items():
            if role == "chain" and init == "orthogonal":
                # Orthogonal matrices have entries of mean square 1/r; like Gaussian ones they are to have 1 here.
                cores = orthogonal_cores(shapes[role], generator, drawn)
                noises[run].copy_(cores * cores.shape[-1] ** 0.5)
            else:
                noises[run].normal_(generator=generator)
    for role, noise in weights.items():  # of all runs at once: small models are drawn by the thousand
        noise.mul_(_deviation(role, variances, noise.dim() - 1).to(drawn))
    return weights


def _deviation(role: str, variances: WeightVariances, dimensions: int) -> Tensor:
    """The standard deviation, shaped to broadcast against the role's tensor."""
    if role in ("chain", "linear"):
        per_site: Tensor = getattr(variances, role)
        return per_site.sqrt().view(-1, *[1] * (dimensions - 1))
    return torch.tensor(variances.first if role == "first" else variances.last, dtype=torch.float64).sqrt()


def orthogonal_cores(
    shape: tuple[int, ...],  # (N-2, I, R, R)
    generator: torch.Generator,
    dtype: torch.dtype,
) -> Tensor:  # (N-2, I, R, R)
    """Random cores with entries of mean square 1/R, each W_i an orthogonal matrix.

    >>> cores = orthogonal_cores((1, 2, 6, 6), torch.Generator().manual_seed(0), torch.float64)
    >>> step = 0.6 * cores[0, 0] + 0.8 * cores[0, 1]
    >>> torch.allclose(step @ step.T, torch.eye(6, dtype=torch.float64))
    True
    """
    sites, width, bond = shape[:3]
    fitting = [d for d in _ALGEBRAS if d <= bond]
    dimension = next((d for d in fitting if d >= width), fitting[-1])
    groups = -(-width // dimension)
    rotations = _random_rotations((sites, groups, bond, bond), generator, dtype)
    units = _units(dimension).to(dtype)
    numbers, rest = divmod(bond, dimension)
    identity = torch.eye(numbers, dtype=dtype)
    signs = torch.randint(0, 2, (sites, width, rest, 1), generator=generator).to(dtype) * 2 - 1
    cores = torch.empty(shape, dtype=dtype)
    for i in range(width):
        group, unit = divmod(i, dimension)
        rotation = rotations[:, group]
        cores[:, i, : bond - rest] = torch.kron(units[unit], identity) @ rotation[:, : bond - rest]
        cores[:, i, bond - rest :] = signs[:, i] * rotation[:, bond - rest :]
    return cores


def _random_rotations(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    q, r = torch.linalg.qr(torch.randn(shape, generator=generator, dtype=dtype))
    # Without the signs the QR's own convention would bias the distribution away from the uniform one.
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(dtype)
    return q * signs.unsqueeze(-2)


@cache
def _units(dimension: int) -> Tensor:  # (d, d, d), row j of matrix i is unit i times unit j
    basis = torch.eye(dimension, dtype=torch.float64)
    return torch.stack([torch.stack([_multiply(a, b) for b in basis]) for a in basis])


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    """The Cayley–Dickson product of two vectors of length 1, 2, 4 or 8."""
    if len(a) == 1:
        return a * b
    (a1, a2), (b1, b2) = a.chunk(2), b.chunk(2)
    return torch.cat(
        [_multiply(a1, b1) - _multiply(_conjugate(b2), a2), _multiply(b2, a1) + _multiply(a2, _conjugate(b1))]
    )


def _conjugate(a: Tensor) -> Tensor:
    return torch.cat([a[:1], -a[1:]])
