"""The estimators' parameters: names, defaults and what they accept; :class:`ResTTRegressor` describes them."""

from __future__ import annotations

from functools import cache, lru_cache
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from restt import features
from restt._common.compat_sklearn import Interval, StrOptions
from restt._common.ranks import read_group
from restt.estimators.progress import CallbackSupport
from restt.estimators.settings import PRECISIONS
from restt.features import FeatureMap
from restt.topology import PRESETS, Topology
from restt.train import Penalty
from restt.train.config import SCHEDULES

# bond_dim="auto" of the gradient solver.
TRAINED_BOND = 10
# Kinds of parameters that need no copy, and what else scikit-learn carries over to a clone.
PLAIN = (str, int, float, bool, type(None))
CLONED_TOO = {"_metadata_request", "_sklearn_output_config", "_skl_callbacks"}


class Parameters(CallbackSupport, BaseEstimator):
    """Stores what it is given; ``_parameter_constraints`` is checked when a fit begins."""

    # How the module draws its weights; a subclass may know better.
    _init: ClassVar[str] = "balanced"
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "bond_dim": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "feature_map": [StrOptions({"auto", *features.available()}), FeatureMap],
        "topology": [StrOptions(set(PRESETS)), Topology],
        "site_order": [StrOptions({"auto", "given"}), "array-like"],
        "sigma2": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "loss": [],
        "epochs": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "schedule": [StrOptions(set(SCHEDULES))],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "penalty": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left"), dict, Penalty, None],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "runs": [Interval(Integral, 1, None, closed="left")],
        "early_stopping": ["boolean", Interval(Integral, 1, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "categorical_features": ["array-like", None],
        "handle_unknown": [StrOptions({"error", "other"})],
        "handle_missing": [StrOptions({"learn", "error"})],
        "warm_start": ["boolean"],
        "device": [str, torch.device, list, tuple],
        "precision": [StrOptions({"auto", *PRECISIONS})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "checkpoint_dir": [str, PathLike, None],
    }

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        """Read off the signature once: a search asks for them hundreds of times."""
        names: list[str] = super()._get_param_names()
        return names

    def __init__(
        self,
        bond_dim: str | int = "auto",
        feature_map: str | FeatureMap = "auto",
        topology: str | Topology = "residual",
        site_order: Any = "auto",
        sigma2: str | float = "auto",
        loss: str = "auto",
        epochs: str | int = "auto",
        lr: float = 0.05,
        schedule: str = "cosine",
        batch_size: str | int = "auto",
        penalty: Any = "auto",
        dropout: float = 0.0,
        runs: int = 1,
        early_stopping: bool | int = False,
        validation_fraction: float = 0.1,
        categorical_features: Any = None,
        handle_unknown: str = "other",
        handle_missing: str = "learn",
        warm_start: bool = False,
        device: Any = "auto",
        precision: str = "auto",
        random_state: Any = None,
        verbose: int | bool = 0,
        checkpoint_dir: str | PathLike[str] | None = None,
    ) -> None:
        self.bond_dim = bond_dim
        self.feature_map = feature_map
        self.topology = topology
        self.site_order = site_order
        self.sigma2 = sigma2
        self.loss = loss
        self.epochs = epochs
        self.lr = lr
        self.schedule = schedule
        self.batch_size = batch_size
        self.penalty = penalty
        self.dropout = dropout
        self.runs = runs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.handle_missing = handle_missing
        self.warm_start = warm_start
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint_dir = checkpoint_dir

    @property
    def _shown(self) -> int:
        """``verbose`` in the first of the processes that train together, 0 in the others."""
        return int(self.verbose) if read_group("auto").first else 0

    def _new_seed(self) -> int:
        """The next number of ``random_state``, the same in all processes that train together."""
        state = self.random_state
        drawn = _first_number(int(state)) if isinstance(state, Integral) else _next_number(check_random_state(state))
        return read_group("auto").same(drawn)

    @property
    def _trained_bond(self) -> int:
        """r of a module that is trained by gradients."""
        return TRAINED_BOND if isinstance(self.bond_dim, str) else int(self.bond_dim)

    @property
    def _is_clone(self) -> bool:
        return bool(self.__dict__.get("_cloned", False))

    def __sklearn_clone__(self) -> Self:
        made: Self = self._plainly_cloned() or super().__sklearn_clone__()
        made._cloned = True
        return made

    def _plainly_cloned(self) -> Self | None:
        """What scikit-learn makes, in a quarter of the time, as searches clone by the hundred; None where it is asked.

        It is where a parameter is not a plain value, or not what the constructor was given, which is an error there.
        """
        parameters = self.get_params(deep=False)
        if CLONED_TOO & vars(self).keys() or not all(type(value) in PLAIN for value in parameters.values()):
            return None
        made = type(self)(**parameters)
        return made if all(vars(made).get(name) is value for name, value in parameters.items()) else None


def _next_number(state: np.random.RandomState) -> int:
    return int(state.randint(2**31 - 1))


@lru_cache(maxsize=1024)
def _first_number(seed: int) -> int:
    """Of a fresh state, which takes longer to make than to ask."""
    return _next_number(check_random_state(seed))
