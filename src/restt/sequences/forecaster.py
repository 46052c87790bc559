"""The next values of a series by an autoregression and residual trains with tied cores on what it leaves."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from sklearn.utils.validation import check_is_fitted

from restt._common.errors import check_int
from restt.sequences.estimators import Scaling, Trained, read_series
from restt.sequences.module import ResTTSequence
from restt.train import EpochRecord, train

# Blocks of windows that choose the epochs and the share of the trains.
FOLDS = 5
# Penalties of the autoregression, of which leave-one-out error chooses.
RIDGES = np.logspace(-3, 4, 15)


@dataclass(kw_only=True, eq=False, repr=False)
class ResTTForecaster(Trained):
    """Forecasts a series from its last ``memory`` values by an autoregression and trains on what it leaves.

    The autoregression is ridge regression of the change to the next value, in closed form. Trains read the same window
    step by step; a part of their state begins as a shift register, which holds the window. They are fitted to the
    residuals outside of each of five blocks of windows, with the number of epochs that is best inside the blocks on
    average. Their mean is multiplied by the share, between 0 and 1, of least squared error inside the blocks: 0 leaves
    the autoregression.

    Parameters
    ----------
    memory : int, default=24
        Steps of the window.
    bond_dim : int, default=16
        Width of the state beside the register, which has ``memory`` times the number of channels.
    epochs, lr, penalty, batch_size, random_state
        As those of :class:`ResTTSequenceClassifier`, with other defaults; ``epochs`` is the largest number.

    Attributes
    ----------
    linear_ : RidgeCV
        The autoregression, of all windows, standardised, to changes in their standard deviations.
    modules_ : list of ResTTSequence
    share_ : float
        Of the trains' mean in the forecast.
    epoch_ : int
        After which the trains were taken.

    Examples
    --------
    >>> series = np.sin(np.arange(200) / 5)
    >>> model = ResTTForecaster(memory=12, bond_dim=6, epochs=20, random_state=0).fit(series[:150])
    >>> bool(np.abs(model.predict(series[:150], steps=5) - series[150:155]).max() < 0.01)
    True
    """

    memory: int = 24
    lr: float = 0.003
    penalty: float = 0.1

    def fit(self, series: Any, y: None = None) -> Self:
        """Fit to one series (T,) or (T, channels)."""
        values = self._read(series, check_int("memory", self.memory, minimum=1) + 4)
        self.scaling_ = Scaling.fit([values])
        windows, changes = self._windows(values[:-1]), np.diff(values, axis=0)[self.memory - 1 :] / self.scaling_.change
        x, lags = self.scaling_.features(list(windows)), self._lags(windows)
        blocks = np.array_split(np.arange(len(windows)), min(FOLDS, len(windows)))
        trainings, residuals, self.modules_ = [], np.zeros_like(changes), []
        seeds = np.random.SeedSequence(self._new_seed()).generate_state(len(blocks)).tolist()
        for block, seed in zip(blocks, seeds, strict=True):
            rows = np.setdiff1d(np.arange(len(windows)), block)
            left = changes - RidgeCV(RIDGES).fit(lags[rows], changes[rows]).predict(lags).reshape(changes.shape)
            residuals[block] = left[block]
            target, module = torch.from_numpy(left).float(), self._module(x, values.shape[1], seed)
            inside, config = (x[block], target[block]), self._config(len(rows), seed)
            trainings.append(train(module, x[rows], target[rows], config=config, validation=inside))
            self.modules_.append(module)
        outputs = self._best_epoch(trainings, [x[block] for block in blocks], residuals)
        squares = float((outputs**2).sum())
        self.share_ = float(np.clip((outputs * residuals).sum() / squares, 0, 1)) if squares > 0 else 0.0
        self.linear_ = RidgeCV(RIDGES).fit(lags, changes)
        return self

    @torch.no_grad()
    def predict(self, series: Any, steps: int = 1) -> np.ndarray:  # (steps,) or (steps, channels)
        """The values that follow a series (T,) or (T, channels), each step from those before it."""
        check_is_fitted(self)
        values = self._read(series, self.memory)
        for _ in range(check_int("steps", steps, minimum=1)):
            values = np.concatenate([values, self._next(values[None, -self.memory :])])
        forecast = values[-steps:]
        return forecast[:, 0] if np.ndim(series) == 1 else forecast

    @torch.no_grad()
    def predict_ahead(self, series: Any) -> np.ndarray:  # (T - memory,) or (T - memory, channels)
        """One step ahead: each value from the ``memory`` measured ones before it."""
        check_is_fitted(self)
        ahead = self._next(self._windows(self._read(series, self.memory + 1)[:-1]))
        return ahead[:, 0] if np.ndim(series) == 1 else ahead

    def _next(self, windows: np.ndarray) -> np.ndarray:  # (B, memory, channels) -> (B, channels)
        changes = self.linear_.predict(self._lags(windows)).reshape(len(windows), -1)
        if self.share_ > 0:
            x = self.scaling_.features(list(windows))
            changes += self.share_ * np.mean([module(x).double().numpy() for module in self.modules_], axis=0)
        return np.asarray(windows[:, -1] + changes * self.scaling_.change)

    def _module(self, x: torch.Tensor, channels: int, seed: int) -> ResTTSequence:
        """A module whose output is 0, with a register: states that begin as the window, its last value first."""
        own, held = self._width, self.memory * channels
        module = ResTTSequence(x.shape[2], own + held, channels, length=self.memory)
        module.reset_parameters(seed)
        with torch.no_grad():
            module.core[:, own:, :own] *= ((own + held) / own) ** 0.5  # as wide as without the register
            for weights in (module.core[:, :, own:], module.entry[:, own:], module.start[own:], module.head):
                weights.zero_()
            # The feature that is 1 moves every value on by a step.
            shift = torch.diag(torch.ones(held - channels), channels) - torch.eye(held)
            module.core[0, own:, own:] = shift
            module.entry[1 : 1 + channels, own : own + channels] = torch.eye(channels)
        return module

    def _best_epoch(
        self,
        trainings: Sequence[Iterator[EpochRecord]],
        held_out: Sequence[torch.Tensor],  # of each training (B, memory, I)
        residuals: np.ndarray,  # (ΣB, channels)
    ) -> np.ndarray:  # (ΣB, channels)
        """Train side by side, take the weights of the epoch of least held-out error, and return their outputs there."""
        self.epoch_, best = 0, float(np.mean(residuals**2))
        kept = [copy.deepcopy(module.state_dict()) for module in self.modules_]
        counts = [len(x) for x in held_out]
        for records in zip(*trainings, strict=True):
            loss = float(np.average([record.validation["loss"][0] for record in records], weights=counts))
            if loss < best:
                self.epoch_, best = records[0].epoch, loss
                kept = [copy.deepcopy(module.state_dict()) for module in self.modules_]
        for module, state in zip(self.modules_, kept, strict=True):
            module.load_state_dict(state)
        with torch.no_grad():
            return np.concatenate([m(x).double().numpy() for m, x in zip(self.modules_, held_out, strict=True)])

    def _lags(self, windows: np.ndarray) -> np.ndarray:  # (B, memory, channels) -> (B, memory · channels)
        if windows.shape[2] != (channels := len(self.scaling_.mean)):
            raise ValueError(f"series must have {channels} channel(s), as in the fit, got {windows.shape[2]}")
        return ((windows - self.scaling_.mean) / self.scaling_.std).reshape(len(windows), -1)

    def _windows(self, values: np.ndarray) -> np.ndarray:  # (T, channels) -> (T - memory + 1, memory, channels)
        return np.lib.stride_tricks.sliding_window_view(values, self.memory, axis=0).swapaxes(1, 2)

    def _read(self, series: Any, least: int) -> np.ndarray:  # (T, channels)
        values = read_series(series, "series")
        if len(values) < least:
            raise ValueError(f"series must have at least {least} values for memory={self.memory}, got {len(values)}")
        return values
