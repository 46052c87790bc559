"""Recipes chosen by command: candidates trained on some of the training images and scored on the others.

The list of candidates is fixed before anything is trained, and the test images play no part: the cell of a choice has
the scores of all candidates, and the cell that trains the best of them on all images is computed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from restt_paper.engine.cell import Cell
from restt_paper.engine.experiment import Context, Result, Settings
from restt_paper.images.cells import VALIDATION_SHARE, sizes
from restt_paper.images.data import load_images
from restt_paper.images.recipes import DIGIT_VIEWS, MOVES, RECIPES, Recipe
from restt_paper.images.sites import seen_through
from restt_paper.images.training import matmul_precision, train_seeds

# Where a rate falls to zero the last epochs are alike: their mean is less noisy than the last.
JUDGED_EPOCHS = 3
BOND_DIM = {"paper": 100, "quick": 10}
# Rows of a batch that ten runs, in tiles of 32 rows, bring to the 132 processors of an H200 in one round; 512 rows take
# a second one that leaves most of them idle.
ONE_WAVE = 416


def _changed(
    recipe: str,
    *,
    augment: Mapping[str, Any] | None = None,
    lr: float | None = None,
    angle: float | None = None,
    **training: Any,
) -> Recipe:
    """A recipe with more augmentation, another rate or angle, and its training changed."""
    base = RECIPES[recipe]
    return replace(
        base,
        lr=base.lr if lr is None else lr,
        angle=base.angle if angle is None else angle,
        training={**base.training, **training},
        augment={**(base.augment or {}), **(augment or {})},
        views=None,
    )


@dataclass(frozen=True)
class Choice:
    """What is tried, and how long.

    Parameters
    ----------
    candidates : dict of Recipe
    fraction : float
        Of the training images, each seed with its own part.
    folds : int
        Each seed's images are cut in this many; ``tried`` of them are held out in turn.
    seeds, epochs : int
        Of a trial. With ``by_seed`` every seed of the final training has a trial and a choice of its own, by the labels
        of its own images alone.
    final_epochs : int or None
        Of the training of the best. None where the best is a recipe that is trained anyway, or went on into another
        list.
    views : sequence or None
        Of the final training, see :class:`restt_paper.images.recipes.Recipe`.
    side_by_side : bool
        All candidates are tried in one training, see trials.py, and scored over the views too, beside what is judged.
    """

    dataset: str
    candidates: Mapping[str, Recipe]
    fraction: float
    folds: int
    tried: int
    seeds: int
    epochs: int
    final_epochs: int | None
    by_seed: bool = False
    views: tuple[tuple[float, ...], ...] | None = None
    side_by_side: bool = False


CHOICES = {
    "chosen-digits": Choice(
        "mnist",
        {
            "detailed": _changed("detailed"),
            "bent by 1": _changed("detailed", augment={"elastic": 1.0}),
            "bent by 2": _changed("detailed", augment={"elastic": 2.0}),
            "bent by 1, sites dropped": _changed("detailed", augment={"elastic": 1.0}, dropout=0.05),
            "bent by 1.5, turned and scaled more": _changed(
                "detailed", augment={"elastic": 1.5, "rotation": 12.0, "scale": 0.15}
            ),
            "bent by 1, twice the rate": _changed("detailed", augment={"elastic": 1.0}, lr=1e-3),
        },
        fraction=1.0,
        folds=6,
        tried=1,
        seeds=2,
        epochs=30,
        final_epochs=None,
    ),
    "chosen-clothes": Choice(
        "fashion-mnist",
        {
            "products": _changed("products"),
            "sites dropped": _changed("products", dropout=0.1),
            "more sites dropped": _changed("products", dropout=0.2),
            "bent, sites dropped": _changed("products", augment={"elastic": 0.7}, dropout=0.1),
            "scaled, sites dropped": _changed("products", augment={"scale": 0.1}, dropout=0.1),
            "sites dropped, twice the rate": _changed("products", dropout=0.1, lr=1e-3),
        },
        fraction=1.0,
        folds=6,
        tried=1,
        seeds=2,
        epochs=30,
        final_epochs=None,
    ),
    "blended-digits": Choice(
        "mnist",
        {
            "detailed": _changed("detailed"),
            "blended by 0.2": _changed("detailed", augment={"blend": 0.2}),
            "angle 1, blended by 0.2": _changed("detailed", augment={"blend": 0.2}, angle=1.0),
        },
        fraction=1.0,
        folds=6,
        tried=1,
        seeds=2,
        epochs=20,
        final_epochs=None,
    ),
    "blended-clothes": Choice(
        "fashion-mnist",
        {
            "products": _changed("products"),
            "blended by 0.2": _changed("products", augment={"blend": 0.2}),
            "angle 1, blended by 0.2": _changed("products", augment={"blend": 0.2}, angle=1.0),
        },
        fraction=1.0,
        folds=6,
        tried=1,
        seeds=2,
        epochs=20,
        final_epochs=100,
        views=MOVES,
    ),
    "long-digits": Choice(
        "mnist",
        {
            "detailed": _changed("detailed", batch_size=ONE_WAVE),
            "bent by 1": _changed("detailed", augment={"elastic": 1.0}, batch_size=ONE_WAVE),
            "bent by 1.5": _changed("detailed", augment={"elastic": 1.5}, batch_size=ONE_WAVE),
            "bent by 1, slanted": _changed("detailed", augment={"elastic": 1.0, "shear": 10.0}, batch_size=ONE_WAVE),
        },
        fraction=1.0,
        folds=6,
        tried=1,
        seeds=4,
        epochs=90,
        final_epochs=115,
        views=DIGIT_VIEWS,
        side_by_side=True,
    ),
    "chosen-few-labels": Choice(
        "mnist",
        {
            "shifted by 2": _changed("few-labels", augment={"shift": 2.0}),
            "few-labels": _changed("few-labels"),
            "bent by 2": _changed("few-labels", augment={"elastic": 2.0}),
            "fewer sites dropped": _changed("few-labels", dropout=0.1),
        },
        fraction=0.01,
        folds=4,
        tried=4,
        seeds=10,
        epochs=200,
        final_epochs=1000,
        by_seed=True,
    ),
}
ABOUT = {
    "chosen-digits": "One of six ways to bend, turn and drop, around detailed.",
    "chosen-clothes": "One of six ways to bend, scale and drop, around products.",
    "blended-digits": "detailed, the same with blended images, or with a smaller angle too; the list was written after "
    "that of chosen-digits had been decided.",
    "blended-clothes": "The same around products, after chosen-clothes; products won, and with that known its epochs "
    "were doubled, before any of this list had been scored on the test images.",
    "long-digits": "detailed, or the same bent or slanted too, tried for 90 epochs: the lists before it had tried 20 "
    "and 30, in which a wider variety of images cannot pay. The views, fixed with the list, are the image itself, "
    "moved by a pixel, turned by 5 degrees and scaled by 5 % either way.",
    "chosen-few-labels": "One of four ways to shift, bend and drop, around few-labels: each seed's own choice.",
}
HOW = (
    "Chosen by a committed list of candidates on training images held out of the trials; the list was written after "
    "the recipes it varies had been scored on the test images."
)
# Of the quick profile: enough to see that it runs.
QUICK: dict[str, Any] = {"epochs": 2, "final_epochs": 2, "seeds": 1, "fraction": 0.2, "tried": 1}


def choice_cell(profile: str, name: str) -> Cell:
    """The trials of all candidates of ``CHOICES[name]``."""
    choice = _sized(profile, name)
    settings = {
        "profile": profile,
        "dataset": choice.dataset,
        "candidates": {label: recipe.settings() for label, recipe in choice.candidates.items()},
        "bond_dim": BOND_DIM[profile],
        "fraction": choice.fraction,
        "folds": choice.folds,
        "tried": choice.tried,
        "seeds": choice.seeds,
        "by_seed": choice.by_seed,
        "epochs": choice.epochs,
        "judged_by_last_epochs": JUDGED_EPOCHS,
        "rows": sizes(profile).rows,
        "seed": 0,
        **({"side_by_side": True, "views": choice.views} if choice.side_by_side else {}),
    }
    return Cell("choices", f"{choice.dataset}-{name}-r{BOND_DIM[profile]}-f{choice.fraction:g}", settings)


def chosen_cell(profile: str, name: str) -> Cell:
    """The best of the candidates, trained on all images; named like the cells of other recipes."""
    choice = _sized(profile, name)
    assert choice.final_epochs is not None
    settings = {
        "profile": profile,
        "dataset": choice.dataset,
        "recipe": name,
        "bond_dim": BOND_DIM[profile],
        "fraction": choice.fraction,
        "seeds": choice.seeds if choice.by_seed else sizes(profile).seeds,
        "held_out": 0,
        "validation_share": VALIDATION_SHARE,
        "epochs": choice.final_epochs,
        "rows": sizes(profile).rows,
        "seed": 0,
        **({} if choice.views is None else {"views": choice.views}),
    }
    label = f"{choice.dataset}-{name}-r{BOND_DIM[profile]}-f{choice.fraction:g}"
    return Cell("improved", label, settings, {"choice": choice_cell(profile, name)})


def _sized(profile: str, name: str) -> Choice:
    choice = CHOICES[name]
    if profile == "paper":
        return choice
    changes = {**QUICK, "fraction": max(choice.fraction, QUICK["fraction"])}
    if choice.final_epochs is None:
        del changes["final_epochs"]
    return replace(choice, **changes)


def train_chosen(settings: Settings, context: Context) -> Result:
    """The candidate that was chosen, on all images; of several, each for the seeds that chose it."""
    choice = context.needed["choice"]
    chosen = choice["chosen"]
    recipes = {label: Recipe.from_settings(choice["recipes"][label]) for label in dict.fromkeys(chosen)}
    found = {label: _train_on_all(recipe, settings, context) for label, recipe in recipes.items()}
    if len(chosen) == 1:
        return {"chosen": chosen, **found[chosen[0]]}
    # Seeds with choices of their own: all are trained with every winner, and each is read where it is its own.
    by_seed = {
        name: [found[label][name][seed] for seed, label in enumerate(chosen)]
        for name in ("final", "best_on_test", "curves")
    }
    seconds = sum(result["training_seconds"] for result in found.values())
    return {
        "chosen": chosen,
        **by_seed,
        "rows": next(iter(found.values()))["rows"],
        "selected": None,
        "training_seconds": seconds,
    }


def _train_on_all(recipe: Recipe, settings: Settings, context: Context) -> dict[str, Any]:
    images = load_images(settings["dataset"], settings["rows"])
    pixels, bond_dim, seed = images.x.shape[1], settings["bond_dim"], settings["seed"]
    views = settings.get("views")
    with matmul_precision(recipe.matmul_precision, context.device):
        return train_seeds(
            lambda runs: recipe.module(pixels, bond_dim, images.classes, runs, seed, context.device),
            images,
            recipe.config(epochs=settings["epochs"], lr=recipe.lr, seed=seed),
            fraction=settings["fraction"],
            seeds=settings["seeds"],
            held_out=settings["held_out"],
            validation_share=settings["validation_share"],
            feature_map=recipe.feature_map(),
            views=None if views is None else partial(seen_through, views=views),
        )
