"""Variants of the captured step beside the one in use, on a GPU: `python tools/try_step.py OUT.json [--quick]`."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from statistics import median

import torch

import restt
from restt.chain.cuda import launch as tables
from restt.chain.cuda.launch import Layout, SweepLaunch, WeightLaunch
from restt.chain.cuda.plans import forget_plans
from restt.train import step as train_step
from restt.train.cuda_graph import GraphedStep
from restt.train.data import Batch
from restt.train.objective import row_loss
from restt.train.runs import RunsView

QUICK = "--quick" in sys.argv
DEVICE = "cpu" if QUICK else "cuda"
SITES, BATCH, OUTPUTS = (20, 9, 3) if QUICK else (196, 512, 10)
BONDS = (20,) if QUICK else (20, 50, 100)

SWEEPS = {
    20: [(8, 0, 2, 5, False), (8, 0, 2, 3, False), (8, 0, 4, 3, False), (8, 0, 1, 5, False)],
    50: [(8, 0, 4, 3, True), (8, 0, 4, 4, True), (8, 0, 2, 3, True), (8, 0, 2, 4, True)],
    100: [(8, 1, 4, 3, True), (8, 1, 4, 4, True), (8, 1, 8, 4, True), (8, 2, 4, 2, True)],
}
WEIGHTS = {
    20: [(32, 32, 128, 2, 3), (32, 32, 64, 2, 4)],
    50: [(64, 64, 32, 4, 4), (64, 64, 16, 4, 6)],
    100: [(128, 128, 32, 8, 3), (128, 128, 16, 8, 5), (128, 128, 16, 8, 7)],
}
CUTS = [(0.3,), (0.2,), (0.12,), (0.5, 0.15)]
if QUICK:
    SWEEPS, WEIGHTS, CUTS = {20: SWEEPS[20][:2]}, {20: WEIGHTS[20][:2]}, CUTS[1:2]


@contextmanager
def using(bond, sweep=None, back=None, weights=None, cuts=(), late=False, folds=True):
    tile = Layout(bond, "tf32").tile
    names = ("ONE_WAVE", "ONE_WAVE_BACK", "WEIGHTS", "CUTS")
    before = {name: getattr(tables, name) for name in names}
    if sweep is not None:
        tables.ONE_WAVE = {**tables.ONE_WAVE, tile: SweepLaunch(*sweep)}
    if back is not None or sweep is not None:
        tables.ONE_WAVE_BACK = {**tables.ONE_WAVE_BACK, tile: SweepLaunch(*(back or sweep))}
    if weights is not None:
        tables.WEIGHTS = {**tables.WEIGHTS, tile: WeightLaunch(*weights)}
    tables.CUTS = {tile: cuts} if cuts else {}
    tables.HEAD_LATE[0], tables.FOLDS[0] = late, folds
    forget_plans()
    try:
        with restt.chain.backend("fused_cuda"), restt.chain.precision("tf32"):
            yield
    finally:
        for name, value in before.items():
            setattr(tables, name, value)
        tables.HEAD_LATE[0], tables.FOLDS[0] = False, True
        forget_plans()


def features():
    generator = torch.Generator().manual_seed(0)
    angle = torch.rand(BATCH, SITES, 1, generator=generator) * torch.pi / 2
    return torch.cat([angle.cos(), angle.sin()], dim=-1).to(DEVICE)


def both_of(bond):
    module = restt.ResTT(SITES, 2, bond, OUTPUTS, device=DEVICE)
    module.reset_parameters(seed=1)
    x = features()
    upstream = torch.randn(BATCH, OUTPUTS, generator=torch.Generator().manual_seed(2)).to(DEVICE)

    def both():
        module.zero_grad(set_to_none=True)
        output = module(x)
        output.backward(upstream)
        both.output = output.detach()

    both.module = module
    return both


def captured(call):
    if QUICK:
        call()
        return call
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()

    def replay():
        graph.replay()

    replay.alive = call  # with all that the graph reads
    return replay


def compile_one(bond, options):
    try:
        with using(bond, **options):
            both_of(bond)()
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[-300:]}"


def wait():
    if not QUICK:
        torch.cuda.synchronize()


def kernel_times(call, repeats=10):
    if QUICK:
        return {}
    from torch.profiler import ProfilerActivity, profile

    call()
    wait()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
        for _ in range(repeats):
            call()
        wait()
    found = {event.key[:110]: event.device_time_total / repeats for event in record.key_averages()}
    return {name: round(us, 2) for name, us in found.items() if us > 0}


def race(calls, rounds=15, repeats=40):
    """Median microseconds of each, in turn."""
    if QUICK:
        rounds, repeats = 2, 1
    times = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            wait()
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            wait()
            times[name].append((time.perf_counter() - start) / repeats)
    return {name: [round(1e6 * median(values), 1), round(1e6 * min(values), 1)] for name, values in times.items()}


def numbers(both):
    return {"output": both.output.clone(), **{n: p.grad.clone() for n, p in both.module.named_parameters()}}


def difference(found, wanted):
    return max(float((found[n] - wanted[n]).norm() / wanted[n].norm()) for n in wanted)


def torch_step(bond):
    """Module, mean squared error, torch's fused Adam."""
    module = restt.ResTT(SITES, 2, bond, OUTPUTS, device=DEVICE)
    x, target = features(), torch.zeros(BATCH, OUTPUTS, device=DEVICE)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-5, fused=True, capturable=not QUICK)

    def step():
        loss = torch.nn.functional.mse_loss(module(x), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    replay = captured(step)
    given = x.clone(), target.clone()

    def whole():
        x.copy_(given[0])
        target.copy_(given[1])
        replay()

    whole.alive = step
    return whole


class Inline:
    def __init__(self, device):
        pass

    def launch(self, call):
        call()

    def join(self):
        pass


def old_norm(gradients):
    parts = [torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), dim=1) for gradient in gradients.values()]
    return torch.linalg.vector_norm(torch.stack(parts), dim=0)


