"""The launches of a pass, worked out once for given sizes: which kernels, on which grids, with which constants."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch

from restt.chain.cuda.calls import KernelCall
from restt.chain.cuda.launch import (
    Gpu,
    Layout,
    SweepLaunch,
    fetches_tiles,
    gpu,
    head_launch,
    head_tile,
    round_up,
    sweep_launch,
    weight_launch,
)
from restt.chain.operators import topology_of
from restt.topology import Topology

_PACK_TILE = 32


class Sizes(NamedTuple):
    """All that launches depend on."""

    x: tuple[int, ...]  # shape
    strides: tuple[int, ...]  # of x
    first: tuple[int, ...]  # shape
    outputs: int
    connections: str
    widths: tuple[int, ...]  # of the sites where x is packed, else empty
    precision: str
    device: torch.device

    @property
    def topology(self) -> Topology:
        """Connections of the sites."""
        return topology_of(self.connections)

    @property
    def layout(self) -> Layout:
        """Layout of the cores."""
        return Layout(self.first[-1], self.precision)

    @property
    def gpu(self) -> Gpu:
        """Properties of the device."""
        return gpu(self.device)

    @property
    def runs(self) -> int:
        """Number of runs S."""
        return self.first[0] if len(self.first) == 3 else 1

    @property
    def batch(self) -> int:
        """Number of samples B."""
        return self.x[-2] if self.widths else self.x[-3]

    @property
    def columns(self) -> int:
        """The batch rounded up to what a product takes."""
        return round_up(self.batch, 16)

    @property
    def inner(self) -> int:
        """Number of inner sites."""
        return self.topology.sites - 2

    @property
    def features(self) -> tuple[int, int, int]:
        """Numbers of features: of the first site, of the inner sites together, of the last site."""
        if self.widths:
            return self.widths[0], sum(self.widths[1:-1]), self.widths[-1]
        width = self.first[-2]
        return width, self.inner * width, width

    @property
    def x_strides(self) -> tuple[int, int, int, int]:
        """Strides of runs, samples, sites and features; 0 for shared features and for sites of a packed x."""
        sample, site = (self.strides[-2], 0) if self.widths else (self.strides[-3], self.strides[-2])
        run = self.strides[0] if self.x[: -2 if self.widths else -3] not in ((), (1,)) else 0
        return run, sample, site, self.strides[-1]


class ForwardPlan(NamedTuple):
    """Launches of the forward pass."""

    layout: Layout
    state: tuple[int, int, int]  # shape (S, R, columns) of a state
    has_output_skip: bool
    pack: KernelCall | None
    packed: tuple[int, ...]  # shape of the packed cores
    kept: tuple[int, ...] | None  # shape of the backward sweep's cores; None where it reads the parameter
    tma: bool
    sweep: KernelCall


class BackwardPlan(NamedTuple):
    """Launches of the backward pass."""

    runs: int
    tma: bool
    sweep: KernelCall
    weights: KernelCall | None
    head: KernelCall | None


def packed_shape(sizes: Sizes, folded: bool = False) -> tuple[int, int, int]:
    """Shape of the packed cores: whole tiles, unless the copy engine reads them."""
    layout, count = sizes.layout, sizes.runs * sizes.features[1]
    if fetches_tiles(layout, sizes.gpu):
        return count, layout.bond, layout.forward_ld(folded)
    return count, layout.tile, layout.tile


def kept_shape(sizes: Sizes) -> tuple[int, int, int] | None:
    """Shape of the cores that the backward sweep reads; None where there are none or the parameter has it."""
    shape = packed_shape(sizes)
    plain = sizes.layout.is_plain and shape[1] == sizes.layout.bond and not sizes.widths
    return None if plain or not shape[0] or not sizes.topology.has_chain else shape


@lru_cache(maxsize=256)
def forward_plan(sizes: Sizes, keep: bool) -> ForwardPlan:
    """The launches of the forward pass; ``keep`` for a backward pass."""
    from restt.chain.cuda.forward import forward_sweep
    from restt.chain.cuda.gradients import pack_cores

    topology, layout = sizes.topology, sizes.layout
    launch = _sweep_launch(sizes)
    folded = is_folded(topology, layout) and not sizes.widths
    packed, kept = packed_shape(sizes, folded), kept_shape(sizes) if keep else None
    count, height, ld = packed
    across = -(-max(height, ld) // _PACK_TILE)
    pack = KernelCall(
        pack_cores,
        (count, across, across),
        (
            layout.bond, height, layout.units(packed_shape(sizes)[2]), layout.units(ld), sizes.features[1],
            sizes.inner * sizes.first[-2],
        ),
        {
            "T": _PACK_TILE, "BACKWARD": kept is not None, "FOLDED": folded, "RAGGED": bool(sizes.widths),
            "num_warps": 4, "num_stages": 1,
        },
    )  # fmt: skip
    constants = {"LAST_LINEAR": topology.linears[-1], "FOLDED": folded}
    sweep = _sweep_call(forward_sweep, sizes, launch, constants, (int(keep),))
    return ForwardPlan(
        layout,
        (sizes.runs, layout.bond, sizes.columns),
        topology.has_output_skip,
        pack if topology.has_chain and count else None,
        packed,
        kept,
        fetches_tiles(layout, sizes.gpu),
        sweep,
    )


@lru_cache(maxsize=256)
def backward_plan(sizes: Sizes, wanted: tuple[bool, ...]) -> BackwardPlan:
    """The launches of the backward pass; ``wanted`` are the tensors whose gradients are computed, x first."""
    from restt.chain.cuda.backward import backward_sweep

    launch = _sweep_launch(sizes, reads_states=wanted[0])
    sweep = _sweep_call(backward_sweep, sizes, launch, {"WANT_X": wanted[0]})
    tma = fetches_tiles(sizes.layout, sizes.gpu)
    return BackwardPlan(sizes.runs, tma, sweep, _weights(sizes, wanted[1:4]), _head(sizes, wanted[4:]))


def core_block(sweep: KernelCall) -> list[int]:
    """Shape of the packed cores that the copy engine fetches for one step of a sweep."""
    part, tile = sweep.constants["PART"], sweep.constants["R"]
    return [part, tile, tile]


def _sweep_launch(sizes: Sizes, **options: bool) -> SweepLaunch:
    """Constants of a sweep; a step over packed features is a single one."""
    width = 1 if sizes.widths else sizes.first[-2]
    return sweep_launch(sizes.layout, width, sizes.runs, sizes.batch, sizes.gpu, **options)


def _sweep_call(
    kernel: Any, sizes: Sizes, launch: SweepLaunch, constants: dict[str, Any], more: tuple[int, ...] = ()
) -> KernelCall:
    """One sweep; ``more`` are the numbers behind those of all sweeps."""
    topology, layout = sizes.topology, sizes.layout
    mixed = len(set(topology.connection_flags[:-1])) > 1
    numbers = (
        sizes.inner, sizes.batch, sizes.columns, sizes.runs, *sizes.x_strides, sizes.outputs, layout.bond,
        sizes.first[-2], *sizes.features, *more,
    )  # fmt: skip
    constants = {
        "BN": launch.columns, "OT": head_tile(sizes.outputs), "STAGES": launch.stages, "PRECISION": sizes.precision,
        "HAS_CHAIN": topology.has_chain, "HAS_LINEAR": topology.has_linear,
        "HAS_OUTPUT_SKIP": topology.has_output_skip, "ENDS_WITH_SKIP": topology.ends_with_skip,
        "LAST_CHAIN": topology.chains[-1], "LAST_SKIP": topology.has_skip_head,
        "R": layout.tile, "PART": launch.part, "WHOLE": not sizes.widths and launch.part == sizes.first[-2],
        "TMA": fetches_tiles(layout, sizes.gpu), "MIXED": mixed, "SKIP": "none" if mixed else topology.skips[0],
        "RAGGED": bool(sizes.widths), "num_warps": launch.warps, "num_stages": 1, **constants,
    }  # fmt: skip
    return KernelCall(kernel, (-(-sizes.columns // launch.columns), sizes.runs), numbers, constants)


def _weights(sizes: Sizes, wanted: tuple[bool, ...]) -> KernelCall | None:
    """The gradients of W(1), W(n,1) and W(n,2)."""
    from restt.chain.cuda.gradients import weight_gradients

    want_first, want_chain, want_linear = wanted
    if not any(wanted):
        return None
    bond, launch = sizes.layout.bond, weight_launch(sizes.layout, sizes.gpu)
    across, down = -(-bond // launch.columns), -(-bond // launch.rows)
    grid = (sum(sizes.features[:2]), sizes.runs, across * (down if want_chain else 1))
    numbers = (
        sizes.inner, sizes.batch, sizes.columns, sizes.runs, *sizes.x_strides, bond, sizes.first[-2], sizes.features[0],
    )  # fmt: skip
    constants = {
        "K": launch.rows, "L": launch.columns, "BB": launch.batch, "STAGES": launch.stages,
        "PRECISION": sizes.precision, "CORE": want_chain, "ENTRY": want_first + 2 * want_linear,
        "RAGGED": bool(sizes.widths), "ALIGNED": bond % 4 == 0, "num_warps": launch.warps, "num_stages": 1,
    }  # fmt: skip
    return KernelCall(weight_gradients, grid, numbers, constants)


def _head(sizes: Sizes, wanted: tuple[bool, ...]) -> KernelCall | None:
    """The gradients of W(N,1), W(N,2) and W(N,3)."""
    from restt.chain.cuda.gradients import head_gradients

    if not any(wanted):
        return None
    bond, rows, across = sizes.layout.bond, sizes.layout.tile, head_tile(sizes.outputs)
    grid = (sizes.features[2] + 1, sizes.runs, -(-bond // rows) * -(-sizes.outputs // across))
    at_once, warps = head_launch(sizes.layout, math.prod(grid), sizes.gpu)
    run, sample, _, feature = sizes.x_strides
    numbers = (sizes.batch, sizes.columns, run, sample, feature, sizes.outputs, bond, sizes.first[-2])
    constants = {
        "K": rows, "OT": across, "BB": at_once, "PRECISION": sizes.precision,
        **dict(zip(("CHAIN_HEAD", "LINEAR_HEAD", "SKIP_HEAD"), wanted, strict=True)),
        "num_warps": warps, "num_stages": 1,
    }  # fmt: skip
    return KernelCall(head_gradients, grid, numbers, constants)


def is_folded(topology: Topology, layout: Layout) -> bool:
    """Whether a forward sweep reads the linear entries as a column of the cores: one thing less to wait for.

    There must be room in the tile. Only tf32 products round the entry no more than the core that it then lies in.
    """
    uniform = len(set(topology.connection_flags[:-1])) == 1 and topology.has_chain and topology.has_linear
    return uniform and layout.precision == "tf32" and layout.bond < layout.tile


@cache
def device_flags(connections: str, device: torch.device) -> torch.Tensor:  # (N-1,) int32
    """Connections of the sites 2…N, made once: a copy from the host could neither be captured nor overlap."""
    return torch.tensor(list(topology_of(connections).connection_flags), dtype=torch.int32, device=device)


@lru_cache(maxsize=256)
def column_table(widths: tuple[int, ...], device: torch.device) -> torch.Tensor:  # (columns of the inner sites,) int32
    """An entry for every packed column of the inner sites: 2 · (site · max I + feature) + (is its site's last).

    >>> column_table((4, 1, 3, 1), torch.device("cpu")).tolist()
    [1, 8, 10, 13]
    """
    widest = max(widths)
    entries = [
        2 * (site * widest + feature) + (feature == width - 1)
        for site, width in enumerate(widths[1:-1])
        for feature in range(width)
    ]
    return torch.tensor(entries or [0], dtype=torch.int32, device=device)  # a kernel may look at the first entry
