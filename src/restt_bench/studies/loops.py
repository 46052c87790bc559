"""The module in a loop of one's own: call by call, compiled, graphed, beside restt's captured step.

Times first, then where the time of the plain loop goes, outputs and gradients of every way against float64 with the
warnings told, and ``torch.library.opcheck`` of the operators. A part that fails is told with its traceback and costs no
other; after ``SECONDS`` no further part is started. Everything found is printed at once, for a run that is cut short.
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

import restt
from restt import Topology
from restt.chain.reference import ROLES
from restt_bench.case import Case, Settings
from restt_bench.implementations.base import Implementation
from restt_bench.implementations.ours import Ours
from restt_bench.implementations.own_loops import LOOPS, OwnLoop, tracing_backward
from restt_bench.implementations.train_step import LibraryStep
from restt_bench.parity import check
from restt_bench.race import race
from restt_bench.suites import IMAGE, QUICK_IMAGE

if TYPE_CHECKING:
    from rich.console import Console

Record = dict[str, Any]
SECONDS = 150.0
# What a loop by torch's own means may cost over restt.train's own step, by bond dimension.
TIMES_OWN_STEP = {20: 1.5, 50: 1.15, 100: 1.15}
# The loops of docs/pytorch.md that are held to it. The other ways leave loss, backward and update to torch's Python,
# which takes longer than that around any model: the rows of ``stack`` tell how long here.
CAPTURED_LOOPS = ("compiled-step", "compiled-whole", "graphed-step", "graphed-whole", "captured-step")


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
    ways = ("graphed", "compiled", "reduce-overhead") if base.on_gpu else ("compiled",)
    every = [*plain, *(Ours("auto", way=way) for way in ways)]
    every += [OwnLoop(loop) for loop in LOOPS if loop != "plain"]
    # On their own: a graph of linear layers reads the workspace of cuBLAS, which torch.compile's graphs clear when they
    # are recorded, and the next replay ends in an illegal memory access (torch 2.11). restt's graphs read none.
    stacks = [OwnLoop(loop, stack=True) for loop in ("plain", "one-thread", "graphed-step")]
    usual, *others = ("tf32", "float32", "bf16") if base.on_gpu else ("float32",)
    first = [replace(base, bond_dim=bond, precision=usual) for bond in bonds]
    later = [replace(base, bond_dim=bond, precision=name) for name in others for bond in bonds]
    parts: list[tuple[str, Callable[..., Record], tuple[Any, ...]]] = []
    parts += [("steps", _raced, (case, every, settings)) for case in first]
    parts += [("steps", _raced, (case, stacks, settings)) for case in first]
    small = first[0].scaled_down()
    able = [implementation for implementation in every if implementation.refusal(small) is None]
    parts += [("parity", _checked, (implementation, small, settings)) for implementation in able]
    parts += [("operators", _operators_checked, (device,))]
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


def _operators_checked(device: str) -> Record:
    """``opcheck`` of forward and backward, with runs and without, of a topology with every kind of connection."""
    on_gpu = device.startswith("cuda")
    name, settings = ("fused_cuda", ((), "float32", True)) if on_gpu else ("fused_cpu", ((), 1))
    mixed = Topology.residual(6).skip_to_output(3).without_chain(4).without_linear(2)
    found = {}
    for runs in (None, 2):
        record = _guarded(_operator_checked, name, mixed, runs, settings, device)
        found[f"{name} and {name}_backward, runs={runs}, {settings}"] = record.get("error", "passed")
    return found


def _operator_checked(name: str, topology: Topology, runs: int | None, setting: tuple[Any, ...], device: str) -> Record:
    module = restt.ResTT(topology.sites, 2, 20, 3, topology, runs=runs, device=device)
    restt.chain.contract(  # loads what registers the operator
        torch.rand(1, 2, topology.sites, 2, device=device), module.weights(), topology
    )
    roles = [getattr(module, role) for role in ROLES]
    leading = () if runs is None else (1,)
    x = torch.rand(*leading, 21, topology.sites, 2, device=device, requires_grad=True)
    forward = getattr(torch.ops.restt, name).default
    given = (3, topology.connections, *setting)
    torch.library.opcheck(forward, (x, *roles, *given))
    with torch.no_grad():
        output, *kept = forward(x, *roles, *given)
    inputs = [None if tensor is None else tensor.detach() for tensor in (x, *roles)]
    wanted = [tensor is not None for tensor in inputs]
    backward = getattr(torch.ops.restt, f"{name}_backward").default
    torch.library.opcheck(backward, (torch.ones_like(output), *kept, *inputs, *given[1:], wanted))
    return {}


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
