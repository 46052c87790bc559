"""Volterra series of sequences: a train whose every site reads the same window of lags.

A series of order P over a window u of lags is a polynomial of degree P in u, and so a tensor over P copies of [1, u]:

    y(t) = h0 + Σ h1(τ) u(t-τ) + Σ h2(τ1, τ2) u(t-τ1) u(t-τ2) + …  =  Σ A(i1 … iP) ũ(i1) … ũ(iP),     ũ = [1, u]

A tensor train of A is the model; its kernels are A's slices. Two ways to fit it: by least squares over all distinct
products of lags (exact, whatever the rank), or core by core at a bond of one's choice, where products are too many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement, permutations
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import BaseEstimator, RegressorMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data

from restt.module import ResTT

# Beyond these, "auto" fits core by core: products of lags, and the numbers of their table over all rows.
MOST_PRODUCTS, MOST_NUMBERS = 4_000, 5 * 10**7
# Kernels are arrays; together they may have this many entries.
MOST_ENTRIES = 2**24
# Penalties tried, as shares of the largest squared singular value; leave-one-out picks.
PENALTIES = np.logspace(-15, 1, 33)
# Below this a core's normal equations could be singular to rounding.
LEAST_PENALTY = 1e-13
# A sweep over the cores that lowers the error by less than this share of it was the last.
LEAST_GAIN = 1e-4
# Singular values of the tensor below this share are rounding.
ROUNDING = 1e-12
# A free run that leaves the outputs of the fit by this factor has diverged.
DIVERGED = 1e6


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
    solver : {"auto", "exact", "train"}
        ``"exact"``: ridge regression over all distinct products of lags. ``"train"``: a tensor train of bond
        ``bond_dim``, core by core (alternating least squares), for windows with too many products or kernels known to
        be of low rank. ``"auto"`` is exact up to 4,000 products.
    alpha : "auto" or float
        Ridge penalty as a share of the largest squared singular value of the products; ``"auto"`` has the least exact
        leave-one-out error. For ``"train"`` a share of the norm of each core's normal equations, 1e-12 for ``"auto"``.
    bond_dim : int, default=8
        Of ``solver="train"``.
    max_sweeps : int, default=50
        Of ``solver="train"``; it stops before once the error no longer falls.
    random_state : int, RandomState or None
        Of the first cores of ``solver="train"``.

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
    >>> from restt.volterra import VolterraRegressor
    >>> u = np.random.default_rng(0).normal(size=300)
    >>> y = 1 + u + 0.5 * np.append(0, u[:-1]) * u
    >>> model = VolterraRegressor(order=2, memory=2).fit(u, y)
    >>> bool(np.allclose(model.kernels_[1], [1, 0])), bool(np.allclose(model.kernels_[2], [[0, 0.25], [0.25, 0]]))
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "order": [Interval(Integral, 1, None, closed="left")],
        "memory": [Interval(Integral, 1, None, closed="left")],
        "feedback": [Interval(Integral, 0, None, closed="left")],
        "solver": [StrOptions({"auto", "exact", "train"})],
        "alpha": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "bond_dim": [Interval(Integral, 1, None, closed="left")],
        "max_sweeps": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        order: int = 2,
        memory: int = 10,
        feedback: int = 0,
        *,
        solver: str = "auto",
        alpha: str | float = "auto",
        bond_dim: int = 8,
        max_sweeps: int = 50,
        random_state: Any = None,
    ) -> None:
        self.order = order
        self.memory = memory
        self.feedback = feedback
        self.solver = solver
        self.alpha = alpha
        self.bond_dim = bond_dim
        self.max_sweeps = max_sweeps
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
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
            cores = fitted_train(scaled, targets, self.order, self.bond_dim, self.alpha_, self.max_sweeps, rng)
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

    def plot_kernel(self, order: int = 1, axes: Any = None) -> Any:
        """Draw a kernel on new axes or those given, which are returned: order 1 as stems, order 2 as a map, higher
        orders as the map of their first two lags with the others now (u(t))."""
        from restt._common.drawing import require_matplotlib

        check_is_fitted(self)
        if not 1 <= order <= self.order:
            raise ValueError(f"order must be in 1…{self.order}, got {order}")
        if axes is None:
            axes = require_matplotlib().subplots(layout="constrained")[1]
        kernel = self.kernels_[order]
        if order == 1:
            axes.stem(range(len(kernel)), kernel)
            axes.set_ylabel("h1")
        else:
            surface = kernel.reshape(*kernel.shape[:2], -1)[..., 0]
            limit = float(np.abs(surface).max()) or 1.0
            image = axes.imshow(surface, cmap="coolwarm", vmin=-limit, vmax=limit)
            axes.set_yticks(range(len(kernel)), self.lags_)
            axes.figure.colorbar(image, ax=axes, label=f"h{order}")
        axes.set_xticks(range(len(kernel)), self.lags_, rotation=90)
        return axes

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
        return evaluated(self._cores, windows / self._scale)

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


def exact_kernels(
    windows: np.ndarray,  # (T, L)
    targets: np.ndarray,  # (T,)
    order: int,
    alpha: str | float,
) -> tuple[list[np.ndarray], float]:
    """Symmetric kernels of ridge regression over the products of up to ``order`` lags, and the penalty.

    A product of multiplicity m (its permutations) is weighed by √(m · binomial(order, degree)): the penalty is then the
    norm that the kernel (1 + u·u')^order has, the same for every permutation. h0 is free of it.
    """
    lags = windows.shape[1]
    multisets = [m for degree in range(1, order + 1) for m in combinations_with_replacement(range(lags), degree)]
    weights = np.sqrt([_permutations(m) * math.comb(order, len(m)) for m in multisets])
    table = np.empty((len(windows), len(multisets)))
    for place, (members, weight) in enumerate(zip(multisets, weights, strict=True)):
        table[:, place] = weight * windows[:, members].prod(axis=1)
    means, level = table.mean(axis=0), targets.mean()
    u, s, v = np.linalg.svd(table - means, full_matrices=False)
    projected = u.T @ (targets - level)
    largest = float(s[0] ** 2) if len(s) and s[0] > 0 else 1.0
    choices = PENALTIES if alpha == "auto" else np.array([float(alpha)])
    errors = [_leave_one_out(u, s, projected, targets - level, share * largest) for share in choices]
    chosen = float(choices[int(np.argmin(errors))])
    coefficients = v.T @ (_shrunk(s, chosen * largest) * projected)
    kernels = [np.array(level - means @ coefficients), *(np.zeros((lags,) * p) for p in range(1, order + 1))]
    for members, weight, coefficient in zip(multisets, weights, coefficients, strict=True):
        share = coefficient * weight / _permutations(members)
        for turned in set(permutations(members)):
            kernels[len(members)][turned] = share
    return kernels, chosen


def _permutations(members: Sequence[int]) -> int:
    count = math.factorial(len(members))
    for member in set(members):
        count //= math.factorial(members.count(member))
    return count


def _shrunk(s: np.ndarray, penalty: float) -> np.ndarray:
    kept = s > max(s.max(initial=0.0), 1e-300) * np.finfo(float).eps * len(s)
    return np.where(kept, s / (np.where(kept, s, 1.0) ** 2 + penalty), 0.0)


def _leave_one_out(u: np.ndarray, s: np.ndarray, projected: np.ndarray, targets: np.ndarray, penalty: float) -> float:
    """Mean squared error of each row predicted from all others, in closed form."""
    shares = s * _shrunk(s, penalty)
    leverage = (u**2) @ shares + 1 / len(targets)
    residual = targets - u @ (shares * projected)
    return float(np.mean((residual / np.maximum(1 - leverage, 1e-12)) ** 2))


def train_of_kernels(kernels: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A tensor train over [1, u] at each of ``order`` sites whose kernels these are: cores (left, 1+L, right)."""
    order = len(kernels) - 1
    lags = kernels[1].shape[0]
    tensor = np.zeros((1 + lags,) * order)
    for degree, kernel in enumerate(kernels):
        for sites in combinations(range(order), degree):
            place = tuple(slice(1, None) if site in sites else 0 for site in range(order))
            tensor[place] = kernel / math.comb(order, degree)
    cores, rest = [], tensor.reshape(1, -1)
    for _ in range(order - 1):
        left = rest.shape[0]
        u, s, v = np.linalg.svd(rest.reshape(left * (1 + lags), -1), full_matrices=False)
        kept = max(1, int((s > ROUNDING * s[0]).sum()))
        cores.append(u[:, :kept].reshape(left, 1 + lags, kept))
        rest = s[:kept, None] * v[:kept]
    return [*cores, rest.reshape(-1, 1 + lags, 1)]


def kernels_of_train(cores: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The symmetric kernels of a train over [1, u], index = order."""
    order, lags = len(cores), cores[0].shape[1] - 1
    tensor = np.ones((1, 1))
    for core in cores:
        tensor = np.einsum("pl,lir->pir", tensor, core).reshape(-1, core.shape[2])
    tensor = tensor.reshape((1 + lags,) * order)
    kernels = []
    for degree in range(order + 1):
        total = np.zeros((lags,) * degree)
        for sites in combinations(range(order), degree):
            total = total + tensor[tuple(slice(1, None) if site in sites else 0 for site in range(order))]
        turned = [np.transpose(total, axes) for axes in permutations(range(degree))]
        kernels.append(np.asarray(sum(turned) / len(turned)))
    return kernels


def evaluated(cores: Sequence[np.ndarray], windows: np.ndarray) -> np.ndarray:  # (T, L) -> (T,)
    """The train at each window."""
    state = np.ones((len(windows), 1))
    for core in cores:
        outer = (state[:, :, None] * windows[:, None, :]).reshape(len(windows), -1)
        state = state @ core[:, 0] + outer @ core[:, 1:].reshape(-1, core.shape[2])
    return state[:, 0]


def fitted_train(
    windows: np.ndarray,  # (T, L)
    targets: np.ndarray,  # (T,)
    order: int,
    bond: int,
    alpha: float,
    sweeps: int,
    rng: np.random.RandomState,
) -> list[np.ndarray]:
    """Alternating least squares: each core in turn solves its own ridge regression, the others orthogonal."""
    features = np.concatenate([np.ones((len(windows), 1)), windows], axis=1)  # (T, 1+L)
    width = features.shape[1]
    bonds = [1, *(min(bond, width ** min(n, order - n)) for n in range(1, order)), 1]
    cores = [rng.standard_normal((bonds[n], width, bonds[n + 1])) for n in range(order)]
    for n in range(order - 1, 0, -1):
        cores[n - 1], cores[n] = _moved_left(cores[n - 1], cores[n])
    error = math.inf
    for _ in range(sweeps):
        for forward in (True, False):
            for n in range(order) if forward else range(order - 1, -1, -1):
                cores[n] = _solved(cores, n, features, targets, alpha)
                if forward and n < order - 1:
                    cores[n], cores[n + 1] = _moved_right(cores[n], cores[n + 1])
                elif not forward and n > 0:
                    cores[n - 1], cores[n] = _moved_left(cores[n - 1], cores[n])
        before, error = error, float(np.mean((evaluated(cores, windows) - targets) ** 2))
        if not error < before * (1 - LEAST_GAIN):
            break
    return cores


def _solved(cores: list[np.ndarray], n: int, features: np.ndarray, targets: np.ndarray, alpha: float) -> np.ndarray:
    left, right = np.ones((len(features), 1)), np.ones((len(features), 1))
    for core in cores[:n]:
        left = np.einsum("ta,ti,aib->tb", left, features, core, optimize=True)
    for core in reversed(cores[n + 1 :]):
        right = np.einsum("tb,ti,aib->ta", right, features, core, optimize=True)
    table = np.einsum("ta,ti,tb->taib", left, features, right).reshape(len(features), -1)
    gram = table.T @ table
    gram[np.diag_indices_from(gram)] += max(alpha, LEAST_PENALTY) * np.linalg.norm(
        gram, np.inf
    )  # at least the largest eigenvalue
    found = cho_solve(cho_factor(gram), table.T @ targets)
    return np.asarray(found).reshape(cores[n].shape)


def _moved_right(core: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left, width, right = core.shape
    q, r = np.linalg.qr(core.reshape(left * width, right))
    return q.reshape(left, width, -1), np.einsum("ab,bic->aic", r, after)


def _moved_left(before: np.ndarray, core: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left, width, right = core.shape
    q, r = np.linalg.qr(core.reshape(left, width * right).T)
    return np.einsum("aib,cb->aic", before, r), q.T.reshape(-1, width, right)
