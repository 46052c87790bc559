"""The module in a loop of one's own: call by call, compiled, graphed, beside restt's captured step.

First whether it is right there: ``torch.library.opcheck`` of every registered operator on this device, and outputs and
gradients of every way against float64, warnings told. Then time, and where the time of the plain loop goes. A part
that fails is told with its traceback and costs no other; after ``SECONDS`` no further size is started.
"""

from __future__ import annotations

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
from restt_bench.implementations import chosen
from restt_bench.implementations.base import Implementation
from restt_bench.implementations.ours import WAYS, Ours
from restt_bench.parity import check
from restt_bench.race import breakdown, median_ms, race
from restt_bench.suites import IMAGE, QUICK_IMAGE
from restt_bench.targets import Target

if TYPE_CHECKING:
    from rich.console import Console

Record = dict[str, Any]
SECONDS = 120.0
# What a way of torch's own may cost over the captured step, by bond dimension.
TIMES_OWN_STEP = {20: 1.5, 50: 1.15, 100: 1.15}
CAPTURED_WAYS = ("reduce-overhead", "graphed")


def loops(device: str, settings: Settings, console: Console) -> Record:
    """Checks, then a row per way, size and precision, quickest sizes and torch's usual precision first."""
    began = time.perf_counter()
    checks = _guarded(_operators_checked, device, console)
    base = replace(QUICK_IMAGE if settings.quick else IMAGE, device=device)
    on_gpu = base.on_gpu
    field: list[Implementation] = [Ours("auto", graph=True)] if on_gpu else []
    field += [Ours("auto"), *(Ours("auto", way=way) for way in (WAYS if on_gpu else ("compiled",)))]
    rows, parity, phases, targets = [], [], [], []
    for precision in ("tf32", "float32", "bf16") if on_gpu else ("float32",):
        for bond in (4,) if settings.quick else (20, 50, 100):
            case = replace(base, bond_dim=bond, precision=precision)
            if time.perf_counter() - began > SECONDS:
                console.print(f"{case}: not started, {SECONDS:.0f} s are over")
                continue
            for implementation in field:
                parity.append(_guarded(_checked, implementation, case.scaled_down(), settings, console))
            rows += _guarded(_raced, case, field, settings, console).get("rows", [])
            targets += _targets(rows, case)
            if precision == "tf32":
                phases.append(_guarded(breakdown, Ours("auto"), case, settings))
                console.print(str(phases[-1]), markup=False)
    title = f"The module in a loop of one's own on {device}"
    return {
        "title": title,
        "operators": checks,
        "checks": parity,
        "steps": rows,
        "phases": phases,
        "targets": [target.as_dict() for target in targets],
    }


def _guarded(work: Callable[..., Record], *arguments: Any) -> Record:
    """What the work found, or how it failed."""
    try:
        return work(*arguments)
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {str(error)[:500]}"}
    finally:
        torch.compiler.reset()


def _operators_checked(device: str, console: Console) -> Record:
    """``opcheck`` of forward and backward, with and without runs, of straight and mixed topologies."""
    name = "fused_cuda" if device.startswith("cuda") else "fused_cpu"
    settings: list[tuple[Any, ...]] = [(1,)]
    if device.startswith("cuda"):
        settings = [(precision, True) for precision in ("float32", "tf32", "bf16", "fp16")]
    failed = {}
    mixed = Topology.residual(6).skip_to_output(3).without_chain(4).without_linear(2)
    for topology in (Topology.residual(6), mixed):
        for runs in (None, 2):
            for setting in settings:
                key = f"{name} {topology.name} runs={runs} {setting}"
                found = _guarded(_operator_checked, name, topology, runs, setting, device)
                failed |= {key: found["error"]} if "error" in found else {}
                console.print(f"opcheck {key}: {found.get('error', 'passed')}", markup=False)
    return {"failed": failed}


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


def _checked(implementation: Implementation, case: Case, settings: Settings, console: Console) -> Record:
    """The worst error against float64, and what torch warned of on the way."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        began = time.perf_counter()
        found = check(implementation, case, settings.seed)
    assert found is not None
    told = sorted({f"{warning.category.__name__}: {str(warning.message)[:200]}" for warning in heard})
    console.print(f"{found}; {time.perf_counter() - began:.1f} s; warnings: {told or 'none'}", markup=False)
    return {**found.as_dict(), "raised": found.raised, "passed": found.passed, "warnings": told}


def _raced(case: Case, field: list[Implementation], settings: Settings, console: Console) -> Record:
    rows = race(case, field, settings, modes=("step",))
    for row in rows:
        told = row.get("skipped") or f"{row['step']['median']:.3f} ms, fastest {row['step']['fastest']:.3f}"
        console.print(f"{case}: {row['implementation']}: {told}", markup=False)
    return {"rows": rows}


def _targets(rows: list[Record], case: Case) -> list[Target]:
    own = median_ms(rows, chosen(case.device), case)
    if own is None or case.bond_dim not in TIMES_OWN_STEP or not case.on_gpu:
        return []
    found = []
    for way in CAPTURED_WAYS:
        step = median_ms(rows, f"auto-{way}", case)
        if step is not None:
            what = f"r={case.bond_dim}, {case.precision}: {WAYS[way]} against the captured step"
            found.append(Target(what, "at most", TIMES_OWN_STEP[case.bond_dim], "×", round(step / own, 3)))
    return found