def own_step(bond, *, old):
    """The step of restt.train."""
    module = restt.ResTT(SITES, 2, bond, OUTPUTS, device=DEVICE)
    working = RunsView(module)
    adam = train_step.Adam(working.weights)
    (group,) = adam.groups([0], [0.0], [0])
    kept = train_step.Beside, train_step.gradient_norm, train_step.PIECES[0]
    if old:
        train_step.Beside, train_step.gradient_norm, train_step.PIECES[0] = Inline, old_norm, False
    step = GraphedStep(working, adam, row_loss("mse"), {}, None, None, None, None, None)
    x, target = features()[None], torch.zeros(1, BATCH, OUTPUTS, device=DEVICE)
    share = torch.full((1, BATCH), 1 / BATCH, device=DEVICE)
    batch = Batch(x, target, share, float(BATCH))
    if QUICK:
        GraphedStep.capture = staticmethod(lambda work: work)
    count = [0]

    def whole():
        step(batch, [(group, count[0], 1e-5)], False)
        count[0] += 1

    for _ in range(4):
        whole()
    whole.alive = module
    train_step.Beside, train_step.gradient_norm, train_step.PIECES[0] = kept
    assert not step._refused
    return whole


def main():
    began, found = time.perf_counter(), {}

    def say(*words):
        print(f"{time.perf_counter() - began:.0f} s", *words, flush=True)

    jobs = []
    for bond in BONDS:
        jobs += [(bond, {"folds": False})]
        jobs += [(bond, {"sweep": sweep}) for sweep in SWEEPS[bond]]
        jobs += [(bond, {"weights": weights}) for weights in WEIGHTS[bond]]
        jobs += [(bond, {"sweep": sweep, "cuts": CUTS[0]}) for sweep in SWEEPS[bond]]
    if QUICK:
        wrong = [compile_one(*job) for job in jobs]
    else:
        with ProcessPoolExecutor(12, mp_context=multiprocessing.get_context("spawn")) as pool:
            wrong = list(pool.map(compile_one, *zip(*jobs, strict=True)))
    errors = {f"{bond} {options}": message for (bond, options), message in zip(jobs, wrong, strict=True) if message}
    say("compiled;", errors)
    found["errors"] = errors
    for bond in BONDS:
        try:
            found[str(bond)] = one_bond(bond, errors, say)
        except Exception:
            traceback.print_exc()
    if not QUICK:
        try:
            found["loops"] = user_loops(say)
        except Exception:
            traceback.print_exc()
    with open(sys.argv[1], "w") as file:
        json.dump(found, file, indent=1)
    say("done")


