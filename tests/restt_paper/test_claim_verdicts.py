"""Verdicts, milestones and minutes from results made by hand."""

from __future__ import annotations

import json

import pytest
import torch

from restt_paper import report, stability_tables, table4
from restt_paper.fig_training import NEAR, _near_best
from restt_paper.image_cells import paper_cell, recipe_rate_cell
from restt_paper.image_reading import THREE
from restt_paper.store import Store

RATE_CELLS = 12  # two sets, two models, three bond dimensions


def stability(trains, spread):
    """Files of both models at two bond dimensions: how many of four σ_w² train, and the spread over seeds."""
    return [
        {
            "settings": {"fraction": 0.1, "epochs": 2},
            "result": {
                "over_sigma2": [
                    {**model, "sigma2": 10.0**-k, "final_training_accuracy": 90.0 if k < trains[topology] else 10.0}
                    for k in range(4)
                ],
                "over_seeds": {**model, "final_test_accuracy": [80.0, 82.0], "std": spread[topology]},
            },
        }
        for topology in ("plain", "residual")
        for bond_dim in (20, 100)
        for model in [{"topology": topology, "bond_dim": bond_dim, "lr": 1e-3}]
    ]


def verdict(claim, trains, spread):
    files = stability(*({"plain": tt, "residual": restt} for tt, restt in (trains, spread)))
    (found,) = [row[-1] for row in stability_tables.stability_tables(files)[-1].rows if row[0] == claim]
    return found


@pytest.mark.parametrize(
    ("tt", "restt", "expected"), [(1, 3, "holds"), (3, 1, "does not hold"), (2, 2, "does not hold")]
)
def test_restt_is_more_relaxed_only_where_more_of_its_variances_train(tt, restt, expected):
    assert verdict(stability_tables.RELAXED, (tt, restt), (1.0, 1.0)) == expected


@pytest.mark.parametrize(
    ("tt", "restt", "expected"), [(2.0, 0.5, "holds"), (0.5, 2.0, "does not hold"), (1.0, 1.0, "does not hold")]
)
def test_restt_varies_less_only_where_its_spread_is_smaller(tt, restt, expected):
    assert verdict(stability_tables.VARIES_LESS, (2, 2), (tt, restt)) == expected


@pytest.mark.parametrize(
    ("means", "epoch"),
    [([90.0, 90.0, 90.0], 1), ([50.0, 90.0, 90.2], 2), ([50.0, 60.0, 90.0], 3), ([50.0, 90.0, 90.0 + NEAR], 2)],
)
def test_epochs_to_near_the_best_are_counted_from_one(means, epoch):
    of_seeds = torch.tensor([means, means], dtype=torch.float64) + torch.tensor([[-1.0], [1.0]])
    assert _near_best(of_seeds) == epoch


class Ledger:
    """Where every cell of an experiment took its ``minutes``; others have no results."""

    def __init__(self, **minutes):
        self.minutes = minutes

    def load(self, cell):
        found = self.minutes.get(cell.experiment)
        return None if found is None else {"wall_seconds": 60.0 * found}


def test_table4s_minutes_are_those_of_its_cells_and_of_the_choice_of_rates():
    (target,) = [target for target in table4.TARGETS if target.unit == "minutes"]
    cells = len(table4.cells("paper"))
    assert target.read(Ledger(table4=1.0, rates=0.0)) == pytest.approx(cells)
    assert target.read(Ledger(table4=1.0, rates=100.0)) == pytest.approx(cells + 100.0 * RATE_CELLS)
    assert target.read(Ledger(table4=1.0)) is None


def test_the_reports_minutes_of_table4_include_the_choice_of_rates(tmp_path):
    store = Store(tmp_path / "paper")
    made = {
        120.0: paper_cell("paper", "mnist", "restt", 50, 0.2),
        600.0: recipe_rate_cell("paper", "mnist", "restt", 50),
    }
    for seconds, cell in made.items():
        file = store.compute(cell, lambda _: {kind: [97.0, 98.0] for kind in THREE})
        store.path(cell).write_text(json.dumps({**file, "wall_seconds": seconds}))
    minutes = {row[0]: row[3] for row in report.collect(tmp_path).provenance.rows}
    assert minutes["table4"] == "12.0"
    assert minutes["table5"] == "–"
