"""The fused GPU chain against float64: outputs and every gradient.

Fresh memory is filled with NaN, the weights of connections that are left out are poisoned, and every run is repeated,
since a race of threads shows as bits that differ now and then. Kernels take longer to compile than to run, so cases are
spread over ``settings.workers`` processes. Without a GPU only quick runs work, under ``TRITON_INTERPRET=1``.
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
from restt_bench.case import Settings
from restt_bench.parity import allowed_of, output_and_gradients, relative_error
from restt_bench.suites import IMAGE
from restt_bench.targets import Target

if TYPE_CHECKING:
    from rich.console import Console

Record = dict[str, Any]
REPEATS = 6
# Every kind of connection left out somewhere, and skips into the output.
MIXED = Topology.residual(9).skip_to_output(2, 5, 6).without_chain(4).without_linear(3, 7).without_skip(8)


def check_kernels(device: str, settings: Settings, console: Console) -> Record:
    """Presets, odd topologies, ragged widths, runs, every tile size, one very long chain, in every precision."""
    cases = _every_case(settings.quick)
    found = _spread([(case, device) for case in cases], device, settings.workers)
    rows = [{**_described(case), **result} for case, result in zip(cases, found, strict=True)]
    failed = [row for row in rows if not row.get("passed")]
    console.print(f"{len(rows) - len(failed)} of {len(rows)} checks passed")
    for row in failed[:20]:
        console.print("failed", row, markup=False)
    target = Target("checks that failed", "at most", 0, "", len(failed))
    return {"title": "The fused GPU chain against float64", "checks": rows, "targets": [target.as_dict()]}


def _spread(jobs: list[tuple[Record, str]], device: str, workers: int) -> list[Record]:
    """The checks of every job, in ``workers`` processes where the device is a GPU."""
    if workers == 1 or not device.startswith("cuda"):
        return [_timed(job) for job in jobs]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_timed, jobs))


def _timed(job: tuple[Record, str]) -> Record:
    """One check and its seconds; an error costs no other."""
    started = time.perf_counter()
    try:
        found = _checked(*job)
    except Exception as error:
        traceback.print_exc(limit=4)
        found = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return {**found, "seconds": round(time.perf_counter() - started, 2)}


def _described(case: Record) -> Record:
    """A case as JSON takes it."""
    plain = {**case, "topology": f"{case['topology'].name}, {case['topology'].sites} sites"}
    if len(set(plain.get("widths", [0]))) == 1:
        plain["width"] = plain.pop("widths", [2])[0]
    return plain


def _every_case(quick: bool) -> list[Record]:
    if quick:
        small = Topology.residual(4).skip_to_output(2).without_chain(3)
        return [
            {"topology": small, "bond": 5, "widths": [1, 3, 2, 2], "batch": 5, "precision": "float32"},
            {"topology": Topology.plain(1), "bond": 5, "batch": 3, "precision": "float32"},
            {"topology": small, "bond": 5, "widths": [1, 9, 2, 2], "batch": 5, "precision": "float32", "packed": True},
            {"topology": small, "bond": 5, "batch": 3, "precision": "bf16", "autocast": "bfloat16"},
        ]
    dead = Topology.residual(6).without_chain(6).without_linear(6).without_skip(6)
    cases: list[Record] = [
        {"topology": Topology.preset(name, 7), "bond": 20} for name in ("residual", "plain", "linear", "volterra")
    ]
    cases += [{"topology": topology, "bond": bond} for topology in (MIXED, dead) for bond in (5, 50)]
    cases += [{"topology": MIXED, "bond": 20, "widths": [1, 3, 2, 5, 1, 4, 2, 2, 3], "runs": 2}]
    cases += [{"topology": Topology.residual(2), "bond": 5, "batch": 1}, {"topology": Topology.plain(1), "bond": 5}]
    cases += [{"topology": Topology.residual(6), "bond": 20, "runs": 3, "own_data": True, "outputs": 70}]
    bonds = (1, 5, 16, 20, 33, 50, 100, 128, 200, 256)
    cases += [{"topology": Topology.residual(12), "bond": bond, "runs": 2, "batch": 70} for bond in bonds]
    cases += [{"topology": MIXED, "bond": 200, "runs": 2}]
    whole = Topology.residual(IMAGE.sites)
    cases += [
        {"topology": whole, "bond": bond, "batch": IMAGE.batch, "outputs": IMAGE.outputs} for bond in (20, 50, 100, 128)
    ]
    cases += [
        {"topology": whole, "bond": bond, "batch": IMAGE.batch, "runs": 10, "features": False} for bond in (20, 50, 100)
    ]
    cases += [{"topology": Topology.residual(20), "bond": 100, "widths": [8] * 20, "batch": IMAGE.batch}]
    cases += [{"topology": Topology.residual(10_000), "bond": 16, "batch": 40}]
    ragged: Record = {"packed": True, "widths": [1, 3, 2, 50, 1, 4, 2, 2, 3]}
    cases += [
        {"topology": MIXED, "bond": bond, "runs": 2, "own_data": True, **ragged} for bond in (5, 20, 50, 100, 200)
    ]
    cases += [
        {"topology": Topology.residual(9), "bond": bond, "batch": IMAGE.batch, **ragged} for bond in (20, 50, 100)
    ]
    cases = [{**case, "precision": precision} for case in cases for precision in ("float32", "tf32", "bf16")]
    lowered: Record = {"precision": "bf16", "batch": 70}  # whose bound float16 stays within too
    return cases + [
        {"topology": topology, "bond": bond, "autocast": name, **lowered}
        for name in ("bfloat16", "float16")
        for topology, bond in ((Topology.residual(12), 20), (MIXED, 50), (Topology.residual(12), 100), (MIXED, 200))
    ]


def _checked(case: Record, device: str) -> Record:
    """Relative error of the output and of every gradient, and whether repeated runs have the same bits."""
    topology, bond, precision = case["topology"], case["bond"], case["precision"]
    runs, batch, outputs = case.get("runs"), case.get("batch", 33), case.get("outputs", 3)
    widths = case.get("widths", [2] * topology.sites)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills every torch.empty with NaN
    try:
        module = restt.ResTT(topology.sites, widths, bond, outputs, topology, runs=runs, device=device)
        module.reset_parameters(seed=1)
        _poison_absent(module)
        x = _features(device, batch, topology.sites, max(widths), runs if case.get("own_data") else None)
        x = pack(x, widths) if case.get("packed") else x
        x.requires_grad_(case.get("features", True))
        shape = (batch, outputs) if runs is None else (runs, batch, outputs)
        upstream = torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(device)
        given = "fused_cuda", module, x, upstream, _multiplying(case, device)
        found = _outputs_and_gradients(*given)
        same_bits = True
        for _ in range(REPEATS if device.startswith("cuda") else 1):
            again = _outputs_and_gradients(*given)
            same_bits &= all(torch.equal(found[name], again[name]) for name in found)
    finally:
        torch.use_deterministic_algorithms(before)
    exact = module.double()
    wide = x.detach().double().requires_grad_(x.requires_grad)
    backend = "reference" if topology.sites <= 12 else "eager"
    expected = _outputs_and_gradients(backend, exact, wide, upstream.double(), nullcontext)
    errors = {name: relative_error(found[name], want) for name, want in expected.items()}
    worst = max(errors.values())
    allowed = allowed_of(precision, topology)
    passed = same_bits and worst <= allowed
    # JSON has no infinity; a failed check must still be written.
    told = {name: error if error < float("inf") else "not finite" for name, error in errors.items()}
    return {"errors": told, "allowed": allowed, "same_bits": same_bits, "passed": passed}


def _multiplying(case: Record, device: str) -> Callable[[], AbstractContextManager[Any]]:
    """The case's precision of products, as restt says it or as ``torch.autocast`` does."""
    if "autocast" not in case:
        return partial(restt.chain.precision, case["precision"])
    return partial(torch.autocast, torch.device(device).type, getattr(torch, case["autocast"]))


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
