"""The rivals of Table VI: under the paper's settings as far as they are known, and with settings chosen on folds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from restt.baselines import make
from restt.baselines.boosting import SMALL_TABLES
from restt.baselines.table6_settings import PAPER_SETTINGS

# Rows of the paper's table, and what is beyond it.
PAPER_RIVALS = {
    "lr": "LR",
    "pr": "PR",
    "rr": "RR",
    "prr": "PRR",
    "lar": "LaR",
    "plar": "PLaR",
    "svr": "SVR",
    "mlp": "MLP",
}
OTHER_RIVALS = {
    "fm": "factorization machine",
    "gp": "Gaussian process",
    "hgb": "gradient boosting",
    "ebm": "explainable boosting machine",
}
# Settings tried for the rivals that are also shown with chosen ones.
BOTH_TARGETS = (False, True)
GRIDS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "plar": {"alpha": (0.001, 0.003, 0.01, 0.03, 0.1), "log_target": BOTH_TARGETS},
    "svr": {"C": (1, 3, 10, 30, 100), "gamma": (0.02, 0.05, 0.1, 0.2), "log_target": BOTH_TARGETS},
    "gp": {"log_target": BOTH_TARGETS},
    "hgb": {"max_iter": (100, 300), "learning_rate": (0.05, 0.1), "max_leaf_nodes": (4, 8, 16)},
}
FOLDS = 5
# One thread each: the splits of small tables leave nothing to share.
ALONE = {"ebm": {"n_jobs": 1}}
# Rivals that are estimators of other packages, and what restt.baselines sets of theirs.
OTHER_PACKAGES: Mapping[str, Mapping[str, Any]] = {"hgb": SMALL_TABLES, "ebm": {}}
SEEDED = ("mlp", "fm", "gp", "hgb", "ebm")


# Of a rival's parameters, those that do not decide what it predicts, or that each split sets.
NOT_USED = ("device", "random_state", "verbose")


def rival_settings(name: str, dataset: str) -> dict[str, Any]:
    """What fixes the results of :func:`rival`, for its cell: our rivals' parameters, and what we change of others'.

    Other packages' defaults are left out: a version that adds a parameter must not make another cell.

    >>> rival_settings("rr", "boston")
    {'alpha': 10.0, 'log_target': False}
    """
    return _settings(name, PAPER_SETTINGS[dataset].get(name, {}))


def selected_settings(name: str) -> dict[str, Any]:
    """The same of :func:`selected_rival`, without what its grid decides.

    >>> selected_settings("svr")
    {'epsilon': 0.1}
    """
    return {key: value for key, value in _settings(name, {}).items() if key not in GRIDS[name]}


def _settings(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if name in OTHER_PACKAGES:
        return {**OTHER_PACKAGES[name], **given}
    params = make(name, task="regression", **given).get_params()
    return {key: value for key, value in params.items() if key not in NOT_USED}


def rival(name: str, dataset: str, seed: int) -> Any:
    """The rival as the paper has it, where that could be found out; else with its defaults.

    >>> rival("rr", "boston", seed=16).alpha
    10.0
    """
    settings = dict(PAPER_SETTINGS[dataset].get(name, {}))
    if name in SEEDED:
        settings["random_state"] = seed
    return make(name, task="regression", **settings, **ALONE.get(name, {}))


def selected_rival(name: str, seed: int) -> Any:
    """A search over the rival's grid on inner folds of whatever it is fitted to."""
    from sklearn.model_selection import GridSearchCV, KFold

    settings = {"random_state": seed} if name in SEEDED else {}
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    grid = {setting: list(values) for setting, values in GRIDS[name].items()}
    return GridSearchCV(make(name, task="regression", **settings), grid, scoring="r2", cv=folds)
