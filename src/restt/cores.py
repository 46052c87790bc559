"""The plain tensor-train view of a module, and modules from tensor-train cores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from restt._common.errors import shown
from restt.chain.augmented import augmented_first, augmented_inner, augmented_last
from restt.module import ResTT
from restt.topology import Topology


@torch.no_grad()
def cores(module: ResTT) -> list[Tensor]:
    """N cores (left, 1+I_n, right) over the features [1, x(n)], the constant first; exact.

    left = 1 at site 1, right = O at site N, the inner bond is r + 1, or 2r + 1 where some skip goes to the output.
    With runs every core has a leading S. A bias sits in the constant slice of the last core.
    """
    weights, topology = module.weights(), module.topology
    if module.sites == 1:
        runs, width, outputs = weights.first.shape
        only = weights.first.new_zeros(runs, 1, 1 + width, outputs)
        only[:, 0, 1:] = weights.first
        found = [only]
    else:
        last = augmented_last(weights, topology)
        inner = augmented_inner(weights.chain, weights.linear, topology, weights.first)
        found = [augmented_first(weights.first, last.shape[1]).unsqueeze(1), *inner.unbind(1), last]
    if module.bias is not None:
        found[-1][:, -1, 0] += module.bias.reshape(-1, module.outputs)
    found = [core[:, :, : 1 + width].clone() for core, width in zip(found, module.feature_dims, strict=True)]
    return [core[0] for core in found] if module.runs is None else found


def from_cores(cores: Sequence[Tensor], topology: str | Topology = "residual") -> ResTT:
    """The module whose tensor-train view these cores are; the inverse of :func:`cores`.

    Cores that do not have that structure are refused, except with ``topology="plain"``: any tensor train of cores
    (left, D_n, right) then loads as a plain module over D_n features per site, inner bonds padded to the largest.

    >>> import torch, restt
    >>> model = restt.ResTT(sites=3, feature_dim=2, bond_dim=4, outputs=1)
    >>> same = restt.ResTT.from_cores(model.cores(), topology="residual")
    >>> x = torch.rand(5, 3, 2)
    >>> torch.equal(model(x), same(x))
    True
    >>> train = [torch.rand(1, 2, 3), torch.rand(3, 2, 4), torch.rand(4, 2, 1)]
    >>> restt.ResTT.from_cores(train, topology="plain").bond_dim
    4
    """
    given = _checked_cores(cores)
    sites = len(given)
    if isinstance(topology, str):
        topology = Topology.preset(topology, sites)
    if topology.sites != sites:
        raise ValueError(f"topology has {topology.sites} sites, cores are {sites}")
    has_runs = given[0].dim() == 4
    if not has_runs:
        given = [core.unsqueeze(0) for core in given]
    found, problem = _structured(given, topology, has_runs)
    if found is None and topology == Topology.plain(sites):
        return _plain(given, has_runs)
    if found is None:
        raise ValueError(
            f"cores are not the view of a module with this topology: {problem}; "
            'arbitrary tensor-train cores load with topology="plain"'
        )
    return found


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


def _empty_module(cores: list[Tensor], widths: list[int], bond: int, topology: Topology, **options: bool) -> ResTT:
    runs, outputs = cores[0].shape[0], cores[-1].shape[-1]
    module = ResTT(
        len(cores),
        widths,
        bond,
        outputs,
        topology,
        bias=options.get("bias", False),
        runs=runs if options["has_runs"] else None,
        dtype=cores[0].dtype,
        device=cores[0].device,
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    return module


@torch.no_grad()
def _structured(given: list[Tensor], topology: Topology, has_runs: bool) -> tuple[ResTT | None, str]:
    """Read the weights off the structure, then accept only if they give back exactly these cores."""
    sites, parts = len(given), 2 if topology.has_output_skip else 1
    widths = [core.shape[2] - 1 for core in given]
    bond, rest = divmod(given[0].shape[-1] - 1, parts)
    if min(widths) < 1:
        return None, f"site {widths.index(min(widths)) + 1} has no features besides the constant"
    if sites > 1 and (rest or bond < 1):
        return None, f"its inner bond {given[0].shape[-1]} is not {parts} r + 1 for any bond dimension r ≥ 1"
    constant = given[-1][:, -1, 0]
    module = _empty_module(given, widths, max(bond, 1), topology, bias=bool((constant != 0).any()), has_runs=has_runs)
    weights = module.weights()
    if sites == 1:
        weights.first[:, : widths[0]] = given[0][:, 0, 1:]
    else:
        weights.first[:, : widths[0]] = given[0][:, 0, 1:, :bond]
        for n, (core, width) in enumerate(zip(given[1:-1], widths[1:-1], strict=True)):
            if core.shape[1] != given[0].shape[-1] or core.shape[3] != given[0].shape[-1]:
                return None, f"site {n + 2} has bonds {core.shape[1]} and {core.shape[3]}, not {given[0].shape[-1]}"
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
    if module.bias is not None:
        module.bias.copy_(constant.view_as(module.bias))
    back = module.cores() if has_runs else [core.unsqueeze(0) for core in module.cores()]
    for n, (core, same) in enumerate(zip(given, back, strict=True), start=1):
        if not torch.equal(core, same):
            return None, f"site {n} has entries that the topology's structure does not"
    return module, ""


@torch.no_grad()
def _plain(given: list[Tensor], has_runs: bool) -> ResTT:
    widths = [core.shape[2] for core in given]
    bond = max([core.shape[-1] for core in given[:-1]], default=1)
    module = _empty_module(given, widths, bond, Topology.plain(len(given)), has_runs=has_runs)
    weights = module.weights()
    weights.first[:, : widths[0], : given[0].shape[-1]] = given[0][:, 0]
    for n, core in enumerate(given[1:-1]):
        assert weights.chain is not None
        weights.chain[:, n, : core.shape[2], : core.shape[1], : core.shape[3]] = core.transpose(1, 2)
    if len(given) > 1:
        assert weights.last_chain is not None
        weights.last_chain[:, : widths[-1], : given[-1].shape[1]] = given[-1].transpose(1, 2)
    return module