def one_bond(bond, errors, say):
    with using(bond, folds=False):
        both = both_of(bond)
        both()
        wanted = numbers(both)
        say(bond, "old", kernel_times(captured(both)))
    rows = {}
    for kind, options in (("sweep", SWEEPS[bond]), ("weights", WEIGHTS[bond])):
        for values in options:
            if f"{bond} { {kind: values} }" in errors:
                continue
            with using(bond, **{kind: values}):
                both = both_of(bond)
                replay = captured(both)
                replay()
                same, first = True, numbers(both)
                for _ in range(4):
                    replay()
                    again = numbers(both)
                    same &= all(torch.equal(first[n], again[n]) for n in first)
                row = {"us": kernel_times(replay), "error": difference(first, wanted), "same": same}
            rows[kind, values] = row
            say(bond, kind, values, row)
    best = {"sweep": None, "back": None, "weights": None}
    if not QUICK:

        def least(kind, kernel):
            usable = {v: r["us"] for (k, v), r in rows.items() if k == kind and r["same"] and r["error"] < 1e-2}
            return min(usable, key=lambda v: usable[v].get(kernel, 1e9))

        best = {
            "sweep": least("sweep", "forward_sweep"),
            "back": least("sweep", "backward_sweep"),
            "weights": least("weights", "weight_gradients"),
        }
    say(bond, "best", best)
    calls, checks = {}, {}
    variants = {"old": {"folds": False}, "best": best}
    variants |= {f"best {cuts}": {**best, "cuts": cuts} for cuts in CUTS}
    variants |= {f"best {cuts} late": {**best, "cuts": cuts, "late": True} for cuts in CUTS[:3]}
    for name, options in variants.items():
        with using(bond, **options):
            calls[f"{name}: step"] = torch_step(bond)
            both = both_of(bond)
            replay = captured(both)
            replay()
            first = numbers(both)
            for _ in range(4):
                replay()
                again = numbers(both)
                assert all(torch.equal(first[n], again[n]) for n in first), name
            checks[name] = difference(first, wanted)
            if name in ("old", "best"):
                calls[f"{name}: train step, old update"] = own_step(bond, old=True)
                calls[f"{name}: train step"] = own_step(bond, old=False)
                say(bond, name, kernel_times(calls[f"{name}: train step"]))
                say(bond, name, kernel_times(calls[f"{name}: step"]))
    with restt.chain.precision("tf32"):  # a recorded step of restt.train is one of a precision
        times = race(calls)
    for name, value in times.items():
        say(bond, name, value)
    say(bond, "differences", checks)
    return {"rows": {str(key): row for key, row in rows.items()}, "best": best, "times": times, "checks": checks}


def user_loops(say):
    from restt_bench.case import Case
    from restt_bench.implementations.ours import Ours
    from restt_bench.implementations.own_loops import OwnLoop

    case = Case(sites=SITES, feature_dim=2, bond_dim=20, outputs=OUTPUTS, batch=BATCH, device="cuda", precision="tf32")
    calls, kept = {}, []
    for implementation in (
        Ours("auto", graph=True), OwnLoop("graphed-step"), OwnLoop("captured-step"), OwnLoop("graphed-step", stack=True)
    ):  # fmt: skip
        with restt.chain.precision("tf32"):
            try:
                work = implementation.build(case, 0)
                calls[implementation.name] = work.step
                kept.append(work)
            except Exception as error:
                traceback.print_exc()
                say(implementation.name, error)
    times = race(calls, rounds=25)
    say("loops at r=20", times)
    return times


if __name__ == "__main__":
    main()
