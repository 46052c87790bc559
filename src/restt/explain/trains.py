"""Tensor trains over [1, x(n) - mean(n)] in float64: what every closed form here is a sweep over.

A core is (S, left, 1+I, right). Slice 0 is what the site does when absent (at its mean), slices 1… what each entry of
its centred vector adds. ``README.md`` beside this file has the derivations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

# Numbers held at once while rows are streamed: 128 MiB on a CPU, 2 GiB on an accelerator.
NUMBERS_AT_ONCE = {"cpu": 2**24}
NUMBERS_ON_ACCELERATOR = 2**28
# Directions of a site's covariance below this share of its largest are rounding: hats sum to one, so one always is.
LEAST_VARIANCE = 1e-12


def centred(
    cores: Sequence[Tensor],  # N of (S, left, 1+I, right)
    means: Tensor | None,  # (N, I)
) -> list[Tensor]:
    """The same function over [1, x - means]: the constant slice becomes the site at its mean."""
    if means is None:
        return list(cores)
    moved = []
    for core, mean in zip(cores, means, strict=True):
        absent = core[:, :, :1] + torch.einsum("slir,i->slr", core[:, :, 1:], mean).unsqueeze(2)
        moved.append(torch.cat([absent, core[:, :, 1:]], dim=2))
    return moved


def absent(state: Tensor, core: Tensor) -> Tensor:  # (S, …, left) -> (S, …, right)
    """One site at its mean."""
    return _product(state, core[:, :, 0])


def present(
    state: Tensor,  # (S, …, B, left)
    core: Tensor,
    x: Tensor,  # (B, I), centred
) -> Tensor:  # (S, …, B, right)
    """What one site adds to being absent."""
    outer = (state.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
    return _product(outer, core[:, :, 1:].flatten(1, 2))


def _product(state: Tensor, matrix: Tensor) -> Tensor:
    """(S, …, left) with (S, left, right), as one matrix product per member."""
    return (state.flatten(1, -2) @ matrix).unflatten(1, state.shape[1:-1])


def merged(cores: Sequence[Tensor]) -> list[Tensor]:
    """The members' mean as one train without the runs axis: their bonds side by side."""
    runs = cores[0].shape[0]
    if runs == 1:
        return [core[0] for core in cores]
    if len(cores) == 1:
        return [cores[0].mean(dim=0)]
    joined = [torch.cat(list(cores[0]), dim=-1)]
    for core in cores[1:-1]:
        _, left, width, right = core.shape
        wide = core.new_zeros(runs, left, width, runs, right)
        index = torch.arange(runs, device=core.device)
        wide[index, :, :, index] = core
        joined.append(wide.reshape(runs * left, width, runs * right))
    return [*joined, cores[-1].flatten(0, 1) / runs]


def whitened(
    cores: Sequence[Tensor],  # N of (left, 1+I, right), centred
    covariances: Tensor,  # (N, I, I)
) -> tuple[list[Tensor], list[Tensor]]:
    """The train over orthonormal features [1, ψ(n)], and the maps ψ = (x - mean) @ unmix (I, J_n) of its sites.

    x - mean = ψ @ mix with E ψψᵀ = 1, so under independent sites the squared norm of a train's tensor is E f².
    """
    mixes, unmixes = whitening(covariances)
    white = [
        torch.cat([core[:, :1], torch.einsum("lir,ij->ljr", core[:, 1:], mix)], dim=1)
        for core, mix in zip(cores, mixes, strict=True)
    ]
    return white, unmixes


def whitening(covariances: Tensor) -> tuple[list[Tensor], list[Tensor]]:  # (N, I, I) -> N of (I, K_n), of (I, K_n)
    """Maps with x - mean = ψ @ mix.T and ψ = (x - mean) @ unmix for uncorrelated ψ of variance 1."""
    mixes, unmixes = [], []
    for covariance in covariances:
        variances, directions = torch.linalg.eigh(covariance)
        kept = variances > LEAST_VARIANCE * variances.amax().clamp(min=torch.finfo(torch.float64).tiny)
        spread, directions = variances[kept].sqrt(), directions[:, kept]
        mixes.append(directions * spread)
        unmixes.append(directions / spread)
    return mixes, unmixes


def mean_sweeps(cores: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """States of the absent sites before (S, left) and after (S, right, D) each site of centred cores."""
    before, after = [cores[0].new_ones(cores[0].shape[0], 1)], [_ends(cores)]
    for core in cores[:-1]:
        before.append(torch.einsum("sl,slr->sr", before[-1], core[:, :, 0]))
    for core in reversed(cores[1:]):
        after.append(core[:, :, 0] @ after[-1])
    return before, after[::-1]


def _ends(cores: Sequence[Tensor]) -> Tensor:  # (S, D, D)
    runs, outputs = cores[-1].shape[0], cores[-1].shape[-1]
    return torch.eye(outputs, dtype=cores[-1].dtype, device=cores[-1].device).expand(runs, -1, -1)


def transfer_left(
    moment: Tensor,  # (…, left, left)
    core: Tensor,  # (left, J, right): whitened, or any of its slices
) -> Tensor:  # (…, right, right)
    """E[state stateᵀ] through a site: Σ_j H_jᵀ E H_j."""
    left, width, right = core.shape
    half = (moment @ core.reshape(left, width * right)).unflatten(-1, (width, right)).flatten(-3, -2)
    return core.reshape(left * width, right).T @ half


def transfer_right(
    moment: Tensor,  # (…, right, right)
    core: Tensor,  # (left, J, right)
) -> Tensor:  # (…, left, left)
    """The adjoint of :func:`transfer_left`: Σ_j H_j F H_jᵀ."""
    return transfer_left(moment, core.transpose(0, 2))


def output_moments(core: Tensor) -> Tensor:  # (D, D, D)
    """For each output the moment F behind the last site that picks its square."""
    outputs = core.shape[-1]
    return torch.diag_embed(torch.eye(outputs, dtype=core.dtype, device=core.device))


def row_chunks(
    rows: int,
    numbers_per_row: int,
    device: torch.device,
) -> Iterator[slice]:
    """Slices of rows, few enough that what is held at once stays bounded."""
    budget = NUMBERS_AT_ONCE.get(device.type, NUMBERS_ON_ACCELERATOR)
    step = max(1, budget // max(1, numbers_per_row))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))
