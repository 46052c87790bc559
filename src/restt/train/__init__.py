"""Training: one plain loop that everything uses.

Start at loop.py, the generator. It is fed by training.py (the arguments, read once), config.py and data.py, or
stream.py for rows beyond memory; an epoch is epoch.py, a step of it step.py, or cuda_graph.py on a GPU, of what
objective.py, regularisation.py and augment.py ask for, with adam.py (adam_kernel.py on a GPU) as its update; an epoch
ends in verdicts.py and state.py, watched by guard.py and saved by checkpoint.py. All of it works on many runs side by
side: runs.py. What comes out is records.py; how much memory it takes is memory.py.
Under ``torchrun`` several processes train one model. captured.py is for loops of one's own.

>>> import torch, restt
>>> from restt.train import TrainConfig, train
>>> x, y = torch.rand(64, 5, 2), torch.arange(64) % 3
>>> module = restt.ResTT(sites=5, feature_dim=2, bond_dim=4, outputs=3)
>>> for record in train(module, x, y, config=TrainConfig(epochs=2, batch_size=16)):
...     print(record.epoch, len(record.train_loss))
1 1
2 1
"""

from __future__ import annotations

from restt.train.augment import Augmentation
from restt.train.captured import CapturedStep
from restt.train.checkpoint import load_weights
from restt.train.config import PAPER_RATES, TrainConfig
from restt.train.loop import train
from restt.train.records import EpochRecord, Event, live_table, write_jsonl
from restt.train.regularisation import Penalty

__all__ = [
    "PAPER_RATES",
    "Augmentation",
    "CapturedStep",
    "EpochRecord",
    "Event",
    "Penalty",
    "TrainConfig",
    "live_table",
    "load_weights",
    "train",
    "write_jsonl",
]
