"""Training: one plain loop that everything uses.

Start at loop.py, the generator. training.py reads its arguments once, config.py has the settings, data.py and stream.py
(rows beyond memory) make batches, augment.py changes them at random. A step is step.py (cuda_graph.py and
adam_kernel.py on a GPU) on the losses of objective.py. guard.py decides how runs go on after an epoch, state.py holds
everything that changes, checkpoint.py saves it. All of it works on many runs side by side: runs.py. The result is a
stream of records.py. Under ``torchrun`` several processes train one model.

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
from restt.train.config import PAPER_RATES, Penalty, TrainConfig
from restt.train.loop import train
from restt.train.records import EpochRecord, Event

__all__ = [
    "PAPER_RATES",
    "Augmentation",
    "EpochRecord",
    "Event",
    "Penalty",
    "TrainConfig",
    "train",
]
