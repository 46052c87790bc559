"""Verdicts, milestones and minutes from results made by hand."""

from __future__ import annotations

import json

import pytest
import torch

import restt_paper
from restt_paper import report
from restt_paper.experiments import Store
from restt_paper.images import table4
from restt_paper.images.accuracy import ACCURACIES
from restt_paper.images.cells import improved_cell, paper_cell, rate_cell, recipe_cell
from restt_paper.images.training_curves import NEAR, _near_best

RATE_CELLS = 12  # two sets, two models, three bond dimensions


@pytest.mark.parametrize(
    ("means", "epoch"),
    [([90.0, 90.0, 90.0], 1), ([50.0, 90.0, 90.2], 2), ([50.0, 60.0, 90.0], 3), ([50.0, 90.0, 90.0 + NEAR], 2)],
)
def test_epochs_to_near_the_best_are_counted_from_one(means, epoch):
    of_seeds = torch.tensor([means, means], dtype=torch.float64) + torch.tensor([[-1.0], [1.0]])
    assert _near_best(of_seeds) == epoch


def curve(start, rise, epochs=100):
    """Accuracy that falls short of 98 % by ``start`` and by a hundredth of it after ``rise`` epochs."""
    return [98.0 - start * 0.01 ** (epoch / rise) for epoch in range(epochs)]


@pytest.mark.parametrize(
    ("theirs", "expected"), [((60.0, 60.0), "holds"), ((60.0, 12.0), "does not hold"), (None, "open")]
)
def test_convergence_is_compared_where_the_rates_go_alike(theirs, expected, tmp_path):
    store = Store(tmp_path)
    ours = [curve(20.0, 10.0 + k) for k in range(3)]
    theirs_small = [[12.0] * 100] * 3 if theirs is None else [curve(20.0, theirs[0] + k) for k in range(3)]
    theirs_large = [curve(20.0, (theirs or (60.0, 60.0))[1] + 9 * k) for k in range(-1, 2)]
    made = {
        paper_cell("paper", "mnist", "restt", 20, 1.0): ours,
        recipe_cell("fig-training", "paper", "mnist", "meantt-paper", 20): theirs_small,
        improved_cell("paper", "mnist", "annealed", 100, 1.0, 100): ours,
        paper_cell("paper", "mnist", "meantt", 100, 1.0): theirs_large,
        paper_cell("paper", "mnist", "restt", 100, 1.0): ours,
    }
    for cell, curves in made.items():
        store.compute(cell, lambda _, curves=curves: {"curves": curves})
    claims = restt_paper.experiment("fig-training").claims(store)
    (found,) = [row for row in claims.rows if row[0] == "ResTT converges much faster than MeanTT"]
    assert found[-1] == expected


class Ledger:
    """Where every cell of an experiment took its ``minutes``; others have no results."""

    def __init__(self, **minutes):
        self.minutes = minutes

    def load(self, cell):
        found = self.minutes.get(cell.experiment)
        return None if found is None else {"wall_seconds": 60.0 * found}


def test_table4s_minutes_are_those_of_its_cells_and_of_the_choice_of_rates():
    (target,) = [target for target in table4.TARGETS if target.unit == "minutes"]
    cells = sum(cell.settings.get("subset") == "random" for cell in table4.cells("paper"))
    assert target.read(Ledger(table4=1.0, rates=0.0)) == pytest.approx(cells)
    assert target.read(Ledger(table4=1.0, rates=100.0)) == pytest.approx(cells + 100.0 * RATE_CELLS)
    assert target.read(Ledger(table4=1.0)) is None


def test_the_reports_minutes_of_table4_include_the_choice_of_rates(tmp_path):
    store = Store(tmp_path / "paper")
    made = {
        120.0: paper_cell("paper", "mnist", "restt", 50, 0.2),
        600.0: rate_cell("paper", "mnist", "restt", 50),
    }
    for seconds, cell in made.items():
        file = store.compute(cell, lambda _: {kind: [97.0, 98.0] for kind in ACCURACIES})
        store.path(cell).write_text(json.dumps({**file, "wall_seconds": seconds}))
    minutes = {
        row[0]: row[3]
        for row in report.collect(map(restt_paper.experiment, restt_paper.EXPERIMENTS), tmp_path).provenance.rows
    }
    assert minutes["table4"] == "12.0"
    assert "table5" not in minutes
