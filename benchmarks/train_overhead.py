"""What the training loop adds to the bare step: forward, loss, backward and fused Adam on batches that are ready.

    python benchmarks/train_overhead.py

Loop and bare steps take turns, round by round; the ratio is of the fastest rounds, so that other work on the machine
counts little. On a busy machine, ``--threads 1 --clock cpu`` counts the process's own time instead of the wall's. The
loop's time is everything between two records: data order, batches, step, guard, record.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import torch

import restt
from restt.train import TrainConfig, train

TARGET = 1.10
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
STEPS = 8  # per epoch
WARM_UPS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bond-dims", type=int, nargs="+", default=[20, 50])
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--sites", type=int, default=196)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--threads", type=int, help="torch's CPU threads")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"{options.device}, {torch.get_num_threads()} thread(s), N={options.sites}, I=2, O=10, batch {options.batch}")
    for bond_dim in options.bond_dims:
        for runs in options.runs:
            sizes = (bond_dim, runs, options.sites, options.batch)
            bare, loop = race(*sizes, options.rounds, options.device, CLOCKS[options.clock])
            verdict = "within" if loop <= TARGET * bare else "above"
            print(
                f"r={bond_dim:<4} runs={runs:<3} bare {1e3 * bare:8.2f} ms/step   loop {1e3 * loop:8.2f} ms/step   "
                f"ratio {loop / bare:.3f} ({verdict} {TARGET:.2f})"
            )


def race(
    bond_dim: int, runs: int, sites: int, batch: int, rounds: int, device: str, clock: Clock
) -> tuple[float, float]:
    """Seconds per step, bare and in the loop."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(STEPS * batch, sites, 2, generator=generator).to(device)
    y = torch.randint(10, (STEPS * batch,), generator=generator).to(device)
    bare = bare_epochs(module_of(bond_dim, runs, sites, device), x, y, batch)
    config = TrainConfig.paper(epochs=rounds + WARM_UPS, batch_size=batch, seed=0)
    loop = train(module_of(bond_dim, runs, sites, device), x, y, config=config)
    times: dict[str, list[float]] = {"bare": [], "loop": []}
    for _ in range(rounds + WARM_UPS):
        times["bare"].append(timed(lambda: next(bare), device, clock))
        times["loop"].append(timed(lambda: next(loop), device, clock))
    return min(times["bare"][WARM_UPS:]) / STEPS, min(times["loop"][WARM_UPS:]) / STEPS


def module_of(bond_dim: int, runs: int, sites: int, device: str) -> restt.ResTT:
    module = restt.ResTT(sites, 2, bond_dim, 10, init="paper", runs=runs, device=device)
    module.reset_parameters(seed=0)
    return module


def bare_epochs(module: restt.ResTT, x: torch.Tensor, y: torch.Tensor, batch: int) -> Iterator[None]:
    """Epochs of nothing but the step, on batches of each run's own rows that are made beforehand."""
    order = torch.stack([torch.randperm(len(x)) for _ in range(module.runs or 1)]).to(x.device)
    target = torch.nn.functional.one_hot(y, 10).to(x.dtype)
    ready = [(x[rows], target[rows]) for rows in order.split(batch, dim=1)]
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, weight_decay=1e-6, fused=True)
    while True:
        for features, wanted in ready:
            optimizer.zero_grad(set_to_none=True)
            loss = (module(features) - wanted).square().mean((1, 2)).sum()
            loss.backward()
            optimizer.step()
        yield


def timed(work: Callable[[], object], device: str, clock: Clock) -> float:
    began = clock()
    work()
    if device != "cpu":
        torch.cuda.synchronize()
    return clock() - began


if __name__ == "__main__":
    main()
