"""Beyond the paper: the recipes that this library recommends for images, each a named configuration."""

from __future__ import annotations

from typing import Any

from restt.reproduce.cells import Cell
from restt.reproduce.image_cells import NAMES, compute_recipe, recipe_cell
from restt.reproduce.image_reading import averaged, mean_final, shown_accuracy
from restt.reproduce.recipes import RECIPES
from restt.reproduce.store import Store
from restt.reproduce.tables import NOT_YET, Table
from restt.reproduce.targets import Target

TITLE = "Improved recipes"
BOND_DIM = {"paper": 100, "quick": 10}
# Recipe, data set, fraction of the training images, epochs. All rates fall to zero, so the last epoch is the result and
# no run has to be held out.
CASES = (
    ("augmented", "mnist", 1.0, 120),
    ("few-labels", "mnist", 0.01, 1000),
    ("patches", "fashion-mnist", 1.0, 80),
)
QUICK_EPOCHS, QUICK_FRACTION = 4, 0.2


def cells(profile: str) -> list[Cell]:
    """One cell per case."""
    return [_cell(profile, number) for number in range(len(CASES))]


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """All seeds of one case."""
    return compute_recipe(cell, store)


def tables(store: Store, profile: str) -> list[Table]:
    """Each case with the mean over seeds and the accuracy of their mean output."""
    rows = []
    for (recipe, dataset, _, _), cell in zip(CASES, cells(profile), strict=True):
        together = averaged(store, cell)
        rows.append(
            (
                recipe,
                NAMES[dataset],
                f"{100 * cell.settings['fraction']:g} %",
                f"{cell.settings['epochs']}",
                shown_accuracy(store, cell, "final"),
                NOT_YET if together is None else f"{together:.2f}",
            )
        )
    seeds = cells(profile)[0].settings["seeds"]
    columns = ("recipe", "data", "fraction", "epochs", "final epoch, one model", f"average of {seeds}")
    notes = tuple(f"{name}: {RECIPES[name].about}" for name in dict.fromkeys(case[0] for case in CASES))
    return [Table("Improved recipes", columns, tuple(rows), notes)]


def _cell(profile: str, number: int) -> Cell:
    recipe, dataset, fraction, epochs = CASES[number]
    if profile == "quick":
        fraction, epochs = max(fraction, QUICK_FRACTION), QUICK_EPOCHS
    return recipe_cell("improved", profile, dataset, recipe, BOND_DIM[profile], fraction, epochs=epochs, held_out=0)


def _of(recipe: str, dataset: str) -> Cell:
    number = next(n for n, case in enumerate(CASES) if case[:2] == (recipe, dataset))
    return _cell("paper", number)


def _target(name: str, paper: str, bound: float, cell: Cell, *, together: bool = False) -> Target:
    read = averaged if together else mean_final
    return Target(name, paper, "at least", bound, lambda store: read(store, cell))


TARGETS = (
    _target("MNIST with augmentation", "98.96 ± 0.03", 99.45, _of("augmented", "mnist")),
    _target("MNIST with augmentation, average of 10", "98.96 ± 0.03", 99.55, _of("augmented", "mnist"), together=True),
    _target("Fashion-MNIST, 2×2 patches as sites", "89.85 ± 0.11", 91.0, _of("patches", "fashion-mnist")),
    _target(
        "Fashion-MNIST, 2×2 patches as sites, average of 10",
        "89.85 ± 0.11",
        91.7,
        _of("patches", "fashion-mnist"),
        together=True,
    ),
    _target("MNIST, 1 % of the data, improved", "89.82", 94.6, _of("few-labels", "mnist")),
)
