"""Models of earlier versions: their parameters by today's names, and 0.8's scale of y and predictive distribution.

Predictions are those of the version that saved the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_positive, shown
from restt.estimators.encoding import ROWS_AT_ONCE, Encoding, with_rare_unseen
from restt.estimators.saved_prior import SMOOTH, OldKernel, OldPrior
from restt.prior.gp import cholesky
from restt.prior.sites import Site

# Levels at which 0.8 kept standardised leave-one-out residuals, and the most rows that it kept.
LEVELS = np.concatenate([[0.0005, 0.001, 0.0025], np.arange(1, 200) / 200, [0.9975, 0.999, 0.9995]])
KEPT_ROWS = 1000
_MIDDLES = (np.arange(50) + 0.5) / 50  # of fifty parts of a distribution
_ROWS_AT_ONCE = 512
# Posterior variance, in y's, below which 0.8 did not shrink extrapolation.
_SMALL_VARIANCE = 0.1
# bond_dim="auto" of a training.
_TRAINED_BOND = 10
# What closed-form estimators still have of the parameters of then.
_CLOSED = ("bond_dim", "categorical_features", "handle_unknown", "device", "random_state", "verbose", "class_weight")


def current_kind(state: Mapping[str, Any], parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Translate an estimator saved before closed form and training were two classes to today's name and parameters."""
    solved = state.get("solver", "gradient") != "gradient"  # the first version's files are all of trainings
    missing = "average" if parameters["handle_missing"] == "learn" else parameters["handle_missing"]
    if solved:
        kept = {name: value for name, value in parameters.items() if name in _CLOSED}
        return str(state["kind"]), {**kept, "handle_missing": missing}
    kept = {name: value for name, value in parameters.items() if name != "solver"}
    bond = _TRAINED_BOND if kept["bond_dim"] == "auto" else kept["bond_dim"]
    kind = str(state["kind"]).replace("ResTT", "ResTTNet", 1)
    return kind, {**kept, "handle_missing": missing, "bond_dim": bond}


@dataclass(frozen=True, eq=False)
class OldScale:
    """The transform of y in 0.8: identity, root, logarithm or inverse hyperbolic sine, standardised."""

    scale: str
    mean: np.ndarray  # (O,)
    std: np.ndarray  # (O,)
    shift: np.ndarray  # (O,), asinh: subtracted from y, which is
    width: np.ndarray  # (O,), then divided by this
    lift: np.ndarray  # (O,), added to predictions
    smear: float  # what they are multiplied by

    def decode(self, outputs: np.ndarray) -> np.ndarray:  # (…, O)
        """Transform quantiles of the standardised target to quantiles of y."""
        seen, limit = outputs * self.std + self.mean, np.finfo(float).max
        with np.errstate(over="ignore"):
            if self.scale == "log":
                seen = np.exp(seen)
            elif self.scale == "sqrt":
                seen = np.maximum(seen, 0.0) ** 2
            elif self.scale == "asinh":
                seen = np.sinh(seen) * self.width + self.shift
        return np.clip(seen, -limit, limit)

    def predict(self, outputs: np.ndarray) -> np.ndarray:  # (…, O)
        """Return the mean of y where the standardised target has this mean."""
        return self.decode(outputs) * self.smear + self.lift

    def to_config(self) -> dict[str, Any]:
        """Plain values; floats survive the round trip through JSON exactly."""
        arrays = {name: getattr(self, name).tolist() for name in ("mean", "std", "shift", "width", "lift")}
        return {"scale": self.scale, **arrays, "smear": self.smear}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> OldScale:
        """Build the scale that :meth:`to_config` described; ValueError where it is none."""
        arrays = {name: np.array(config[name]) for name in ("mean", "std", "shift", "width")}
        lift = np.array(config["lift"]) if "lift" in config else np.zeros_like(arrays["mean"])  # of models saved before
        if not np.isfinite(config["smear"]) or config["scale"] not in ("identity", "sqrt", "log", "asinh"):
            raise ValueError(f"y cannot be on the scale {shown(config['scale'])} with {shown(config['smear'])}")
        if lift.shape != arrays["mean"].shape or not np.isfinite(lift).all():
            raise ValueError(f"lift of y must have {len(arrays['mean'])} finite entries, got {shown(lift)}")
        return cls(config["scale"], **arrays, lift=lift, smear=config["smear"])


