"""Trials of the networks that are trained by sweeps, scored on training images held out.

TTN: the widths d and D, which its source has for every class. MPS: what its source's angle π/2 costs, and whether a
larger bond or less of a penalty makes up for it.
"""

from __future__ import annotations

from typing import Any

from restt.features.formulas import PAPER_ANGLE
from restt_paper.engine.cell import Cell
from restt_paper.engine.store import Store
from restt_paper.engine.table import NOT_YET, Table, fixed
from restt_paper.images.cells import HELD_OUT_ONE_IN, baseline_cell

ONE_RUN: dict[str, Any] = {"seeds": 1, "held_out": 0, "one_held_out_in": HELD_OUT_ONE_IN}
TREE_SWEEPS, TRAIN_SWEEPS = 6, 3
# (d, D) of TTN.
WIDTHS = ((2, 4), (4, 4), (3, 6), (2, 8), (3, 8), (4, 8), (3, 10))
MAPS: dict[str, float | None] = {"π/2": PAPER_ANGLE, "0.8": 0.8, "[1, x/4]": None}
SLUGS = {"π/2": "half-pi", "0.8": "0.8", "[1, x/4]": "series"}
# Map, bond and penalty of MPS.
TRAINS = (
    ("π/2", 20, 1e-6),
    ("π/2", 60, 1e-6),
    ("π/2", 120, 1e-6),
    ("π/2", 60, 1e-3),
    ("0.8", 20, 1e-6),
    ("0.8", 60, 1e-6),
    ("[1, x/4]", 20, 1e-6),
    ("[1, x/4]", 60, 1e-6),
    ("[1, x/4]", 60, 1e-3),
)


def cells() -> list[Cell]:
    """One for each trial."""
    return [*_trains().values(), *_trees().values()]


def tables(store: Store) -> list[Table]:
    """Accuracy on the held-out images after every sweep."""
    note = f"MNIST, one seed, one training image in {HELD_OUT_ONE_IN} held out and scored."
    trees = tuple((f"{d}", f"{bond}", *_curve(store, cell)) for (d, bond), cell in _trees().items())
    trains = tuple(
        (name, f"{bond}", f"{penalty:g}", *_curve(store, cell)) for (name, bond, penalty), cell in _trains().items()
    )
    shown = ("first sweep", "last sweep")
    return [
        Table("Table II: trials of TTN", ("d", "D", *shown), trees, (note, f"{TREE_SWEEPS} sweeps.")),
        Table(
            "Table II: trials of MPS by sweeps",
            ("map", "bond", "penalty", *shown),
            trains,
            (note, f"{TRAIN_SWEEPS} sweeps."),
        ),
    ]


def _curve(store: Store, cell: Cell) -> tuple[str, str]:
    found = store.load(cell)
    if found is None:
        return NOT_YET, NOT_YET
    (curve,) = found["result"]["curves"]
    return fixed(curve[0], 2), fixed(curve[-1], 2)


def _trees() -> dict[tuple[int, int], Cell]:
    return {
        (d, bond): _cell(
            "ttn", f"d{d}-D{bond}", {"feature_dim": d, "bond_dim": bond, "sweeps": TREE_SWEEPS}, half=False
        )
        for d, bond in WIDTHS
    }


def _trains() -> dict[tuple[str, int, float], Cell]:
    found = {}
    for name, bond, penalty in TRAINS:
        params = {"angle": MAPS[name], "bond_dim": bond, "penalty": penalty, "sweeps": TRAIN_SWEEPS}
        found[name, bond, penalty] = _cell("mps-dmrg", f"{SLUGS[name]}-r{bond}-p{penalty:g}", params, half=True)
    return found


def _cell(baseline: str, name: str, params: dict[str, Any], *, half: bool) -> Cell:
    return baseline_cell(
        "table2", "paper", "mnist", baseline, 1.0, params, half=half, variant=f"trial-{name}", **ONE_RUN
    )
