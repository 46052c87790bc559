"""More than one fit where time does not matter: public estimators, weighed by rows that they have not seen.

The posterior and two trainings, of few hats under a mild penalty and of many under a stronger one, each of y and of
log y, the trainings with four averaged runs. scikit-learn's ``StackingRegressor`` fits all of them on five folds, and
:class:`Average` weighs them by their predictions of the rows left out. Nothing is chosen by hand for a table.
"""

from __future__ import annotations

from collections.abc import Iterator
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
# The trainings: hats of a column, and the penalty of chain and linear entries.
TRAININGS = {"few hats": (6, 0.01), "many hats": (16, 0.1)}
EPOCHS, RUNS, BOND, HEAD_PENALTY, FOLDS = 200, 4, 8, 0.003, 5
# Means over the random splits that the stack should reach.
WANTED = {"boston": 0.895, "ale": 0.785}


class Average(RegressorMixin, BaseEstimator):
    """The weighted mean of the columns: no weight below 0, all of sum 1, drawn a little towards equal ones.

    >>> y = np.random.default_rng(0).standard_normal(200)
    >>> Average().fit(np.column_stack([y, -y]), y).weights_.round(2)
    array([0.99, 0.01])
    """

    weights_: np.ndarray  # (K,)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:  # (B, K), (B,)
        mean, spread = y.mean(), y.std() or 1.0
        members, targets = ((X - mean) / spread)[:, None], ((y - mean) / spread)[:, None]
        self.weights_ = weights_of(members, targets, np.ones(len(y)), np.full(X.shape[1], 1 / X.shape[1]))
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:  # (B, K) -> (B,)
        return np.asarray(X @ self.weights_)


def stacked(seed: int = 0, *, log: bool = True, epochs: int = EPOCHS) -> StackingRegressor:
    """The stack, unfitted; ``log``: with members of log y, which has to be above 0.

    >>> [name for name, _ in stacked(log=False).estimators]
    ['posterior', 'few hats', 'many hats']
    """
    members: dict[str, Any] = dict(_members(seed, epochs))
    if log:
        members |= {f"{name}, log y": _of_log(member) for name, member in members.items()}
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    return StackingRegressor(list(members.items()), Average(), cv=folds)


def _members(seed: int, epochs: int) -> Iterator[tuple[str, ResTTRegressor]]:
    yield "posterior", ResTTRegressor(random_state=seed)
    for name, (knots, penalty) in TRAININGS.items():
        member = ResTTRegressor(
            solver="gradient",
            bond_dim=BOND,
            feature_map=Hat(knots=knots, placement="uniform"),
            penalty={"chain": penalty, "linear": penalty, "head": HEAD_PENALTY},
            epochs=epochs,
            runs=RUNS,
            precision="float32",
            device="cpu",
            random_state=seed,
        )
        yield name, member


def _of_log(member: ResTTRegressor) -> TransformedTargetRegressor:
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
