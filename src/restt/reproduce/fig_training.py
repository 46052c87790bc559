"""The training figure: test accuracy by epoch on MNIST, ResTT and MeanTT, and what the paper says about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from restt.reproduce.cells import Cell
from restt.reproduce.claims import Claim, claims_table
from restt.reproduce.image_cells import MODELS, compute_recipe, paper_cell, sizes
from restt.reproduce.store import Store
from restt.reproduce.table4 import RECIPE_NOTE
from restt.reproduce.tables import NOT_YET, Table, mean_std

TITLE = "Training curves on MNIST"
BOND_DIMS = {"paper": (20, 100), "quick": (10, 20)}
# "Near its best": within so many points of the curve's largest mean accuracy.
NEAR = 0.5
# The paper's epochs at which ResTT is near its best (Sec. V-B), at the lower and the higher bond dimension.
CLAIMED_EPOCHS = (20, 5)
# The paper calls MeanTT at r = 20 highly unstable: seeds that differ by more than this many points.
UNSTABLE_SPREAD = 5.0


def cells(profile: str) -> list[Cell]:
    """Table IV's cells on the whole of MNIST."""
    return [_cell(profile, model, bond_dim) for bond_dim in BOND_DIMS[profile] for model in MODELS]


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """All seeds of one cell."""
    return compute_recipe(cell, store)


def tables(store: Store, profile: str) -> list[Table]:
    """Milestones of the curves, and the paper's claims against them."""
    epochs = sizes(profile).epochs
    marks = [epoch for epoch in (1, 2, 5, 10, 20, 50, 100) if epoch <= epochs]
    rows = []
    for bond_dim in BOND_DIMS[profile]:
        for model, label in MODELS.items():
            curves = _curves(store, _cell(profile, model, bond_dim))
            shown = [NOT_YET] * (len(marks) + 1)
            if curves is not None:
                shown = [mean_std(curves[:, epoch - 1].tolist()) for epoch in marks] + [f"{_near_best(curves)}"]
            rows.append((label, f"{bond_dim}", *shown))
    columns = ("model", "r", *(f"epoch {epoch}" for epoch in marks), f"epochs to {NEAR:g} points below the best")
    milestones = Table("Training curves: test accuracy on MNIST", columns, tuple(rows))
    # Small sets and a few epochs say nothing about the paper's claims.
    return [milestones, _claims(store, profile)] if profile == "paper" else [milestones]


def pictures(store: Store, profile: str, folder: Path) -> list[Path]:
    """One panel per bond dimension, one line per model with the range over seeds."""
    from restt.reproduce.training_plot import plot_training

    panels = {}
    for bond_dim in BOND_DIMS[profile]:
        found = {label: _curves(store, _cell(profile, model, bond_dim)) for model, label in MODELS.items()}
        panels[f"r = {bond_dim}"] = {label: curves for label, curves in found.items() if curves is not None}
    if not any(panels.values()):
        return []
    return [plot_training(panels, folder / "fig-training.png")]


def _claims(store: Store, profile: str) -> Table:
    claims = []
    for bond_dim, claimed in zip(BOND_DIMS[profile], CLAIMED_EPOCHS, strict=True):
        curves = _curves(store, _cell(profile, "restt", bond_dim))
        needed = None if curves is None else _near_best(curves)
        claims.append(
            Claim(
                f"ResTT r = {bond_dim} is near its best in about {claimed} epochs",
                NOT_YET if needed is None else f"{needed} epochs",
                None if needed is None else needed <= claimed,
            )
        )
    low = min(BOND_DIMS[profile])
    curves = _curves(store, _cell(profile, "meantt", low))
    spread = float(curves[:, -1].std()) if curves is not None and len(curves) > 1 else 0.0
    claims.append(
        Claim(
            f"MeanTT r = {low} is unstable: its seeds' standard deviation is above {UNSTABLE_SPREAD:g} points",
            NOT_YET if curves is None else f"{mean_std(curves[:, -1].tolist())} after the last epoch",
            None if curves is None else spread > UNSTABLE_SPREAD,
        )
    )
    return claims_table("Training curves: the paper's claims", claims, (RECIPE_NOTE,))


def _cell(profile: str, model: str, bond_dim: int) -> Cell:
    return paper_cell(profile, "mnist", model, bond_dim, 1.0)


def _curves(store: Store, cell: Cell) -> Tensor | None:  # (seeds, epochs) percent
    found = store.load(cell)
    if found is None:
        return None
    return torch.tensor([[value or 0.0 for value in curve] for curve in found["result"]["curves"]])


def _near_best(curves: Tensor) -> int:
    """The first epoch after which the mean accuracy is within ``NEAR`` points of its largest."""
    mean = curves.mean(0)
    return int((mean >= mean.max() - NEAR).nonzero()[0]) + 1
