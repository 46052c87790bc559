"""Suites: cases that are timed together, and the implementations that are timed on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from restt import chain
from restt._common.devices import available_memory
from restt_bench.baselines import PlainTorch, TensorKrowch
from restt_bench.case import Case, Settings
from restt_bench.implementation import Implementation, Limit, Work
from restt_bench.ours import GraphedStep, LibraryStep, Ours
from restt_bench.timing import measure_on

Row = dict[str, Any]
USABLE_SHARE = 0.7  # of the free memory that one implementation may plan to use
MODES = ("step", "infer")
IMAGE = Case()  # the main table's sizes: MNIST at 14×14
QUICK_IMAGE = Case(sites=24, bond_dim=8, batch=32)
GPU_RUNS, GPU_PATCH_WIDTH = 10, 8  # side by side, and features of a site that is a patch
# Sweeps: title, field of a case that varies, sizes otherwise, values, values of a quick run.
SWEEPS: dict[str, tuple[str, str, Case, tuple[int, ...], tuple[int, ...]]] = {
    "scaling-r": ("Time against r", "bond_dim", Case(batch=128), (5, 10, 20, 50, 100, 200), (4, 8, 16)),
    "scaling-n": ("Time against N", "sites", Case(batch=64), (100, 200, 500, 1000, 2000, 5000, 10_000), (8, 16, 32)),
    "scaling-b": ("Time against B", "batch", IMAGE, (1, 4, 16, 64, 256, 1024, 4096), (8, 16, 32)),
}
SUITES = ("main", *SWEEPS, "loops")


@dataclass(frozen=True)
class Suite:
    """Cases timed one after the other; ``axis`` is the field of :class:`Case` that varies, if one does."""

    name: str
    title: str
    cases: tuple[Case, ...]
    implementations: tuple[Implementation, ...]
    axis: str | None = None
    is_sweep: bool = False


def make_suite(name: str, device: str, *, quick: bool) -> Suite:
    """The suite with its cases and implementations on the device.

    >>> [str(case) for case in make_suite("main", "cpu", quick=True).cases][0]
    'N=24 I=2 r=4 O=10 B=32 float32 cpu'
    """
    base, on_gpu = replace(QUICK_IMAGE if quick else IMAGE, device=device), device.startswith("cuda")
    if name in SWEEPS:
        title, axis, size, values, small = SWEEPS[name]
        base = base if quick else replace(size, device=device)
        cases = _along(base, axis, small if quick else values)
        return Suite(name, title, cases, tuple(field(device)), axis, is_sweep=True)
    cases = _along(base, "bond_dim", (4, 8) if quick else (20, 50, 100))
    if name == "loops":
        # The smallest bond last: its steps wait for the host, which the first compilations occupy for a while.
        precisions = ("tf32", "float32", "bf16") if on_gpu else ("float32",)
        cases = tuple(replace(case, precision=precision) for precision in precisions for case in reversed(cases))
        loops = (Ours("auto", graph=True), Ours("auto"), LibraryStep(), GraphedStep())
        return Suite(name, f"The module in a user's own training loop on {device}", cases, loops)
    title = "One training step of the image model"
    if not on_gpu:
        return Suite(name, title, cases, tuple(field(device)), "bond_dim")
    # A GPU has three precisions of products, and room for many runs and for wide sites.
    cases = tuple(replace(case, precision=precision) for precision in ("tf32", "bf16") for case in cases)
    many = tuple(replace(case, runs=GPU_RUNS) for case in cases)
    largest = [case for case in cases if case.bond_dim == cases[-1].bond_dim]
    wide = tuple(replace(case, feature_dim=GPU_PATCH_WIDTH) for case in largest)
    return Suite(name, title, (*cases, *many, *wide, replace(largest[0], precision="float32")), tuple(field(device)))


def field(device: str) -> list[Implementation]:
    """Ours, the baselines and the limit; on a GPU all that can be captured as a CUDA graph is timed both ways."""
    on_gpu = device.startswith("cuda")
    graphs = (True, False) if on_gpu else (False,)
    backends = ("auto", "eager") if on_gpu else ("auto", *chain.BACKENDS)
    return [
        *(Ours(backend, graph=graph) for backend in backends for graph in graphs),
        *(PlainTorch(form, graph=graph) for form in ("torch", "textbook") for graph in graphs),
        TensorKrowch(),
        TensorKrowch(inline=True),
        Limit(graph=on_gpu),
    ]


def _along(base: Case, axis: str, values: tuple[int, ...]) -> tuple[Case, ...]:
    return tuple(replace(base, **{axis: value}) for value in values)  # type: ignore[arg-type]


def time_case(
    case: Case,
    implementations: Sequence[Implementation],
    settings: Settings,
    left_out: dict[str, str] | None = None,
) -> list[Row]:
    """A row per implementation: median and quartiles of a training step and of inference, or why it did not run.

    All training steps are interleaved with each other, then all inferences. ``left_out`` names implementations that
    are not tried, and why. On a GPU a row also has the peak memory of its step.
    """
    skipped: dict[str, str] = dict(left_out or {})
    works: dict[str, Work] = {}
    peaks: dict[str, float] = {}
    with case.matmul_precision():
        for implementation in implementations:
            name = implementation.name
            reason = skipped.get(name) or implementation.refusal(case) or _too_large(implementation, case)
            if reason is not None:
                skipped[name] = reason
                continue
            try:
                works[name], peaks[name] = _build(implementation, case, settings.seed)
            except Exception as error:  # a graph that cannot be captured, or memory: one row, not the run
                line, _, _ = str(error).strip().partition("\n")  # an assertion may have none
                skipped[name] = f"{type(error).__name__}: {line[:200]}"
        times = {}
        for mode in MODES:
            calls: dict[str, Callable[[], object]] = {name: getattr(work, mode) for name, work in works.items()}
            times[mode] = measure_on(case.device, calls, rounds=settings.rounds, budget=settings.budget)
    rows = []
    for implementation in implementations:
        name = implementation.name
        row: Row = {"implementation": name, "label": implementation.label, "role": implementation.role}
        row["case"] = asdict(case)
        if name in skipped:
            row["skipped"] = skipped[name]
        elif not works[name].is_finite():
            row["skipped"] = "diverged: its times are not reported"
        else:
            row["flags"] = implementation.flags(case)
            row |= {mode: times[mode][name].as_milliseconds() for mode in MODES}
            if case.on_gpu:
                row["peak_gib"] = round(peaks[name] / 2**30, 4)
        rows.append(row)
    return rows


def _build(implementation: Implementation, case: Case, seed: int) -> tuple[Work, float]:
    """The work and, on a GPU, the bytes that building and one step took at most beyond what was in use."""
    if not case.on_gpu:
        return implementation.build(case, seed), 0.0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work = implementation.build(case, seed)
    work.step()
    torch.cuda.synchronize()
    return work, float(torch.cuda.max_memory_allocated() - before)


def _too_large(implementation: Implementation, case: Case) -> str | None:
    needed, usable = implementation.extra_bytes(case), USABLE_SHARE * available_memory(torch.device(case.device))
    if needed <= usable:
        return None
    return f"would need about {needed / 2**30:.0f} GiB, {usable / 2**30:.0f} GiB are usable"
