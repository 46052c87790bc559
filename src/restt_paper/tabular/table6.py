"""Table VI: Boston and ALE, R² and RMSE, on the paper's split and on random ones, all models on the same splits."""

from __future__ import annotations

from restt._common.errors import check_choice
from restt.data.dataset import PAPER_SPLIT_SEED
from restt_baselines import available
from restt_paper.engine.experiment import Experiment
from restt_paper.engine.store import Cell, Store
from restt_paper.engine.table import Table
from restt_paper.tabular.models import (
    GRIDS,
    OTHER_BASELINES,
    PAPER_BASELINES,
    RESTT_ROWS,
    SELECTED,
    compute_table,
    model_cell,
)
from restt_paper.tabular.scores import Scores, claims, scores_table, summary
from restt_paper.tabular.splits import RANDOM_SPLITS

TITLE = "Table VI: Boston Housing and ALE"
DATASETS = {"boston": "Boston", "ale": "ALE"}
BASELINES = {**PAPER_BASELINES, **OTHER_BASELINES}
# Row -> label, in the table's order.
MODELS = {
    **PAPER_BASELINES,
    **RESTT_ROWS,
    **OTHER_BASELINES,
    **{f"{name}{SELECTED}": f"{BASELINES[name]}, selected on inner folds" for name in GRIDS},
}
SPLITS = {"paper": (PAPER_SPLIT_SEED, *RANDOM_SPLITS), "quick": (PAPER_SPLIT_SEED, 0, 1)}
QUICK_MODELS = ("lr", "pr", "svr", "hgb", "restt-estimator")


def cells(profile: str) -> list[Cell]:
    """One per table and model, for the models that can be built here."""
    can = available("regression")
    return [
        model_cell(profile, dataset, model, SPLITS[profile])
        for dataset in DATASETS
        for model in _models(profile)
        if model in RESTT_ROWS or model.removesuffix(SELECTED) in can
    ]


def tables(store: Store, profile: str) -> list[Table]:
    """Both tables beside the paper's numbers; the paper's sentences about them."""
    by_table = {label: _read(store, profile, dataset) for dataset, label in DATASETS.items()}
    tables = [summary(by_table), *(scores_table(label, scores) for label, scores in by_table.items())]
    # Three splits say nothing about which model is better.
    return [*tables, claims(by_table)] if profile == "paper" else tables


def _read(store: Store, profile: str, dataset: str) -> list[Scores]:
    rows = []
    for model in _models(profile):
        found = store.load(model_cell(profile, dataset, model, SPLITS[profile]))
        result = {} if found is None else found["result"]
        rows.append(
            Scores(model, MODELS[model], result.get("splits", []), result.get("r2", []), result.get("rmse", []))
        )
    return rows


def _models(profile: str) -> tuple[str, ...]:
    check_choice("profile", profile, SPLITS)
    return tuple(MODELS) if profile == "paper" else QUICK_MODELS


# On the CPU whatever else there is: small tables, and baselines that know no other.
EXPERIMENT = Experiment("table6", TITLE, cells, compute_table, tables, device="cpu")
