"""Launch constants of the fused GPU chain beside those in use.

Kernels are compiled in ``settings.workers`` processes and then timed alone; nothing is checked. The fastest constants
are for the tables of the chain's launch file. Without a GPU only quick runs work, under ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

import restt
from restt.chain.cuda import launch as cuda_launch
from restt.chain.cuda.launch import SweepLaunch, WeightLaunch
from restt.chain.cuda.plans import forget_plans
from restt_bench.case import Settings
from restt_bench.implementations.base import captured
from restt_bench.studies.kernel_jobs import Record, described, features, guarded, launch_tables, spread
from restt_bench.suites import IMAGE
from restt_bench.timing import measure_on

if TYPE_CHECKING:
    from rich.console import Console

QUICK_SITES, QUICK_BATCH = 5, 19
# The kernels whose share of a forward and backward is told apart.
KERNELS = {
    "forward_ms": "forward_sweep",
    "backward_ms": "backward_sweep",
    "dW_ms": "weight_grad",
    "head_ms": "head_gradients",
}


def tune_launches(device: str, settings: Settings, console: Console) -> Record:
    """Forward and backward without an optimizer, for constants near those in use."""
    cases = sweeps(20, "tf32", [(16, 0, 2, 3, False)]) if settings.quick else [*_sweep_cases(), *_weight_cases()]
    return tune_cases(cases, device, settings, console)


def tune_step(device: str, settings: Settings, console: Console) -> Record:
    """The same for one run in tf32 alone, over more constants."""
    cases = sweeps(20, "tf32", [(8, 0, 1, 4, False)]) if settings.quick else step_cases()
    return tune_cases(cases, device, settings, console)


def tune_cases(
    cases: list[Record], device: str, settings: Settings, console: Console, seconds: float = float("inf")
) -> Record:
    """Each case's times as they come, and the fastest of every kind; no further case once ``seconds`` are over."""
    end = time.monotonic() + seconds
    compiled = spread(_compiled, [(case, device, settings.quick) for case in cases], device, settings.workers)
    rows: list[Record] = []
    for case, warm in zip(cases, compiled, strict=True):
        if time.monotonic() > end:
            console.print(f"{len(rows)} of {len(cases)} tried")
            break
        timed = warm if "error" in warm else guarded(_tuned, case, device, settings)
        rows.append({**case, **timed})
        shown = {key: value for key, value in described(rows[-1]).items() if key != "kernels_us"}
        console.print(shown, markup=False)
    return {
        "title": "Launch constants of the fused GPU chain",
        "tune": [described(row) for row in rows],
        "fastest": _fastest(rows),
        "launch": launch_tables(),
    }


def sweeps(bond: int, precision: str, settings: list[tuple[Any, ...]], runs: int = 1) -> list[Record]:
    setting = {"bond": bond, "precision": precision, "runs": runs}
    return [{**setting, "sweep": SweepLaunch(*values)} for values in settings]


def _sweep_cases() -> list[Record]:
    """Constants of the sweeps to try, with one run and ten."""
    large = [(1, 8, 2, True), *((1, warps, 3, tma) for warps in (4, 8) for tma in (False, True))]
    cases = sweeps(100, "tf32", [(16, *rest) for rest in large])
    large = [(1, 4, 5, True), (1, 8, 5, True), (2, 4, 3, False), (2, 4, 3, True), (2, 8, 3, True)]
    cases += sweeps(100, "bf16", [(16, *rest) for rest in large])
    medium = [(2, 4, stages, tma) for stages in (3, 4, 5) for tma in (False, True)]
    small = [(2, 2, 3, False), (2, 4, 3, False), (2, 4, 6, False), (2, 4, 3, True)]
    for precision in ("tf32", "bf16"):
        cases += sweeps(50, precision, [(16, *rest) for rest in medium])
        cases += sweeps(20, precision, [(16, *rest) for rest in small])
    many = [(64, 1, 8, 2, True), (32, 1, 8, 3, True), (32, 1, 4, 3, True), (16, 1, 8, 3, True)]
    cases += sweeps(100, "tf32", many, runs=10) + sweeps(100, "bf16", [*many, (32, 2, 4, 3, True)], runs=10)
    many = [(16, 2, 4, 4, True), (32, 2, 4, 4, True), (64, 2, 4, 4, True), (64, 2, 8, 4, True)]
    narrow = [(columns, 2, warps, 4, False) for columns in (16, 32, 64) for warps in (2, 4)]
    for precision in ("tf32", "bf16"):
        cases += sweeps(50, precision, many, runs=10) + sweeps(20, precision, narrow, runs=10)
    return cases


def step_cases() -> list[Record]:
    """Launch constants of one run in tf32 to be timed.

    Narrow batch tiles near the best known, where the backward pass is cut, the output site's batch, the weights'.
    """
    small = [(8, 0, warps, stages, False) for warps in (2, 4) for stages in (3, 5)] + [(8, 0, 1, 5, False)]
    medium = [(8, 0, warps, stages, True) for warps in (2, 4) for stages in (3, 4)] + [(16, 0, 4, 5, True)]
    large = [(8, 1, warps, stages, True) for warps in (4, 8) for stages in (3, 4)]
    large += [(16, 1, 8, 3, True), (8, 2, 4, 2, True)]
    cases = sweeps(20, "tf32", small) + sweeps(50, "tf32", medium) + sweeps(100, "tf32", large)
    one_run: Record = {"precision": "tf32", "runs": 1}
    cases += [{"bond": bond, "head": batch, **one_run} for bond in (20, 50, 100) for batch in (64, 128)]
    cuts = ((), (0.3,), (0.2,), (0.5, 0.15))
    cases += [{"bond": bond, "cuts": shares, **one_run} for bond in (20, 50, 100) for shares in cuts]
    weights = {
        20: [(32, 32, 128, 2, 3), (32, 32, 64, 2, 4)],
        50: [(64, 64, 32, 4, 4), (64, 64, 16, 4, 6)],
        100: [(128, 128, 32, 8, 3), (128, 128, 16, 8, 5), (128, 128, 16, 8, 7)],
    }
    return cases + [
        {"bond": bond, "weights": WeightLaunch(*values), **one_run} for bond in weights for values in weights[bond]
    ]


