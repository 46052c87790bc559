"""The best that public names give where time does not matter: many fits, weighed by rows that they have not seen.

The posterior of y and of log y, and trainings under maps and penalties from mild to strong, each of four averaged runs.
scikit-learn's ``StackingRegressor`` fits all of them on five folds and gives each a weight, none below 0, by its
predictions of the rows left out: settings that do not suit a table get none. Nothing is chosen by hand for a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import StackingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold

from restt import ResTTRegressor
from restt.features import Hat, Trigonometric
from restt_bench.case import Settings
from restt_bench.league.fixtures import Fixture, fixtures, paper_tables
from restt_bench.league.models import OURS, Maker
from restt_bench.league.season import played
from restt_bench.targets import Target

if TYPE_CHECKING:
    from rich.console import Console

STACKED = "restt, stacked"
MAPS = {
    "6 hats": Hat(knots=6, placement="uniform"),
    "16 hats": Hat(knots=16, placement="uniform"),
    "trigonometric": Trigonometric(),
}
PENALTIES = {
    "mild": {"chain": 0.01, "linear": 0.01, "head": 0.003},
    "middle": {"chain": 0.1, "linear": 0.1, "head": 0.003},
    "strong": {"chain": 1.0, "linear": 0.1, "head": 0.003},
}
EPOCHS, RUNS, BOND, FOLDS = 200, 4, 8, 5
# Means over the random splits that the stack should reach.
WANTED = {"boston": 0.895, "ale": 0.785}


def stacked(seed: int = 0, *, log: bool = True, epochs: int = EPOCHS) -> StackingRegressor:
    """The stack, unfitted; ``log``: with members of log y, which has to be above 0.

    >>> len(stacked().estimators)
    20
    """
    members = dict(_members(seed, epochs))
    if log:
        members |= {f"{name}, log y": _of_log(member) for name, member in members.items()}
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    return StackingRegressor(list(members.items()), LinearRegression(positive=True), cv=folds)


def _members(seed: int, epochs: int) -> Iterator[tuple[str, ResTTRegressor]]:
    yield "posterior", ResTTRegressor(random_state=seed)
    for (name, feature_map), (word, penalty) in product(MAPS.items(), PENALTIES.items()):
        member = ResTTRegressor(
            solver="gradient",
            bond_dim=BOND,
            feature_map=feature_map,
            penalty=penalty,
            epochs=epochs,
            runs=RUNS,
            precision="float32",
            device="cpu",
            random_state=seed,
        )
        yield f"{name}, {word}", member


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
    """Two members, hardly trained."""
    few = stacked(seed, log=False, epochs=1)
    few.estimators = few.estimators[:2]
    return {OURS: lambda: ResTTRegressor(random_state=seed), STACKED: lambda: few}
