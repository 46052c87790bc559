"""More than one fit where time does not matter: public estimators, weighed by rows that they have not seen.

The posterior of y, of √y and of log y, and three trainings, with four averaged runs each: sums of functions of single
columns and trains of few hats, both of log y, and trains of hats at quantiles of y itself. scikit-learn's
``StackingRegressor`` fits all of them on five folds, and :class:`Average` weighs them by their predictions of the rows
left out. Nothing is chosen by hand for a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import StackingRegressor
from sklearn.model_selection import KFold

from restt import ResTTRegressor
from restt.features import Hat
from restt.prior.mixture import stacked as weights_of
from restt_bench.case import Settings
from restt_bench.league.fixtures import Fixture, fixtures, paper_tables
from restt_bench.league.models import OURS, Maker
from restt_bench.league.season import played
from restt_bench.targets import Target

if TYPE_CHECKING:
    from rich.console import Console

STACKED = "restt, stacked"
EPOCHS, RATE, RUNS, BOND, FOLDS = 200, 0.1, 4, 8, 5
# What the posteriors weigh together before any row is seen: on most tables no training comes near them.
POSTERIORS = 2 / 3
# Means over the random splits that the stack should reach.
WANTED = {"boston": 0.895, "ale": 0.785}


class Average(RegressorMixin, BaseEstimator):
    """The weighted mean of the columns: no weight below 0, all of sum 1, drawn a little towards ``usual`` ones.

    ``usual``: as many weights of sum 1, by default equal ones.

    >>> y = np.random.default_rng(0).standard_normal(200)
    >>> Average().fit(np.column_stack([y, -y]), y).weights_.round(2)
    array([0.99, 0.01])
    """

    weights_: np.ndarray  # (K,)

    def __init__(self, usual: Sequence[float] | None = None) -> None:
        self.usual = usual

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:  # (B, K), (B,)
        mean, spread = y.mean(), y.std() or 1.0
        members, targets = ((X - mean) / spread)[:, None], ((y - mean) / spread)[:, None]
        usual = np.full(X.shape[1], 1 / X.shape[1]) if self.usual is None else np.array(self.usual)
        self.weights_ = weights_of(members, targets, np.ones(len(y)), usual)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:  # (B, K) -> (B,)
        return np.asarray(X @ self.weights_)


def stacked(seed: int = 0, *, log: bool = True, epochs: int = EPOCHS) -> StackingRegressor:
    """The stack, unfitted; ``log``: with members of √y and log y, which has to be above 0, otherwise all are of y.

    >>> [name for name, _ in stacked(log=False).estimators]
    ['posterior', 'sums', 'few hats', 'hats at quantiles']
    """
    posterior = ResTTRegressor(random_state=seed)
    posteriors: dict[str, Any] = {"posterior": posterior}
    trainings: dict[str, Any] = dict(_trainings(seed, epochs))
    if log:
        posteriors |= {"posterior of √y": _of(posterior, np.sqrt, np.square)}
        posteriors |= {"posterior of log y": _of(posterior, np.log, np.exp)}
        trainings |= {name: _of(trainings[name], np.log, np.exp) for name in ("sums", "few hats")}
    usual = [POSTERIORS / len(posteriors)] * len(posteriors) + [(1 - POSTERIORS) / len(trainings)] * len(trainings)
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    return StackingRegressor([*posteriors.items(), *trainings.items()], Average(usual), cv=folds)


def _trainings(seed: int, epochs: int) -> Iterator[tuple[str, ResTTRegressor]]:
    """Functions of single columns, trains that may follow the rows closely, and trains in between."""
    kinds: dict[str, dict[str, Any]] = {
        "sums": {"feature_map": Hat(16), "topology": "linear", "penalty": {"linear": 0.1, "head": 0.001}},
        "few hats": {"feature_map": Hat(8), "penalty": {"chain": 0.003, "linear": 0.01, "head": 0.001}},
        "hats at quantiles": {"penalty": {"chain": 0.01, "linear": 0.03, "head": 0.001}},
    }
    for name, kind in kinds.items():
        member = ResTTRegressor(
            solver="gradient",
            bond_dim=BOND,
            epochs=epochs,
            lr=RATE,
            runs=RUNS,
            precision="float32",
            device="cpu",
            random_state=seed,
            **kind,
        )
        yield name, member


def _of(member: ResTTRegressor, func: np.ufunc, inverse: np.ufunc) -> TransformedTargetRegressor:
    """The member, of a function of y."""
    return TransformedTargetRegressor(member, func=func, inverse_func=inverse, check_inverse=False)


def stacking(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """The stack beside the default on the paper's two tables, ``settings.workers`` fits at a time."""
    tables = list(paper_tables())
    if settings.quick:
        tables = [one for one in fixtures(settings.seed, quick=True) if one.task == "regression"]
    field = _quick_players if settings.quick else _players
    results, differences = played(tables, field, settings, console)
    means = {row["table"]: row["r2"] for row in results if row["model"] == STACKED and "r2" in row}
    targets = [
        Target(f"{table}: r2", "at least", bound, "", round(means[table], 4))
        for table, bound in WANTED.items()
        if table in means
    ]
    return {
        "title": "The default beside a stack of public estimators",
        "results": results,
        "differences": differences,
        "targets": [target.as_dict() for target in targets],
    }


def _players(fixture: Fixture, seed: int) -> dict[str, Maker]:
    return {
        OURS: lambda: ResTTRegressor(random_state=seed),
        STACKED: lambda: stacked(seed, log=bool((fixture.y > 0).all())),
    }


def _quick_players(fixture: Fixture, seed: int) -> dict[str, Maker]:
    """Members that are hardly trained."""
    return {OURS: lambda: ResTTRegressor(random_state=seed), STACKED: lambda: stacked(seed, log=False, epochs=1)}
