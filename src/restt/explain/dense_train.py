"""A train with dense cores, centred at means: the sweeps behind explanations of rows.

A core is (S, left, 1+I, right). Slice 0 is the site when absent (at its mean), slices 1… multiply the entries of its
centred vector. ``README.md`` beside this file has the derivations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from restt.explain.dense_moments import DenseMoments, whitened
from restt.explain.memory import row_chunks


def centred(
    cores: Sequence[Tensor],  # N of (S, left, 1+I, right)
    means: Tensor | None,  # (N, I)
) -> list[Tensor]:
    """Cores over [1, x - means]: the constant slice becomes the site at its mean."""
    if means is None:
        return list(cores)
    moved = []
    for core, mean in zip(cores, means, strict=True):
        absent = core[:, :, :1] + torch.einsum("slir,i->slr", core[:, :, 1:], mean).unsqueeze(2)
        moved.append(torch.cat([absent, core[:, :, 1:]], dim=2))
    return moved


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


def _absent(state: Tensor, core: Tensor) -> Tensor:  # (S, …, left) -> (S, …, right)
    return _product(state, core[:, :, 0])


def _present(
    state: Tensor,  # (S, …, B, left)
    core: Tensor,
    x: Tensor,  # (B, I), centred
) -> Tensor:  # (S, …, B, right)
    """The states with one site present, less those with it absent."""
    outer = (state.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
    return _product(outer, core[:, :, 1:].flatten(1, 2))


def _product(state: Tensor, matrix: Tensor) -> Tensor:
    """(S, …, left) with (S, left, right), as one matrix product per member."""
    return (state.flatten(1, -2) @ matrix).unflatten(1, state.shape[1:-1])


class DenseTrain:
    """The decision of a train with dense cores, centred; members have a leading axis."""

    def __init__(self, cores: list[Tensor], means: Tensor | None) -> None:  # N of (S, left, 1+I, right), (N, I)
        self.cores = centred(cores, means)
        self._bond = max(core.shape[-1] for core in cores)
        self._runs = cores[0].shape[0]

    def spectrum(self, x: Tensor, highest: int) -> Tensor:  # (B, N, I), centred -> (B, highest+1, D)
        """The sum of all terms of each order."""
        numbers = self._runs * self._bond * (highest + 1) * (2 + x.shape[-1])
        parts = []
        for rows in row_chunks(len(x), numbers, x.device):
            chunk = x[rows]
            state = chunk.new_ones(self._runs, 1, len(chunk), 1)  # (S, orders, B, left)
            for n, core in enumerate(self.cores):
                orders = min(n + 1, highest) + 1
                grown = _present(state, core, chunk[:, n])[:, : orders - 1]
                state = _absent(state, core)
                state = torch.cat(
                    [state, state.new_zeros(self._runs, orders - state.shape[1], *state.shape[2:])], dim=1
                )
                state[:, 1:] += grown
            parts.append(state.mean(dim=0).transpose(0, 1))
        return torch.cat(parts)

    def term(self, points: Mapping[int, Tensor]) -> Tensor:  # site -> (B, I), centred -> (S, B, D)
        """The contribution of exactly these sites together, of each member; one row for the constant."""
        state = self.cores[0].new_ones(self._runs, max(map(len, points.values()), default=1), 1)
        for n, core in enumerate(self.cores):
            state = _present(state, core, points[n]) if n in points else _absent(state, core)
        return state

    def tensor(self, widths: Sequence[int]) -> Tensor:  # (Π(1 + I_n), D)
        """Coefficients of all products of entries of [1, x(n) - mean(n)], the last site's fastest."""
        found = self.cores[0].new_ones(1, 1)  # (products so far, bond)
        for core, width in zip(merged(self.cores), widths, strict=True):
            found = torch.einsum("pl,lir->pir", found, core[:, : 1 + width]).flatten(0, 1)
        return found

    def moments(self, covariances: Tensor) -> DenseMoments:  # (N, I, I)
        """Variances under independent sites of these covariances."""
        return DenseMoments(whitened(merged(self.cores), covariances)[0])
