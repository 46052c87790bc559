"""The rows of Table VI: the settings of each model, and from settings the estimator of each split.

ResTT comes by the paper's recipe and as the estimator is; the baselines under the paper's settings as far as they are
known, and with settings chosen on inner folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from restt.estimators import ResTTNetRegressor, ResTTRegressor
from restt.train.config import PAPER_BATCH, PAPER_EPOCHS, PAPER_RATES, PAPER_WEIGHT_DECAY
from restt_baselines import make
from restt_baselines.boosting import SMALL_TABLES
from restt_baselines.table6_settings import PAPER_SETTINGS
from restt_paper.engine.experiment import Context, Result, Settings
from restt_paper.engine.store import Cell
from restt_paper.tabular.splits import EstimatorOf, score_splits

# Rows of the paper's table, and what is beyond it.
PAPER_BASELINES = {
    "lr": "LR",
    "pr": "PR",
    "rr": "RR",
    "prr": "PRR",
    "lar": "LaR",
    "plar": "PLaR",
    "svr": "SVR",
    "mlp": "MLP",
}
OTHER_BASELINES = {
    "fm": "factorization machine",
    "gp": "Gaussian process",
    "hgb": "gradient boosting",
    "ebm": "explainable boosting machine",
}
RESTT_ROWS = {
    "restt-r50": "ResTT (paper's r = 50)",
    "restt-estimator": "ResTT (restt's estimator, defaults)",
}

# Settings tried for the baselines that are also shown with chosen ones.
BOTH_TARGETS = (False, True)
GRIDS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "plar": {"alpha": (0.001, 0.003, 0.01, 0.03, 0.1), "log_target": BOTH_TARGETS},
    "svr": {"C": (1, 3, 10, 30, 100), "gamma": (0.02, 0.05, 0.1, 0.2), "log_target": BOTH_TARGETS},
    "gp": {"log_target": BOTH_TARGETS},
    "hgb": {"max_iter": (100, 300), "learning_rate": (0.05, 0.1), "max_leaf_nodes": (4, 8, 16)},
}
SELECTED = "-selected"
FOLDS = 5
# Estimators of other packages, and what is set of theirs. Their defaults are left out of the settings: a version that
# adds a parameter must not make another cell. One thread: the splits of small tables leave nothing to share.
OTHER_PACKAGES: Mapping[str, Mapping[str, Any]] = {"hgb": SMALL_TABLES, "ebm": {"n_jobs": 1}}
# Parameters that do not decide what a model predicts, or that each split sets.
NOT_USED = ("device", "random_state", "verbose")

# The paper's recipe. Adam's weight decay adds w · decay to the gradient, which is what a penalty of half as much does.
DECAY = PAPER_WEIGHT_DECAY / 2
PAPER_PARAMS: Mapping[str, Any] = {
    "bond_dim": 50,
    "epochs": PAPER_EPOCHS,
    "batch_size": PAPER_BATCH,
    "schedule": "constant",
    "penalty": {"chain": DECAY, "linear": DECAY, "head": DECAY},
    "topology": "residual",
    "site_order": "auto",
    "sigma2": "auto",
    "loss": "auto",
    "dropout": 0.0,
    "runs": 1,
    "early_stopping": False,
    "precision": "float32",
}
# The paper does not say how the columns of its tables become site vectors; these are its two ways elsewhere.
PAPER_MAPS = ("identity", "trigonometric")
# Validation splits by which rate and map of the paper's recipe are chosen, and the share of rows in each.
VALIDATIONS = 3
VALIDATION_SHARE = 0.2


class PaperRegressor(ResTTNetRegressor):
    """The estimator with weights that are drawn as the paper draws them, the first and last site's like all others."""

    _init = "paper"


def model_cell(profile: str, dataset: str, model: str, splits: Sequence[int]) -> Cell:
    """One model on all splits of a table."""
    settings: dict[str, Any] = {"profile": profile, "dataset": dataset, "model": model, "splits": list(splits)}
    if model == "restt-estimator":
        settings["params"] = {key: value for key, value in ResTTRegressor().get_params().items() if key not in NOT_USED}
    elif model == "restt-r50":
        settings |= {
            "params": PAPER_PARAMS,
            "rates": PAPER_RATES,
            "maps": PAPER_MAPS,
            "validations": VALIDATIONS,
            "validation_share": VALIDATION_SHARE,
        }
    elif model.endswith(SELECTED):
        name = model.removesuffix(SELECTED)
        fixed = {key: value for key, value in _baseline_params(name, {}).items() if key not in GRIDS[name]}
        settings |= {"grid": GRIDS[name], "params": fixed, "folds": FOLDS}
    else:
        settings["params"] = _baseline_params(model, PAPER_SETTINGS[dataset].get(model, {}))
    return Cell("table6", f"{dataset}-{model}", settings)


def compute_table(settings: Settings, context: Context) -> Result:
    """R² and RMSE of one model on each split of one table."""
    return score_splits(settings["dataset"], settings["splits"], estimator_of(settings, context))


def estimator_of(settings: Settings, context: Context) -> EstimatorOf:
    """From a split's number to the unfitted estimator of a :func:`model_cell`."""
    model = settings["model"]
    if model == "restt-estimator":
        return lambda split: ResTTRegressor(**settings["params"], random_state=split)
    if model == "restt-r50":
        return lambda split: paper_recipe(settings, split, context.device)
    if model.endswith(SELECTED):
        return lambda split: _selected_baseline(settings, split)
    return lambda split: _seeded(model, settings["params"], split)


def paper_recipe(settings: Settings, split: int, device: str) -> Any:
    """Initial weights, bond dimension, Adam, epochs, batch size and weight decay as in Sec. V.

    Rate and map are chosen on held-out rows. Only the bias, which the paper's model has not, is the estimator's: it
    starts at the mean of y.
    """
    from sklearn.model_selection import GridSearchCV, ShuffleSplit

    model = PaperRegressor(**settings["params"], device=device, random_state=split)
    held = ShuffleSplit(settings["validations"], test_size=settings["validation_share"], random_state=split)
    grid = {"lr": settings["rates"], "feature_map": settings["maps"]}
    return GridSearchCV(model, grid, scoring="r2", cv=held)


def _selected_baseline(settings: Settings, split: int) -> Any:
    """A search over the baseline's grid on inner folds of whatever it is fitted to."""
    from sklearn.model_selection import GridSearchCV, KFold

    model = _seeded(settings["model"].removesuffix(SELECTED), settings["params"], split)
    folds = KFold(settings["folds"], shuffle=True, random_state=split)
    return GridSearchCV(model, dict(settings["grid"]), scoring="r2", cv=folds)


def _seeded(name: str, params: Mapping[str, Any], split: int) -> Any:
    model = make(name, task="regression", **params)
    return model.set_params(random_state=split) if "random_state" in model.get_params() else model


def _baseline_params(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a baseline from a cell's settings.

    >>> _baseline_params("rr", {"alpha": 10.0})
    {'alpha': 10.0, 'log_target': False}
    """
    if name in OTHER_PACKAGES:
        return {**OTHER_PACKAGES[name], **given}
    params = make(name, task="regression", **given).get_params()
    return {key: value for key, value in params.items() if key not in NOT_USED}
