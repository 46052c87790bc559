"""ResTT's rows of Table VI: the paper's recipe, the estimator as it is, and settings chosen on inner folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from restt.estimators import ResTTRegressor
from restt.train.config import PAPER_BATCH, PAPER_EPOCHS, PAPER_RATES, PAPER_WEIGHT_DECAY
from restt_paper import tabular_search
from restt_paper.cells import Cell, changed_since
from restt_paper.store import Store
from restt_paper.tabular_candidates import COMMON, Candidate, candidates
from restt_paper.tabular_search import best_average, best_candidate, cross_validate
from restt_paper.tabular_splits import Maker, load_split, score

PAPER_BOND = 50
# The paper does not say how the columns of its tables become site vectors; these are its two ways elsewhere.
PAPER_MAPS = ("identity", "trigonometric")
# Validation splits by which rate and map of the paper's recipe are chosen, and the share of rows in each.
VALIDATIONS = 3
VALIDATION_SHARE = 0.2
# Initialisations that are averaged, for a single setting and for each in an average of several.
RUNS = 4
RUNS_IN_AVERAGE = 2
AVERAGE_SIZE = 10
# How often the training rows are cut into folds: few rows make a noisy choice.
REPEATS = {"boston": 1, "ale": 3}

# Behind the results whose settings do not name it.
UNNAMED = {"folds": 5}

WAYS = {
    "restt-r50": "ResTT (paper's r = 50)",
    "restt-estimator": "ResTT (restt's estimator, defaults)",
    "restt-selected": "ResTT (setting selected on inner folds)",
    "restt-average": "ResTT (average selected on inner folds)",
}


class PaperRegressor(ResTTRegressor):
    """The estimator with weights that are drawn as the paper draws them, the first and last site's like all others."""

    _init = "paper"


def paper_recipe(seed: int, device: str) -> Any:
    """r = 50, initial weights, Adam, 100 epochs, batches of 512 and weight decay as in Sec. V.

    Rate and map are chosen on held-out rows. Only the bias, which the paper's model has not, is the estimator's: it
    starts at the mean of y.
    """
    from sklearn.model_selection import GridSearchCV, ShuffleSplit

    # Adam's weight decay adds w · decay to the gradient, which is what a penalty of half as much does.
    decay = PAPER_WEIGHT_DECAY / 2
    model = PaperRegressor(
        bond_dim=PAPER_BOND,
        epochs=PAPER_EPOCHS,
        batch_size=PAPER_BATCH,
        schedule="constant",
        penalty={"chain": decay, "linear": decay, "head": decay},
        device=device,
        precision="float32",
        random_state=seed,
    )
    held = ShuffleSplit(VALIDATIONS, test_size=VALIDATION_SHARE, random_state=seed)
    return GridSearchCV(model, {"lr": list(PAPER_RATES), "feature_map": list(PAPER_MAPS)}, scoring="r2", cv=held)


def default_estimator(seed: int) -> Any:
    """The estimator as a user gets it, its choice of device included."""
    return ResTTRegressor(random_state=seed)


def way_settings(way: str, dataset: str, profile: str, splits: Sequence[int]) -> dict[str, Any]:
    """What fixes the results of a row beside its splits, for its cell."""
    if way == "restt-estimator":
        return {"params": ResTTRegressor().get_params()}
    if way == "restt-r50":
        model = paper_recipe(0, "cpu").estimator
        return {
            "params": model.get_params(),
            "init": model._init,
            "rates": PAPER_RATES,
            "maps": PAPER_MAPS,
            "validations": VALIDATIONS,
            "validation_share": VALIDATION_SHARE,
        }
    runs = RUNS if way == "restt-selected" else RUNS_IN_AVERAGE
    return {"runs": runs, "search": search_cell(dataset, profile, splits).key}


def search_cell(dataset: str, profile: str, splits: Sequence[int]) -> Cell:
    """The choice of settings for every split of a table, from its training part alone."""
    settings = {
        "profile": profile,
        "dataset": dataset,
        "splits": list(splits),
        "candidates": [candidate.to_dict() for candidate in candidates()],
        "common": COMMON,
        "repeats": REPEATS[dataset],
        "average_size": AVERAGE_SIZE,
        **changed_since(UNNAMED, folds=tabular_search.FOLDS),
    }
    return Cell("table6", f"{dataset}-search", settings)


def search(cell: Cell, device: str) -> dict[str, Any]:
    """For each split the best candidate and the best average of candidates, with their scores on the inner folds."""
    settings = cell.settings
    grid = [Candidate.from_dict(values) for values in settings["candidates"]]
    chosen = []
    for seed in settings["splits"]:
        split = load_split(settings["dataset"], seed)
        predictions = cross_validate(
            split.x_train, split.y_train, grid, seed=seed, repeats=settings["repeats"], device=device
        )
        counts = best_average(predictions, split.y_train, settings["average_size"])
        mixed = sum(weight * predictions[member] for member, weight in counts.items()) / settings["average_size"]
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


def chosen_estimator(way: str, chosen: Mapping[str, Any], seed: int, device: str) -> Any:
    """What a search chose for a split, to be fitted to its training part."""
    if way == "restt-selected":
        return Candidate.from_dict(chosen["selected"]).estimator(RUNS, seed, device)
    from sklearn.ensemble import VotingRegressor

    members = [
        (f"member{number}", Candidate.from_dict(member["candidate"]).estimator(RUNS_IN_AVERAGE, seed, device))
        for number, member in enumerate(chosen["average"])
    ]
    return VotingRegressor(members, weights=[member["weight"] for member in chosen["average"]])


def searched(way: str, cell: Cell, store: Store) -> Maker:
    """From a split's number to the estimator that the search of ``cell`` chose, searching first where needed."""
    found = store.compute(cell, lambda cell: search(cell, store.device))
    by_split = {entry["split"]: entry for entry in found["result"]["chosen"]}
    return lambda seed: chosen_estimator(way, by_split[seed], seed, store.device)
