"""The training figure: test accuracy by epoch on MNIST, ResTT and MeanTT, and what the paper says about it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from restt_paper.experiments import Cell, Experiment, Store
from restt_paper.images.accuracy import MEANTT_NOTE, MODELS
from restt_paper.images.cells import compute_images, improved_cell, paper_cell, recipe_cell, sizes
from restt_paper.meanfield.plots import COLORS, picture
from restt_paper.table import NO_NUMBER, NOT_YET, Table, fixed, mean_std
from restt_paper.verdict import RULE, Claim, Comparison, claims_table, judged, larger

TITLE = "Training curves on MNIST"
DATASET = "mnist"
BOND_DIMS = {"paper": (20, 100), "quick": (10, 20)}
# "Near its best": within this many points of the curve's largest mean accuracy.
NEAR = 0.5
# The paper's epochs at which ResTT is near its best (Sec. V-B), at the lower and the higher bond dimension.
CLAIMED_EPOCHS = (20, 5)
# The paper calls MeanTT at r = 20 highly unstable on a fraction of the data: seeds that differ by more than this many
# points, or do not train at all.
UNSTABLE_SPREAD, UNTRAINED = 5.0, 50.0
FRACTIONS = {"paper": (1.0, 0.1), "quick": (1.0,)}
AS_IN_THE_PAPER, PAPERS_MEANTT = "meantt-paper", "MeanTT, the paper's angle"


def cells(profile: str) -> list[Cell]:
    """Table IV's cells on the whole of MNIST and two more.

    These are the smallest MeanTT trained as in the paper and the largest ResTT with a rate that falls like MeanTT's.
    """
    compared = [_cell(profile, model, bond_dim) for bond_dim in BOND_DIMS[profile] for model in MODELS]
    falling = [_falling()] if profile == "paper" else []
    return [*compared, *falling, *(_as_in_the_paper(profile, fraction) for fraction in FRACTIONS[profile])]


def tables(store: Store, profile: str) -> list[Table]:
    """Milestones of the curves."""
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
    rows.append((PAPERS_MEANTT, f"{min(BOND_DIMS[profile])}", *_milestones(curves, marks), NO_NUMBER))
    columns = ("model", "r", *(f"epoch {epoch}" for epoch in marks), f"epochs to {NEAR:g} points below the best")
    return [Table("Training curves: test accuracy on MNIST", columns, tuple(rows), (MEANTT_NOTE,))]


def pictures(store: Store, profile: str, folder: Path) -> list[Path]:
    """One panel per bond dimension, one line per model with the range over seeds."""
    panels = {}
    for bond_dim in BOND_DIMS[profile]:
        lines = {label: _curves(store, _cell(profile, model, bond_dim)) for model, label in MODELS.items()}
        if bond_dim == min(BOND_DIMS[profile]):
            lines[PAPERS_MEANTT] = _curves(store, _as_in_the_paper(profile, 1.0))
        panels[f"r = {bond_dim}"] = {label: curves for label, curves in lines.items() if curves is not None}
    if not any(panels.values()):
        return []
    return [_plot(panels, folder / "fig-training.png")]


def claims(store: Store) -> Table:
    """The paper's claims about the curves."""
    checked = []
    for bond_dim, claimed in zip(BOND_DIMS["paper"], CLAIMED_EPOCHS, strict=True):
        text = f"ResTT r = {bond_dim} is near its best in about {claimed} epochs"
        curves = _curves(store, _cell("paper", "restt", bond_dim))
        needed = None if curves is None else _near_best(curves)
        checked.append(Claim(text) if needed is None else Claim(text, f"{needed} epochs", needed <= claimed))
    checked.append(_faster(store))
    checked += [_unstable(store, fraction) for fraction in FRACTIONS["paper"]]
    near = (
        f"Near its best: within {NEAR:g} points of the best epoch on the test images, of the mean curve, or seed by "
        "seed where models are compared."
    )
    return claims_table("Training curves", checked, (near, RULE, MEANTT_NOTE))


def _unstable(store: Store, fraction: float) -> Claim:
    cell = _as_in_the_paper("paper", fraction)
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


def _faster(store: Store) -> Claim:
    """Compared where both rates are constant or both fall: a falling rate comes near its best late."""
    small, large = BOND_DIMS["paper"]
    pairs = (
        (f"r = {small}, constant rates", _cell("paper", "restt", small), _as_in_the_paper("paper", 1.0)),
        (f"r = {large}, falling rates", _falling(), _cell("paper", "meantt", large)),
    )
    return judged("ResTT converges much faster than MeanTT", [_compare(store, *pair) for pair in pairs])


def _compare(store: Store, of: str, first: Cell, second: Cell) -> Comparison:
    ours, theirs = _curves(store, first), _curves(store, second)
    if ours is None or theirs is None:
        return Comparison(of, "not yet")
    reached = theirs[:, -1].mean().item()
    if reached < UNTRAINED:
        return Comparison(of, "not comparable", f"MeanTT only reaches {fixed(reached)} %")
    epochs = [[_near_best(curve.unsqueeze(0)) for curve in curves] for curves in (ours, theirs)]
    means = " against ".join(fixed(statistics.fmean(of_seeds), 1) for of_seeds in epochs)
    return Comparison(of, larger(epochs[1], epochs[0]), f"{means} epochs")


def _as_in_the_paper(profile: str, fraction: float) -> Cell:
    return recipe_cell("fig-training", profile, DATASET, AS_IN_THE_PAPER, min(BOND_DIMS[profile]), fraction)


def _falling() -> Cell:
    """ResTT at the largest r with a rate that falls to zero: a cell of the improved recipes."""
    return improved_cell("paper", DATASET, "annealed", max(BOND_DIMS["paper"]), 1.0, sizes("paper").epochs)


def _cell(profile: str, model: str, bond_dim: int) -> Cell:
    return paper_cell(profile, DATASET, model, bond_dim, 1.0)


def _curves(store: Store, cell: Cell) -> Tensor | None:  # (seeds, epochs) percent
    content = store.load(cell)
    if content is None:
        return None
    curves = [[value or 0.0 for value in curve] for curve in content["result"]["curves"]]
    return torch.tensor(curves, dtype=torch.float64)


def _milestones(curves: Tensor | None, epochs: Sequence[int]) -> list[str]:
    if curves is None:
        return [NOT_YET] * len(epochs)
    return [mean_std(curves[:, epoch - 1].tolist()) for epoch in epochs]


def _near_best(curves: Tensor) -> int:
    """The first epoch after which the mean accuracy is within ``NEAR`` points of its largest."""
    mean = curves.mean(0)
    return int((mean >= mean.max() - NEAR).nonzero()[0]) + 1


def _plot(panels: Mapping[str, Mapping[str, Tensor]], path: Path) -> Path:
    """A panel per title, in it a line per label of curves (seeds, epochs): the mean, and the range over seeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, 1, len(panels)) as axes:
        for axis, (title, lines) in zip(axes[0], panels.items(), strict=True):
            for (label, curves), color in zip(lines.items(), COLORS, strict=False):
                epochs = range(1, curves.shape[1] + 1)
                axis.plot(epochs, curves.mean(0).tolist(), label=label, color=color)
                low, high = curves.min(0).values.tolist(), curves.max(0).values.tolist()
                axis.fill_between(epochs, low, high, color=color, alpha=0.2, linewidth=0)
            axis.set(title=title, xlabel="epoch", ylabel="test accuracy, %")
            if lines:
                axis.legend()
    return path


EXPERIMENT = Experiment("fig-training", TITLE, cells, compute_images, tables, claims, pictures)
