"""Targets as the training takes them, and predictions back as the user knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import shown

# Penalties for "auto", chosen on small tables. Cross-entropy is flatter than squares of standardised targets, so a
# smaller penalty does the same; squares of one-hot targets are smaller by the variance of the targets.
SQUARES_PENALTY = 0.02
CROSS_ENTROPY_PENALTY = 0.005
# No class starts as impossible, also where partial_fit has not seen it yet.
LEAST_PRIOR = 1e-3


@dataclass(frozen=True, eq=False)
class Values:
    """Numbers, brought to mean 0 and variance 1 for the training. ``flat``: y came with shape (B,)."""

    mean: np.ndarray  # (O,)
    scale: np.ndarray  # (O,)
    flat: bool

    @classmethod
    def fit(cls, y: np.ndarray, weights: np.ndarray) -> Values:
        """From y (B,) or (B, O) and weights (B,)."""
        columns = y.reshape(len(y), -1)
        mean = np.average(columns, axis=0, weights=weights)
        spread = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weights))
        constant = spread <= 1e3 * np.finfo(float).eps * np.abs(mean)
        return cls(mean, np.where(constant | (spread == 0), 1.0, spread), y.ndim == 1)

    @property
    def outputs(self) -> int:
        return len(self.mean)

    def encode(self, y: np.ndarray) -> Tensor:  # (B, O)
        if y.reshape(len(y), -1).shape[1] != self.outputs:
            raise ValueError(f"y must have {self.outputs} output(s) as in the first fit, got shape {y.shape}")
        return torch.from_numpy((y.reshape(len(y), -1) - self.mean) / self.scale)

    @property
    def auto_penalty(self) -> float:
        return SQUARES_PENALTY

    def row_weights(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """What rows count in the loss: their weights."""
        return weights

    def initial_bias(self) -> Tensor:  # (O,)
        return torch.zeros(self.outputs)

    def decode(self, outputs: np.ndarray) -> np.ndarray:  # (…, B, O) -> (…, B) where flat
        return self._shaped(outputs * self.scale + self.mean)

    def decode_spread(self, spread: np.ndarray) -> np.ndarray:  # (B, O) -> (B,) where flat
        return self._shaped(spread * self.scale)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values[..., 0]) if self.flat else values

    def to_config(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist(), "flat": self.flat}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Values:
        return cls(np.array(config["mean"]), np.array(config["scale"]), config["flat"])


@dataclass(frozen=True, eq=False)
class Labels:
    """Classes, numbered in sorted order."""

    classes: np.ndarray  # (K,)
    prior: np.ndarray  # (K,) share of each class in the first fit
    class_weights: np.ndarray | None  # (K,)
    logits: bool  # outputs are logits (cross-entropy), not estimates of the one-hot targets themselves
    temperature: float = 1.0  # what outputs are divided by before the softmax

    @property
    def outputs(self) -> int:
        return len(self.classes)

    def encode(self, y: np.ndarray) -> Tensor:  # (B,)
        return torch.from_numpy(class_numbers(y, self.classes))

    @property
    def auto_penalty(self) -> float:
        return CROSS_ENTROPY_PENALTY if self.logits else SQUARES_PENALTY * float((self.prior * (1 - self.prior)).mean())

    def row_weights(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """What rows count in the loss: their weights, times those of their classes."""
        return weights if self.class_weights is None else weights * self.class_weights[class_numbers(y, self.classes)]

    def initial_bias(self) -> Tensor:  # (K,)
        """Every row starts with the classes' shares as its probabilities."""
        prior = torch.from_numpy(np.maximum(self.prior, LEAST_PRIOR))
        return prior.log() - prior.log().mean() if self.logits else prior

    def to_config(self) -> dict[str, Any]:
        plain = self.classes.tolist()
        if not all(isinstance(label, (str, bool, int, float)) for label in plain):
            raise TypeError(f"classes must be text, booleans or numbers to be saved, got {shown(plain[0])}")
        return {
            "classes": plain,
            "dtype": "object" if self.classes.dtype == object else self.classes.dtype.str,
            "prior": self.prior.tolist(),
            "class_weights": None if self.class_weights is None else self.class_weights.tolist(),
            "logits": self.logits,
            "temperature": self.temperature,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Labels:
        weights = config["class_weights"]
        return cls(
            np.array(config["classes"], dtype=config["dtype"]),
            np.array(config["prior"]),
            None if weights is None else np.array(weights),
            config["logits"],
            config["temperature"],
        )


def class_numbers(y: np.ndarray, classes: np.ndarray) -> np.ndarray:  # (B,)
    """The place of each label among the sorted ``classes``.

    >>> class_numbers(np.array(["b", "a"]), np.array(["a", "b", "c"]))
    array([1, 0])
    """
    found = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    unknown = np.flatnonzero(classes[found] != y)
    if len(unknown):
        row = int(unknown[0])
        raise ValueError(
            f"y has the class {shown(y[row].item() if hasattr(y[row], 'item') else y[row])} in row {row}, which is not "
            f"one of the classes {shown(classes.tolist())}"
        )
    return found
