"""Checks, tunes and times the fused GPU chain, and writes one JSON file.

    PYTHONPATH=src python benchmarks/gpu_chain.py --check --tune --time --output DIR

--check compares outputs and every gradient with float64, with fresh memory poisoned by NaN, and two runs bit for bit.
--tune times launch constants and uses the best for what follows. --time times whole training steps, peers and the
machine's limits. --tiny shrinks all sizes and runs on the CPU under TRITON_INTERPRET=1, to test this script.
Every measurement that fails is recorded as an error and the rest goes on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy, mse_loss

import restt
from restt import Topology
from restt.chain import cuda_launch
from restt.chain.cuda_launch import SweepLaunch, WeightLaunch
from restt.train.graphed import GraphedStep

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SITES, OUTPUTS, BATCH = 196, 10, 512
BOUNDS = {"float32": 1e-5, "tf32": 1e-2, "bf16": 6e-2}  # ‖found − exact‖ / ‖exact‖
Record = dict[str, Any]


def guarded(measure: Callable[..., Record], *args: Any, **options: Any) -> Record:
    """The measurement, or why there is none."""
    try:
        return measure(*args, **options)
    except Exception as error:
        traceback.print_exc(limit=4)
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    finally:
        if DEVICE == "cuda":
            torch.cuda.empty_cache()


def features(batch: int, sites: int, width: int, runs: int | None = None, seed: int = 0) -> torch.Tensor:
    """Trigonometric features (B, N, I) of random pixels, of norm 1 per site."""
    generator = torch.Generator().manual_seed(seed)
    leading = () if runs is None else (runs,)
    angle = torch.rand(*leading, batch, sites, (width + 1) // 2, generator=generator) * torch.pi / 2
    both = torch.cat([angle.cos(), angle.sin()], dim=-1)[..., :width]
    return (both / both.norm(dim=-1, keepdim=True)).to(DEVICE)


# Checking ------------------------------------------------------------------------------------------------------------


def check_cases(tiny: bool) -> list[Record]:
    """Presets, odd topologies, ragged widths, runs, every tile size, one very long chain."""
    mixed = Topology.residual(9).skip_to_output(2, 5, 6).without_chain(4).without_linear(3, 7).without_skip(8)
    dead = Topology.residual(6).without_chain(6).without_linear(6).without_skip(6)
    cases: list[Record] = [
        {"topology": Topology.preset(name, 7), "bond": 20} for name in ("residual", "plain", "linear", "volterra")
    ]
    cases += [{"topology": topology, "bond": bond} for topology in (mixed, dead) for bond in (5, 50)]
    cases += [{"topology": mixed, "bond": 20, "widths": [1, 3, 2, 5, 1, 4, 2, 2, 3], "runs": 2}]
    cases += [{"topology": Topology.residual(2), "bond": 5, "batch": 1}, {"topology": Topology.plain(1), "bond": 5}]
    cases += [{"topology": Topology.residual(6), "bond": 20, "runs": 3, "own_data": True, "outputs": 70}]
    bonds = (1, 16, 33) if tiny else (1, 5, 16, 20, 33, 50, 100, 128, 200, 256)
    cases += [{"topology": Topology.residual(12), "bond": bond, "runs": 2, "batch": 70} for bond in bonds]
    if not tiny:
        cases += [{"topology": mixed, "bond": 200, "runs": 2}]
        for bond in (20, 50, 100):
            cases += [{"topology": Topology.residual(SITES), "bond": bond, "batch": BATCH, "outputs": OUTPUTS}]
        cases += [{"topology": Topology.residual(SITES), "bond": 100, "batch": BATCH, "runs": 10, "features": False}]
        cases += [{"topology": Topology.residual(20), "bond": 100, "widths": [8] * 20, "batch": BATCH}]
        cases += [{"topology": Topology.residual(10_000), "bond": 16, "batch": 40}]
    names = ("float32",) if tiny else ("float32", "tf32", "bf16")
    return [{**case, "precision": precision} for case in cases for precision in names]


def check(case: Record) -> Record:
    """Relative error of the output and of every gradient, and whether a second run has the same bits."""
    topology, bond, precision = case["topology"], case["bond"], case["precision"]
    runs, batch, outputs = case.get("runs"), case.get("batch", 33), case.get("outputs", 3)
    widths = case.get("widths", [2] * topology.sites)
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills every torch.empty with NaN
    module = restt.ResTT(topology.sites, widths, bond, outputs, topology, runs=runs, device=DEVICE)
    module.reset_parameters(seed=1)
    poison_absent(module)
    x = features(batch, topology.sites, max(widths), runs if case.get("own_data") else None)
    x.requires_grad_(case.get("features", True))
    shape = (batch, outputs) if runs is None else (runs, batch, outputs)
    cotangent = torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    found = outputs_and_gradients("fused_cuda", module, x, cotangent, precision)
    again = outputs_and_gradients("fused_cuda", module, x, cotangent, precision)
    same_bits = all(torch.equal(found[name], again[name]) for name in found)
    exact = module.double()
    wide = x.detach().double().requires_grad_(x.requires_grad)
    backend = "reference" if topology.sites <= 12 else "eager"
    expected = outputs_and_gradients(backend, exact, wide, cotangent.double(), precision)
    errors = {}
    for name, want in expected.items():
        size = want.norm().item()
        errors[name] = (found[name].double() - want).norm().item() / (size if size > 0 else 1.0)
    worst = max((value if value == value else float("inf")) for value in errors.values())
    passed = same_bits and worst <= BOUNDS[precision]
    return {"errors": errors, "worst": worst, "same_bits": same_bits, "passed": passed}


@torch.no_grad()
def poison_absent(module: restt.ResTT) -> None:
    """Slices of connections the topology leaves out must be ignored whatever they hold."""
    for role, kept in (("chain", module.topology.chains[:-1]), ("linear", module.topology.linears[:-1])):
        parameter = getattr(module, role)
        if parameter is not None:
            stacked = parameter if module.runs is not None else parameter[None]
            stacked[:, [n for n, keep in enumerate(kept) if not keep]] = torch.nan


def outputs_and_gradients(
    backend: str, module: restt.ResTT, x: torch.Tensor, cotangent: torch.Tensor, precision: str
) -> dict[str, torch.Tensor]:
    """Of the features too where x wants one."""
    module.zero_grad(set_to_none=True)
    x.grad = None
    with restt.chain.backend(backend), restt.chain.precision(precision):
        output = module(x)
    if output.requires_grad:
        output.backward(cotangent)
    found = {"output": output.detach()}
    if x.requires_grad:
        found["x"] = torch.zeros_like(x) if x.grad is None else x.grad
    for name, parameter in module.named_parameters():
        found[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return found


# Timing --------------------------------------------------------------------------------------------------------------


def milliseconds(call: Callable[[], Any], *, samples: int = 15, repeats: int = 20) -> float:
    """Median time of one call, by device events around batches of calls."""
    if DEVICE == "cpu":
        start = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - start)
    for _ in range(3):
        call()
    times = []
    for _ in range(samples):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / repeats)
    return statistics.median(times)


def graphed(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call as a graph replay."""
    if DEVICE == "cpu":
        return call
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def kernel_times(call: Callable[[], Any], repeats: int = 5) -> dict[str, float]:
    """Microseconds per call of each kernel, by name."""
    if DEVICE == "cpu":
        return {}
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
    found = {event.key[:60]: event.device_time_total / repeats for event in record.key_averages()}
    return dict(sorted(found.items(), key=lambda item: -item[1])[:16])


