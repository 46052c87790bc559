"""The fused GPU chain against float64: outputs and every gradient.

Fresh memory is filled with NaN, the weights of absent connections are poisoned, and every run is repeated, since a race
of threads shows as bits that differ now and then. Kernels take longer to compile than to run, so cases are spread over
``settings.workers`` processes. Without a GPU only quick runs work, under ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import restt
from restt import Topology
from restt.chain.packed import pack
from restt_bench.case import PRECISIONS, Settings
from restt_bench.parity import allowed_of, output_and_gradients, relative_error
from restt_bench.suites import IMAGE

if TYPE_CHECKING:
    from rich.console import Console

Record = dict[str, Any]
REPEATS = 6
# Every kind of connection absent somewhere, and skips into the output.
MIXED = Topology.residual(9).skip_to_output(2, 5, 6).without_chain(4).without_linear(3, 7).without_skip(8)


def check_kernels(device: str, settings: Settings, console: Console) -> Record:
    """Presets, odd topologies, ragged widths, runs, every tile size, one very long chain, in every precision."""
    cases = _quick_cases() if settings.quick else _cases()
    jobs = [(case, device) for case in cases]
    if settings.workers == 1 or not device.startswith("cuda"):
        checks = [_guarded(job) for job in jobs]
    else:
        with ProcessPoolExecutor(settings.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            checks = list(pool.map(_guarded, jobs))
    rows = [
        {**case, "topology": f"{case['topology'].name}, {case['topology'].sites} sites", **result}
        for case, result in zip(cases, checks, strict=True)
    ]
    failed = [row for row in rows if not row["passed"]]
    console.print(f"{len(rows) - len(failed)} of {len(rows)} checks passed")
    for row in failed[:20]:
        console.print("failed", row, markup=False)
    return {"title": "The fused GPU chain against float64", "checks": rows, "failed": len(failed)}


def _guarded(job: tuple[Record, str]) -> Record:
    """One check and its seconds; an error is its result."""
    started = time.perf_counter()
    try:
        result = _check(*job)
    except Exception as error:
        traceback.print_exc(limit=4)
        result = {"error": f"{type(error).__name__}: {str(error)[:300]}", "passed": False}
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return {**result, "seconds": round(time.perf_counter() - started, 2)}


def _quick_cases() -> list[Record]:
    small = Topology.residual(4).skip_to_output(2).without_chain(3)
    return [
        {"topology": small, "bond": 5, "widths": [1, 3, 2, 2], "batch": 5, "precision": "float32"},
        {"topology": Topology.plain(1), "bond": 5, "batch": 3, "precision": "float32"},
        {"topology": small, "bond": 5, "widths": [1, 9, 2, 2], "batch": 5, "precision": "float32", "packed": True},
        {"topology": small, "bond": 5, "batch": 3, "precision": "bf16", "autocast": "bfloat16"},
    ]


def _cases() -> list[Record]:
    dead = Topology.residual(6).without_chain(6).without_linear(6).without_skip(6)
    whole, short = Topology.residual(IMAGE.sites), Topology.residual(12)
    ragged: Record = {"packed": True, "widths": [1, 3, 2, 50, 1, 4, 2, 2, 3]}
    image: Record = {"topology": whole, "batch": IMAGE.batch}
    cases: list[Record] = [
        *({"topology": Topology.preset(name, 7), "bond": 20} for name in ("residual", "plain", "linear", "volterra")),
        *({"topology": topology, "bond": bond} for topology in (MIXED, dead) for bond in (5, 50)),
        {"topology": MIXED, "bond": 20, "widths": [1, 3, 2, 5, 1, 4, 2, 2, 3], "runs": 2},
        {"topology": Topology.residual(2), "bond": 5, "batch": 1},
        {"topology": Topology.plain(1), "bond": 5},
        {"topology": Topology.residual(6), "bond": 20, "runs": 3, "own_data": True, "outputs": 70},
        *({"topology": short, "bond": bond, "runs": 2, "batch": 70} for bond in (1, 5, 16, 20, 33, 50, 100, 128)),
        *({**image, "bond": bond, "outputs": IMAGE.outputs} for bond in (20, 50, 100, 128)),
        *({**image, "bond": bond, "runs": 10, "features": False} for bond in (20, 50, 100)),
        {"topology": Topology.residual(20), "bond": 100, "widths": [8] * 20, "batch": IMAGE.batch},
        {"topology": Topology.residual(10_000), "bond": 16, "batch": 40},
        *({"topology": MIXED, "bond": bond, "runs": 2, "own_data": True, **ragged} for bond in (5, 20, 50, 100)),
        *({"topology": Topology.residual(9), "bond": bond, "batch": IMAGE.batch, **ragged} for bond in (20, 50, 100)),
    ]
    lowered: Record = {"precision": "bf16", "batch": 70}  # whose bound float16 meets too
    return [{**case, "precision": precision} for case in cases for precision in PRECISIONS] + [
        {"topology": topology, "bond": bond, "autocast": name, **lowered}
        for name in ("bfloat16", "float16")
        for topology, bond in ((short, 20), (MIXED, 50), (short, 100))
    ]


def _check(case: Record, device: str) -> Record:
    """Relative error of the output and of every gradient, and whether repeated runs have the same bits."""
    topology, precision = case["topology"], case["precision"]
    runs, batch, outputs = case.get("runs"), case.get("batch", 33), case.get("outputs", 3)
    widths = case.get("widths", [2] * topology.sites)
    multiplying: Callable[[], AbstractContextManager[Any]] = partial(restt.chain.precision, precision)
    if "autocast" in case:
        multiplying = partial(torch.autocast, torch.device(device).type, getattr(torch, case["autocast"]))
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills every torch.empty with NaN
    try:
        module = restt.ResTT(topology.sites, widths, case["bond"], outputs, topology, runs=runs, device=device)
        module.reset_parameters(seed=1)
        _poison_absent(module)
        x = _features(device, batch, topology.sites, max(widths), runs if case.get("own_data") else None)
        x = pack(x, widths) if case.get("packed") else x
        x.requires_grad_(case.get("features", True))
        shape = (batch, outputs) if runs is None else (runs, batch, outputs)
        upstream = torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(device)
        fused = partial(_outputs_and_gradients, "fused_cuda", module, x, upstream, multiplying)
        computed = fused()
        repeats = (fused() for _ in range(REPEATS if device.startswith("cuda") else 1))
        same_bits = all(torch.equal(computed[name], again[name]) for again in repeats for name in computed)
    finally:
        torch.use_deterministic_algorithms(before)
    wide = x.detach().double().requires_grad_(x.requires_grad)
    backend = "reference" if topology.sites <= 12 else "eager"
    expected = _outputs_and_gradients(backend, module.double(), wide, upstream.double(), nullcontext)
    errors = {name: relative_error(computed[name], tensor) for name, tensor in expected.items()}
    allowed = allowed_of(precision, topology)
    passed = same_bits and max(errors.values()) <= allowed
    # JSON has no infinity; a failed check must still be written.
    shown = {name: error if error < float("inf") else "not finite" for name, error in errors.items()}
    return {"errors": shown, "allowed": allowed, "same_bits": same_bits, "passed": passed}


@torch.no_grad()
def _poison_absent(module: restt.ResTT) -> None:
    """Slices of connections the topology leaves out must be ignored whatever they hold."""
    for role, kept in (("chain", module.topology.chains[:-1]), ("linear", module.topology.linears[:-1])):
        parameter = getattr(module, role)
        if parameter is not None:
            stacked = parameter if module.runs is not None else parameter[None]
            stacked[:, [n for n, keep in enumerate(kept) if not keep]] = torch.nan


def _outputs_and_gradients(
    backend: str,
    module: restt.ResTT,
    x: Tensor,  # (B, N, I), (S, B, N, I) or packed
    upstream: Tensor,  # (B, O) or (S, B, O)
    multiplying: Callable[[], AbstractContextManager[Any]],
) -> dict[str, Tensor]:
    """Output and gradients of the weights, and of x where it requires one."""

    @contextmanager
    def scope() -> Iterator[None]:
        with restt.chain.backend(backend), multiplying():
            yield

    return output_and_gradients(module, dict(module.named_parameters()), x, upstream, scope, x.requires_grad)


def _features(device: str, batch: int, sites: int, width: int, runs: int | None = None) -> Tensor:
    """Trigonometric features (B, N, I) of random pixels, of norm 1 per site."""
    generator = torch.Generator().manual_seed(0)
    leading = () if runs is None else (runs,)
    angle = torch.rand(*leading, batch, sites, (width + 1) // 2, generator=generator) * torch.pi / 2
    both = torch.cat([angle.cos(), angle.sin()], dim=-1)[..., :width]
    return (both / both.norm(dim=-1, keepdim=True)).to(device)
