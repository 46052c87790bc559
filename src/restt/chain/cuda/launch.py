"""Layout and launch constants of the fused kernels, by sizes and by GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import torch

# Types of the operands that take half the memory.
_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# The largest bond whose whole core is one tile on chip.
WIDEST = 128
# Features of a site that one loop step takes at most: each other number is another kernel to compile.
MOST_FEATURES = 4


def _copies_in_place() -> bool:
    """Whether Triton copies the next core to where products of 8 columns have read one: 3.6 does, 3.9 does not."""
    try:
        return tuple(int(part) for part in version("triton").split(".")[:2]) < (3, 7)
    except PackageNotFoundError:
        return True


@dataclass(frozen=True)
class Gpu:
    """Properties of a device, and of its compiler, that launches depend on."""

    processors: int = 132
    shared_bytes: int = 227 * 1024  # that one program may take
    copies_tiles: bool = True  # Hopper's engine that fetches tiles by descriptor
    copies_in_place: bool = field(default_factory=_copies_in_place)


@cache
def gpu(device: torch.device) -> Gpu:
    """Properties of this device; those of an H200 where kernels are interpreted."""
    if device.type != "cuda":
        return Gpu()
    properties = torch.cuda.get_device_properties(device)
    shared = getattr(properties, "shared_memory_per_block_optin", 0) or Gpu.shared_bytes
    return Gpu(properties.multi_processor_count, shared, properties.major >= 9)


@dataclass(frozen=True)
class SweepLaunch:
    """One sweep: batch columns per program, features per loop step, warps, pipeline stages."""

    columns: int
    part: int  # 0 stands for as many features as may be
    warps: int
    stages: int


@dataclass(frozen=True)
class WeightLaunch:
    """The weight gradient: tile of the core, batch per loop step, warps, pipeline stages."""

    rows: int
    columns: int
    batch: int
    warps: int
    stages: int


@dataclass(frozen=True)
class LaunchTables:
    """Launch constants, chosen on an H200 among those that were timed.

    Keys are tiles of the bond dimension, beside a precision where they differ; "tf32" stands for float32 too where that
    is not named. A sweep has at most a warp for 16 rows of the tile, so that one thread has the products of all
    features of a part. The number of processors and the shared memory are those of the device.
    """

    sweeps: Mapping[tuple[int, str], SweepLaunch] = field(
        default_factory=lambda: {
            (16, "tf32"): SweepLaunch(16, 0, 1, 4),
            (32, "tf32"): SweepLaunch(16, 0, 2, 3),
            (64, "tf32"): SweepLaunch(16, 0, 4, 5),
            (128, "tf32"): SweepLaunch(16, 1, 8, 3),
            (16, "bf16"): SweepLaunch(16, 0, 1, 4),
            (32, "bf16"): SweepLaunch(16, 0, 2, 6),
            (64, "bf16"): SweepLaunch(16, 0, 4, 3),
            (128, "bf16"): SweepLaunch(16, 1, 4, 3),
        }
    )
    # Where each program has a multiprocessor of its own: steps of 8 columns are shorter.
    one_wave: Mapping[tuple[int, str], SweepLaunch] = field(
        default_factory=lambda: {
            **{
                (tile, precision): SweepLaunch(8, 0, tile // 16, 5)
                for tile in (32, 64)
                for precision in ("tf32", "float32", "bf16", "fp16")
            },
            (128, "tf32"): SweepLaunch(8, 1, 4, 4),
            (128, "float32"): SweepLaunch(8, 1, 8, 3),
            (128, "bf16"): SweepLaunch(8, 0, 4, 3),
            (128, "fp16"): SweepLaunch(8, 0, 4, 3),
        }
    )
    # Where every multiprocessor has this many programs, as in a search over a small table: what a program occupies
    # matters more than how long it takes (106 instead of 172 µs forwards, 120 runs of 13 sites, r = 10).
    many_programs: int = 4
    many: Mapping[int, SweepLaunch] = field(default_factory=lambda: {16: SweepLaunch(32, 0, 1, 3)})
    # Tiles from which on the copy engine fetches cores by descriptor, where there is one.
    fetched: Mapping[str, int] = field(default_factory=lambda: {"tf32": 64, "bf16": 128})
    # Time of a program with 8, 16, 32 and 64 batch columns, that of 16 being 1.
    column_cost: Mapping[int, tuple[float, ...]] = field(
        default_factory=lambda: {
            16: (1.0, 1.0, 1.1, 1.8),
            32: (1.0, 1.0, 1.1, 1.8),
            64: (1.0, 1.0, 1.2, 2.0),
            128: (1.0, 1.0, 1.4, 3.0),
        }
    )
    weights: Mapping[int, WeightLaunch] = field(
        default_factory=lambda: {
            16: WeightLaunch(16, 16, 64, 2, 3),
            32: WeightLaunch(32, 32, 128, 2, 3),
            64: WeightLaunch(64, 64, 32, 4, 4),
            128: WeightLaunch(128, 128, 32, 8, 3),
        }
    )
    tf32_weights: Mapping[int, WeightLaunch] = field(default_factory=lambda: {128: WeightLaunch(128, 128, 16, 8, 5)})
    # Batch per loop step and warps of the output site's gradient, and of that with many programs (43, not 164 µs).
    head: tuple[int, int] = (128, 4)
    many_heads: Mapping[int, tuple[int, int]] = field(default_factory=lambda: {16: (16, 1)})
    # Shared memory that a program needs beside its cores and states in flight.
    reserved_bytes: int = 11 * 1024


TABLES = LaunchTables()


@dataclass(frozen=True)
class Layout:
    """Memory layout and tile of the cores of one bond and precision."""

    bond: int
    precision: str

    @property
    def tile(self) -> int:
        """Edge of the tile a program multiplies with: a power of two, at least 16."""
        return max(16, 1 << (self.bond - 1).bit_length())

    @property
    def dtype(self) -> torch.dtype:
        """Type of the packed cores."""
        return _HALVES.get(self.precision, torch.float32)

    @property
    def operands(self) -> str:
        """Key of the tables: "bf16" for operands of two bytes, else "tf32"."""
        return "bf16" if self.precision in _HALVES else "tf32"

    @property
    def ld(self) -> int:
        """Entries from one row of a packed core to the next, a multiple of 16 bytes."""
        return round_up(self.bond, 16 // self.dtype.itemsize)

    def forward_ld(self, folded: bool) -> int:
        """Entries from row to row of a forward core, which has one more column where it holds the linear entries."""
        return round_up(self.bond + folded, 16 // self.dtype.itemsize)

    def units(self, entries: int) -> int:
        """Number of 16-byte units that this many entries take."""
        return entries * self.dtype.itemsize // 16

    @property
    def is_plain(self) -> bool:
        """Whether the parameter itself already has this layout."""
        return self.dtype == torch.float32 and self.ld == self.bond


def fetches_tiles(layout: Layout, device: Gpu) -> bool:
    """Whether the copy engine fetches whole cores, which then need no padding to a tile."""
    return device.copies_tiles and layout.tile >= TABLES.fetched[layout.operands]


def sweep_launch(
    layout: Layout, width: int, runs: int, batch: int, device: Gpu, *, reads_states: bool = False
) -> SweepLaunch:
    """Constants of one sweep; one for gradients of the features reads the states too."""
    launch = TABLES.sweeps[layout.tile, layout.operands]
    narrow = TABLES.one_wave.get((layout.tile, layout.precision))
    many = TABLES.many.get(layout.tile) if layout.operands == "tf32" else None
    if narrow and runs * -(-batch // narrow.columns) <= device.processors:
        launch = narrow
    elif many and runs * -(-batch // many.columns) >= TABLES.many_programs * device.processors:
        launch = many
    else:
        launch = replace(launch, columns=_columns(layout, launch, runs, batch, device))
    return _fitting(launch, layout, width, device, reads_states)


def _fitting(launch: SweepLaunch, layout: Layout, width: int, device: Gpu, reads_states: bool) -> SweepLaunch:
    """The launch with as many features per step and stages as shared memory has room for."""
    room = device.shared_bytes - TABLES.reserved_bytes
    core, state = layout.tile**2 * layout.dtype.itemsize, launch.columns * layout.tile * 4

    def needed(part: int, stages: int) -> int:
        # Products of 8 columns read a core to registers at once.
        spare = 1 if device.copies_in_place and launch.columns == 8 and stages > 1 else 0
        return part * core * (stages - spare) + state * (stages if reads_states else 1)

    # A power of two that divides the number of features.
    most = math.gcd(width, MOST_FEATURES)
    part = min(launch.part or most, most)
    while part > 1 and needed(part, launch.stages) > room:
        part //= 2
    stages = launch.stages
    while stages > 1 and needed(part, stages) > room:
        stages -= 1
    return replace(launch, part=part, stages=stages)


def _columns(layout: Layout, launch: SweepLaunch, runs: int, batch: int, device: Gpu) -> int:
    """The batch tile whose programs, one after another where there are more than processors, take the least time."""

    def time(choice: tuple[int, float]) -> float:
        columns, cost = choice
        return -(-runs * -(-batch // columns) // device.processors) * cost

    choices = zip((8, 16, 32, 64), TABLES.column_cost[layout.tile], strict=True)
    return min((choice for choice in choices if choice[0] >= launch.columns), key=time)[0]


def weight_launch(layout: Layout, device: Gpu) -> WeightLaunch:
    """Constants of the weight gradient."""
    launch = TABLES.weights[layout.tile]
    if layout.precision == "tf32":
        launch = TABLES.tf32_weights.get(layout.tile, launch)
    step_bytes = 4 * launch.batch * (launch.rows + launch.columns)
    room = device.shared_bytes - TABLES.reserved_bytes
    return replace(launch, stages=max(1, min(launch.stages, room // step_bytes)))


def head_launch(layout: Layout, programs: int, device: Gpu) -> tuple[int, int]:
    """Batch per loop step and warps of the output site's gradient."""
    many = programs >= TABLES.many_programs * device.processors
    return TABLES.many_heads.get(layout.tile, TABLES.head) if many else TABLES.head


def head_tile(outputs: int) -> int:
    """Number of outputs that one product of the output site covers."""
    return min(64, max(16, 1 << (outputs - 1).bit_length()))


def round_up(number: int, multiple: int) -> int:
    """The next multiple.

    >>> round_up(50, 4)
    52
    """
    return -(-number // multiple) * multiple
