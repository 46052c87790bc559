"""Classes of sequences by a residual train with tied cores; how sequences become features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from restt._common.errors import check_int, shown
from restt.estimators.classes import read_labels
from restt.sequences.module import ResTTSequence
from restt.train import TrainConfig, train

# Standardised values beyond this many standard deviations are clipped: products over steps would grow with them.
LARGEST = 3.0
# Squares of larger values are no floats.
MOST = 1e150


def read_sequences(X: Any) -> list[np.ndarray]:  # B of (T, channels)
    """Sequences from an array (B, T) or (B, T, channels), or from a list of (T,) or (T, channels) of any lengths."""
    if not isinstance(X, Iterable):
        raise TypeError(f"X must be an array or a list of sequences, got {type(X).__name__}")
    if isinstance(X, np.ndarray) and X.dtype != object and X.ndim not in (2, 3):
        raise ValueError(f"X must have shape (B, T) or (B, T, channels), or be a list of sequences, got {X.shape}")
    sequences: list[np.ndarray] = []
    for place, sequence in enumerate(X):
        values = read_series(sequence, f"sequence {place} of X")
        if sequences and values.shape[1] != (channels := sequences[0].shape[1]):
            raise ValueError(f"sequence {place} of X has {values.shape[1]} channels, the first has {channels}")
        sequences.append(values)
    if not sequences:
        raise ValueError("X must hold at least one sequence, got none")
    return sequences


def read_series(series: Any, name: str) -> np.ndarray:  # (T, channels)
    """One sequence (T,) or (T, channels); ValueError that names what is wrong."""
    try:
        values = np.asarray(series, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, (T,) or (T, channels), got {shown(series)}: {error}") from None
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2:
        raise ValueError(f"{name} must have shape (T,) or (T, channels), got {values.shape}")
    if values.size == 0:
        raise ValueError(f"{name} must have at least one step and channel, got length 0")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got {values[~np.isfinite(values)][0]}")
    if (largest := np.abs(values).max()) > MOST:
        raise ValueError(f"{name} must have values of at most {MOST:g}, whose squares are floats, got {largest:g}")
    return values


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and standard deviation of each channel, and of its changes from step to step."""

    mean: np.ndarray  # (channels,)
    std: np.ndarray  # (channels,)
    change: np.ndarray  # (channels,)

    @classmethod
    def fit(cls, sequences: Sequence[np.ndarray]) -> Scaling:
        """Learn the scaling from the steps of all sequences."""
        steps = np.concatenate(list(sequences))
        changes = np.concatenate([np.diff(values, axis=0, prepend=values[:1]) for values in sequences])
        return cls(steps.mean(axis=0), _positive(steps.std(axis=0)), _positive(changes.std(axis=0)))

    def features(self, sequences: Sequence[np.ndarray]) -> torch.Tensor:  # (B, T, 1 + 2 channels)
        """One, the values and their changes, within ±1, of each step; zeros beyond the end of a sequence."""
        if sequences[0].shape[1] != len(self.mean):
            raise ValueError(f"X must have {len(self.mean)} channels, as in the fit, got {sequences[0].shape[1]}")
        features = torch.zeros(len(sequences), max(map(len, sequences)), 1 + 2 * len(self.mean))
        for place, values in enumerate(sequences):
            change = np.diff(values, axis=0, prepend=values[:1]) / self.change
            parts = [np.full((len(values), 1), LARGEST), (values - self.mean) / self.std, change]
            features[place, : len(values)] = torch.from_numpy(np.hstack(parts).clip(-LARGEST, LARGEST) / LARGEST)
        return features


def _positive(std: np.ndarray) -> np.ndarray:
    return np.where(std > 0, std, 1.0)


@dataclass(kw_only=True, eq=False, repr=False)
class Trained(BaseEstimator):
    """Parameters of a training."""

    bond_dim: int = 16
    epochs: int = 200
    lr: float = 0.01
    penalty: float = 1e-3
    batch_size: int = 64
    random_state: Any = None

    def _config(self, rows: int, seed: int) -> TrainConfig:
        return TrainConfig(
            epochs=self.epochs,
            batch_size=min(self.batch_size, rows),
            lr=self.lr,
            optimizer="adamw",
            weight_decay=self.penalty,
            schedule="cosine",
            clip_norm=1.0,
            seed=seed,
        )

    def _new_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    @property
    def _width(self) -> int:
        return check_int("bond_dim", self.bond_dim, minimum=1)


@dataclass(kw_only=True, eq=False, repr=False)
class ResTTSequenceClassifier(ClassifierMixin, Trained):
    """Classifies sequences of any length by :class:`ResTTSequence`, trained by gradients.

    A step's features are 1, its standardised values and their changes since the step before.

    Parameters
    ----------
    bond_dim : int, default=16
        Width of the state.
    epochs : int, default=200
    lr : float, default=0.01
        Adam's rate, which falls to 0 along a cosine.
    penalty : float, default=1e-3
        Decoupled weight decay.
    batch_size : int, default=64
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : ndarray (K,)
    module_ : ResTTSequence

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [np.sin((1 + k % 2) * np.arange(20 + k % 5) / 3) + 0.1 * rng.normal(size=20 + k % 5) for k in range(40)]
    >>> y = np.arange(40) % 2
    >>> model = ResTTSequenceClassifier(bond_dim=6, epochs=40, random_state=0).fit(X[:30], y[:30])
    >>> bool(model.score(X[30:], y[30:]) > 0.8)
    True
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to B sequences, an array (B, T) or (B, T, channels) or a list of (T,) or (T, channels), and B classes."""
        sequences = read_sequences(X)
        self.classes_, numbers = np.unique(read_labels(y), return_inverse=True)
        if len(numbers) != len(sequences):
            raise ValueError(f"y must have one class for each of the {len(sequences)} sequences, got {len(numbers)}")
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least two classes, got {len(self.classes_)}")
        self.scaling_ = Scaling.fit(sequences)
        x = self.scaling_.features(sequences)
        self.module_ = ResTTSequence(x.shape[2], self._width, len(self.classes_), length=x.shape[1])
        seed = self._new_seed()
        self.module_.reset_parameters(seed)
        for _ in train(self.module_, x, torch.from_numpy(numbers), config=self._config(len(x), seed)):
            pass
        return self

    @torch.no_grad()
    def predict_proba(self, X: Any) -> np.ndarray:  # (B, K)
        """Probabilities of the classes."""
        check_is_fitted(self)
        logits = self.module_(self.scaling_.features(read_sequences(X)))
        return logits.double().softmax(dim=1).numpy()

    def predict(self, X: Any) -> np.ndarray:  # (B,)
        """The most probable classes."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])
