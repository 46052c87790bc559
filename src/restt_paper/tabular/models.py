"""The rows of Table VI: the settings of each model, and from settings the estimator of each split.

ResTT comes by the paper's recipe, as the estimator is, and with what inner folds choose; the baselines under the
paper's settings as far as they are known, and with settings chosen on inner folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from restt.baselines import make
from restt.baselines.boosting import SMALL_TABLES
from restt.baselines.table6_settings import PAPER_SETTINGS
from restt.estimators import ResTTNetRegressor, ResTTRegressor
from restt.train.config import PAPER_BATCH, PAPER_EPOCHS, PAPER_RATES, PAPER_WEIGHT_DECAY
from restt_paper.engine.cell import Cell
from restt_paper.engine.experiment import Context, Result, Settings
from restt_paper.tabular.search import COMMON, Candidate, best_average, best_candidate, candidates, cross_validate
from restt_paper.tabular.splits import EstimatorOf, load_split, score, score_splits

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
    "restt-selected": "ResTT (setting selected on inner folds)",
    "restt-average": "ResTT (average selected on inner folds)",
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
# Initialisations that are averaged, for a single setting and for each in an average of several.
RUNS = {"restt-selected": 4, "restt-average": 2}
AVERAGE_SIZE = 10
# How often the training rows are cut into folds: few rows make a noisy choice.
REPEATS = {"boston": 1, "ale": 3}


class PaperRegressor(ResTTNetRegressor):
    """The estimator with weights that are drawn as the paper draws them, the first and last site's like all others."""

    _init = "paper"


def model_cell(profile: str, dataset: str, model: str, splits: Sequence[int]) -> Cell:
    """One model on all splits of a table."""
    settings: dict[str, Any] = {"profile": profile, "dataset": dataset, "model": model, "splits": list(splits)}
    needs = {}
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
    elif model in RUNS:
        settings |= {"common": COMMON, "runs": RUNS[model]}
        needs["search"] = search_cell(profile, dataset, splits)
    elif model.endswith(SELECTED):
        name = model.removesuffix(SELECTED)
        fixed = {key: value for key, value in _baseline_params(name, {}).items() if key not in GRIDS[name]}
        settings |= {"grid": GRIDS[name], "params": fixed, "folds": FOLDS}
    else:
        settings["params"] = _baseline_params(model, PAPER_SETTINGS[dataset].get(model, {}))
    return Cell("table6", f"{dataset}-{model}", settings, needs)


def search_cell(profile: str, dataset: str, splits: Sequence[int]) -> Cell:
    """The choice among candidates for every split of a table, from its training part alone."""
    settings = {
        "profile": profile,
        "dataset": dataset,
        "splits": list(splits),
        "candidates": [candidate.to_dict() for candidate in candidates()],
        "common": COMMON,
        "folds": FOLDS,
        "repeats": REPEATS[dataset],
        "average_size": AVERAGE_SIZE,
    }
    return Cell("table6", f"{dataset}-search", settings)


def compute_table(settings: Settings, context: Context) -> Result:
    """R² and RMSE of one model on each split of one table, or the choice among candidates for each split."""
    if "candidates" in settings:
        return search(settings, context)
    return score_splits(settings["dataset"], settings["splits"], estimator_of(settings, context))


def estimator_of(settings: Settings, context: Context) -> EstimatorOf:
    """From a split's number to the unfitted estimator of a :func:`model_cell`."""
    model = settings["model"]
    if model == "restt-estimator":
        return lambda split: ResTTRegressor(**settings["params"], random_state=split)
    if model == "restt-r50":
        return lambda split: paper_recipe(settings, split, context.device)
    if model in RUNS:
        chosen = {entry["split"]: entry for entry in context.needed["search"]["chosen"]}
        return lambda split: chosen_estimator(settings, chosen[split], split, context.device)
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


def search(settings: Settings, context: Context) -> Result:
    """For each split the best candidate and the best average of candidates, with their scores on the inner folds."""
    grid = [Candidate.from_dict(values) for values in settings["candidates"]]
    size = settings["average_size"]
    chosen = []
    for seed in settings["splits"]:
        split = load_split(settings["dataset"], seed)
        predictions = cross_validate(
            split.x_train,
            split.y_train,
            grid,
            common=settings["common"],
            folds=settings["folds"],
            seed=seed,
            repeats=settings["repeats"],
            device=context.device,
        )
        counts = best_average(predictions, split.y_train, size)
        mixed = sum(weight * predictions[member] for member, weight in counts.items()) / size
        best = best_candidate(predictions, split.y_train)
        chosen.append(
            {
                "split": seed,
                "selected": best.to_dict(),
                "selected_r2": score(split.y_train, predictions[best])[0],
                "average": [{"candidate": member.to_dict(), "weight": weight} for member, weight in counts.items()],
                "average_r2": score(split.y_train, mixed)[0],
            }
        )
    return {"chosen": chosen}


def chosen_estimator(settings: Settings, chosen: Mapping[str, Any], split: int, device: str) -> Any:
    """What a search chose for a split, to be fitted to its training part."""

    def estimator(candidate: Mapping[str, Any]) -> Any:
        return Candidate.from_dict(candidate).estimator(settings["common"], settings["runs"], split, device)

    if settings["model"] == "restt-selected":
        return estimator(chosen["selected"])
    from sklearn.ensemble import VotingRegressor

    members = [(f"member{number}", estimator(member["candidate"])) for number, member in enumerate(chosen["average"])]
    return VotingRegressor(members, weights=[member["weight"] for member in chosen["average"]])


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
    """
    >>> _baseline_params("rr", {"alpha": 10.0})
    {'alpha': 10.0, 'log_target': False}
    """
    if name in OTHER_PACKAGES:
        return {**OTHER_PACKAGES[name], **given}
    params = make(name, task="regression", **given).get_params()
    return {key: value for key, value in params.items() if key not in NOT_USED}
