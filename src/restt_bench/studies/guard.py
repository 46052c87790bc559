"""A training at a rate that is known to explode late, to see that the guard keeps every run finite.

Fashion-MNIST, r = 100, Adam at a constant 1e-3, 100 epochs, 10 runs side by side. The quick version is a few steps on
few rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

import restt
from restt.data import Dataset
from restt.train import TrainConfig, train
from restt_bench.case import Settings
from restt_bench.targets import Target

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class _Size:
    bond_dim: int
    epochs: int
    runs: int
    rows: int | None = None


def guard(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Train at a constant rate of 1e-3 and count the runs that end with non-finite weights."""
    size = _Size(4, 1, 2, 60) if settings.quick else _Size(bond_dim=100, epochs=100, runs=10)
    config = TrainConfig.paper(epochs=size.epochs, lr=1e-3, seed=settings.seed)
    result = _fit(restt.data.load("fashion-mnist"), size, config, device, settings.seed, console)
    rolled_back = [event for event in result["events"] if event["kind"] in ("rolled-back", "failed")]
    target = Target("runs that end with non-finite weights", "at most", 0, "", result["runs_not_finite"])
    title = f"A constant rate of 1e-3: Fashion-MNIST, r={size.bond_dim}"
    return {"title": title, "result": result, "roll_backs": len(rolled_back), "targets": [target.as_dict()]}


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
