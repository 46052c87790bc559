"""Whole trainings: does precision cost accuracy, does the guard hold, what do an epoch and the loop itself take?

``precision``: MNIST, r = 100, 10 epochs, 5 seeds side by side, with float32, tf32 and bf16 products. ``guard``:
Fashion-MNIST, r = 100, Adam at a constant 1e-3 that is known to explode late, 100 epochs, 10 runs side by side; all
must end finite. ``two_epochs``: MNIST at r = 20, time and accuracy. ``overhead``: what the training loop adds to bare
steps on batches that are ready. Quick versions are a few steps on few rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

import restt
from restt.data import Dataset
from restt.train import TrainConfig, train
from restt_bench.case import Settings
from restt_bench.targets import Target
from restt_bench.timing import synchronizer

if TYPE_CHECKING:
    from rich.console import Console

PRECISIONS = ("float32", "tf32", "bf16")
ALLOWED_LOSS = 0.1  # points of accuracy
TWO_EPOCHS_SECONDS, TWO_EPOCHS_ACCURACY = 60.0, 90.0  # on 2 cores
# What the loop may cost: data order, batches, step, guard and record, over forward, loss, backward and fused Adam.
LOOP_TIMES_BARE = 1.10
STEPS = 8  # per epoch of the overhead study
WARM_UPS = 2


@dataclass(frozen=True)
class _Size:
    bond_dim: int
    epochs: int
    runs: int
    rows: int | None = None

    @classmethod
    def of(cls, settings: Settings, bond_dim: int, epochs: int, runs: int) -> _Size:
        return cls(4, 1, 2, 60) if settings.quick else cls(bond_dim, epochs, runs)


def precision(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """The same seeds under each precision, and how far the means lie from float32's."""
    size = _Size.of(settings, bond_dim=100, epochs=10, runs=5)
    config = TrainConfig.paper(epochs=size.epochs, lr=1e-3, schedule="cosine", seed=settings.seed)
    found, data = {}, restt.data.load("mnist")
    for name in PRECISIONS:
        with restt.chain.precision(name):
            found[name] = _fit(data, size, config, device, settings.seed, console)
    means = {name: sum(result["final_accuracy"]) / len(result["final_accuracy"]) for name, result in found.items()}
    gaps = {name: mean - means["float32"] for name, mean in means.items()}
    targets = [
        Target(f"{name}: points above float32", "at least", -ALLOWED_LOSS, "points", round(gap, 4))
        for name, gap in gaps.items()
        if name != "float32"
    ]
    title = f"Accuracy by precision of products: MNIST, r={size.bond_dim}"
    return _result(title, targets, results=found, mean_accuracy=means, points_above_float32=gaps)


