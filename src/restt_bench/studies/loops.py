"""The module in a user's own training loop: call by call, compiled, graphed, beside restt's captured step.

Times first, then gradients of every loop against float64, with torch's warnings. A part that fails is reported with its
traceback and costs no other; after ``SECONDS`` no further part is started. Results are printed as they come.
"""

from __future__ import annotations

import json
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from restt_bench.case import Case, Settings
from restt_bench.implementations.base import Implementation
from restt_bench.implementations.ours import LibraryStep, Ours
from restt_bench.implementations.own_loops import LOOPS, OwnLoop, tracing_backward
from restt_bench.parity import check
from restt_bench.race import race
from restt_bench.suites import IMAGE, QUICK_IMAGE

if TYPE_CHECKING:
    from rich.console import Console

Record = dict[str, Any]
SECONDS = 150.0


def loops(device: str, settings: Settings, console: Console) -> Record:
    """Every way at every size in torch's usual precision, the plain loop and the captured step in the others too."""
    with tracing_backward():
        return _loops(device, settings, console)


def _loops(device: str, settings: Settings, console: Console) -> Record:
    began = time.perf_counter()
    base = replace(QUICK_IMAGE if settings.quick else IMAGE, device=device)
    # The smallest last: its rows wait for the host, which the first compilations leave busy for a while.
    bonds = (4,) if settings.quick else (50, 100, 20)
    plain: list[Implementation] = [*([Ours("auto", graph=True)] if base.on_gpu else []), Ours("auto"), LibraryStep()]
    every = [*plain, *(OwnLoop(loop) for loop in LOOPS if loop != "plain")]
    # On their own: a graph of linear layers reads the workspace of cuBLAS, which torch.compile's graphs clear when they
    # are recorded, and the next replay ends in an illegal memory access (torch 2.11). restt's graphs read none.
    stacks = [OwnLoop(loop, stack=True) for loop in ("plain", "graphed-step")]
    usual, *others = ("tf32", "float32", "bf16") if base.on_gpu else ("float32",)
    first = [replace(base, bond_dim=bond, precision=usual) for bond in bonds]
    later = [replace(base, bond_dim=bond, precision=name) for name in others for bond in bonds]
    parts: list[tuple[str, Callable[..., Record], tuple[Any, ...]]] = []
    parts += [("steps", _raced, (case, every, settings)) for case in first]
    parts += [("steps", _raced, (case, stacks, settings)) for case in first]
    small = first[0].scaled_down()
    able = [implementation for implementation in every if implementation.refusal(small) is None]
    parts += [("parity", _checked, (implementation, small, settings)) for implementation in able]
    parts += [("steps", _raced, (case, plain, settings)) for case in later]
    found: dict[str, list[Record]] = {name: [] for name, _, _ in parts}
    for name, work, arguments in parts:
        seconds = time.perf_counter() - began
        record = _guarded(work, *arguments) if seconds < SECONDS else {"left_out": f"{SECONDS:.0f} s were over"}
        found[name].append(record)
        console.print(f"{seconds:.0f} s, {name}: {json.dumps(record)}", markup=False, soft_wrap=True)
    rows = [row for record in found.pop("steps") for row in record.get("rows", [])]
    title = f"The module in a loop of one's own on {device}"
    named = {"checks": found.pop("parity"), "steps": rows, **found}
    return {"title": title, **named}


def _guarded(work: Callable[..., Record], *arguments: Any) -> Record:
    """What the work found, or how it failed."""
    try:
        return work(*arguments)
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {str(error)[:500]}"}
    finally:
        torch.compiler.reset()


def _checked(implementation: Implementation, case: Case, settings: Settings) -> Record:
    """The worst error against float64, and what torch warned of on the way."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = check(implementation, case, settings.seed)
    if found is None:
        return {"implementation": implementation.name, "passed": True, "warnings": []}
    told = sorted({f"{warning.category.__name__}: {str(warning.message)[:200]}" for warning in heard})
    error = found.error if found.raised is None else None  # JSON has no infinity
    return {**found.as_dict(), "error": error, "raised": found.raised, "passed": found.passed, "warnings": told}


def _raced(case: Case, field: list[Implementation], settings: Settings) -> Record:
    began = time.perf_counter()
    rows = race(case, field, settings, modes=("step",))
    return {"rows": rows, "seconds": round(time.perf_counter() - began, 1)}
