"""The training figure: test accuracy by epoch on MNIST, ResTT and MeanTT, and what the paper says about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from restt_paper.cells import Cell
from restt_paper.claims import RULE, Claim, claims_table
from restt_paper.image_cells import MODELS, compute_recipe, paper_cell, recipe_cell, sizes
from restt_paper.store import Store
from restt_paper.table4 import RECIPE_NOTE
from restt_paper.tables import NOT_YET, Table, mean_std

TITLE = "Training curves on MNIST"
DATASET = "mnist"
BOND_DIMS = {"paper": (20, 100), "quick": (10, 20)}
# "Near its best": within so many points of the curve's largest mean accuracy.
NEAR = 0.5
# The paper's epochs at which ResTT is near its best (Sec. V-B), at the lower and the higher bond dimension.
CLAIMED_EPOCHS = (20, 5)
# The paper calls MeanTT at r = 20 highly unstable on a fraction of the data: seeds that differ by more than this many
# points, or do not train at all.
UNSTABLE_SPREAD, UNTRAINED = 5.0, 50.0
FRACTIONS = {"paper": (1.0, 0.1), "quick": (1.0,)}
AS_IN_THE_PAPER, PAPERS_MEANTT = "meantt-paper", "MeanTT, the paper's angle"


def cells(profile: str) -> list[Cell]:
    """Table IV's cells on the whole of MNIST, and the smallest MeanTT trained as in the paper."""
    compared = [_cell(profile, model, bond_dim) for bond_dim in BOND_DIMS[profile] for model in MODELS]
    return compared + [_as_in_the_paper(profile, fraction) for fraction in FRACTIONS[profile]]


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
            needed = NOT_YET if curves is None else f"{_near_best(curves)}"
            rows.append((label, f"{bond_dim}", *_milestones(curves, marks), needed))
    curves = _curves(store, _as_in_the_paper(profile, 1.0))
    # A run that never trains is near its best at once.
    rows.append((PAPERS_MEANTT, f"{min(BOND_DIMS[profile])}", *_milestones(curves, marks), "–"))
    columns = ("model", "r", *(f"epoch {epoch}" for epoch in marks), f"epochs to {NEAR:g} points below the best")
    milestones = Table("Training curves: test accuracy on MNIST", columns, tuple(rows), (RECIPE_NOTE,))
    # Small sets and a few epochs say nothing about the paper's claims.
    return [milestones, _claims(store, profile)] if profile == "paper" else [milestones]


def pictures(store: Store, profile: str, folder: Path) -> list[Path]:
    """One panel per bond dimension, one line per model with the range over seeds."""
    from restt_paper.training_plot import plot_training

    panels = {}
    for bond_dim in BOND_DIMS[profile]:
        found = {label: _curves(store, _cell(profile, model, bond_dim)) for model, label in MODELS.items()}
        if bond_dim == min(BOND_DIMS[profile]):
            found[PAPERS_MEANTT] = _curves(store, _as_in_the_paper(profile, 1.0))
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
    claims.append(_faster(store, profile))
    claims += [_unstable(store, profile, fraction) for fraction in FRACTIONS[profile]]
    near = f"Near its best: within {NEAR:g} points of the best epoch of the mean curve on the test images."
    return claims_table("Training curves: the paper's claims", claims, (near, RECIPE_NOTE, RULE))


def _unstable(store: Store, profile: str, fraction: float) -> Claim:
    cell = _as_in_the_paper(profile, fraction)
    text = (
        f"MeanTT r = {cell.settings['bond_dim']} is unstable on {100 * fraction:g} % of the data, trained as in the "
        f"paper: its seeds' standard deviation is above {UNSTABLE_SPREAD:g} points, or their mean below {UNTRAINED:g} %"
    )
    curves = _curves(store, cell)
    if curves is None:
        return Claim(text)
    final = curves[:, -1]
    spread, untrained = bool(final.std() > UNSTABLE_SPREAD), bool(final.mean() < UNTRAINED)
    why = " and ".join(word for word, so in (("the seeds differ", spread), ("it does not train", untrained)) if so)
    return Claim(text, f"{mean_std(final.tolist())} after the last epoch{why and ': ' + why}", spread or untrained)


def _faster(store: Store, profile: str) -> Claim:
    text = "ResTT converges much faster than MeanTT"
    pairs = []
    for bond_dim in BOND_DIMS[profile]:
        restt, meantt = (_curves(store, _cell(profile, model, bond_dim)) for model in ("restt", "meantt"))
        if restt is None or meantt is None:
            return Claim(text)
        pairs.append((bond_dim, _near_best(restt), _near_best(meantt)))
    told = "; ".join(f"r = {r}: {ours} epochs against {theirs}" for r, ours, theirs in pairs)
    return Claim(text, told, all(ours < theirs for _, ours, theirs in pairs))


def _as_in_the_paper(profile: str, fraction: float) -> Cell:
    return recipe_cell("fig-training", profile, DATASET, AS_IN_THE_PAPER, min(BOND_DIMS[profile]), fraction)


def _cell(profile: str, model: str, bond_dim: int) -> Cell:
    return paper_cell(profile, DATASET, model, bond_dim, 1.0)


def _curves(store: Store, cell: Cell) -> Tensor | None:  # (seeds, epochs) percent
    found = store.load(cell)
    if found is None:
        return None
    curves = [[value or 0.0 for value in curve] for curve in found["result"]["curves"]]
    return torch.tensor(curves, dtype=torch.float64)


def _milestones(curves: Tensor | None, epochs: Sequence[int]) -> list[str]:
    if curves is None:
        return [NOT_YET] * len(epochs)
    return [mean_std(curves[:, epoch - 1].tolist()) for epoch in epochs]


def _near_best(curves: Tensor) -> int:
    """The first epoch after which the mean accuracy is within ``NEAR`` points of its largest."""
    mean = curves.mean(0)
    return int((mean >= mean.max() - NEAR).nonzero()[0]) + 1