# Tuning --------------------------------------------------------------------------------------------------------------


@contextmanager
def launching(
    tile: int, operands: str, launch: SweepLaunch | None, weights: WeightLaunch | None, pad: bool
) -> Iterator:
    """These launch constants instead of the table's."""
    before = dict(cuda_launch.SWEEPS), dict(cuda_launch.WEIGHTS), cuda_launch.PAD_CORES
    if launch is not None:
        cuda_launch.SWEEPS[tile, operands] = launch
    if weights is not None:
        cuda_launch.WEIGHTS[tile] = weights
    cuda_launch.PAD_CORES = pad
    try:
        yield
    finally:
        cuda_launch.SWEEPS, cuda_launch.WEIGHTS, cuda_launch.PAD_CORES = before


def tune_cases(tiny: bool) -> list[Record]:
    """Launch constants to try, one run and ten."""

    def sweeps(bond: int, precision: str, settings: list[tuple], runs: int = 1) -> list[Record]:
        return [
            {"bond": bond, "precision": precision, "runs": runs, "sweep": SweepLaunch(*setting)} for setting in settings
        ]

    if tiny:
        return sweeps(20, "tf32", [(16, 0, 2, 3, False), (16, 1, 2, 2, True)])
    product = [(warps, stages, tma) for warps in (4, 8) for stages in (2, 3) for tma in (False, True)]
    cases = sweeps(100, "tf32", [(16, 1, *rest) for rest in product] + [(32, 1, 8, 3, True), (32, 1, 4, 3, True)])
    cases += [{**cases[2], "pad": True}]
    bf16 = [(1, w, s, t) for w in (4, 8) for s in (3, 5) for t in (False, True)]
    bf16 += [(2, w, s, t) for w in (4, 8) for s in (2, 3) for t in (False, True)]
    cases += sweeps(100, "bf16", [(16, *rest) for rest in bf16])
    medium = [(p, w, s, t) for p, s in ((2, 3), (2, 5)) for w in (4, 8) for t in (False, True)]
    cases += sweeps(50, "tf32", [(16, *rest) for rest in medium]) + sweeps(50, "bf16", [(16, *rest) for rest in medium])
    small = [(2, w, s, t) for w in (1, 2, 4) for s in (3, 6) for t in (False, True)]
    cases += sweeps(20, "tf32", [(16, *rest) for rest in small]) + sweeps(
        20, "bf16", [(16, *rest) for rest in small[::2]]
    )
    many = [(64, 1, 8, 2, True), (64, 1, 8, 2, False), (32, 1, 8, 3, True), (32, 1, 4, 3, True), (16, 1, 4, 3, True)]
    cases += sweeps(100, "tf32", many, runs=10) + sweeps(100, "bf16", many, runs=10)
    cases += sweeps(50, "tf32", [(c, 2, w, 4, t) for c in (16, 32, 64) for w in (4, 8) for t in (True,)], runs=10)
    cases += sweeps(20, "tf32", [(c, 2, w, 4, False) for c in (16, 32, 64) for w in (1, 2, 4)], runs=10)
    tiles = {
        100: [(128, 128, 32, 8, 3), (128, 128, 32, 8, 2), (128, 64, 32, 4, 3), (64, 64, 64, 4, 3), (64, 128, 32, 4, 3)],
        50: [(64, 64, 64, 4, 3), (64, 64, 32, 4, 4), (64, 64, 128, 4, 2)],
        20: [(32, 32, 64, 4, 3), (32, 32, 128, 4, 3), (32, 32, 128, 2, 3), (32, 32, 32, 1, 4)],
    }
    for bond, settings in tiles.items():
        for precision in ("tf32", "bf16"):
            cases += [
                {"bond": bond, "precision": precision, "runs": 1, "weights": WeightLaunch(*setting)}
                for setting in settings
            ]
    return cases


