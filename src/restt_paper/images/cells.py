"""Cells of tensor trains on images: a recipe, or the choice of a rate that it leaves open.

Tables II, IV and V, the training curves and the improved recipes share some of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from restt._common.errors import check_choice
from restt.train import train
from restt.train.config import PAPER_RATES
from restt_paper.engine.experiment import Context, Result, Settings
from restt_paper.engine.store import Cell
from restt_paper.images.data import load_images
from restt_paper.images.recipes import RECIPES, Recipe
from restt_paper.images.sites import seen_through
from restt_paper.images.training import accuracy_curves, matmul_precision, train_seeds

# Share of a run's own training images that held-out runs keep for validation.
VALIDATION_SHARE = 0.1
# Of a rate's trial: one in this many training images is held out, and the last epochs' mean accuracy judges.
HELD_OUT_ONE_IN, JUDGED_EPOCHS = 6, 5


@dataclass(frozen=True)
class Sizes:
    """How much a profile trains."""

    bond_dims: tuple[int, ...]
    fractions: tuple[float, ...]
    seeds: int
    held_out: int
    epochs: int
    short_epochs: int  # of a rate's trial, where the recipe's rate falls to zero
    rate_seeds: int
    rows: int | None  # training images; None takes all


SIZES = {
    "paper": Sizes((20, 50, 100), (0.01, 0.05, 0.1, 0.2, 0.5, 1.0), 10, 2, 100, 40, 2, None),
    "quick": Sizes((10, 20), (0.2, 1.0), 2, 1, 10, 5, 1, 4000),
}


def sizes(profile: str) -> Sizes:
    """The sizes of ``profile``."""
    return SIZES[check_choice("profile", profile, SIZES)]


def recipe_cell(
    experiment: str,
    profile: str,
    dataset: str,
    recipe: str,
    bond_dim: int,
    fraction: float = 1.0,
    subset: str = "random",
    **changes: Any,  # of seeds, held_out, epochs, rows
) -> Cell:
    """All seeds of one recipe on a part of a data set."""
    chosen, lr = sizes(profile), RECIPES[recipe].lr
    settings = {
        "profile": profile,
        "dataset": dataset,
        "recipe": recipe,
        "recipe_settings": RECIPES[recipe].settings(),
        "bond_dim": bond_dim,
        "fraction": fraction,
        "subset": subset,
        "seeds": chosen.seeds,
        "held_out": chosen.held_out,
        "validation_share": VALIDATION_SHARE,
        "epochs": chosen.epochs,
        "rows": chosen.rows,
        "rate": lr,
        "seed": 0,
        **changes,
    }
    part = f"f{fraction:g}" if subset == "random" else f"{subset}{fraction:g}"
    needs = {"rate": rate_cell(profile, dataset, recipe, bond_dim)} if lr is None else {}
    return Cell(experiment, f"{dataset}-{recipe}-r{bond_dim}-{part}", settings, needs)


def paper_cell(profile: str, dataset: str, model: str, bond_dim: int, fraction: float, subset: str = "random") -> Cell:
    """A cell of Table IV."""
    return recipe_cell("table4", profile, dataset, model, bond_dim, fraction, subset)


def improved_cell(profile: str, dataset: str, recipe: str, bond_dim: int, fraction: float, epochs: int) -> Cell:
    """Make a cell of the improved recipes.

    Their rates fall to zero or their weights are averaged, so the last epoch is the result and no run is held out.
    """
    return recipe_cell("improved", profile, dataset, recipe, bond_dim, fraction, epochs=epochs, held_out=0)


def rate_cell(profile: str, dataset: str, recipe: str, bond_dim: int) -> Cell:
    """The choice among the paper's rates for a recipe that leaves it open.

    It is made on the whole training set, whatever part is used later. A schedule that falls to zero is whole in fewer
    epochs too. At a constant rate the curves cross late (large rates are ahead early and fluctuate to the end), so
    those trials are as long as the training itself.
    """
    chosen = sizes(profile)
    constant = RECIPES[recipe].training["schedule"] == "constant"
    settings = {
        "profile": profile,
        "dataset": dataset,
        "recipe": recipe,
        "recipe_settings": RECIPES[recipe].settings(),
        "bond_dim": bond_dim,
        "rates": list(PAPER_RATES),
        "one_held_out_in": HELD_OUT_ONE_IN,
        "judged_by_last_epochs": JUDGED_EPOCHS,
        "epochs": chosen.epochs if constant else chosen.short_epochs,
        "seeds": chosen.rate_seeds,
        "rows": chosen.rows,
        "seed": 0,
    }
    return Cell("rates", f"{dataset}-{recipe}-r{bond_dim}", settings)


def compute_recipe(settings: Settings, context: Context) -> Result:
    """The accuracies of a recipe's seeds, or the choice of its rate."""
    if "recipe_settings" in settings:
        recipe = Recipe.from_settings(settings["recipe_settings"])
    else:  # a cell of a list of candidates, which names its recipe
        recipe = RECIPES[settings["recipe"]]
    with matmul_precision(recipe.matmul_precision, context.device):
        compute = _compare_rates if "rates" in settings else _train_recipe
        return compute(recipe, settings, context)


def _train_recipe(recipe: Recipe, settings: Settings, context: Context) -> Result:
    lr = float(context.needed["rate"]["lr"]) if "rate" in context.needed else settings.get("rate", recipe.lr)
    images = load_images(settings["dataset"], settings["rows"])
    pixels, bond_dim, seed = images.x.shape[1], settings["bond_dim"], settings["seed"]
    return train_seeds(
        lambda runs: recipe.module(pixels, bond_dim, images.classes, runs, seed, context.device),
        images,
        recipe.config(epochs=settings["epochs"], lr=lr, seed=seed),
        fraction=settings["fraction"],
        subset=settings.get("subset", "random"),
        seeds=settings["seeds"],
        held_out=settings["held_out"],
        validation_share=settings["validation_share"],
        feature_map=recipe.feature_map(),
        views=None if recipe.views is None else partial(seen_through, views=recipe.views),
    )


def _compare_rates(recipe: Recipe, settings: Settings, context: Context) -> Result:
    images = load_images(settings["dataset"], settings["rows"])
    rates, seeds, seed = settings["rates"], settings["seeds"], settings["seed"]
    order = torch.randperm(images.training, generator=torch.Generator().manual_seed(seed))
    count = images.training // settings["one_held_out_in"]
    held, kept = order[:count], order[count:]
    runs = len(rates) * seeds
    children = list(range(runs))
    pixels, bond_dim = images.x.shape[1], settings["bond_dim"]
    records = list(
        train(
            recipe.module(pixels, bond_dim, images.classes, runs, seed, context.device, children),
            images.x.to(context.device),
            images.y.to(context.device),
            config=recipe.config(
                epochs=settings["epochs"],
                lr=[rate for rate in rates for _ in range(seeds)],
                seed=seed,
                run_ids=children,
            ),
            subset=[kept] * runs,
            validation_subset=[held] * runs,
            feature_map=recipe.feature_map(),
        )
    )
    curves = accuracy_curves(records).nan_to_num(0.0)  # (epochs, rates · seeds)
    scores = curves[-settings["judged_by_last_epochs"] :].mean(0).view(len(rates), seeds)
    best = int(scores.mean(1).argmax())
    return {
        "lr": rates[best],
        "validation_accuracy": {f"{rate:g}": row for rate, row in zip(rates, scores.tolist(), strict=True)},
        "validation_rows": len(held),
    }
