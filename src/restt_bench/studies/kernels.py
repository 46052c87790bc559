"""The fused GPU chain: outputs and every gradient against float64, and launch constants beside those in use.

Checks fill fresh memory with NaN, poison the weights of connections that are left out, and repeat every run, since a
race of threads shows as bits that differ now and then. Tuning only times; the fastest constants are for the tables of
the chain's launch file. Both compile their kernels in ``settings.workers`` processes. Without a GPU only quick runs
work, under ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

import restt
from restt import Topology
from restt.chain.cuda import launch as cuda_launch
from restt.chain.cuda.launch import SweepLaunch, WeightLaunch
from restt.chain.cuda.plans import forget_plans
from restt.chain.packed import pack
from restt_bench.case import Settings
from restt_bench.implementations.base import captured
from restt_bench.parity import allowed_of, relative_error
from restt_bench.suites import IMAGE
from restt_bench.targets import Target
from restt_bench.timing import measure_on

if TYPE_CHECKING:
    from rich.console import Console

Record = dict[str, Any]
SITES, BATCH, OUTPUTS = IMAGE.sites, IMAGE.batch, IMAGE.outputs
QUICK_SITES, QUICK_BATCH = 5, 19
REPEATS = 6
# The kernels whose share of a forward and backward is told apart.
KERNELS = {
    "forward_ms": "forward_sweep",
    "backward_ms": "backward_sweep",
    "dW_ms": "weight_grad",
    "head_ms": "head_gradients",
}


def check_kernels(device: str, settings: Settings, console: Console) -> Record:
    """Presets, odd topologies, ragged widths, runs, every tile size, one very long chain, in every precision."""
    cases = _check_cases(settings.quick)
    found = _spread(_checked, [(case, device) for case in cases], device, settings.workers)
    rows = [{**_described(case), **result} for case, result in zip(cases, found, strict=True)]
    failed = [row for row in rows if not row.get("passed")]
    console.print(f"{len(rows) - len(failed)} of {len(rows)} checks passed")
    for row in failed[:20]:
        console.print("failed", row, markup=False)
    target = Target("checks that failed", "at most", 0, "", len(failed))
    title = "The fused GPU chain against float64"
    return {"title": title, "checks": rows, "launch": _launch_tables(), "targets": [target.as_dict()]}


def tune_launches(device: str, settings: Settings, console: Console) -> Record:
    """Forward and backward without an optimizer, for constants near those in use."""
    cases = _sweeps(20, "tf32", [(16, 0, 2, 3, False)]) if settings.quick else [*_sweep_cases(), *_weight_cases()]
    return _tuned_over(cases, device, settings, console)


def tune_step(device: str, settings: Settings, console: Console) -> Record:
    """The same for one run in tf32 alone, over more constants."""
    cases = _sweeps(20, "tf32", [(8, 0, 1, 4, False)]) if settings.quick else _step_cases()
    return _tuned_over(cases, device, settings, console)


def _tuned_over(cases: list[Record], device: str, settings: Settings, console: Console) -> Record:
    compiled = _spread(_compiled, [(case, device, settings.quick) for case in cases], device, settings.workers)
    rows = []
    for case, warm in zip(cases, compiled, strict=True):
        timed = warm if "error" in warm else _guarded(_tuned, case, device, settings)
        rows.append({**case, **timed})
        shown = _described(rows[-1])
        console.print({key: value for key, value in shown.items() if key != "kernels_us"}, markup=False)
    title = "Launch constants of the fused GPU chain"
    return {
        "title": title,
        "tune": [_described(row) for row in rows],
        "fastest": _fastest(rows),
        "launch": _launch_tables(),
        "targets": [],
    }


def _guarded(measure: Callable[..., Record], *arguments: Any) -> Record:
    """The measurement, or why there is none: one that fails must not cost the others."""
    try:
        return measure(*arguments)
    except Exception as error:
        traceback.print_exc(limit=4)
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _spread(work: Callable[..., Record], jobs: list[tuple[Any, ...]], device: str, workers: int) -> list[Record]:
    if workers == 1 or not device.startswith("cuda"):
        return [_timed_job(work, job) for job in jobs]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_timed_job, [work] * len(jobs), jobs))


def _timed_job(work: Callable[..., Record], job: tuple[Any, ...]) -> Record:
    started = time.perf_counter()
    return {**_guarded(work, *job), "seconds": round(time.perf_counter() - started, 2)}


def _described(case: Record) -> Record:
    """A case as JSON takes it: a failed check must still be written."""
    plain = {key: value for key, value in case.items() if key != "topology"}
    plain |= {key: asdict(plain[key]) for key in ("sweep", "weights") if key in plain}
    if "topology" in case:
        plain["topology"] = f"{case['topology'].name}, {case['topology'].sites} sites"
        if len(set(plain.get("widths", [0]))) == 1:
            plain["width"] = plain.pop("widths", [2])[0]
    return plain


def _launch_tables() -> Record:
    """The constants that are in use."""
    sweeps = {f"{tile} {precision}": asdict(launch) for (tile, precision), launch in cuda_launch.SWEEPS.items()}
    by_tile: dict[str, dict[int, Any]] = {
        "one wave": cuda_launch.ONE_WAVE,
        "one wave back": cuda_launch.ONE_WAVE_BACK,
        "weights": cuda_launch.WEIGHTS,
    }
    tables = {name: {str(tile): asdict(launch) for tile, launch in table.items()} for name, table in by_tile.items()}
    return {"sweeps": sweeps, **tables}


def _features(device: str, batch: int, sites: int, width: int, runs: int | None = None) -> torch.Tensor:
    """Trigonometric features (B, N, I) of random pixels, of norm 1 per site."""
    generator = torch.Generator().manual_seed(0)
    leading = () if runs is None else (runs,)
    angle = torch.rand(*leading, batch, sites, (width + 1) // 2, generator=generator) * torch.pi / 2
    both = torch.cat([angle.cos(), angle.sin()], dim=-1)[..., :width]
    return (both / both.norm(dim=-1, keepdim=True)).to(device)


def _check_cases(quick: bool) -> list[Record]:
    if quick:
        small = Topology.residual(4).skip_to_output(2).without_chain(3)
        return [
            {"topology": small, "bond": 5, "widths": [1, 3, 2, 2], "batch": 5, "precision": "float32"},
            {"topology": Topology.plain(1), "bond": 5, "batch": 3, "precision": "float32"},
            {"topology": Topology.residual(6), "bond": 5, "batch": 3, "precision": "float32", "recompute": True},
            {"topology": small, "bond": 5, "widths": [1, 9, 2, 2], "batch": 5, "precision": "float32", "packed": True},
            {"topology": small, "bond": 5, "batch": 3, "precision": "bf16", "autocast": "bfloat16"},
        ]
    mixed = Topology.residual(9).skip_to_output(2, 5, 6).without_chain(4).without_linear(3, 7).without_skip(8)
    dead = Topology.residual(6).without_chain(6).without_linear(6).without_skip(6)
    cases: list[Record] = [
        {"topology": Topology.preset(name, 7), "bond": 20} for name in ("residual", "plain", "linear", "volterra")
    ]
    cases += [{"topology": topology, "bond": bond} for topology in (mixed, dead) for bond in (5, 50)]
    cases += [{"topology": mixed, "bond": 20, "widths": [1, 3, 2, 5, 1, 4, 2, 2, 3], "runs": 2}]
    cases += [{"topology": Topology.residual(2), "bond": 5, "batch": 1}, {"topology": Topology.plain(1), "bond": 5}]
    cases += [{"topology": Topology.residual(6), "bond": 20, "runs": 3, "own_data": True, "outputs": 70}]
    bonds = (1, 5, 16, 20, 33, 50, 100, 128, 200, 256)
    cases += [{"topology": Topology.residual(12), "bond": bond, "runs": 2, "batch": 70} for bond in bonds]
    cases += [{"topology": mixed, "bond": 200, "runs": 2}]
    whole = Topology.residual(SITES)
    cases += [{"topology": whole, "bond": bond, "batch": BATCH, "outputs": OUTPUTS} for bond in (20, 50, 100, 128)]
    cases += [
        {"topology": whole, "bond": bond, "batch": BATCH, "runs": 10, "features": False} for bond in (20, 50, 100)
    ]
    cases += [{"topology": Topology.residual(20), "bond": 100, "widths": [8] * 20, "batch": BATCH}]
    cases += [{"topology": Topology.residual(10_000), "bond": 16, "batch": 40}]
    cases += _part_cases(mixed)
    cases = [{**case, "precision": precision} for case in cases for precision in ("float32", "tf32", "bf16")]
    lowered: Record = {"precision": "bf16", "batch": 70}  # whose bound float16 stays within too
    return cases + [
        {"topology": topology, "bond": bond, "autocast": name, **lowered}
        for name in ("bfloat16", "float16")
        for topology, bond in ((Topology.residual(12), 20), (mixed, 50), (Topology.residual(12), 100), (mixed, 200))
    ]


def _part_cases(mixed: Topology) -> list[Record]:
    """Chains in segments whose states are computed again, and packed features of ragged widths."""
    again: Record = {"recompute": True}
    cases = [{"topology": mixed, "bond": bond, "runs": 2, **again} for bond in (5, 50, 200)]
    cases += [{"topology": Topology.residual(300), "bond": bond, "batch": 64, **again} for bond in (20, 50, 100)]
    cases += [{"topology": Topology.preset(name, 40), "bond": 20, **again} for name in ("plain", "linear", "volterra")]
    cases += [{"topology": Topology.residual(40), "bond": 50, "batch": 5000, "runs": 2, "features": False, **again}]
    ragged: Record = {"packed": True, "widths": [1, 3, 2, 50, 1, 4, 2, 2, 3]}
    cases += [
        {"topology": mixed, "bond": bond, "runs": 2, "own_data": True, **ragged} for bond in (5, 20, 50, 100, 200)
    ]
    cases += [{"topology": Topology.residual(9), "bond": bond, "batch": BATCH, **ragged} for bond in (20, 50, 100)]
    return cases


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
        with restt.chain.recompute() if case.get("recompute") else nullcontext():
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
    x: torch.Tensor,
    upstream: torch.Tensor,
    multiplying: Callable[[], AbstractContextManager[Any]],
) -> dict[str, torch.Tensor]:
    """Of the features too where x wants one."""
    module.zero_grad(set_to_none=True)
    x.grad = None
    with restt.chain.backend(backend), multiplying():
        output = module(x)
    if output.requires_grad:
        output.backward(upstream.to(output.dtype))
    found = {"output": output.detach()}
    if x.requires_grad:
        found["x"] = torch.zeros_like(x) if x.grad is None else x.grad
    for name, parameter in module.named_parameters():
        found[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return found


def _sweeps(bond: int, precision: str, settings: list[tuple[Any, ...]], runs: int = 1) -> list[Record]:
    setting = {"bond": bond, "precision": precision, "runs": runs}
    return [{**setting, "sweep": SweepLaunch(*values)} for values in settings]


def _sweep_cases() -> list[Record]:
    """Constants of the sweeps to try, with one run and ten."""
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
    many = [(16, 2, 4, 4, True), (32, 2, 4, 4, True), (64, 2, 4, 4, True), (64, 2, 8, 4, True)]
    narrow = [(columns, 2, warps, 4, False) for columns in (16, 32, 64) for warps in (2, 4)]
    for precision in ("tf32", "bf16"):
        cases += _sweeps(50, precision, many, runs=10) + _sweeps(20, precision, narrow, runs=10)
    return cases


def _step_cases() -> list[Record]:
    """Constants of one run in tf32: narrow batch tiles near the best known, the output site's batch, the weights'."""
    small = [(8, 0, warps, stages, False) for warps in (2, 4) for stages in (3, 5)] + [(8, 0, 2, 7, False)]
    medium = [(8, 0, 4, stages, True) for stages in (2, 3, 4, 5, 6)]
    medium += [(8, 0, 8, 3, True), (8, 1, 4, 3, True), (8, 1, 4, 6, True), (16, 0, 4, 5, True)]
    large = [(8, 1, warps, stages, True) for warps in (4, 8) for stages in (2, 3)]
    large += [(16, 1, 8, 3, True), (8, 0, 4, 1, True), (8, 0, 8, 1, True)]
    cases = _sweeps(20, "tf32", small) + _sweeps(50, "tf32", medium) + _sweeps(100, "tf32", large)
    one_run: Record = {"precision": "tf32", "runs": 1}
    cases += [{"bond": bond, "head": batch, **one_run} for bond in (20, 50, 100) for batch in (64, 128)]
    weights = {
        20: [(32, 32, 128, 2, 3), (32, 32, 128, 4, 2), (32, 32, 256, 4, 2)],
        50: [(64, 64, 32, 4, 4), (64, 64, 64, 8, 3), (64, 64, 128, 4, 2)],
        100: [
            (128, 128, 32, 8, 3),
            (128, 128, 64, 8, 2),
            (128, 128, 16, 8, 5),
            (128, 64, 64, 8, 3),
            (64, 64, 64, 4, 4),
        ],
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
    sites, batch = (QUICK_SITES, QUICK_BATCH) if quick else (SITES, BATCH)
    module = restt.ResTT(sites, 2, case["bond"], OUTPUTS, runs=case["runs"], device=device)
    x = _features(device, batch, sites, 2)
    upstream = torch.randn(case["runs"], batch, OUTPUTS, device=device)

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
        for name in ("SWEEPS", "ONE_WAVE", "ONE_WAVE_BACK", "WEIGHTS", "HEAD_BATCH", "PROCESSORS")
    }
    if "sweep" in case:
        cuda_launch.SWEEPS = {**cuda_launch.SWEEPS, (tile, case["precision"]): case["sweep"]}
        cuda_launch.ONE_WAVE, cuda_launch.ONE_WAVE_BACK, cuda_launch.PROCESSORS = {}, {}, 1 << 30
    if "weights" in case:
        cuda_launch.WEIGHTS = {**cuda_launch.WEIGHTS, tile: case["weights"]}
    if "head" in case:
        cuda_launch.HEAD_BATCH = case["head"]
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
        kind = next(kind for kind in ("sweep", "weights", "head") if kind in row)
        tile = cuda_launch.Layout(row["bond"], row["precision"]).tile
        group = {"table": kind, "tile": tile, "precision": row["precision"], "runs": row["runs"]}
        constants = {"batch": row["head"]} if kind == "head" else asdict(row[kind])
        found = {**group, **constants, "both_ms": row["both_ms"]}
        key = tuple(group.values())
        if key not in groups or found["both_ms"] < groups[key]["both_ms"]:
            groups[key] = found
    return list(groups.values())