def tune(case: Record, tiny: bool, compile_only: bool = False) -> Record:
    """Time of forward and backward without an optimizer, and of the sweeps and the weight gradient in it."""
    layout = cuda_launch.Layout(case["bond"], case["precision"])
    sites, batch = (5, 19) if tiny else (SITES, BATCH)
    module = restt.ResTT(sites, 2, case["bond"], OUTPUTS, runs=case["runs"], device=DEVICE)
    x = features(batch, sites, 2)
    cotangent = torch.randn(case["runs"], batch, OUTPUTS, device=DEVICE)

    def both() -> None:
        module.zero_grad(set_to_none=True)
        module(x).backward(cotangent)

    fixed = launching(layout.tile, case["precision"], case.get("sweep"), case.get("weights"), case.get("pad", False))
    with fixed, as_given(case), restt.chain.backend("fused_cuda"), restt.chain.precision(case["precision"]):
        if compile_only:
            both()
            return {}
        replay = graphed(both)
        record: Record = {"both_ms": milliseconds(replay, samples=7), "kernels_us": guarded(kernel_times, replay)}
    for name, kernel in (("forward_ms", "forward_sweep"), ("backward_ms", "backward_sweep"), ("dW_ms", "weight_grad")):
        if kernel_us := [us for key, us in record["kernels_us"].items() if key.startswith(kernel)]:
            record[name] = sum(kernel_us) / 1e3
    return record


