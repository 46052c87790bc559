"""Sequences: a residual train whose core is the same at every time step, estimators on it, and Volterra series.

>>> import torch
>>> from restt.sequences import ResTTSequence
>>> module = ResTTSequence(feature_dim=2, bond_dim=4, outputs=1)
>>> module(torch.rand(3, 50, 2)).shape
torch.Size([3, 1])
"""

from restt.sequences.estimators import ResTTSequenceClassifier
from restt.sequences.forecaster import ResTTForecaster
from restt.sequences.module import ResTTSequence
from restt.sequences.volterra import VolterraRegressor

__all__ = ["ResTTForecaster", "ResTTSequence", "ResTTSequenceClassifier", "VolterraRegressor"]
