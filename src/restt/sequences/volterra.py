"""Volterra series of sequences: windows of lags, predictions one step ahead or in a free run."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data

from restt._common.compat_sklearn import Interval, StrOptions, fit_context
from restt.module import ResTT
from restt.sequences.kernels import evaluate, exact_kernels, fit_train, kernels_of_train, train_of_kernels

# Beyond these, "auto" fits core by core: products of lags, and the numbers of their table over all rows.
MOST_PRODUCTS, MOST_NUMBERS = 4_000, 5 * 10**7
# Kernels are arrays; together they may have this many entries.
MOST_ENTRIES = 2**24
# A free run that leaves the outputs of the fit by this factor has diverged.
DIVERGED = 1e6


@dataclass(eq=False, repr=False)
class VolterraRegressor(RegressorMixin, BaseEstimator):
    """A Volterra series: an output sequence from a window of its inputs, and of its own past.

    Parameters
    ----------
    order : int
        Highest order of the kernels.
    memory : int
        How many inputs the window has: now and the ``memory - 1`` before, of every channel.
    feedback : int, default=0
        How many past outputs it has.
    solver : {"auto", "exact", "train", "residual"}
        ``"exact"``: ridge regression over all distinct products of lags. ``"train"``: a tensor train of bond
        ``bond_dim``, core by core (alternating least squares), for windows with too many products or kernels known to
        be of low rank. ``"residual"``: a residual train of that bond, likewise: its skips keep low orders while higher
        ones are added. ``"auto"`` is exact up to 4,000 products, then ``"train"``.
    alpha : "auto" or float
        Ridge penalty as a share of the largest squared singular value of the products; ``"auto"`` has the least exact
        leave-one-out error. For trains a share of the norm of each core's normal equations, 1e-12 for ``"auto"``.
    bond_dim : int, default=8
        Of a train.
    max_sweeps : int, default=50
        Over the cores of a train; it stops before once the error no longer falls.
    random_state : int, RandomState or None
        Of the first cores of a train.

    Attributes
    ----------
    kernels_ : list of ndarray
        Symmetric kernels, index = order: ``kernels_[0]`` is h0, ``kernels_[2]`` has shape (L, L) over the lags.
    intercept_ : float
        h0.
    lags_ : list of str
        What the L places of a kernel's axes are: ``u(t)``, ``u(t-1)`` …, with feedback then ``y(t-1)`` …; with
        several channels ``u0(t)`` ….
    module_ : restt.ResTT
        The same as a plain train of ``order`` sites over [1, scaled window].
    alpha_ : float
    solver_ : str
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from restt import VolterraRegressor
    >>> u = np.random.default_rng(0).normal(size=300)
    >>> y = 1 + u + 0.5 * np.append(0, u[:-1]) * u
    >>> model = VolterraRegressor(order=2, memory=2).fit(u, y)
    >>> bool(np.allclose(model.kernels_[1], [1, 0])), bool(np.allclose(model.kernels_[2], [[0, 0.25], [0.25, 0]]))
    (True, True)
    """

    order: int = 2
    memory: int = 10
    feedback: int = 0
    _: KW_ONLY
    solver: str = "auto"
    alpha: str | float = "auto"
    bond_dim: int = 8
    max_sweeps: int = 50
    random_state: Any = None

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "order": [Interval(Integral, 1, None, closed="left")],
        "memory": [Interval(Integral, 1, None, closed="left")],
        "feedback": [Interval(Integral, 0, None, closed="left")],
        "solver": [StrOptions({"auto", "exact", "residual", "train"})],
        "alpha": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "bond_dim": [Interval(Integral, 1, None, closed="left")],
        "max_sweeps": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        """Fit to one input sequence X, (T,) or (T, channels), and its outputs y (T,), on the complete windows."""
        u = self._read(X, reset=True)
        if y is None:
            raise ValueError("VolterraRegressor requires y to be passed, but the target y is None")
        targets = _outputs(y, u)
        first = max(self.memory - 1, self.feedback)
        if len(u) <= first + 1:
            raise ValueError(
                f"X must have more than {first + 1} samples for memory={self.memory} and feedback={self.feedback}, "
                f"got n_samples = {len(u)}"
            )
        windows = self._windows(u, targets)[first:]
        targets = targets[first:]
        lags = windows.shape[1]
        if (1 + lags) ** self.order > MOST_ENTRIES:
            raise ValueError(
                f"order={self.order} over {lags} lags has kernels of {(1 + lags) ** self.order} entries, at most "
                f"{MOST_ENTRIES} are held: lower order, memory or feedback"
            )
        spread = np.sqrt((windows**2).mean(axis=0))
        # One scale for all: with √L the products of all orders are of one size.
        scale = np.where(spread > 0, spread, 1.0) * math.sqrt(lags)
        scaled = windows / scale
        products = math.comb(lags + self.order, self.order)
        small = products <= MOST_PRODUCTS and products * len(targets) <= MOST_NUMBERS
        self.solver_ = self.solver if self.solver != "auto" else "exact" if small else "train"
        if self.solver_ == "exact":
            kernels, self.alpha_ = exact_kernels(scaled, targets, self.order, self.alpha)
            cores = train_of_kernels(kernels)
        else:
            self.alpha_ = 1e-12 if self.alpha == "auto" else float(self.alpha)
            rng = check_random_state(self.random_state)
            sizes = (self.order, self.bond_dim, self.alpha_, self.max_sweeps)
            cores = fit_train(scaled, targets, *sizes, rng, residual=self.solver_ == "residual")
            kernels = kernels_of_train(cores)
        self.kernels_ = [_unscaled(kernel, scale) for kernel in kernels]
        self.intercept_ = float(self.kernels_[0])
        self.lags_ = self._lag_names(u.shape[1])
        self.module_ = ResTT.from_cores([torch.from_numpy(core) for core in cores], topology="plain")
        self._cores, self._scale = cores, scale
        self._largest = float(np.abs(targets).max())
        return self

    def predict(self, X: Any, y: Any = None) -> np.ndarray:  # (T,)
        """The output sequence of X, from rest: what lies before its first sample is 0.

        With feedback and the measured ``y`` (T,) given, one step ahead: each output from the measured ones before it.
        Without ``y`` a free run: from its own outputs.
        """
        check_is_fitted(self)
        u = self._read(X, reset=False)
        if y is not None:
            return self._evaluate(self._windows(u, _outputs(y, u)))
        if self.feedback == 0:
            return self._evaluate(self._windows(u, np.zeros(len(u))))
        return self._free_run(u)

    def _read(self, X: Any, *, reset: bool) -> np.ndarray:  # (T, channels)
        values = np.asarray(X) if getattr(X, "ndim", None) is None else X
        if values.ndim == 1:
            if not reset and self.n_features_in_ > 1:
                raise ValueError(
                    f"X must have shape (T, {self.n_features_in_}), as many channels as the fit had, got "
                    f"{values.shape}. Reshape your data with X.reshape(1, -1) if it is one moment of all channels."
                )
            values = np.asarray(values)[:, None]
        return np.asarray(validate_data(self, values, reset=reset, dtype=np.float64))

    def _windows(self, u: np.ndarray, y: np.ndarray) -> np.ndarray:  # (T, L)
        delayed = [_delayed(channel, lag) for channel in u.T for lag in range(self.memory)]
        delayed += [_delayed(y, lag) for lag in range(1, self.feedback + 1)]
        return np.stack(delayed, axis=1)

    def _lag_names(self, channels: int) -> list[str]:
        inputs = ["u"] if channels == 1 else [f"u{channel}" for channel in range(channels)]
        names = [f"{name}(t{-lag if lag else ''})" for name in inputs for lag in range(self.memory)]
        return names + [f"y(t-{lag})" for lag in range(1, self.feedback + 1)]

    def _evaluate(self, windows: np.ndarray) -> np.ndarray:  # (T, L) -> (T,)
        return evaluate(self._cores, windows / self._scale)

    def _free_run(self, u: np.ndarray) -> np.ndarray:
        windows = self._windows(u, np.zeros(len(u)))
        inputs = windows.shape[1] - self.feedback
        outputs = np.zeros(len(u) + self.feedback)  # rest first
        for t in range(len(u)):
            windows[t, inputs:] = outputs[t : t + self.feedback][::-1]
            value = float(self._evaluate(windows[t : t + 1])[0])
            if not abs(value) <= DIVERGED * max(self._largest, 1e-300):
                raise FloatingPointError(
                    f"the free run diverged at sample {t}: the fitted feedback is not stable on this input; give y for "
                    "predictions one step ahead, or lower order or feedback"
                )
            outputs[t + self.feedback] = value
        return outputs[self.feedback :]


def _outputs(y: Any, u: np.ndarray) -> np.ndarray:  # (T,)
    targets = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"), warn=True)
    check_consistent_length(u, targets)
    return targets


def _delayed(values: np.ndarray, lag: int) -> np.ndarray:
    return np.concatenate([np.zeros(min(lag, len(values))), values[: max(0, len(values) - lag)]])


def _unscaled(kernel: np.ndarray, scale: np.ndarray) -> np.ndarray:
    for axis in range(kernel.ndim):
        kernel = kernel / scale.reshape([-1 if other == axis else 1 for other in range(kernel.ndim)])
    return kernel
