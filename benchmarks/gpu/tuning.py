"""Times launch constants; the fastest are what restt/chain/cuda/launch.py should hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

import restt
from gpu.measure import (
    BATCH,
    DEVICE,
    OUTPUTS,
    SITES,
    TINY_BATCH,
    TINY_SITES,
    Record,
    features,
    graphed,
    guarded,
    kernel_times,
    milliseconds,
)
from restt.chain.cuda import launch as cuda_launch
from restt.chain.cuda.launch import SweepLaunch, WeightLaunch

KERNELS = {"forward_ms": "forward_sweep", "backward_ms": "backward_sweep", "dW_ms": "weight_grad"}


def tune_cases(which: str, tiny: bool) -> list[Record]:
    """Constants to try: of the ``"sweeps"`` with one run and ten, of the weight gradient (``"weights"``), of both."""
    if tiny:
        return _sweeps(20, "tf32", [(16, 0, 2, 3, False), (16, 1, 2, 2, True)])
    return (_sweep_cases() if which != "weights" else []) + (_weight_cases() if which != "sweeps" else [])


def _sweeps(bond: int, precision: str, settings: list[tuple], runs: int = 1) -> list[Record]:
    setting = {"bond": bond, "precision": precision, "runs": runs}
    return [{**setting, "sweep": SweepLaunch(*values)} for values in settings]


def _sweep_cases() -> list[Record]:
    large = [(1, 8, 2, True), *((1, warps, 3, tma) for warps in (4, 8) for tma in (False, True))]
    cases = _sweeps(100, "tf32", [(16, *rest) for rest in large])
    large = [(1, 4, 5, True), (1, 8, 5, True), (2, 4, 3, False), (2, 4, 3, True), (2, 8, 3, True)]
    cases += _sweeps(100, "bf16", [(16, *rest) for rest in large])
    medium = [(2, 4, stages, tma) for stages in (3, 4, 5) for tma in (False, True)]
    small = [(2, 2, 3, False), (2, 4, 3, False), (2, 4, 6, False), (2, 4, 3, True)]
    for precision in ("tf32", "bf16"):
        cases += _sweeps(50, precision, [(16, *rest) for rest in medium])
        cases += _sweeps(20, precision, [(16, *rest) for rest in small])
    many = [(64, 1, 8, 2, True), (32, 1, 8, 3, True), (32, 1, 4, 3, True), (16, 1, 8, 3, True)]
    cases += _sweeps(100, "tf32", many, runs=10) + _sweeps(100, "bf16", [*many, (32, 2, 4, 3, True)], runs=10)
    medium = [(16, 2, 4, 4, True), (32, 2, 4, 4, True), (64, 2, 4, 4, True), (64, 2, 8, 4, True)]
    small = [(columns, 2, warps, 4, False) for columns in (16, 32, 64) for warps in (2, 4)]
    for precision in ("tf32", "bf16"):
        cases += _sweeps(50, precision, medium, runs=10) + _sweeps(20, precision, small, runs=10)
    return cases


def _weight_cases() -> list[Record]:
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


def tune(case: Record, tiny: bool, compile_only: bool = False) -> Record:
    """Time of forward and backward without an optimizer, and of the sweeps and the weight gradient in it."""
    sites, batch = (TINY_SITES, TINY_BATCH) if tiny else (SITES, BATCH)
    module = restt.ResTT(sites, 2, case["bond"], OUTPUTS, runs=case["runs"], device=DEVICE)
    x = features(batch, sites, 2)
    cotangent = torch.randn(case["runs"], batch, OUTPUTS, device=DEVICE)

    def both() -> None:
        module.zero_grad(set_to_none=True)
        module(x).backward(cotangent)

    with _launching(case), restt.chain.backend("fused_cuda"), restt.chain.precision(case["precision"]):
        if compile_only:
            both()
            return {}
        replay = graphed(both)
        record: Record = {"both_ms": milliseconds(replay, samples=7), "kernels_us": guarded(kernel_times, replay)}
    for name, kernel in KERNELS.items():
        if kernel_us := [us for key, us in record["kernels_us"].items() if key.startswith(kernel)]:
            record[name] = sum(kernel_us) / 1e3
    return record


@contextmanager
def _launching(case: Record) -> Iterator[None]:
    """The case's constants instead of the table's; a tried sweep keeps its batch tile however many programs it has."""
    tile = cuda_launch.Layout(case["bond"], case["precision"]).tile
    names = ("SWEEPS", "WEIGHTS", "_PROCESSORS")
    before = {name: getattr(cuda_launch, name) for name in names}
    if "sweep" in case:
        cuda_launch.SWEEPS = {**cuda_launch.SWEEPS, (tile, case["precision"]): case["sweep"]}
        cuda_launch._PROCESSORS = 1 << 30
    if "weights" in case:
        cuda_launch.WEIGHTS = {**cuda_launch.WEIGHTS, tile: case["weights"]}
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(cuda_launch, name, value)


def fastest(results: list[Record]) -> list[Record]:
    """Per table, tile, precision and number of runs the constants of least time."""
    groups: dict[Any, Record] = {}
    for result in results:
        if "both_ms" not in result:
            continue
        kind = "sweep" if "sweep" in result else "weights"
        tile = cuda_launch.Layout(result["bond"], result["precision"]).tile
        group = {"table": kind, "tile": tile, "precision": result["precision"], "runs": result["runs"]}
        found = {**group, **asdict(result[kind]), "both_ms": result["both_ms"]}
        key = tuple(group.values())
        if key not in groups or found["both_ms"] < groups[key]["both_ms"]:
            groups[key] = found
    return list(groups.values())