@dataclass(frozen=True, eq=False)
class SavedSpread:
    """The predictive distribution of 0.8, with deviations and intervals like :class:`restt.prior.Predictive`.

    Mean + s(x)·q: s² is the posterior variance and the noise, q has the distribution of leave-one-out residuals
    divided by their own s.
    """

    prior: OldPrior
    encoding: Encoding
    numbers: np.ndarray  # (K, C)
    weights: np.ndarray  # (K,)
    quantiles: np.ndarray  # (len(LEVELS), O)
    extra: float  # variance added for the rounding of the mean
    reach: dict[str, np.ndarray] | None  # of y: low, high, below, above, (O,) each
    config: dict[str, Any]
    held_tensors: dict[str, Tensor]

    @classmethod
    def from_config(cls, config: dict[str, Any], tensors: dict[str, Tensor], encoding: Encoding) -> SavedSpread:
        """Build the distribution that a file describes; ValueError where its parts do not fit each other.

        Sizes are compared with the tensors before anything is made of them, so that a file costs no more than it holds.
        """
        sites = [Site.from_config(site) for site in config["sites"]]
        shapes = [(site.width,) if site.knots is None else (site.width, site.width) for site in sites]
        if any(tuple(tensors[f"measure.{n}"].shape) != shape for n, shape in enumerate(shapes)):
            raise ValueError(f"measures of the columns' states must have the shapes {shown(shapes)}")
        numbers, weights, quantiles = (tensors[name].numpy() for name in ("numbers", "weights", "quantiles"))
        if not 0 < len(numbers) <= KEPT_ROWS or numbers.shape != (len(weights), len(sites)):
            raise ValueError(f"at most {KEPT_ROWS} rows of {len(sites)} columns are kept, got {shown(numbers)}")
        # Models saved before there were others have none of these.
        shape = config.get("power", SMOOTH), config.get("bend", 0.0), config.get("evened", False)
        kernels = tuple(OldKernel(site, tensors[f"measure.{n}"], *shape) for n, site in enumerate(sites))
        prior = OldPrior(kernels, np.array(config["theta"]), tuple(config["names"]))
        reach = _read_reach(config.get("reach"))
        return cls(prior, encoding, numbers, weights, quantiles, config["extra"], reach, config, tensors)

    def to_config(self) -> dict[str, Any]:
        """Return the entries that were read."""
        return self.config

    def tensors(self) -> dict[str, Tensor]:
        """Return the arrays that were read."""
        return self.held_tensors

    def held(self, outputs: np.ndarray, numbers: np.ndarray) -> np.ndarray:  # (B, O), (B, C) -> (B, O)
        """Shrink extrapolation of standardised predictions to the training range where the variance is large."""
        reach = self.reach
        if reach is None:
            return outputs
        rows = np.flatnonzero(((outputs < reach["low"]) | (outputs > reach["high"])).any(axis=1))
        found = outputs.copy()
        size = np.mean([self._quantile(level) ** 2 for level in _MIDDLES], axis=0)  # (O,)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            known = self._deviations(next(self._states(numbers[part]))[1]) ** 2 - self.prior.noise - self.extra
            known = np.maximum(np.maximum(known, 0)[:, None] * size - _SMALL_VARIANCE, 0)
            own = outputs[part]
            down = np.maximum(reach["high"], own - known / reach["above"])
            up = np.minimum(reach["low"], own + known / reach["below"])
            found[part] = np.where(own > reach["high"], down, np.where(own < reach["low"], up, own))
        return found

    def std(self, outputs: np.ndarray, numbers: np.ndarray, model: OldScale) -> np.ndarray:  # (B, O)
        """Root mean square of y about its prediction."""

        def of_part(part: np.ndarray, deviations: np.ndarray) -> np.ndarray:
            middle = model.predict(part)
            away = np.stack([model.decode(part + deviations * self._quantile(level)) - middle for level in _MIDDLES])
            size = np.abs(away).max(axis=0)
            unit = np.where(size > 0, size, 1.0)
            return np.asarray(unit * np.sqrt(np.mean((away / unit) ** 2, axis=0)))

        return self._by_parts(outputs, numbers, of_part)

    def interval(self, outputs: np.ndarray, numbers: np.ndarray, model: OldScale, coverage: float) -> np.ndarray:
        """Bounds of a new y with probability ``coverage``, (B, 2, O)."""
        if not 0 < check_positive("coverage", coverage) < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage}")
        tails = ((1 - coverage) / 2, (1 + coverage) / 2)

        def of_part(part: np.ndarray, deviations: np.ndarray) -> np.ndarray:
            return np.stack([model.decode(part + deviations * self._quantile(tail)) for tail in tails], axis=1)

        return self._by_parts(outputs, numbers, of_part)

    @cached_property
    def _lower(self) -> tuple[list[Tensor], Tensor]:
        """Site vectors of the rows that were kept, and the Cholesky factor of their covariance."""
        sites = [kernel.site for kernel in self.prior.kernels]
        rows = [site.vectors(column) for site, column in zip(sites, self.numbers.T, strict=True)]
        return rows, cholesky(self.prior.covariance(rows, rows), self.prior.noise / torch.from_numpy(self.weights))

    def _by_parts(
        self, outputs: np.ndarray, numbers: np.ndarray, of_part: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        parts = self._states(numbers)
        return np.concatenate([of_part(outputs[part], self._deviations(states)[:, None]) for part, states in parts])

    def _states(self, numbers: np.ndarray) -> Iterator[tuple[slice, list[Tensor]]]:
        """Site vectors of rows by columns, piece by piece."""
        for start in range(0, max(len(numbers), 1), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            parts: list[list[Tensor]] = [[] for _ in self.encoding.columns]
            for vectors in self.encoding.chunks(torch.from_numpy(with_rare_unseen(self.encoding, numbers[part]))):
                for site, index in enumerate(self.encoding.order):
                    parts[index].append(vectors[:, site, : self.encoding.widths[site]].clone())
            yield part, [torch.cat(one) for one in parts]

    @torch.no_grad()
    def _deviations(self, states: Sequence[Tensor]) -> np.ndarray:  # C of (B, I_n) -> (B,)
        """Scale s of an observation of weight 1, in standard deviations of the target."""
        rows, lower = self._lower
        parts = []
        for start in range(0, len(states[0]), _ROWS_AT_ONCE):
            part = [column[start : start + _ROWS_AT_ONCE] for column in states]
            solved = torch.linalg.solve_triangular(lower, self.prior.covariance(rows, part), upper=False)
            known = self.prior.variance(part) - solved.square().sum(dim=0)
            parts.append(known.clamp(min=0) + self.prior.noise + self.extra)
        return torch.cat(parts).sqrt().numpy() if parts else np.zeros(0)

    def _quantile(self, level: float) -> np.ndarray:  # (O,)
        return np.array([np.interp(level, LEVELS, column) for column in self.quantiles.T])


def _read_reach(config: dict[str, Any] | None) -> dict[str, np.ndarray] | None:
    if config is None:
        return None
    reach = {name: np.array(config[name], float) for name in ("low", "high", "below", "above")}
    low, high, below, above = reach.values()
    fits = low.ndim == 1 and len({values.shape for values in reach.values()}) == 1
    if not fits or not (low <= high).all() or not ((below > 0) & (above > 0)).all():
        raise ValueError(f"the reach of y does not fit together: {config}")
    return reach
