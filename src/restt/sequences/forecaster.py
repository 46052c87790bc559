"""The next values of a series by a residual train with tied cores over its past."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from restt._common.errors import check_int
from restt.sequences.classifier import fitted_module
from restt.sequences.inputs import Scaling, read_sequences

# The last windows of a series, which choose the epoch.
HELD_SHARE = 0.2


class ResTTForecaster(BaseEstimator):
    """Forecasts a series from its last ``memory`` values by :class:`ResTTSequence`, trained by gradients.

    The train reads the window step by step and gives the change to the next value, in standard deviations of changes.
    The weights are those of the epoch with the least error on the last fifth of the windows, which are not trained on.

    Parameters
    ----------
    memory : int, default=24
        Steps of the window.
    bond_dim, epochs, lr, penalty, batch_size, random_state
        As those of :class:`ResTTSequenceClassifier`, with other defaults.

    Attributes
    ----------
    module_ : ResTTSequence

    Examples
    --------
    >>> series = np.sin(np.arange(200) / 5)
    >>> model = ResTTForecaster(memory=12, bond_dim=6, epochs=60, random_state=0).fit(series[:150])
    >>> bool(np.abs(model.predict(series[:150], steps=5) - series[150:155]).max() < 0.2)
    True
    """

    def __init__(
        self,
        *,
        memory: int = 24,
        bond_dim: int = 16,
        epochs: int = 200,
        lr: float = 0.003,
        penalty: float = 0.1,
        batch_size: int = 64,
        random_state: Any = None,
    ) -> None:
        self.memory = memory
        self.bond_dim = bond_dim
        self.epochs = epochs
        self.lr = lr
        self.penalty = penalty
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, series: Any, y: None = None) -> Self:
        """Fit to one series (T,) or (T, channels)."""
        values = self._read(series, check_int("memory", self.memory, minimum=1) + 2)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.scaling_ = Scaling.fit([values])
        windows, changes = self._windows(values[:-1]), np.diff(values, axis=0)[self.memory - 1 :] / self.scaling_.change
        x = self.scaling_.features(list(windows))
        held = int(HELD_SHARE * len(x))
        self.module_ = fitted_module(x, torch.from_numpy(changes).float(), values.shape[1], self, seed, held)
        return self

    @torch.no_grad()
    def predict(self, series: Any, steps: int = 1) -> np.ndarray:  # (steps,) or (steps, channels)
        """The values that follow a series (T,) or (T, channels), each step from those before it."""
        check_is_fitted(self)
        values = self._read(series, self.memory)
        for _ in range(check_int("steps", steps, minimum=1)):
            values = np.concatenate([values, self._next(values[None, -self.memory :])])
        found = values[-steps:]
        return found[:, 0] if np.ndim(series) == 1 else found

    @torch.no_grad()
    def predict_ahead(self, series: Any) -> np.ndarray:  # (T - memory,) or (T - memory, channels)
        """One step ahead: each value from the ``memory`` measured ones before it."""
        check_is_fitted(self)
        found = self._next(self._windows(self._read(series, self.memory + 1)[:-1]))
        return found[:, 0] if np.ndim(series) == 1 else found

    def _next(self, windows: np.ndarray) -> np.ndarray:  # (B, memory, channels) -> (B, channels)
        changes = self.module_(self.scaling_.features(list(windows))).double().numpy()
        return np.asarray(windows[:, -1] + changes * self.scaling_.change)

    def _windows(self, values: np.ndarray) -> np.ndarray:  # (T, channels) -> (T - memory + 1, memory, channels)
        return np.lib.stride_tricks.sliding_window_view(values, self.memory, axis=0).swapaxes(1, 2)

    def _read(self, series: Any, least: int) -> np.ndarray:  # (T, channels)
        values = read_sequences([series])[0]
        if len(values) < least:
            raise ValueError(f"series must have at least {least} values for memory={self.memory}, got {len(values)}")
        return values
