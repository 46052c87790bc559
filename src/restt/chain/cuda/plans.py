"""The launches of a pass, worked out once for given sizes: which kernels, on which grids, with which constants."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch

from restt.chain.cuda.calls import KernelCall
from restt.chain.cuda.launch import (
    Layout,
    SiteLaunch,
    SweepLaunch,
    backward_cuts,
    head_launch,
    head_tile,
    round_up,
    site_launch,
    sweep_launch,
    weight_launch,
)
from restt.chain.cuda.parts import block_of, is_folded, sweep_constants
from restt.chain.operators import topology_of
from restt.topology import Topology


class Sizes(NamedTuple):
    """What a plan is made for: hashable, and all that launches depend on."""

    x: tuple[int, ...]  # shape
    strides: tuple[int, ...]  # of x
    first: tuple[int, ...]  # shape
    outputs: int
    connections: str
    precision: str
    device: torch.device

    @property
    def runs(self) -> int:
        return self.first[0] if len(self.first) == 3 else 1

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Inner sites, batch, columns: the batch rounded up to what a product takes."""
        return self.x[-2] - 2, self.x[-3], round_up(self.x[-3], 16)

    @property
    def x_strides(self) -> tuple[int, ...]:
        """Of runs, samples, sites and features; 0 for runs that share their features."""
        return (self.strides[0] if len(self.x) == 4 and self.x[0] > 1 else 0, *self.strides[-3:])


class ForwardPlan(NamedTuple):
    layout: Layout
    topology: Topology
    columns: int
    pack: KernelCall | None
    packed: tuple[int, ...]  # shape of the packed cores
    packs_backward: bool  # whether the backward sweep needs cores of its own, or reads the parameter
    descriptor: list[int] | None  # the block that the copy engine fetches
    sweep: KernelCall


