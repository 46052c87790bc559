"""Beyond the paper: the recipes that this library recommends for images, each a named configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from restt_paper.cells import Cell
from restt_paper.image_cells import NAMES, compute_recipe, part_of, recipe_cell
from restt_paper.image_reading import averaged, mean_final, shown_accuracy
from restt_paper.recipes import RECIPES
from restt_paper.store import Store
from restt_paper.table4 import PARTS, papers_restt
from restt_paper.tables import NOT_YET, Table
from restt_paper.targets import Target

TITLE = "Improved recipes"
BOND_DIM = {"paper": 100, "quick": 10}
# Recipe, data set, fraction of the training images, epochs. Rates fall to zero or weights are averaged, so the last
# epoch is the result and no run has to be held out.
CASES = (
    ("steady", "mnist", 1.0, 100),
    ("annealed", "mnist", 1.0, 100),
    *(("limited", dataset, fraction, 100) for dataset, parts in PARTS.items() for fraction in parts),
    *(("bent", "fashion-mnist", fraction, 150) for fraction in PARTS["fashion-mnist"]),
    ("augmented", "mnist", 1.0, 120),
    ("detailed", "mnist", 1.0, 60),
    ("few-labels", "mnist", 0.01, 1000),
    ("patches", "fashion-mnist", 1.0, 45),
    ("products", "fashion-mnist", 1.0, 50),
)
QUICK_EPOCHS, QUICK_FRACTION = 4, 0.2


def cells(profile: str) -> list[Cell]:
    """One cell per case; cases that the quick profile makes the same are one."""
    found = [_cell(profile, case) for case in CASES]
    return list({cell.key: cell for cell in found}.values())


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """All seeds of one case."""
    return compute_recipe(cell, store)


def tables(store: Store, profile: str) -> list[Table]:
    """Each case with the mean over seeds and the accuracy of their mean output."""
    rows = []
    for cell in cells(profile):
        missing = NOT_YET if store.load(cell) is None else "–"
        # Seeds with a part of the images each have seen more than that part together.
        whole = cell.settings["fraction"] == 1.0
        together = [averaged(store, cell, of_views=of_views) if whole else None for of_views in (False, True)]
        rows.append(
            (
                cell.settings["recipe"],
                NAMES[cell.settings["dataset"]],
                f"{100 * cell.settings['fraction']:g} %",
                f"{cell.settings['epochs']}",
                shown_accuracy(store, cell, "final"),
                *(missing if value is None else f"{value:.2f}" for value in together),
            )
        )
    seeds = cells(profile)[0].settings["seeds"]
    columns = (
        "recipe",
        "data",
        "fraction",
        "epochs",
        "final epoch, one model",
        f"average of {seeds}",
        f"average of {seeds} and of views",
    )
    notes = tuple(f"{name}: {RECIPES[name].about}" for name in dict.fromkeys(case[0] for case in CASES))
    return [Table("Improved recipes", columns, tuple(rows), notes)]


def _cell(profile: str, case: tuple[str, str, float, int]) -> Cell:
    recipe, dataset, fraction, epochs = case
    if profile == "quick":
        fraction, epochs = max(fraction, QUICK_FRACTION), QUICK_EPOCHS
    return recipe_cell("improved", profile, dataset, recipe, BOND_DIM[profile], fraction, epochs=epochs, held_out=0)


def _of(recipe: str, dataset: str, fraction: float) -> Cell:
    return _cell("paper", next(case for case in CASES if case[:3] == (recipe, dataset, fraction)))


def _target(
    recipe: str,
    dataset: str,
    fraction: float,
    bound: float,
    what: str = "",
    read: Callable[[Store, Cell], float | None] = mean_final,
) -> Target:
    cell = _of(recipe, dataset, fraction)
    paper = papers_restt(dataset, fraction)
    name = part_of(dataset, fraction) + what
    return Target(name, paper, "at least", bound, lambda store: read(store, cell), recipe=recipe)


ONE_MODEL, AVERAGE = ", augmented: one model", ", augmented: average of 10"
TARGETS = (
    *(_target(recipe, "mnist", 1.0, 98.90) for recipe in ("steady", "annealed")),
    *(_target("limited", dataset, part, bound) for dataset, bounds in PARTS.items() for part, bound in bounds.items()),
    *(_target("bent", "fashion-mnist", part, bound) for part, bound in PARTS["fashion-mnist"].items()),
    *(_target(recipe, "mnist", 1.0, 99.45, ONE_MODEL) for recipe in ("augmented", "detailed")),
    *(_target(recipe, "mnist", 1.0, 99.55, AVERAGE, averaged) for recipe in ("augmented", "detailed")),
    _target("patches", "fashion-mnist", 1.0, 91.0, ", 2×2 patches as sites"),
    _target("products", "fashion-mnist", 1.0, 91.7, ONE_MODEL),
    _target("products", "fashion-mnist", 1.0, 91.7, AVERAGE, averaged),
    _target("few-labels", "mnist", 0.01, 94.6, ONE_MODEL),
)
