"""The learning rate of a recipe: the best of the paper's three on training images held out, chosen once and stored."""

from __future__ import annotations

from typing import Any

import torch

from restt.train import train
from restt.train.config import PAPER_RATES
from restt_paper.cells import Cell
from restt_paper.image_data import load_images
from restt_paper.image_training import accuracy_curves
from restt_paper.recipes import RECIPES
from restt_paper.store import Store

# One in so many training images is held out.
HELD_OUT = 6
# The judgement: mean accuracy over this many last epochs.
LAST_EPOCHS = 5


def rate_cell(
    dataset: str, recipe: str, bond_dim: int, *, epochs: int, seeds: int, rows: int | None, profile: str
) -> Cell:
    """The choice for one model and data set, by the whole training set whatever fraction is used later."""
    return Cell(
        "rates",
        f"{dataset}-{recipe}-r{bond_dim}",
        {
            "profile": profile,
            "dataset": dataset,
            "recipe": recipe,
            "recipe_settings": RECIPES[recipe].settings(),
            "bond_dim": bond_dim,
            "rates": list(PAPER_RATES),
            "one_held_out_in": HELD_OUT,
            "judged_by_last_epochs": LAST_EPOCHS,
            "epochs": epochs,
            "seeds": seeds,
            "rows": rows,
            "seed": 0,
        },
    )


def choose_rate(cell: Cell, store: Store) -> float:
    """The chosen rate, computed where it is not stored yet."""
    found = store.compute(cell, lambda cell: _compare(cell, store.device))
    return float(found["result"]["lr"])


def _compare(cell: Cell, device: str) -> dict[str, Any]:
    settings = cell.settings
    images = load_images(settings["dataset"], settings["rows"])
    recipe, rates, seeds = RECIPES[settings["recipe"]], settings["rates"], settings["seeds"]
    order = torch.randperm(images.training, generator=torch.Generator().manual_seed(settings["seed"]))
    held, kept = order[: images.training // HELD_OUT], order[images.training // HELD_OUT :]
    runs = len(rates) * seeds
    module = recipe.module(images.x.shape[1], settings["bond_dim"], images.classes, runs, settings["seed"], device)
    config = recipe.config(
        epochs=settings["epochs"], lr=[rate for rate in rates for _ in range(seeds)], seed=settings["seed"]
    )
    records = list(
        train(
            module,
            images.x.to(device),
            images.y.to(device),
            config=config,
            subset=[kept] * runs,
            validation_subset=[held] * runs,
            feature_map=recipe.feature_map(),
        )
    )
    curves = accuracy_curves(records).nan_to_num(0.0)  # (epochs, rates · seeds)
    scores = curves[-LAST_EPOCHS:].mean(0).view(len(rates), seeds)
    best = int(scores.mean(1).argmax())
    return {
        "lr": rates[best],
        "validation_accuracy": {f"{rate:g}": row for rate, row in zip(rates, scores.tolist(), strict=True)},
        "validation_rows": len(held),
    }
