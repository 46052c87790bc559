"""The processes that test_together.py starts: ``python -m tests.train.together SCENE SIZE FOLDER``."""

from __future__ import annotations

import datetime
import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from restt.train import TrainConfig, train
from restt.train.checkpoint import Checkpoints
from tests.train.forked import fork
from tests.train.problems import classification, measured, regression, small_module, weights

# Uneven subsets, of which the longest ends in a batch of one row; dropout, averaging, clipping, and a rate that
# explodes.
SUBSET = [range(51), range(10, 60), range(0, 60, 3)]
CONFIG = TrainConfig(
    epochs=6,
    batch_size=10,
    lr=(1e-2, 1e-2, 30.0),
    dropout=0.2,
    ema=0.9,
    clip_norm=1.0,
    schedule="cosine",
    seed=1,
)
SAVED = TrainConfig(epochs=8, batch_size=16, lr=1e-2, seed=5)
KILLED_AFTER = 3


def trained_runs(group: object = "auto") -> tuple[dict[str, torch.Tensor], list[dict]]:
    module, (x, y) = small_module(runs=3), regression(dtype=torch.float32)
    weight = torch.linspace(0.5, 2.0, len(x))
    stream = train(
        module, x, y, config=CONFIG, sample_weight=weight, subset=SUBSET, validation=(x[:33], y[:33]), group=group
    )
    records = [measured(record) | {"events": [event.kind for event in record.events]} for record in stream]
    return weights(module), records


def trained_classes(group: object = "auto") -> dict[str, torch.Tensor]:
    """All rows in one batch, classes, and initial weights that are rank 0's."""
    rank = dist.get_rank() if group is not None else 0
    module, (x, y) = small_module(outputs=3, seed=3 + rank), classification()
    config = TrainConfig(epochs=5, batch_size=None, lr=0.05, seed=2)
    list(train(module, x, y, config=config, validation=(x[:1], y[:1]), group=group))
    return weights(module)


def trained_estimator() -> np.ndarray:
    from restt.estimators import ResTTNetRegressor  # only here: the other scenes start without it

    rng = np.random.default_rng(0)
    x = rng.random((80, 3))
    model = ResTTNetRegressor(epochs=3, batch_size=32, early_stopping=True, verbose=1).fit(x, x[:, 0] * x[:, 1])
    return model.predict(x)


def refusal(rank: int, **other: object) -> str:
    """What is said where rank 1 is given something else."""
    given: dict = {"x": regression()[0], "lr": 1e-2} | (other if rank == 1 else {})
    try:
        train(small_module(), given["x"], regression()[1], config=TrainConfig(epochs=1, lr=given["lr"], seed=0))
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def saved_training(folder: Path, killed: bool) -> tuple[dict[str, torch.Tensor], list[bool]]:
    module, (x, y) = small_module(), regression()
    replayed = []
    for record in train(module, x, y, config=SAVED, validation=(x, y), checkpoint_dir=folder):
        replayed.append(record.replayed)
        if killed and dist.get_rank() == 1 and record.epoch == KILLED_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)
    return weights(module), replayed


def main(scene: str, rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    Checkpoints.due = lambda self: True  # type: ignore[method-assign]
    rendezvous = f"file://{folder / f'rendezvous-{scene}'}"
    timeout = datetime.timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size, timeout=timeout)
    found: dict[str, object] = {}
    if scene == "begun":
        torch.manual_seed(rank)
        found["runs"], found["records"] = trained_runs()
        found["classes"] = trained_classes()
        found["predictions"] = trained_estimator()
        found["other rate"] = refusal(rank, lr=0.1)
        found["other columns"] = refusal(rank, x=torch.rand(60, 6, 2))
        found["other rows"] = refusal(rank, x=regression(seed=1)[0])
        found["saved"], _ = saved_training(folder / "whole", killed=False)
    else:
        found["resumed"], found["replayed"] = saved_training(folder / "killed", killed=False)
    torch.save(found, folder / f"{scene}-{rank}.pt")
    if scene == "begun":
        saved_training(folder / "killed", killed=True)


if __name__ == "__main__":
    if sys.argv[1] == "begun":
        import restt.estimators  # noqa: F401
    fork(lambda rank: main(sys.argv[1], rank, int(sys.argv[2]), Path(sys.argv[3])), int(sys.argv[2]))