@contextmanager
def as_given(case: Record) -> Iterator[None]:
    """A tried sweep keeps its batch tile and warps: the table's growth with the number of programs is off."""
    before = cuda_launch._PROGRAMS
    if "sweep" in case:
        cuda_launch._PROGRAMS = 1 << 30
    try:
        yield
    finally:
        cuda_launch._PROGRAMS = before


def use_best(results: list[Record]) -> Record:
    """Put the fastest constants of one run into the tables; returns them."""
    chosen: Record = {}
    for kind, table in (("sweep", cuda_launch.SWEEPS), ("weights", cuda_launch.WEIGHTS)):
        groups: dict[Any, Record] = {}
        for result in results:
            if kind not in result or "error" in result or result["runs"] != 1 or result.get("pad"):
                continue
            if kind == "weights" and result["precision"] != "tf32":  # one table for all precisions
                continue
            tile = cuda_launch.Layout(result["bond"], result["precision"]).tile
            key = (tile, result["precision"]) if kind == "sweep" else tile
            if key not in groups or result["both_ms"] < groups[key]["both_ms"]:
                groups[key] = result
        for key, result in groups.items():
            table[key] = result[kind]  # type: ignore[index]
            chosen[f"{kind} {key}"] = {**asdict(result[kind]), "both_ms": result["both_ms"]}
    return chosen


# Whole steps ---------------------------------------------------------------------------------------------------------


