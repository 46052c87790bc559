"""Cells of the image tables: a recipe for tensor trains, the choice of a rate that it leaves open, or a baseline.

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
from restt_paper.experiments import Cell, Context, Result, Settings
from restt_paper.images.recipes import RECIPES, Recipe
from restt_paper.images.sites import image_views
from restt_paper.images.training import (
    Images,
    accuracy_curves,
    load_images,
    matmul_precision,
    three_accuracies,
    train_seeds,
    training_rows,
)

# Share of a run's own training images that held-out runs use for validation.
VALIDATION_SHARE = 0.1
# Of a rate's trial: one in this many training images is held out, and the last epochs' mean accuracy judges.
HELD_OUT_ONE_IN, JUDGED_EPOCHS = 6, 5
QUICK_BASELINE_EPOCHS = 2
# A baseline's parameters that play no part: pixels are in [0, 1] as they come; runs, seeds and device are the cell's.
NOT_USED = ("scaling", "runs", "device", "random_state", "verbose")


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


def _training_settings(profile: str) -> dict[str, Any]:
    """Settings of every training on images."""
    chosen = sizes(profile)
    return {
        "profile": profile,
        "seeds": chosen.seeds,
        "held_out": chosen.held_out,
        "validation_share": VALIDATION_SHARE,
        "rows": chosen.rows,
        "seed": 0,
    }


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
    lr = RECIPES[recipe].lr
    settings = {
        **_training_settings(profile),
        "dataset": dataset,
        "recipe": recipe,
        "recipe_settings": RECIPES[recipe].settings(),
        "bond_dim": bond_dim,
        "fraction": fraction,
        "subset": subset,
        "epochs": sizes(profile).epochs,
        "rate": lr,
        **changes,
    }
    part = f"f{fraction:g}" if subset == "random" else f"{subset}{fraction:g}"
    needs = {"rate": rate_cell(profile, dataset, recipe, bond_dim)} if lr is None else {}
    return Cell(experiment, f"{dataset}-{recipe}-r{bond_dim}-{part}", settings, needs)


# A cell of Table IV, from profile, data set, recipe, bond dimension, fraction and subset.
paper_cell = partial(recipe_cell, "table4")


def improved_cell(profile: str, dataset: str, recipe: str, bond_dim: int, fraction: float, epochs: int) -> Cell:
    """A cell of the improved recipes.

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


def baseline_cell(
    experiment: str,
    profile: str,
    dataset: str,
    baseline: str,
    fraction: float,
    params: dict[str, Any] | None = None,
    *,
    half: bool = False,
    variant: str | None = None,
    **changes: Any,  # of seeds, held_out, rows; together, where held-out runs may train beside the seeds
) -> Cell:
    """All seeds of one baseline on a part of a data set.

    ``params`` are the estimator's, where not its defaults (the cell holds all of them, so that other defaults are
    another cell); ``half`` gives it the paper's 14×14 images; ``variant`` stands in the name for the fraction.
    """
    from restt_baselines import make

    given = dict(params or {})
    defaults = make(baseline, task="classification").get_params()
    if profile == "quick" and "epochs" in defaults:
        given.setdefault("epochs", QUICK_BASELINE_EPOCHS)
    settings = {
        **_training_settings(profile),
        "dataset": dataset,
        "baseline": baseline,
        "params": {name: value for name, value in {**defaults, **given}.items() if name not in NOT_USED},
        "fraction": fraction,
        "subset": "random",
        "half": half,
        **changes,
    }
    return Cell(experiment, f"{dataset}-{baseline}-{variant or f'f{fraction:g}'}", settings)


def compute_images(settings: Settings, context: Context) -> Result:
    """The accuracies of a recipe's or a baseline's seeds, or the choice of a recipe's rate."""
    if "baseline" in settings:
        return _train_baseline(settings, context)
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
        **_rows_of(settings),
        feature_map=recipe.feature_map(),
        views=None if recipe.views is None else partial(image_views, views=recipe.views),
    )


