"""More than one fit where time does not matter: public estimators, weighed by rows that they have not seen.

Three posteriors: of y from the columns as they are, and of y and of log y from their powers, by scikit-learn's
``PowerTransformer``, which make skewed columns even. Three trainings, with four averaged runs each: sums of functions
of single columns, of log y, and trains of a few hats of powers, of y under a mild penalty and of log y under a stronger
one. ``StackingRegressor`` fits all of them on five folds, and :class:`Average` weighs them by their predictions of the
rows left out. Nothing is chosen by hand for a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import StackingRegressor
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PowerTransformer

from restt import ResTTNetRegressor, ResTTRegressor
from restt.features import Hat
from restt.prior.fitting import stacked as weights_of
from restt_bench.case import Settings
from restt_bench.league.fixtures import Fixture, fixtures, paper_tables
from restt_bench.league.models import OURS, Maker
from restt_bench.league.season import played
from restt_bench.targets import Target

if TYPE_CHECKING:
    from rich.console import Console

STACKED = "restt, stacked"
EPOCHS, RATE, RUNS, BOND, FOLDS = 200, 0.1, 4, 8, 5
# The trains: hats of a column, and the penalties.
MILD = 6, {"chain": 0.01, "linear": 0.01, "head": 0.003}
STRONG = 8, {"chain": 0.01, "linear": 0.03, "head": 0.001}
# Functions of single columns alone.
SUMS = 16, {"linear": 0.1, "head": 0.001}
# Means over the random splits that the stack should reach.
WANTED = {"boston": 0.895, "ale": 0.785}

# Rows as which equal weights count.
USUAL_ROWS = 150.0


class Average(RegressorMixin, BaseEstimator):
    """The weighted mean of the columns: no weight below 0, all of sum 1, drawn a little towards equal ones.

    >>> y = np.random.default_rng(0).standard_normal(200)
    >>> Average().fit(np.column_stack([y, -y]), y).weights_.round(2)
    array([1., 0.])
    """

    weights_: np.ndarray  # (K,)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:  # (B, K), (B,)
        mean, spread = y.mean(), y.std() or 1.0
        members, targets = ((X - mean) / spread)[:, None], ((y - mean) / spread)[:, None]
        self.weights_ = weights_of(members, targets, np.ones(len(y)), np.full(X.shape[1], 1 / X.shape[1]), USUAL_ROWS)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:  # (B, K) -> (B,)
        return np.asarray(X @ self.weights_)


def stacked(seed: int = 0, *, log: bool = True, epochs: int = EPOCHS) -> StackingRegressor:
    """The stack for a table of numbers, unfitted; ``log``: with members of log y, which has to be above 0.

    >>> [name for name, _ in stacked(log=False).estimators]
    ['posterior', 'posterior of powers', 'sums', 'mild trains of powers', 'strong trains of powers']
    """
    posterior = ResTTRegressor(random_state=seed)
    sums = _trained(seed, epochs, *SUMS, topology="linear")
    mild, strong = (_of_powers(_trained(seed, epochs, *kind)) for kind in (MILD, STRONG))
    members = {
        "posterior": posterior,
        "posterior of powers": _of_powers(posterior),
        "sums": _of_log(sums) if log else sums,
        "mild trains of powers": mild,
        "strong trains of powers": _of_log(strong) if log else strong,
    }
    if log:
        members["posterior of powers, log y"] = _of_log(_of_powers(posterior))
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    return StackingRegressor(list(members.items()), Average(), cv=folds)


def _trained(
    seed: int, epochs: int, hats: int, penalty: dict[str, float], topology: str = "residual"
) -> ResTTNetRegressor:
    return ResTTNetRegressor(
        bond_dim=BOND,
        feature_map=Hat(hats),
        topology=topology,
        penalty=penalty,
        epochs=epochs,
        lr=RATE,
        runs=RUNS,
        precision="float32",
        device="cpu",
        random_state=seed,
    )


def _of_powers(member: ResTTRegressor | ResTTNetRegressor) -> Pipeline:
    return make_pipeline(PowerTransformer(), member)


def _of_log(member: ResTTNetRegressor | Pipeline) -> TransformedTargetRegressor:
    return TransformedTargetRegressor(member, func=np.log, inverse_func=np.exp, check_inverse=False)


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
