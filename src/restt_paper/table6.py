"""Table VI: Boston and ALE, R² and RMSE, on the paper's split and on random ones, all models on the same splits."""

from __future__ import annotations

from typing import Any

from restt._common.errors import check_choice
from restt.baselines import available
from restt.data.dataset import PAPER_SPLIT_SEED
from restt_paper.cells import Cell
from restt_paper.store import Store
from restt_paper.tables import Table
from restt_paper.tabular_reading import Scores, claims, scores_table
from restt_paper.tabular_restt import WAYS, default_estimator, paper_recipe, search_cell, searched, way_settings
from restt_paper.tabular_rivals import (
    FOLDS,
    GRIDS,
    OTHER_RIVALS,
    PAPER_RIVALS,
    rival,
    rival_settings,
    selected_rival,
    selected_settings,
)
from restt_paper.tabular_splits import RANDOM_SPLITS, Maker, score_splits

TITLE = "Table VI: Boston Housing and ALE"
DEVICE = "cpu"  # whatever else there is: small tables, and rivals that know no other
DATASETS = {"boston": "Boston", "ale": "ALE"}
SELECTED = "-selected"
_RIVALS = {**PAPER_RIVALS, **OTHER_RIVALS}
# Row -> label, in the table's order.
MODELS = {
    **PAPER_RIVALS,
    **WAYS,
    **OTHER_RIVALS,
    **{f"{name}{SELECTED}": f"{_RIVALS[name]}, selected on inner folds" for name in GRIDS},
}
SPLITS = {"paper": (PAPER_SPLIT_SEED, *RANDOM_SPLITS), "quick": (PAPER_SPLIT_SEED, 0, 1)}
QUICK_MODELS = ("lr", "pr", "svr", "hgb", "restt-estimator")


def cells(profile: str) -> list[Cell]:
    """One per table and model, for the models that can be built here."""
    can = available("regression")
    return [
        _cell(profile, dataset, model)
        for dataset in DATASETS
        for model in _models(profile)
        if model in WAYS or model.removesuffix(SELECTED) in can
    ]


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """R² and RMSE of one model on each split of one table."""
    settings = cell.settings
    return score_splits(settings["dataset"], settings["splits"], _maker(cell, store))


def tables(store: Store, profile: str) -> list[Table]:
    """Both tables beside the paper's numbers; the paper's sentences about them."""
    found = {dataset: _read(store, profile, dataset) for dataset in DATASETS}
    shown = [scores_table(DATASETS[dataset], scores) for dataset, scores in found.items()]
    # Three splits say nothing about which model is better.
    if profile != "paper":
        return shown
    return [*shown, claims({DATASETS[dataset]: scores for dataset, scores in found.items()})]


def _read(store: Store, profile: str, dataset: str) -> list[Scores]:
    rows = []
    for model in _models(profile):
        found = store.load(_cell(profile, dataset, model))
        result = {} if found is None else found["result"]
        rows.append(
            Scores(model, MODELS[model], result.get("splits", []), result.get("r2", []), result.get("rmse", []))
        )
    return rows


def _models(profile: str) -> tuple[str, ...]:
    check_choice("profile", profile, SPLITS)
    return tuple(MODELS) if profile == "paper" else QUICK_MODELS


def _cell(profile: str, dataset: str, model: str) -> Cell:
    settings: dict[str, Any] = {"profile": profile, "dataset": dataset, "model": model, "splits": SPLITS[profile]}
    if model in WAYS:
        settings.update(way_settings(model, dataset, profile, SPLITS[profile]))
    elif model.endswith(SELECTED):
        name = model.removesuffix(SELECTED)
        settings |= {"grid": GRIDS[name], "params": selected_settings(name), "folds": FOLDS}
    else:
        settings["params"] = rival_settings(model, dataset)
    return Cell("table6", f"{dataset}-{model}", settings)


def _maker(cell: Cell, store: Store) -> Maker:
    """From a split's number to the unfitted estimator of the cell."""
    model, dataset, splits = cell.settings["model"], cell.settings["dataset"], cell.settings["splits"]
    if model == "restt-r50":
        return lambda seed: paper_recipe(seed, store.device)
    if model == "restt-estimator":
        return lambda seed: default_estimator(seed)
    if model in WAYS:
        return searched(model, search_cell(dataset, cell.settings["profile"], splits), store)
    if model.endswith(SELECTED):
        return lambda seed: selected_rival(model.removesuffix(SELECTED), seed)
    return lambda seed: rival(model, dataset, seed)