def _rows_of(settings: Settings) -> dict[str, Any]:
    """Arguments of :func:`train_seeds` that say which images each run sees."""
    names = ("fraction", "seeds", "held_out", "validation_share")
    return {**{name: settings[name] for name in names}, "subset": settings.get("subset", "random")}


def _compare_rates(recipe: Recipe, settings: Settings, context: Context) -> Result:
    images = load_images(settings["dataset"], settings["rows"])
    rates, seeds, seed = settings["rates"], settings["seeds"], settings["seed"]
    order = torch.randperm(images.training, generator=torch.Generator().manual_seed(seed))
    count = images.training // settings["one_held_out_in"]
    held_out, kept = order[:count], order[count:]
    runs = len(rates) * seeds
    children = list(range(runs))
    pixels, bond_dim, device = images.x.shape[1], settings["bond_dim"], context.device
    lr = [rate for rate in rates for _ in range(seeds)]
    records = list(
        train(
            recipe.module(pixels, bond_dim, images.classes, runs, seed, device, children),
            images.x.to(device),
            images.y.to(device),
            config=recipe.config(epochs=settings["epochs"], lr=lr, seed=seed, run_ids=children),
            subset=[kept] * runs,
            validation_subset=[held_out] * runs,
            feature_map=recipe.feature_map(),
        )
    )
    curves = accuracy_curves(records).nan_to_num(0.0)  # (epochs, rates · seeds)
    scores = curves[-settings["judged_by_last_epochs"] :].mean(0).view(len(rates), seeds)
    return {
        "lr": rates[int(scores.mean(1).argmax())],
        "validation_accuracy": {f"{rate:g}": row for rate, row in zip(rates, scores.tolist(), strict=True)},
        "validation_rows": len(held_out),
    }


def _train_baseline(settings: Settings, context: Context) -> Result:
    """Train a baseline on all seeds of a cell.

    Torch modules train all seeds side by side, exactly as ResTT does; those that sweep one by one, with their accuracy
    after each sweep. No epoch is selected for these: they have no held-out runs.
    """
    from restt_baselines import make
    from restt_baselines.network import NetworkClassifier

    images = load_images(settings["dataset"], settings["rows"], half=settings["half"])
    estimator = make(settings["baseline"], task="classification", **settings["params"])
    if not isinstance(estimator, NetworkClassifier):
        return _fit_one_by_one(estimator, images, settings, context)
    columns, seed = images.x.shape[1], settings["seed"]
    rows = len(training_rows(images, settings["fraction"], 0, settings["subset"]))
    return train_seeds(
        lambda runs: estimator.build(columns, images.classes, runs, seed).to(context.device),
        images,
        estimator.training_config(rows, seed),
        **_rows_of(settings),
        feature_map=estimator.feature_map(),
        together=settings.get("together", False),
        prepare=lambda module, train_first: estimator.prepare(module, train_first, rows, seed),
    )


def _fit_one_by_one(estimator: Any, images: Images, settings: Settings, context: Context) -> Result:
    x, y, scored = images.x.numpy(), images.y.numpy(), images.test_rows.numpy()
    curves, seconds = [], 0.0
    for run in range(settings["seeds"]):
        estimator.set_params(device=context.device, random_state=settings["seed"] + run)
        rows = training_rows(images, settings["fraction"], run, settings["subset"]).numpy()
        records = list(estimator.fit_epochs(x[rows], y[rows], validation=(x[scored], y[scored])))
        curves.append(accuracy_curves(records))
        seconds += sum(record.seconds for record in records)
    accuracy = torch.cat(curves, dim=1)  # (sweeps, S)
    return {
        "rows": len(rows),
        **three_accuracies(accuracy, accuracy[:, :0]),
        "curves": [[round(value, 4) for value in curve] for curve in accuracy.T.tolist()],
        "training_seconds": round(seconds, 3),
    }
