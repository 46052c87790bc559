"""The cells of the image tables. Tables II, IV and V and the training figure look at the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from restt._common.errors import check_choice
from restt_paper.cells import Cell
from restt_paper.image_data import VALIDATION_SHARE, load_images
from restt_paper.image_training import train_seeds
from restt_paper.image_views import mirrored_and_moved
from restt_paper.rates import choose_rate, rate_cell
from restt_paper.recipes import RECIPES
from restt_paper.store import Store

# As the paper and its numbers name the sets.
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
MODELS = {"meantt": "MeanTT", "restt": "ResTT"}


def part_of(dataset: str, fraction: float) -> str:
    """
    >>> part_of("mnist", 0.05), part_of("fashion-mnist", 1.0)
    ('5 % of MNIST', 'Fashion-MNIST')
    """
    return NAMES[dataset] if fraction == 1.0 else f"{100 * fraction:g} % of {NAMES[dataset]}"


@dataclass(frozen=True)
class Sizes:
    """How much is trained."""

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
    **changes: Any,  # of seeds, held_out, epochs
) -> Cell:
    """All seeds of one recipe on a fraction of a data set."""
    chosen = sizes(profile)
    return Cell(
        experiment,
        f"{dataset}-{recipe}-r{bond_dim}-f{fraction:g}",
        {
            "profile": profile,
            "dataset": dataset,
            "recipe": recipe,
            "recipe_settings": RECIPES[recipe].settings(),
            "bond_dim": bond_dim,
            "fraction": fraction,
            "seeds": chosen.seeds,
            "held_out": chosen.held_out,
            "validation_share": VALIDATION_SHARE,
            "epochs": chosen.epochs,
            "rows": chosen.rows,
            "rate": _rate(profile, dataset, recipe, bond_dim),
            "seed": 0,
            **changes,
        },
    )


def paper_cell(profile: str, dataset: str, model: str, bond_dim: int, fraction: float) -> Cell:
    """A cell of Table IV."""
    return recipe_cell("table4", profile, dataset, model, bond_dim, fraction)


def compute_recipe(cell: Cell, store: Store) -> dict[str, Any]:
    """Train the seeds of a :func:`recipe_cell`."""
    settings = cell.settings
    recipe = RECIPES[settings["recipe"]]
    lr = recipe.lr
    if lr is None:
        chosen_by = recipe_rate_cell(settings["profile"], settings["dataset"], settings["recipe"], settings["bond_dim"])
        lr = choose_rate(chosen_by, store)
    images = load_images(settings["dataset"], settings["rows"])
    pixels, bond_dim, seed = images.x.shape[1], settings["bond_dim"], settings["seed"]
    return train_seeds(
        lambda runs: recipe.module(pixels, bond_dim, images.classes, runs, seed, store.device),
        images,
        recipe.config(epochs=settings["epochs"], lr=lr, seed=seed),
        fraction=settings["fraction"],
        seeds=settings["seeds"],
        held_out=settings["held_out"],
        feature_map=recipe.feature_map(),
        views=mirrored_and_moved if recipe.views else None,
    )


def recipe_rate_cell(profile: str, dataset: str, recipe: str, bond_dim: int) -> Cell:
    """The cell that chooses the rate of a recipe that leaves it open.

    A schedule that falls to zero is whole in fewer epochs too. At a constant rate the curves cross late (large rates
    are ahead early and fluctuate to the end), so those trials are as long as the training itself.
    """
    chosen = sizes(profile)
    constant = RECIPES[recipe].config().schedule == "constant"
    return rate_cell(
        dataset,
        recipe,
        bond_dim,
        epochs=chosen.epochs if constant else chosen.short_epochs,
        seeds=chosen.rate_seeds,
        rows=chosen.rows,
        profile=profile,
    )


def _rate(profile: str, dataset: str, recipe: str, bond_dim: int) -> float | str:
    """The rate, or the key of the cell that chooses it: a rate chosen otherwise is another result."""
    lr = RECIPES[recipe].lr
    return recipe_rate_cell(profile, dataset, recipe, bond_dim).key if lr is None else lr
