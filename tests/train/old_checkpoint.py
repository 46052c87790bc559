"""The training behind ``fixtures/checkpoint``: everything that has a state of its own, in a few kilobytes.

The folder was written by ``write`` with restt 0.1, stopped after epoch 6 of 12. Trainings saved then must go on for
ever: never write it again.
"""

from __future__ import annotations

from pathlib import Path

import torch

import restt
from restt.features import Trigonometric
from restt.train import Augmentation, Penalty, TrainConfig, train

FOLDER = Path(__file__).parent / "fixtures" / "checkpoint"
STOPPED_AFTER = 6
CONFIG = TrainConfig(
    epochs=(12, 12, 4),
    batch_size=8,
    lr=(1e-2, 3.0, 1e-2),
    rates="uniform",
    schedule="plateau",
    plateau_patience=1,
    weight_decay=1e-3,
    clip_norm=5.0,
    penalty=Penalty(chain=1e-3),
    dropout=0.2,
    ema=0.8,
    augment=Augmentation(shift=0.5),
    keep="best",
    max_failures=9,
    seed=2,
)


def fresh_module() -> restt.ResTT:
    module = restt.ResTT(4, 2, 2, 1, runs=3, dtype=torch.float64)
    module.reset_parameters(seed=3)
    return module


def stream(folder: Path | None):
    """The module before, and its training."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(24, 4, generator=generator, dtype=torch.float64)
    y = x[:, 0] * x[:, 3] - x[:, 1]
    module = fresh_module()
    records = train(
        module, x, y, config=CONFIG, validation=(x[:8], y[:8]), feature_map=Trigonometric(), checkpoint_dir=folder
    )
    return module, records


def write(folder: Path) -> None:
    _, records = stream(folder)
    for record in records:
        if record.epoch == STOPPED_AFTER:
            records.close()


if __name__ == "__main__":
    write(FOLDER)