def guard(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """A constant rate that is known to explode late."""
    size = _Size.of(settings, bond_dim=100, epochs=100, runs=10)
    config = TrainConfig.paper(epochs=size.epochs, lr=1e-3, seed=settings.seed)
    result = _fit(restt.data.load("fashion-mnist"), size, config, device, settings.seed, console)
    rolled_back = [event for event in result["events"] if event["kind"] in ("rolled-back", "failed")]
    target = Target("runs that end with non-finite weights", "at most", 0, "", result["runs_not_finite"])
    title = f"A constant rate of 1e-3: Fashion-MNIST, r={size.bond_dim}"
    return _result(title, [target], result=result, roll_backs=len(rolled_back))


def two_epochs(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """How long two epochs of MNIST at r = 20 take and what they reach."""
    size = _Size.of(settings, bond_dim=20, epochs=2, runs=1)
    config = TrainConfig.paper(
        epochs=size.epochs, lr=2e-3, schedule="warmup-cosine", warmup_epochs=0.2, seed=settings.seed
    )
    result = _fit(restt.data.load("mnist"), size, config, device, settings.seed, console)
    targets = [
        Target("two epochs", "at most", TWO_EPOCHS_SECONDS, "s", round(result["wall_seconds"], 2)),
        Target("test accuracy", "at least", TWO_EPOCHS_ACCURACY, "%", round(min(result["final_accuracy"]), 2)),
    ]
    return _result(f"{size.epochs} epochs of MNIST at r={size.bond_dim}", targets, result=result)


def overhead(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Loop and bare steps in turn; the ratio is of the fastest rounds, so that other work on the machine counts little.

    The loop's time is everything between two records.
    """
    sites, batch, rounds = (12, 32, 2) if settings.quick else (196, 512, min(settings.rounds, 8))
    rows, targets = [], []
    for bond_dim in (4,) if settings.quick else (20, 50):
        for runs in (1, 2) if settings.quick else (1, 5):
            bare, loop = _bare_and_loop(bond_dim, runs, sites, batch, rounds, device)
            rows.append({"bond_dim": bond_dim, "runs": runs, "bare_ms": 1e3 * bare, "loop_ms": 1e3 * loop})
            what = f"r={bond_dim}, {runs} run(s): loop against bare step"
            targets.append(Target(what, "at most", LOOP_TIMES_BARE, "×", round(loop / bare, 3)))
            console.print(f"r={bond_dim} runs={runs}: bare {1e3 * bare:.2f}, loop {1e3 * loop:.2f} ms a step")
    title = f"What the training loop adds: N={sites}, I=2, O=10, batch {batch}"
    return _result(title, targets, rows=rows)


def _result(title: str, targets: list[Target], **found: Any) -> dict[str, Any]:
    return {"title": title, **found, "targets": [target.as_dict() for target in targets]}


def _fit(data: Dataset, size: _Size, config: TrainConfig, device: str, seed: int, console: Console) -> dict[str, Any]:
    """Train ``runs`` seeds side by side on the whole training set; test accuracy after every epoch."""
    test = data.x_test[: size.rows], data.y_test[: size.rows]
    module = restt.ResTT(196, 2, size.bond_dim, 10, init="paper", sigma2=0.01, runs=size.runs, device=device)
    module.reset_parameters(seed=seed)
    rows = len(data.x_train[: size.rows])
    began = time.perf_counter()
    records, events = [], []
    for record in train(
        module,
        data.x_train[:rows],
        data.y_train[:rows],
        config=config,
        validation=test,
        feature_map=restt.features.Trigonometric(),
    ):
        records.append(record)
        events += [{"epoch": record.epoch, **vars(event)} for event in record.events]
        accuracy = [record.validation["accuracy"][run] for run in record.runs]
        mean = 100 * sum(accuracy) / len(accuracy)
        console.print(f"{data.name} epoch {record.epoch}: {mean:.2f} % in {record.seconds:.2f} s")
    seconds = time.perf_counter() - began
    finite = torch.stack([parameter.isfinite().flatten(1).all(1) for parameter in module.parameters()]).all(0)
    return {
        "dataset": data.name,
        "bond_dim": size.bond_dim,
        "runs": size.runs,
        "rows": rows,
        "config": config.to_dict(),
        "final_accuracy": [100 * value for value in _accuracy_of_runs(module, *test)],
        "records": [record.to_dict() for record in records],
        "wall_seconds": seconds,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device.startswith("cuda") else None,
        "events": events,
        "runs_not_finite": int((~finite).sum()),
    }


@torch.no_grad()
def _accuracy_of_runs(module: restt.ResTT, pixels: torch.Tensor, labels: torch.Tensor) -> list[float]:
    """Test accuracy of the weights each run ended with, also of runs that stopped early."""
    x = restt.features.Trigonometric()(pixels.to(module.first.device))
    accuracy: list[float] = (module(x).argmax(-1) == labels.to(x.device)).float().mean(-1).tolist()
    return accuracy


def _bare_and_loop(bond_dim: int, runs: int, sites: int, batch: int, rounds: int, device: str) -> tuple[float, float]:
    """Seconds per step, bare and in the loop."""

    def module() -> restt.ResTT:
        made = restt.ResTT(sites, 2, bond_dim, 10, init="paper", runs=runs, device=device)
        made.reset_parameters(seed=0)
        return made

    generator = torch.Generator().manual_seed(0)
    x = torch.rand(STEPS * batch, sites, 2, generator=generator).to(device)
    y = torch.randint(10, (STEPS * batch,), generator=generator).to(device)
    bare = _bare_epochs(module(), x, y, batch)
    config = TrainConfig.paper(epochs=rounds + WARM_UPS, batch_size=batch, seed=0)
    loop = iter(train(module(), x, y, config=config))
    wait = synchronizer(device)

    def timed(work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        if wait is not None:
            wait()
        return time.perf_counter() - began

    times = [(timed(lambda: next(bare)), timed(lambda: next(loop))) for _ in range(rounds + WARM_UPS)][WARM_UPS:]
    fastest_bare, fastest_loop = (min(column) / STEPS for column in zip(*times, strict=True))
    return fastest_bare, fastest_loop


def _bare_epochs(module: restt.ResTT, x: torch.Tensor, y: torch.Tensor, batch: int) -> Iterator[None]:
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
