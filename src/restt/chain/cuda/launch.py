"""How the fused kernels are laid out and launched for given sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

# Types of the operands that take half the memory.
_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# The largest bond whose whole core is one tile on chip.
NARROW = 128
# The tile of wider ones.
WIDE_TILE = 64
# Multiprocessors of a Hopper card: sweeps keep one program on each.
PROCESSORS = 132
# What the cores in flight may take of a multiprocessor's 227 KiB of shared memory.
_CORE_BYTES = 192 * 1024
_SHARED_BYTES = 216 * 1024


@dataclass(frozen=True)
class SweepLaunch:
    """One sweep: batch columns per program, features per loop step, warps, pipeline stages, cores by copy engine."""

    columns: int
    part: int
    warps: int
    stages: int
    tma: bool = False


@dataclass(frozen=True)
class WeightLaunch:
    """The weight gradient: tile of the core, batch per loop step, warps, pipeline stages."""

    rows: int
    columns: int
    batch: int
    warps: int
    stages: int


@dataclass(frozen=True)
class SiteLaunch:
    """The weight gradient of several features of a site: how many, a power of two; the rest as of one."""

    features: int
    batch: int
    warps: int
    stages: int


# The tables below were chosen among what `restt bench tune --device cuda` times, on an H200;
# results/bench/gpu_chain-h200.json has those times, and the check and the steps of what was chosen.

# (tile, precision) -> sweep constants; part 0 stands for all features of a site at once.
SWEEPS = {
    (16, "tf32"): SweepLaunch(16, 0, 1, 4),
    (32, "tf32"): SweepLaunch(16, 0, 4, 3),
    (64, "tf32"): SweepLaunch(16, 0, 4, 5, tma=True),
    (128, "tf32"): SweepLaunch(16, 1, 8, 3, tma=True),
    (16, "bf16"): SweepLaunch(16, 0, 1, 4),
    (32, "bf16"): SweepLaunch(16, 0, 4, 6),
    (64, "bf16"): SweepLaunch(16, 0, 4, 3),
    (128, "bf16"): SweepLaunch(16, 0, 4, 3, tma=True),
}
_WIDE = SweepLaunch(16, 1, 4, 3)

# The same for narrow batch tiles, by tile of tf32 products, where each program has a multiprocessor of its own: a sweep
# is then bound by its steps, and those of 8 columns are shorter. results/bench/tune-step-h200.json has the times.
ONE_WAVE = {
    32: SweepLaunch(8, 0, 2, 5),
    64: SweepLaunch(8, 0, 4, 4, tma=True),
    128: SweepLaunch(8, 1, 4, 3, tma=True),
}
# Of the backward sweep, in later trials: fewer warps paid at tile 64 (119 instead of 126 µs, while the forward one lost
# 16), and a deeper pipeline at tile 128 (294 instead of 305 µs; the forward one lost 10).
ONE_WAVE_BACK = {**ONE_WAVE, 64: SweepLaunch(8, 0, 2, 4, tma=True), 128: SweepLaunch(8, 1, 4, 4, tma=True)}

# Programs for every multiprocessor from which on they are many, as in a search over a small table: what one occupies of
# it then matters more than how long it takes. The times of MANY, SITES and MANY_HEADS are of 120 runs on 405 rows of 13
# sites with 8 features at r = 10 in float32, without and with them.
LEAST_PROGRAMS = 4
# In place of SWEEPS, by tile: 106 instead of 172 µs forwards, 68 instead of 111 backwards. In bf16 they gain nothing.
MANY = {16: SweepLaunch(32, 0, 1, 3)}

# Time of a program with this many batch columns, that of 16 being 1, by tile. More columns share the cores they read.
_COLUMN_COST = {
    16: {8: 1.0, 16: 1.0, 32: 1.1, 64: 1.8},
    32: {8: 1.0, 16: 1.0, 32: 1.1, 64: 1.8},
    64: {8: 1.0, 16: 1.0, 32: 1.2, 64: 2.0},
    128: {8: 1.0, 16: 1.0, 32: 1.4, 64: 3.0},
}

WEIGHTS = {
    16: WeightLaunch(16, 16, 64, 2, 3),
    32: WeightLaunch(32, 32, 128, 2, 3),
    64: WeightLaunch(64, 64, 32, 4, 4),
    128: WeightLaunch(128, 128, 32, 8, 3),
}

# Of tf32 products, where others were faster.
TF32_WEIGHTS = {128: WeightLaunch(128, 128, 16, 8, 5)}

# Of several features of a site at once, by tile, where there are many programs: each reads states and gradients once
# for all of them, 117 instead of 301 µs.
SITES = {16: SiteLaunch(8, 16, 2, 4)}

# Where a recorded backward pass is cut, as shares of the inner sites from the chain's start, by tile of tf32 products:
# the weights of one section then get their gradients beside the sweep over the next. At r = 100 a step takes 687
# instead of 701 µs; at smaller ones starting anew costs more than it saves.
CUTS: dict[int, tuple[float, ...]] = {128: (0.3,)}
# Chains of fewer sites are not cut.
LEAST_CUT = 64

# Batch per loop step of the output site's gradient, whose few programs go through the whole batch.
HEAD_BATCH = 128
HEAD_WARPS = 4
# Both, by tile, where there are many programs: one warp multiplies a tile, and more only do the same again; 43 instead
# of 164 µs.
MANY_HEADS = {16: (16, 1)}


@dataclass(frozen=True)
class Layout:
    """How the cores of one bond and precision lie in memory and in tiles."""

    bond: int
    precision: str

    @property
    def is_wide(self) -> bool:
        """Whether a core is walked in tiles because it does not fit on chip."""
        return self.bond > NARROW

    @property
    def tile(self) -> int:
        """Edge of the tile a program multiplies with: a power of two, at least 16."""
        return WIDE_TILE if self.is_wide else max(16, 1 << (self.bond - 1).bit_length())

    @property
    def dtype(self) -> torch.dtype:
        """Of the packed cores."""
        return _HALVES.get(self.precision, torch.float32)

    @property
    def ld(self) -> int:
        """Entries from one row of a packed core to the next, a multiple of 16 bytes."""
        return round_up(self.bond, 16 // self.dtype.itemsize)

    def forward_ld(self, folded: bool) -> int:
        """The same of the cores that the forward sweep reads, one column longer where they hold the linear entries."""
        return round_up(self.bond + folded, 16 // self.dtype.itemsize)

    @property
    def is_plain(self) -> bool:
        """Whether the parameter itself already has this layout."""
        return self.dtype == torch.float32 and self.ld == self.bond


def sweep_launch(
    layout: Layout, width: int, runs: int, batch: int, *, back: bool = False, reads_states: bool = False
) -> SweepLaunch:
    """Constants of one sweep, ``back`` of one that goes backwards without reading states.

    One that reads the states too keeps its tiles small, for shared memory.
    """
    if layout.is_wide:
        return _WIDE
    operands = "bf16" if layout.precision in _HALVES else "tf32"
    launch = SWEEPS[layout.tile, operands]
    columns = launch.columns if reads_states else _columns(layout, launch, runs, batch)
    table = ONE_WAVE_BACK if back else ONE_WAVE
    narrow = table.get(layout.tile) if layout.precision == "tf32" and not reads_states else None
    if narrow is not None and runs * -(-batch // narrow.columns) <= PROCESSORS:
        launch, columns = narrow, narrow.columns
    many = MANY.get(layout.tile) if operands == "tf32" and not reads_states else None
    if many is not None and runs * -(-batch // many.columns) >= LEAST_PROGRAMS * PROCESSORS:
        launch, columns = many, many.columns
    stages, warps = launch.stages, launch.warps
    if columns > launch.columns:
        warps = _wide_batch_warps(layout, columns, warps)
    core = layout.tile**2 * layout.dtype.itemsize
    part = launch.part or width
    # Products of 8 columns read a core to registers at once: the copies of the next ones go to where it was.
    spare = 1 if columns == 8 and stages > 1 else 0
    while width % part or part * core * (stages - spare) > _CORE_BYTES:
        part -= 1
    state = columns * layout.tile * 4
    states = state * (part * stages if reads_states else 1)
    while stages > 2 and part * core * (stages - spare) + states > _SHARED_BYTES:
        stages -= 1
        states = state * (part * stages if reads_states else 1)
    return replace(launch, columns=columns, part=part, warps=warps, stages=stages)


def _wide_batch_warps(layout: Layout, columns: int, warps: int) -> int:
    """Warps of a batch tile that has grown: few for a small core, which then leaves room for other programs."""
    if layout.tile <= 32:
        return min(warps, 2)
    return 8 if columns == 64 else warps


def _columns(layout: Layout, launch: SweepLaunch, runs: int, batch: int) -> int:
    """The batch tile whose programs, one after another where there are more than processors, take the least time."""

    def time(columns: int) -> float:
        programs = runs * -(-batch // columns)
        return -(-programs // PROCESSORS) * _COLUMN_COST[layout.tile][columns]

    return min((columns for columns in (8, 16, 32, 64) if columns >= launch.columns), key=time)


def weight_launch(layout: Layout) -> WeightLaunch:
    """Constants of the weight gradient."""
    if layout.precision == "tf32" and not layout.is_wide and layout.tile in TF32_WEIGHTS:
        return TF32_WEIGHTS[layout.tile]
    return WEIGHTS[128 if layout.is_wide else layout.tile]


def site_launch(layout: Layout, width: int, sites: int, runs: int) -> SiteLaunch | None:
    """Constants of the weight gradient of several features at once; None where they are better taken one by one."""
    launch = None if layout.is_wide else SITES.get(layout.tile)
    if launch is None or width == 1:
        return None
    features = min(launch.features, 1 << (width - 1).bit_length())
    if sites * runs * -(-width // features) < LEAST_PROGRAMS * PROCESSORS:
        return None
    return replace(launch, features=features)


def backward_cuts(layout: Layout, inner: int, programs: int) -> tuple[int, ...]:
    """First sites of the sections of a recorded backward pass, from the chain's end; one where nothing is cut.

    ``programs`` are those of the sweep: only where they leave half of the processors idle is there room beside them.
    """
    shares = CUTS.get(layout.tile, ()) if layout.precision == "tf32" and not layout.is_wide else ()
    if inner < LEAST_CUT or 2 * programs > PROCESSORS:
        shares = ()
    return (*(round(share * inner) for share in shares), 0)


def head_launch(layout: Layout, programs: int) -> tuple[int, int]:
    """Batch per loop step and warps of the output site's gradient."""
    few = HEAD_BATCH, HEAD_WARPS
    return MANY_HEADS.get(layout.tile, few) if programs >= LEAST_PROGRAMS * PROCESSORS else few


def head_tile(outputs: int) -> int:
    """How many outputs one product of the output site covers."""
    return min(64, max(16, 1 << (outputs - 1).bit_length()))


def round_up(number: int, multiple: int) -> int:
    """The next multiple.

    >>> round_up(50, 4)
    52
    """
    return -(-number // multiple) * multiple
