"""Encoding of targets for a training, and decoding of its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax
from torch import Tensor

from restt._common.errors import shown
from restt.estimators.columns import binary_exponents, mean_and_spread
from restt.estimators.settings import NET
from restt.estimators.tables import output_columns

# Characters that labels of a saved model may be declared to have, where none of them is longer.
MOST_CHARACTERS = 1024
# Bytes that they may have together: each takes as many as the longest.
MOST_BYTES = 2**28


@dataclass(frozen=True, eq=False)
class Values:
    """Numbers, standardised for the training. ``flat``: y came with shape (B,).

    An output that was constant has the scale 0 and is predicted exactly.
    """

    mean: np.ndarray  # (O,)
    scale: np.ndarray  # (O,)
    flat: bool

    @classmethod
    def fit(cls, y: np.ndarray, weights: np.ndarray) -> Values:
        """Learn mean and scale from y (B,) or (B, O) and weights (B,)."""
        return cls(*mean_and_spread(output_columns(y), weights), y.ndim == 1)

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return len(self.mean)

    def encode(self, y: np.ndarray) -> Tensor:  # (B, O)
        """Standardise y."""
        values = output_columns(y)
        if values.shape[1] != self.outputs:
            raise ValueError(f"y must have {self.outputs} output(s) as in the first fit, got shape {y.shape}")
        # Divided by a power of two first, which changes no digit: y - mean may be too large for a float.
        exponents = -binary_exponents(np.maximum(np.abs(self.mean), self.scale))
        scale = np.where(self.scale == 0, 1.0, np.ldexp(self.scale, exponents))
        centred = np.ldexp(values, exponents) - np.ldexp(self.mean, exponents)
        return torch.from_numpy(centred / scale)

    def auto_penalty(self, rows: int) -> float:
        """Weight of the penalty for ``"auto"``."""
        return NET.squares_penalty * min(1.0, NET.penalised_rows / rows)

    def row_weights(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Weights of rows in the loss."""
        return weights

    def shortfall(self, outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
        """Squared error of outputs (B, O) as a multiple of that of the mean of y; 0 where all of y is constant.

        ``targets`` (B, O) are encoded, ``weights`` (B,) those of the rows.
        """
        varies = self.scale > 0
        if not varies.any():
            return 0.0
        outputs, targets = outputs[:, varies], targets[:, varies]
        shares = (weights / weights.sum())[:, None]
        errors = (shares * (outputs - targets) ** 2).sum(axis=0)
        spread = (shares * (targets - (shares * targets).sum(axis=0)) ** 2).sum(axis=0)
        return float(errors.sum() / max(spread.sum(), np.finfo(float).tiny))

    @property
    def constant_guess(self) -> str:
        """Name of the prediction that :meth:`shortfall` compares with."""
        return "the mean of y"

    def initial_bias(self) -> Tensor:  # (O,)
        """Outputs at the start: the mean of y."""
        return torch.zeros(self.outputs)

    def decode(self, outputs: np.ndarray) -> np.ndarray:  # (…, B, O) -> (…, B) where flat
        """Undo the standardisation of outputs."""
        return self.shaped(outputs * self.scale + self.mean)

    def decode_spread(self, spread: np.ndarray) -> np.ndarray:  # (B, O) -> (B,) where flat
        """Scale deviations of outputs to those of y."""
        return self.shaped(spread * self.scale)

    def shaped(self, values: np.ndarray) -> np.ndarray:  # (…, O) -> (…) where flat
        """Bring values into the shape of y."""
        return np.asarray(values[..., 0]) if self.flat else values

    def to_config(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist(), "flat": self.flat}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Values:
        """Read what :meth:`to_config` wrote; ValueError where its parts do not fit each other."""
        mean, scale = (np.array(config[name], dtype=np.float64) for name in ("mean", "scale"))
        if mean.ndim != 1 or mean.shape != scale.shape or not np.isfinite([mean, scale]).all() or (scale < 0).any():
            raise ValueError(f"mean and scale of y do not fit each other: {shown(mean)}, {shown(scale)}")
        if config["flat"] and len(mean) != 1:
            raise ValueError(f"y cannot be flat with {len(mean)} outputs")
        return cls(mean, scale, bool(config["flat"]))


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
        """Number of classes."""
        return len(self.classes)

    def encode(self, y: np.ndarray) -> Tensor:  # (B,)
        """Number the labels."""
        return torch.from_numpy(class_numbers(y, self.classes))

    def auto_penalty(self, rows: int) -> float:
        """Weight of the penalty for ``"auto"``, which does not depend on the rows: less gave worse probabilities."""
        if self.logits:
            return NET.cross_entropy_penalty
        return NET.squares_penalty * float((self.prior * (1 - self.prior)).mean())

    def row_weights(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Weights of rows in the loss: their own times those of their classes."""
        return weights if self.class_weights is None else weights * self.class_weights[class_numbers(y, self.classes)]

    def shortfall(self, outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
        """Loss of outputs (B, K) as a multiple of that of the classes' shares; 0 for a single class.

        Log-loss where outputs are logits, else squared error. ``targets`` (B,) are numbers of classes.
        """
        shares = np.bincount(targets, weights, minlength=len(self.classes)) / weights.sum()
        if (shares > 0).sum() < 2:
            return 0.0
        rows = np.arange(len(targets))
        if self.logits:
            loss = -np.average(log_softmax(outputs, axis=1)[rows, targets], weights=weights)
            return float(loss / -(shares[shares > 0] * np.log(shares[shares > 0])).sum())
        errors = outputs.copy()
        errors[rows, targets] -= 1
        return float(np.average((errors**2).sum(axis=1), weights=weights) / (1 - (shares**2).sum()))

    @property
    def constant_guess(self) -> str:
        """Name of the prediction that :meth:`shortfall` compares with."""
        return "the shares of the classes"

    def initial_bias(self) -> Tensor:  # (K,)
        """Outputs at the start, whose probabilities are the classes' shares."""
        prior = torch.from_numpy(np.maximum(self.prior, NET.least_prior))
        return prior.log() - prior.log().mean() if self.logits else prior

    def to_config(self) -> dict[str, Any]:
        """Plain values for JSON."""
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
        """Read what :meth:`to_config` wrote; ValueError where its parts do not fit each other."""
        plain, dtype, weights = config["classes"], np.dtype(config["dtype"]), config["class_weights"]
        longest = max((len(label) for label in plain if isinstance(label, str)), default=0)
        too_long = dtype.kind == "U" and dtype.itemsize // 4 > max(longest, MOST_CHARACTERS)
        if dtype.kind not in "biufUO" or too_long or dtype.itemsize * len(plain) > MOST_BYTES:
            raise ValueError(f"classes cannot be of dtype {config['dtype']!r}")
        if not all(isinstance(label, (str, bool, int, float)) for label in plain):
            raise ValueError(f"classes must be text, booleans or numbers, got {shown(plain)}")
        labels = cls(
            np.array(plain, dtype=dtype),
            np.array(config["prior"], dtype=np.float64),
            None if weights is None else np.array(weights, dtype=np.float64),
            bool(config["logits"]),
            float(config["temperature"]),
        )
        for name in ("classes", "prior", "class_weights"):
            value = getattr(labels, name)
            if value is not None and value.shape != (len(plain),):
                raise ValueError(f"{name} must have one entry per class, got {shown(value)}")
        if not len(plain) or not labels.temperature > 0:
            raise ValueError(
                f"there must be classes and a temperature above 0, got {shown(plain)}, {labels.temperature}"
            )
        return labels


Target = Values | Labels


def class_numbers(y: np.ndarray, classes: np.ndarray) -> np.ndarray:  # (B,)
    """Return the place of each label among the sorted ``classes``.

    >>> class_numbers(np.array(["b", "a"]), np.array(["a", "b", "c"]))
    array([1, 0])
    """
    places = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    unknown = np.flatnonzero(classes[places] != y)
    if len(unknown):
        row = int(unknown[0])
        raise ValueError(
            f"y has the class {shown(y[row].item() if hasattr(y[row], 'item') else y[row])} in row {row}, which is not "
            f"one of the classes {shown(classes.tolist())}"
        )
    return places
