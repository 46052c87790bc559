"""Feature maps: one column or pixel becomes one site vector, (B, N) -> (B, N, I).

>>> from restt import features
>>> features.Affine()([[0.5, 2.0]])
tensor([[[1.0000, 0.5000],
         [1.0000, 2.0000]]], dtype=torch.float64)

Sites are counted from 0, as columns of an array are.
"""

from __future__ import annotations

from restt.features.base import FeatureMap, RangeWarning, available, from_config, make
from restt.features.formulas import Affine, Identity, Polynomial, Trigonometric
from restt.features.hat import Hat
from restt.features.onehot import OneHot

__all__ = [
    "Affine",
    "FeatureMap",
    "Hat",
    "Identity",
    "OneHot",
    "Polynomial",
    "RangeWarning",
    "Trigonometric",
    "available",
    "from_config",
    "make",
]
