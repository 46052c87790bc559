"""The plain tensor-train view of a chain's weights, and weights from tensor-train cores.

See :meth:`restt.ResTT.cores` and :meth:`restt.ResTT.from_cores`. Here cores always have the runs axis S in front. With
the state [y, 1] the skip, the entry and the core of a site are one matrix: over the features [1, x(n)] every inner site
is the plain tensor-train core

    constant slice  [[full · I, 0], [0, 1]]        feature slice i  [[W(n,1)_i, 0], [W(n,2)_i, 0]]

Where some skip leaves for the output, the state is [y, z, 1] with z the sum of the states that have left.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from restt._common.errors import shown
from restt.chain.reference import ChainWeights, role_shapes
from restt.topology import Topology


class ReadCores(NamedTuple):
    """Weights and sizes of the module that the cores describe."""

    weights: ChainWeights
    bias: Tensor | None  # (S, O)
    topology: Topology
    widths: list[int]
    bond: int
    has_runs: bool


def cores_of(
    weights: ChainWeights,
    topology: Topology,
    widths: Sequence[int],
    bias: Tensor | None,  # (S, O)
) -> list[Tensor]:  # N of (S, left, 1+I_n, right)
    """The weights as a plain tensor train over the features [1, x(n)], the constant first; exact."""
    first, sites = weights.first, topology.sites
    runs, width, r = first.shape
    bond = r * (2 if topology.has_output_skip else 1) + 1
    bonds = [1, *[bond] * (sites - 1), weights.outputs]
    cores = [first.new_zeros(runs, left, 1 + width, right) for left, right in pairwise(bonds)]
    state, left, last = slice(0, r), slice(r, 2 * r), cores[-1]
    cores[0][:, 0, 1:, state] = first
    if sites > 1:
        cores[0][:, 0, 0, -1] = 1
    eye = torch.eye(r, dtype=first.dtype, device=first.device)
    for n, core in enumerate(cores[1:-1]):
        if topology.skips[n] == "full":
            core[:, state, 0, state] = eye
        elif topology.skips[n] == "output":
            core[:, state, 0, left] = eye
        if topology.chains[n] and weights.chain is not None:
            core[:, state, 1:, state] = weights.chain[:, n].transpose(1, 2)
        if topology.linears[n] and weights.linear is not None:
            core[:, -1, 1:, state] = weights.linear[:, n]
        if topology.has_output_skip:
            core[:, left, 0, left] = eye
        core[:, -1, 0, -1] = 1
    if weights.last_chain is not None:
        last[:, state, 1:] = weights.last_chain.transpose(1, 2)
    if weights.last_linear is not None:
        last[:, -1, 1:] = weights.last_linear
    if weights.last_skip is not None:
        if topology.ends_with_skip:
            last[:, state, 0] = weights.last_skip
        if topology.has_output_skip:
            last[:, left, 0] = weights.last_skip
    if bias is not None:
        last[:, -1, 0] += bias
    return [core[:, :, : 1 + width].clone() for core, width in zip(cores, widths, strict=True)]


def read_cores(
    cores: Sequence[Tensor],  # N of (left, D_n, right) or (S, left, D_n, right)
    topology: str | Topology,
) -> ReadCores:
    """The weights whose tensor-train view these cores are; any tensor train where the topology is plain."""
    given = _checked_cores(cores)
    sites = len(given)
    if isinstance(topology, str):
        topology = Topology.preset(topology, sites)
    if topology.sites != sites:
        raise ValueError(f"topology has {topology.sites} sites, cores are {sites}")
    has_runs = given[0].dim() == 4
    if not has_runs:
        given = [core.unsqueeze(0) for core in given]
    structured = _structured(given, topology, has_runs)
    if isinstance(structured, ReadCores):
        return structured
    if topology == Topology.plain(sites):
        return _plain(given, has_runs)
    raise ValueError(
        f"cores are not the view of a module with this topology: {structured}; "
        'arbitrary tensor-train cores load with topology="plain"'
    )


def _checked_cores(cores: Sequence[Tensor]) -> list[Tensor]:
    if isinstance(cores, Tensor) or not isinstance(cores, Sequence) or not cores:
        raise TypeError(f"cores must be a non-empty list of tensors, got {shown(cores)}")
    for n, core in enumerate(cores, start=1):
        if not isinstance(core, Tensor) or not core.dtype.is_floating_point:
            raise TypeError(f"cores must be floating point tensors, got {shown(core)} at site {n}")
        if core.dim() != cores[0].dim() or core.dim() not in (3, 4):
            raise ValueError(
                f"cores must all have 3 axes (left, features, right), or 4 with runs in front, "
                f"got shape {tuple(core.shape)} at site {n}"
            )
    if cores[0].shape[-3] != 1:
        raise ValueError(f"cores must start with left bond 1, got shape {tuple(cores[0].shape)} at site 1")
    for n, (before, after) in enumerate(pairwise(cores), start=2):
        if before.shape[-1] != after.shape[-3] or before.shape[:-3] != after.shape[:-3]:
            raise ValueError(
                f"cores do not fit: site {n - 1} has shape {tuple(before.shape)}, site {n} {tuple(after.shape)}"
            )
    return list(cores)


def _zero_weights(cores: list[Tensor], width: int, bond: int, topology: Topology) -> ChainWeights:
    runs, outputs = len(cores[0]), cores[-1].shape[-1]
    shapes = role_shapes(topology, width, bond, outputs)
    zeros = {role: None if shape is None else cores[0].new_zeros(runs, *shape) for role, shape in shapes.items()}
    return ChainWeights(**zeros, outputs=outputs)  # type: ignore[arg-type]  # every topology has the role first


def _structured(given: list[Tensor], topology: Topology, has_runs: bool) -> ReadCores | str:
    """The weights read off the structure if they give back exactly these cores, otherwise what is not as it should."""
    sites, parts = len(given), 2 if topology.has_output_skip else 1
    widths = [core.shape[2] - 1 for core in given]
    bond, rest = divmod(given[0].shape[-1] - 1, parts)
    if min(widths) < 1:
        return f"site {widths.index(min(widths)) + 1} has no features besides the constant"
    if sites > 1 and (rest or bond < 1):
        return f"its inner bond {given[0].shape[-1]} is not {parts} r + 1 for any bond dimension r ≥ 1"
    constant = given[-1][:, -1, 0]
    bias = constant if bool((constant != 0).any()) else None
    weights = _zero_weights(given, max(widths), max(bond, 1), topology)
    if sites == 1:
        weights.first[:, : widths[0]] = given[0][:, 0, 1:]
    else:
        weights.first[:, : widths[0]] = given[0][:, 0, 1:, :bond]
        for n, (core, width) in enumerate(zip(given[1:-1], widths[1:-1], strict=True)):
            if core.shape[1] != given[0].shape[-1] or core.shape[3] != given[0].shape[-1]:
                return f"site {n + 2} has bonds {core.shape[1]} and {core.shape[3]}, not {given[0].shape[-1]}"
            if topology.chains[n] and weights.chain is not None:
                weights.chain[:, n, :width] = core[:, :bond, 1:, :bond].transpose(1, 2)
            if topology.linears[n] and weights.linear is not None:
                weights.linear[:, n, :width] = core[:, -1, 1:, :bond]
        last = given[-1]
        if weights.last_chain is not None:
            weights.last_chain[:, : widths[-1]] = last[:, :bond, 1:].transpose(1, 2)
        if weights.last_linear is not None:
            weights.last_linear[:, : widths[-1]] = last[:, -1, 1:]
        if weights.last_skip is not None:
            start = 0 if topology.ends_with_skip else bond
            weights.last_skip[:] = last[:, start : start + bond, 0]
    for n, (core, same) in enumerate(zip(given, cores_of(weights, topology, widths, bias), strict=True), start=1):
        if not torch.equal(core, same):
            return f"site {n} has entries that the topology's structure does not"
    return ReadCores(weights, bias, topology, widths, max(bond, 1), has_runs)


def _plain(given: list[Tensor], has_runs: bool) -> ReadCores:
    widths = [core.shape[2] for core in given]
    bond = max([core.shape[-1] for core in given[:-1]], default=1)
    topology = Topology.plain(len(given))
    weights = _zero_weights(given, max(widths), bond, topology)
    weights.first[:, : widths[0], : given[0].shape[-1]] = given[0][:, 0]
    for n, core in enumerate(given[1:-1]):
        assert weights.chain is not None
        weights.chain[:, n, : core.shape[2], : core.shape[1], : core.shape[3]] = core.transpose(1, 2)
    if len(given) > 1:
        assert weights.last_chain is not None
        weights.last_chain[:, : widths[-1], : given[-1].shape[1]] = given[-1].transpose(1, 2)
    return ReadCores(weights, None, topology, widths, bond, has_runs)
