"""Chains that are long or ragged: what recomputing states costs and saves, and what packed features save.

Both compare forward and backward of one module in two ways, check that the two agree, and give time and peak memory of
each beside their ratio.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import restt
from restt.chain.packed import pack
from restt_bench.case import Settings
from restt_bench.memory import CLEAR, high_water_mib
from restt_bench.parity import ALLOWED, relative_error
from restt_bench.targets import LONG_CHAIN_TIMES, Target
from restt_bench.timing import measure_on

if TYPE_CHECKING:
    from rich.console import Console

Record = dict[str, Any]
Step = Callable[[], dict[str, Any]]

LONG_SITES, LONG_BOND, LONG_BATCH = 10_000, 50, 64
EXACT_SITES = 300  # of the chain that is compared with float64
# Twenty columns of a table, one of them with very many levels.
WIDTHS = (*[3] * 10, 1000, *[3] * 9)
ROWS, BATCH, BOND = 5_000, 512, 20


def long_chain(device: str, settings: Settings, console: Console) -> Record:
    """All states kept against every √N-th, the others computed again."""
    sites, bond, batch = (40, 5, 16) if settings.quick else (LONG_SITES, LONG_BOND, LONG_BATCH)
    rows = []
    for precision in ("tf32", "float32") if device.startswith("cuda") else ("float32",):
        with restt.chain.precision(precision):
            error = _recomputing_error(device, min(sites, EXACT_SITES), bond, batch)
            module, x = _long_problem(device, sites, bond, batch)
            steps = {
                "stored": _step(lambda: module(x), module),  # noqa: B023 - called before the next round
                "recomputed": _step(lambda: module(x), module, restt.chain.recompute),  # noqa: B023
            }
            found = {name: step() for name, step in steps.items()}
            same = all(torch.equal(found["stored"][key], found["recomputed"][key]) for key in found["stored"])
            del found
            row: Record = {"precision": precision, "sites": sites, "bond": bond, "batch": batch, "same_bits": same}
            row |= {"error": error, "allowed": ALLOWED[precision], **_compared(device, steps, settings)}
        rows.append(row)
        console.print(row, markup=False)
    targets = [
        Target(f"recomputing, {row['precision']}", "at most", LONG_CHAIN_TIMES, "× storing", row["recomputed_times"])
        for row in rows
    ]
    title = f"Recomputing the states of a chain of {sites:,} sites"
    return {"title": title, "rows": rows, "targets": [target.as_dict() for target in targets]}


def ragged_widths(device: str, settings: Settings, console: Console) -> Record:
    """One-hot columns, one of many levels: padded to the widest against packed, for a batch and for all rows."""
    widths = (3, 3, 40, 3) if settings.quick else WIDTHS
    rows = []
    for batch in (20,) if settings.quick else (BATCH, ROWS):
        module = restt.ResTT(len(widths), widths, 4 if settings.quick else BOND, 1, device=device)
        module.reset_parameters(seed=settings.seed)
        padded = _one_hot(widths, batch).to(device)
        steps = {
            "padded": _step(lambda: _contract_padded(module, padded), module),  # noqa: B023
            "packed": _step(lambda: module(packed), module),  # noqa: B023
        }
        packed = pack(padded, widths)
        found = {name: step() for name, step in steps.items()}
        error = max(relative_error(found["packed"][key], want) for key, want in found["padded"].items())
        del found
        row: Record = {
            "batch": batch,
            "widths": sum(widths),
            "padded_widths": len(widths) * max(widths),
            "error": error,
        }
        row |= {"features_mib": {"padded": _mib(padded), "packed": _mib(packed)}, **_compared(device, steps, settings)}
        rows.append(row)
        console.print(row, markup=False)
    return {"title": "Packed features of ragged widths", "rows": rows, "targets": []}


def _long_problem(device: str, sites: int, bond: int, batch: int) -> tuple[restt.ResTT, Tensor]:
    module = restt.ResTT(sites, 2, bond, 10, device=device)
    module.reset_parameters(seed=0)
    angle = torch.rand(batch, sites, generator=torch.Generator().manual_seed(0)) * torch.pi / 2
    return module, torch.stack([angle.cos(), angle.sin()], dim=-1).to(device)


def _recomputing_error(device: str, sites: int, bond: int, batch: int) -> float:
    """The worst relative error of an output or gradient against float64."""
    module, x = _long_problem(device, sites, bond, batch)
    found = _step(lambda: module(x), module, restt.chain.recompute)()
    exact, wide = module.double(), x.double()
    with restt.chain.backend("eager"):
        expected = _step(lambda: exact(wide), exact)()
    return max(relative_error(found[name].double(), want) for name, want in expected.items())


def _one_hot(widths: tuple[int, ...], rows: int) -> Tensor:  # (B, N, I)
    generator, widest = torch.Generator().manual_seed(1), max(widths)
    levels = [torch.randint(width, (rows,), generator=generator) for width in widths]
    return torch.nn.functional.one_hot(torch.stack(levels, dim=1), widest).float()


def _contract_padded(module: restt.ResTT, x: Tensor) -> Tensor:
    """As every ragged module contracted before there was a packed form."""
    return restt.chain.contract(x[None], module.weights(), module.topology)[0]


def _step(
    contract: Callable[[], Tensor],
    module: restt.ResTT,
    scope: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Step:
    """Forward and backward; gives the output and the weights' gradients."""

    def step() -> dict[str, Any]:
        module.zero_grad(set_to_none=True)
        with scope():
            output = contract()
        output.square().mean().backward()
        gradients = {
            name: parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None
        }
        return {"output": output.detach(), **gradients}

    return step


def _compared(device: str, steps: dict[str, Step], settings: Settings) -> Record:
    """Milliseconds and peak MiB of each, and how many times the first the second takes."""
    timed = measure_on(device, steps, rounds=min(settings.rounds, 9), budget=settings.budget)
    peaks = {name: _peak_mib(device, step) for name, step in steps.items()}
    first, second = steps
    times = timed[second].median / timed[first].median
    milliseconds = {name: summary.as_milliseconds() for name, summary in timed.items()}
    return {"milliseconds": milliseconds, "peak_mib": peaks, f"{second}_times": round(times, 4)}


def _peak_mib(device: str, step: Step) -> float:
    """What a step takes at its peak beyond the weights and their gradients, which the step before has left."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        step()
        return round((torch.cuda.max_memory_allocated() - held) / 2**20, 1)
    if not CLEAR.exists():
        return float("nan")
    CLEAR.write_text("5")
    before = high_water_mib()
    step()
    return round(high_water_mib() - before, 1)


def _mib(tensor: Tensor) -> float:
    return round(tensor.numel() * tensor.element_size() / 2**20, 2)
