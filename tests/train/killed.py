"""Trains in a child that is killed again and again. Run by test_kill.py in a process of its own, since it forks.

The parent imports torch and does no computation, so every fork is cheap and starts clean.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import safetensors.torch
import torch

from restt.train import TrainConfig, train
from restt.train.checkpoint import LAST, Checkpoints
from tests.train.problems import regression, small_module, weights

CONFIG = TrainConfig(
    epochs=120, batch_size=16, lr=(1e-2, 2.0, 1e-2), dropout=0.2, ema=0.9, schedule="cosine", max_failures=50, seed=1
)


def run(folder: Path | None, result: Path) -> None:
    torch.set_num_threads(1)
    module, (x, y) = small_module(runs=3), regression()
    for _ in train(module, x, y, config=CONFIG, validation=(x, y), checkpoint_dir=folder):
        pass
    safetensors.torch.save_file(weights(module), result)


def forked(folder: Path | None, result: Path) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            Checkpoints.due = lambda self: True  # type: ignore[method-assign]
            run(folder, result)
            status = 0
        finally:
            os._exit(status)
    return child


def main(folder: Path, kills: int) -> None:
    random.seed(0)
    expected = folder / "expected"
    _, status = os.waitpid(forked(None, expected), 0)
    assert status == 0, "the uninterrupted training failed"
    checkpoints, found, done, rounds = folder / "checkpoints", folder / "found", 0, 0
    while done < kills:
        child = forked(checkpoints, found)
        while not (checkpoints / LAST).exists():
            time.sleep(0.001)
        time.sleep(random.uniform(0.0, 0.2))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            done += 1
        else:
            assert status == 0, "a resumed training failed"
            rounds += finished(checkpoints, found, expected)
    _, status = os.waitpid(forked(checkpoints, found), 0)
    assert status == 0, "the last resumed training failed"
    rounds += finished(checkpoints, found, expected)
    print(f"{done} kills, {rounds} trainings finished with the same bits")


def finished(checkpoints: Path, found: Path, expected: Path) -> int:
    """Compare a finished training with the uninterrupted one and clear the folder for the next."""
    one, other = safetensors.torch.load_file(found), safetensors.torch.load_file(expected)
    assert one.keys() == other.keys()
    for name, value in other.items():
        assert torch.equal(one[name], value), f"{name} differs"
    for path in checkpoints.iterdir():
        path.unlink()
    found.unlink()
    return 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