def _weight_cases() -> list[Record]:
    """Constants of the weight gradient to try."""
    tiles = {
        100: [(128, 128, 32, 8, 3), (128, 128, 32, 8, 2), (128, 64, 32, 4, 3), (64, 128, 32, 4, 3)],
        50: [(64, 64, 64, 4, 3), (64, 64, 32, 4, 3), (64, 64, 32, 4, 4), (64, 64, 64, 4, 2)],
        20: [(32, 32, 64, 4, 3), (32, 32, 128, 4, 3), (32, 32, 128, 2, 3), (32, 32, 32, 1, 4)],
    }
    return [
        {"bond": bond, "precision": precision, "runs": 1, "weights": WeightLaunch(*values)}
        for bond, settings in tiles.items()
        for precision in ("tf32", "bf16")
        for values in settings
    ]


def _forward_and_backward(case: Record, device: str, quick: bool) -> Callable[[], None]:
    sites, batch = (QUICK_SITES, QUICK_BATCH) if quick else (IMAGE.sites, IMAGE.batch)
    module = restt.ResTT(sites, 2, case["bond"], IMAGE.outputs, runs=case["runs"], device=device)
    x = features(device, batch, sites, 2)
    upstream = torch.randn(case["runs"], batch, IMAGE.outputs, device=device)

    def both() -> None:
        module.zero_grad(set_to_none=True)
        module(x).backward(upstream)

    return both


def _compiled(case: Record, device: str, quick: bool) -> Record:
    """Once through, so that the kernels are in Triton's cache: times are taken alone."""
    with _launching(case):
        _forward_and_backward(case, device, quick)()
    return {}


def _tuned(case: Record, device: str, settings: Settings) -> Record:
    """Time of forward and backward, and of the sweeps and the weight gradient in it."""
    with _launching(case):
        call = _forward_and_backward(case, device, settings.quick)
        replay = captured(call) if device.startswith("cuda") else call
        timed = measure_on(device, {"both": replay}, rounds=min(settings.rounds, 7), budget=settings.budget)
        record: Record = {"both_ms": 1e3 * timed["both"].median, "kernels_us": _kernel_times(replay, device)}
    for name, kernel in KERNELS.items():
        if kernel_us := [us for key, us in record["kernels_us"].items() if key.startswith(kernel)]:
            record[name] = sum(kernel_us) / 1e3
    return record


def _kernel_times(call: Callable[[], object], device: str, repeats: int = 5) -> dict[str, float]:
    """Microseconds per call of each kernel, by name."""
    if not device.startswith("cuda"):
        return {}
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
    found = {event.key[:60]: event.device_time_total / repeats for event in record.key_averages()}
    return dict(sorted(found.items(), key=lambda item: -item[1])[:16])


@contextmanager
def _launching(case: Record) -> Iterator[None]:
    """The case's constants instead of the table's; a tried sweep keeps its batch tile however many programs it has."""
    tile = cuda_launch.Layout(case["bond"], case["precision"]).tile
    before = {
        name: getattr(cuda_launch, name)
        for name in (
            "SWEEPS",
            "ONE_WAVE",
            "ONE_WAVE_BACK",
            "WEIGHTS",
            "TF32_WEIGHTS",
            "HEAD_BATCH",
            "PROCESSORS",
            "CUTS",
        )
    }
    if "sweep" in case:
        cuda_launch.SWEEPS = {**cuda_launch.SWEEPS, (tile, case["precision"]): case["sweep"]}
        cuda_launch.ONE_WAVE, cuda_launch.ONE_WAVE_BACK, cuda_launch.PROCESSORS = {}, {}, 1 << 30
    if "weights" in case:
        cuda_launch.WEIGHTS, cuda_launch.TF32_WEIGHTS = {**cuda_launch.WEIGHTS, tile: case["weights"]}, {}
    if "head" in case:
        cuda_launch.HEAD_BATCH = case["head"]
    if "cuts" in case:
        cuda_launch.CUTS = {**cuda_launch.CUTS, tile: case["cuts"]}
    forget_plans()
    try:
        with restt.chain.backend("fused_cuda"), restt.chain.precision(case["precision"]):
            yield
    finally:
        for name, value in before.items():
            setattr(cuda_launch, name, value)
        forget_plans()


def _fastest(rows: list[Record]) -> list[Record]:
    """Per table, tile, precision and number of runs the constants of least time."""
    groups: dict[Any, Record] = {}
    for row in rows:
        if "both_ms" not in row:
            continue
        kind = next(kind for kind in ("sweep", "weights", "head", "cuts") if kind in row)
        tile = cuda_launch.Layout(row["bond"], row["precision"]).tile
        group = {"table": kind, "tile": tile, "precision": row["precision"], "runs": row["runs"]}
        constants: Record = {kind: row[kind]} if kind in ("head", "cuts") else asdict(row[kind])
        found = {**group, **constants, "both_ms": row["both_ms"]}
        key = tuple(group.values())
        if key not in groups or found["both_ms"] < groups[key]["both_ms"]:
            groups[key] = found
    return list(groups.values())