@lru_cache(maxsize=256)
def forward_plan(sizes: Sizes, keep: bool) -> ForwardPlan:
    """The launches of the forward pass; ``keep`` for a backward pass."""
    from restt.chain.cuda.forward import forward_sweep, forward_sweep_wide
    from restt.chain.cuda.gradients import pack_cores

    topology, runs, width, bond = topology_of(sizes.connections), sizes.runs, sizes.x[-1], sizes.first[-1]
    inner, batch, columns = sizes.numbers
    layout = Layout(bond, sizes.precision)
    launch = sweep_launch(layout, width, runs, batch)
    folded = is_folded(topology, layout)
    tile, ld = 32, layout.forward_ld(folded)
    across = -(-ld // tile)
    packs_backward = keep and not layout.is_plain
    options = {
        "BOND": bond, "LD": layout.ld, "FORWARD_LD": ld, "T": tile, "BACKWARD": packs_backward, "FOLDED": folded,
        "num_warps": 4,
    }  # fmt: skip
    pack = KernelCall(pack_cores, (runs * inner * width, across, across), (), options)
    numbers = (inner, batch, columns, runs, *sizes.x_strides, sizes.outputs)
    constants = {
        "I": width, "BOND": bond, "LD": ld, "BN": launch.columns, "OT": head_tile(sizes.outputs),
        "STAGES": launch.stages, "PRECISION": sizes.precision, "LAST_LINEAR": topology.linears[-1],
        "num_warps": launch.warps, "num_stages": 1, **sweep_constants(topology, layout),
    }  # fmt: skip
    grid = (-(-columns // launch.columns), runs)
    if layout.is_wide:
        slots = inner + 1 if keep else 2
        sweep = KernelCall(forward_sweep_wide, grid, (*numbers, slots), {**constants, "T": layout.tile})
    else:
        constants |= {"R": layout.tile, "PART": launch.part, "TMA": launch.tma, "SAVE": keep, "FOLDED": folded}
        sweep = KernelCall(forward_sweep, grid, numbers, constants)
    return ForwardPlan(
        layout,
        topology,
        columns,
        pack if topology.has_chain else None,
        (runs * inner * width, bond, ld),
        packs_backward,
        block_of(layout, launch),
        sweep,
    )


class Section(NamedTuple):
    """Inner sites from ``start`` on: their sweep, then their weights' gradients."""

    start: int
    sweep: KernelCall
    weights: KernelCall | None


class BackwardPlan(NamedTuple):
    layout: Layout
    topology: Topology
    descriptor: list[int] | None
    whole: Section
    sections: tuple[Section, ...]  # the whole in order, from the chain's end, where the sweep leaves processors idle
    head: KernelCall | None


@lru_cache(maxsize=256)
def backward_plan(sizes: Sizes, wanted: tuple[bool, ...]) -> BackwardPlan:
    """The launches of the backward pass; ``wanted`` are the tensors whose gradients are computed, x first."""
    topology, layout = topology_of(sizes.connections), Layout(sizes.first[-1], sizes.precision)
    inner, batch, _ = sizes.numbers
    launch = sweep_launch(layout, sizes.x[-1], sizes.runs, batch, back=True, reads_states=wanted[0])
    whole = _section(sizes, wanted, launch, 0, inner)
    sections: tuple[Section, ...] = (whole,)
    cuts = backward_cuts(layout, inner, -(-batch // launch.columns))
    # Neither several runs nor what leaves for the output can be handed from one section to the next.
    if len(cuts) > 1 and sizes.runs == 1 and not topology.has_output_skip and whole.weights is not None:
        bounds = zip(cuts, (inner, *cuts), strict=False)
        sections = tuple(_section(sizes, wanted, launch, start, stop) for start, stop in bounds)
    return BackwardPlan(layout, topology, block_of(layout, launch), whole, sections, _head(sizes, wanted[4:]))


def _section(sizes: Sizes, wanted: tuple[bool, ...], launch: SweepLaunch, start: int, stop: int) -> Section:
    from restt.chain.cuda.backward import backward_sweep, backward_sweep_wide
    from restt.chain.cuda.gradients import site_gradients, weight_gradients

    want_x, want_first, want_chain, want_linear, *_ = wanted
    topology, runs, width, bond = topology_of(sizes.connections), sizes.runs, sizes.x[-1], sizes.first[-1]
    inner, batch, columns = sizes.numbers
    layout = Layout(bond, sizes.precision)
    numbers = (stop - start, batch, columns, runs, inner + 2, *sizes.x_strides, sizes.outputs)
    constants = {
        "I": width, "BOND": bond, "LD": layout.ld, "BN": launch.columns,
        "OT": head_tile(sizes.outputs), "STAGES": launch.stages, "PRECISION": sizes.precision, "WANT_X": want_x,
        "num_warps": launch.warps, "num_stages": 1, "HEAD": stop == inner, **sweep_constants(topology, layout),
    }  # fmt: skip
    grid = (-(-columns // launch.columns), runs)
    if layout.is_wide:
        sweep = KernelCall(backward_sweep_wide, grid, numbers, {**constants, "T": layout.tile})
    else:
        constants |= {"R": layout.tile, "PART": launch.part, "TMA": launch.tma}
        sweep = KernelCall(backward_sweep, grid, numbers, constants)
    want_first = want_first and start == 0
    if not (want_first or want_chain or want_linear):
        return Section(start, sweep, None)
    sites, numbers = stop - start + 1, (inner, batch, columns, runs, *sizes.x_strides)
    together = site_launch(layout, width, sites, runs)
    products = weight_launch(layout) if together is None else together
    constants = {
        "I": width, "BOND": bond, "BB": products.batch, "STAGES": products.stages, "PRECISION": sizes.precision,
        "CORE": want_chain, "ENTRY": want_first + 2 * want_linear, "num_warps": products.warps, "num_stages": 1,
    }  # fmt: skip
    if isinstance(products, SiteLaunch):
        constants |= {"R": layout.tile, "PART": products.features}
        groups = sites * -(-width // products.features)
        return Section(start, sweep, KernelCall(site_gradients, (groups, runs), numbers, constants))
    across, down = -(-bond // products.columns), -(-bond // products.rows)
    constants |= {"K": products.rows, "L": products.columns}
    programs = (sites * width, runs, across * (down if want_chain else 1))
    return Section(start, sweep, KernelCall(weight_gradients, programs, numbers, constants))


def _head(sizes: Sizes, wanted: tuple[bool, ...]) -> KernelCall | None:
    from restt.chain.cuda.gradients import head_gradients

    if not any(wanted):
        return None
    _, batch, columns = sizes.numbers
    width, bond, layout = sizes.x[-1], sizes.first[-1], Layout(sizes.first[-1], sizes.precision)
    rows, across = layout.tile, head_tile(sizes.outputs)
    stride_s, stride_b, _, stride_i = sizes.x_strides
    programs = (width + 1, sizes.runs, -(-bond // rows) * -(-sizes.outputs // across))
    at_once, warps = head_launch(layout, math.prod(programs))
    constants = {
        "I": width, "BOND": bond, "K": rows, "OT": across, "BB": at_once, "PRECISION": sizes.precision,
        **dict(zip(("CHAIN_HEAD", "LINEAR_HEAD", "SKIP_HEAD"), wanted, strict=True)),
        "num_warps": warps, "num_stages": 2,
    }  # fmt: skip
    numbers = (batch, columns, stride_s, stride_b, stride_i, sizes.outputs)
    return KernelCall(head_gradients, programs, numbers, constants)


def forget_plans() -> None:
    """Have launches worked out anew, for whoever changes the tables of launch.py."""
    forward_plan.cache_clear()
    backward_plan.cache_clear()