def adam(module: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(module.parameters(), lr=1e-4, fused=DEVICE == "cuda", capturable=DEVICE == "cuda")


def step_time(
    make: Callable[[], torch.nn.Module], x: torch.Tensor, target: torch.Tensor, *, graph: bool, loss: Any = mse_loss
) -> Record:
    """One training step: forward, loss, backward, Adam; peak memory from before the module exists."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated() if DEVICE == "cuda" else 0
    module = make().to(DEVICE)
    optimizer = adam(module)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(module(x), target).backward()
        optimizer.step()

    record: Record = {}
    if graph and DEVICE == "cuda":
        captured = GraphedStep(module, loss, optimizer, x, target)
        record["step_ms"] = milliseconds(lambda: captured(x, target))
        record["again_ms"] = milliseconds(lambda: captured(x, target))
        record["replay_ms"] = milliseconds(captured._graph.replay)
        record["kernels_us"] = kernel_times(captured._graph.replay)
        record["loss_finite"] = bool(captured(x, target).isfinite().all())
    else:
        record["step_ms"] = milliseconds(step, samples=3, repeats=3)
    if DEVICE == "cuda":
        record["peak_GiB"] = (torch.cuda.max_memory_allocated() - base) / 2**30
    return record


def fused_step(bond: int, precision: str, runs: int, width: int, sites: int, batch: int, classify: bool) -> Record:
    x = features(batch, sites, width)
    labels = torch.randint(OUTPUTS, (batch,), generator=torch.Generator().manual_seed(5)).to(DEVICE)
    target = torch.eye(OUTPUTS, device=DEVICE)[labels].expand(runs, -1, -1).contiguous()

    def entropy(output: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return cross_entropy(output.flatten(0, 1), wanted.expand(runs, -1).flatten())

    with restt.chain.backend("fused_cuda"), restt.chain.precision(precision):
        return step_time(
            lambda: restt.ResTT(sites, width, bond, OUTPUTS, runs=runs),
            x, labels if classify else target, graph=True, loss=entropy if classify else mse_loss,
        )  # fmt: skip


def eager_step(bond: int, sites: int, batch: int) -> Record:
    torch.backends.cuda.matmul.allow_tf32 = True
    with restt.chain.backend("eager"):
        return step_time(
            lambda: restt.ResTT(sites, 2, bond, OUTPUTS), features(batch, sites, 2),
            torch.rand(batch, OUTPUTS, device=DEVICE), graph=True,
        )  # fmt: skip


def peer_step(name: str, bond: int, sites: int, batch: int) -> Record:
    from gpu_peers import Textbook, tensorkrowch_mps

    make = {
        "textbook": lambda: Textbook(sites, 2, bond, OUTPUTS),
        "tensorkrowch": lambda: tensorkrowch_mps(sites, 2, bond, OUTPUTS, DEVICE),
    }[name]
    x, target = features(batch, sites, 2), torch.rand(batch, OUTPUTS, device=DEVICE)
    return step_time(make, x, target, graph=False)


def inference(bond: int, precision: str, images: int, sites: int) -> Record:
    module = restt.ResTT(sites, 2, bond, OUTPUTS, device=DEVICE)
    x = features(images, sites, 2)
    with torch.no_grad(), restt.chain.backend("fused_cuda"), restt.chain.precision(precision):
        return {"ms": milliseconds(graphed(lambda: module(x)))}


def ceilings(size: int) -> Record:
    """Measured matrix rates and copy bandwidth."""
    found: Record = {}
    for name, dtype in (("tf32", torch.float32), ("bf16", torch.bfloat16)):
        torch.backends.cuda.matmul.allow_tf32 = True
        a, b = (torch.randn(size, size, device=DEVICE, dtype=dtype) for _ in range(2))
        found[f"{name}_flops"] = 2 * size**3 / (1e-3 * milliseconds(lambda: a @ b, samples=5, repeats=5))  # noqa: B023
    source = torch.randn(size, size, 8, device=DEVICE)
    target = torch.empty_like(source)
    seconds = 1e-3 * milliseconds(lambda: target.copy_(source), samples=5, repeats=5)
    found["copy_bytes"] = 2 * source.nbytes / seconds
    return found


def limit_ms(found: Record, bond: int, precision: str, runs: int, width: int, sites: int, batch: int) -> float:
    """The larger of the products' arithmetic and the bytes that must move: features, and six times the parameters."""
    flops = 3 * 2 * runs * batch * (sites - 2) * width * bond**2
    parameters = runs * (sites - 2) * width * (bond**2 + bond)
    bytes_moved = 4 * (6 * parameters + batch * sites * width)
    rate = found["bf16_flops" if precision == "bf16" else "tf32_flops"]
    return 1e3 * max(flops / rate, bytes_moved / found["copy_bytes"])


def time_all(tiny: bool) -> Record:
    sites, batch = (5, 19) if tiny else (SITES, BATCH)
    bonds = (4,) if tiny else (20, 50, 100)
    found: Record = {"ceilings": guarded(ceilings, 64 if tiny else 8192), "steps": []}
    plans = [(bond, precision, runs, 2) for bond in bonds for precision in ("tf32", "bf16") for runs in (1, 10)]
    plans += [(bonds[-1], precision, 1, 8) for precision in ("tf32", "bf16")] + [(bonds[-1], "float32", 1, 2)]
    if tiny:
        plans = [(4, "tf32", 2, 2), (4, "bf16", 1, 3)]
    for bond, precision, runs, width in plans:
        setting = {"bond": bond, "precision": precision, "runs": runs, "width": width, "loss": "mse"}
        record = guarded(fused_step, bond, precision, runs, width, sites, batch, False)
        if "error" not in found["ceilings"]:
            record["limit_ms"] = limit_ms(found["ceilings"], bond, precision, runs, width, sites, batch)
        found["steps"].append({**setting, **record})
    cross = {"bond": bonds[0], "precision": "tf32", "runs": 1, "width": 2, "loss": "cross entropy"}
    found["steps"].append({**cross, **guarded(fused_step, bonds[0], "tf32", 1, 2, sites, batch, True)})
    images = 50 if tiny else 10_000
    found["inference"] = [
        {"bond": bonds[-1], "precision": name, "images": images, **guarded(inference, bonds[-1], name, images, sites)}
        for name in ("tf32", "bf16")
    ]
    found["peers"] = []
    for bond in bonds:
        found["peers"].append({"name": "eager, graph", "bond": bond, **guarded(eager_step, bond, sites, batch)})
        for name in ("textbook", "tensorkrowch"):
            found["peers"].append({"name": name, "bond": bond, **guarded(peer_step, name, bond, sites, batch)})
    return found


# The script ----------------------------------------------------------------------------------------------------------


def described(case: Record) -> Record:
    """A case as JSON takes it."""
    plain = {key: value for key, value in case.items() if key != "topology"}
    plain.update({key: asdict(plain[key]) for key in ("sweep", "weights") if key in plain})
    if "topology" in case:
        plain["topology"] = f"{case['topology'].name}, {case['topology'].sites} sites"
        if len(set(plain.get("widths", [0]))) == 1:
            plain.pop("widths", None)
    return plain


def in_worker(job: tuple[str, Record, bool]) -> Record:
    """One case in a process of its own, so that kernels compile side by side into Triton's cache."""
    name, case, tiny = job
    started = time.perf_counter()
    result = guarded(check, case) if name == "check" else guarded(tune, case, tiny, compile_only=True)
    return {**result, "seconds": time.perf_counter() - started}


def spread(jobs: list[tuple[str, Record, bool]], workers: int) -> list[Record]:
    if DEVICE == "cpu" or workers <= 1:
        return [in_worker(job) for job in jobs]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(in_worker, jobs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--check", "--tune", "--time", "--tiny"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--output", type=Path, default=Path("."))
    parser.add_argument("--peers", type=Path, help="folder that holds tensorkrowch and opt_einsum")
    parser.add_argument("--workers", type=int, default=14)
    options = parser.parse_args()
    if options.peers is not None:
        sys.path.insert(0, str(options.peers))
    if DEVICE == "cpu" and not options.tiny:
        parser.error("no CUDA device; only --tiny runs without one")
    import triton

    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu, interpreted"
    report: Record = {"device": name, "torch": torch.__version__, "triton": triton.__version__}
    report |= {"sites": SITES, "batch": BATCH, "outputs": OUTPUTS}
    path = options.output / "gpu_chain.json"
    options.output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()

    def save(section: str) -> None:
        report[f"{section}_seconds"] = round(time.perf_counter() - started, 1)
        path.write_text(json.dumps(report, indent=1))
        print(f"{section}: done after {report[f'{section}_seconds']} s", flush=True)

    if options.check:
        cases = check_cases(options.tiny)
        results = spread([("check", case, options.tiny) for case in cases], options.workers)
        report["check"] = [{**described(case), **result} for case, result in zip(cases, results, strict=True)]
        save("check")
    if options.tune:
        tried = tune_cases(options.tiny)
        compiled = spread([("tune", case, options.tiny) for case in tried], options.workers)
        save("compile")
        results = [
            {**case, **(warm if "error" in warm else guarded(tune, case, options.tiny))}
            for case, warm in zip(tried, compiled, strict=True)
        ]
        report["tune"] = [described(result) for result in results]
        report["chosen"] = use_best(results)
        save("tune")
    if options.time:
        report["time"] = time_all(options.tiny)
        save("time")
    print_tables(report)
    return 0 if all(case.get("passed") for case in report.get("check", [])) else 1


def print_tables(report: Record) -> None:
    for case in report.get("tune", []):
        setting = case.get("sweep") or case.get("weights")
        numbers = [
            f"{name[:-3]} {case[name]:.3f}"
            for name in ("forward_ms", "backward_ms", "dW_ms", "both_ms")
            if name in case
        ]
        tail = " ".join(numbers) or case.get("error", "")[:70]
        print(case["bond"], case["precision"], f"S={case['runs']}", *setting.values(), case.get("pad", ""), "|", tail)
    for key, value in report.get("chosen", {}).items():
        print("chosen", key, value)
    checks = report.get("check", [])
    bad = [case for case in checks if not case.get("passed")]
    print(f"check: {len(checks) - len(bad)} of {len(checks)} passed")
    for case in bad[:20]:
        print("  failed", {key: value for key, value in case.items() if key not in ("errors", "seconds")})
    for case in report.get("time", {}).get("steps", []):
        kind = f"r={case['bond']:<4} {case['precision']:<8} S={case['runs']:<3} I={case['width']} {case['loss']}"
        if "error" in case:
            print(kind, case["error"][:90])
            continue
        memory = f"  peak {case['peak_GiB']:.2f} GiB" if "peak_GiB" in case else ""
        print(kind, f"step {case['step_ms']:.3f} ms  limit {case.get('limit_ms', float('nan')):.3f} ms{memory}")
    for case in report.get("time", {}).get("inference", []):
        print(
            f"inference r={case['bond']} {case['precision']} {case['images']} images", case.get("ms", case.get("error"))
        )
    for case in report.get("time", {}).get("peers", []):
        print(
            f"{case['name']:<14} r={case['bond']:<4}", case.get("step_ms", case.get("error")), case.get("peak_GiB", "")
        )


if __name__ == "__main__":
    sys.exit(main())
