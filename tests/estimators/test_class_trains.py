"""Trains over straight lines are trains over the states themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from restt import ResTT
from restt.estimators import class_trains
from restt.estimators.class_rows import ClassRows, ClassSettings
from restt.estimators.class_trains import Trains, cores_over_states, line_matrices, line_vectors
from restt.estimators.settings import settle
from restt.prior.rounding import train_values
from tests.estimators.class_problems import class_rows

DEVICE = settle(80, 20, 3, 2, device="cpu", precision="float64", batch_size=80, epochs=1)


@pytest.fixture(params=[1, 2, 4])
def rows(request) -> ClassRows:
    """Numbers, one column with missing values, and from four columns on a category."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((80, request.param))
    categories = []
    if request.param == 4:
        table[:, 3], categories = rng.integers(0, 3, 80), [3]
    table[::7, 0] = np.nan
    return class_rows(table, rng.integers(0, 2, 80), categories, ClassSettings())


def assert_same_function(matrices: list[torch.Tensor | None], rows: ClassRows) -> None:
    widths = [matrix.shape[1] for matrix in matrices if matrix is not None]
    module = ResTT(len(widths), widths, 3, 2, bias=True, runs=2, dtype=torch.float64)
    module.reset_parameters(seed=0)
    with torch.no_grad():
        module.bias.copy_(torch.tensor([0.3, -0.2]))
        expected = module(line_vectors(matrices, rows, DEVICE))[1]
    cores = cores_over_states(module, 1, matrices, [site.width for site in rows.sites])
    torch.testing.assert_close(train_values(cores, rows.states), expected, rtol=0, atol=1e-12)


def test_cores_over_the_states_are_the_same_function(rows):
    assert_same_function(line_matrices(rows.sites, range(len(rows.sites)), 2.5), rows)


@pytest.mark.parametrize("rows", [4], indirect=True)
def test_a_site_that_is_not_read_passes_the_state_on(rows):
    assert_same_function(line_matrices(rows.sites, (0, 2, 3), 2.5), rows)


def test_a_line_is_the_standardised_number(rows):
    column, site = rows.table[:, 0], rows.sites[0]
    present = ~np.isnan(column)
    at_knots = np.isin((column - site.shift) / site.scale, site.knots) & present
    vectors = line_vectors(line_matrices(rows.sites, range(len(rows.sites)), np.inf), rows, DEVICE)[:, 0]
    assert at_knots.sum() >= 12
    assert vectors[torch.from_numpy(present), 0].tolist() == pytest.approx([1.0] * int(present.sum()))
    slope = np.polyfit(column[at_knots], vectors[torch.from_numpy(at_knots), 1].numpy(), 1)
    assert np.polyval(slope, column[at_knots]) == pytest.approx(vectors[at_knots, 1].numpy(), abs=1e-9)
    assert vectors[~present, :3].tolist() == [[0.0, 0.0, 1.0]] * int((~present).sum())


def test_lines_are_flat_beyond_the_furthest(rows):
    bounded = line_vectors(line_matrices(rows.sites, range(len(rows.sites)), 0.5), rows, DEVICE)
    assert float(bounded[:, 0, 1].abs().max()) == pytest.approx(0.5)


def test_held_out_rows_are_judged_by_a_train_that_did_not_see_them(rows):
    """Labels of a fold's rows do not change what its own train says of them."""
    rows = replace(rows, settings=replace(rows.settings, train_steps=5, train_penalties=(0.001,)))
    own = rows.folds == 0
    other = replace(rows, labels=np.where(own, 1 - rows.labels, rows.labels))
    first, second = (held_out_logits(one) for one in (rows, other))
    assert first[own] == pytest.approx(second[own], abs=1e-12)
    assert np.abs(first[~own] - second[~own]).max() > 1e-6


def held_out_logits(rows: ClassRows) -> np.ndarray:
    trains = Trains(rows, DEVICE, 0)
    trains.fit(trains.penalties, range(5))
    return trains.held_out(trains.penalties, 5)[0]


def test_as_many_penalties_as_the_budget_has_room_for(rows):
    """Multiplications of a penalty: rows of a step · Σ of the widths · r², and r for each class at the end · steps."""
    own = replace(rows.settings, train_bond=3, train_steps=7, step_rows=50, train_penalties=(0.1, 0.01, 0.001))
    trains = Trains(replace(rows, settings=own), DEVICE, 0)
    widths = [matrix.shape[1] for matrix in trains.matrices]
    work = 50 * (sum(widths) * 9 + max(widths) * 3 * 2) * 5 * 7
    for budget, count in ((2 * work - 1, 1), (2 * work, 2), (9 * work, 3)):
        limited = replace(rows, settings=replace(own, trained_work=float(budget)))
        assert Trains(limited, DEVICE, 0).penalties == own.train_penalties[:count]
    sites = len(rows.sites)
    for change, kept in (({"longest_train": sites}, 3), ({"longest_train": sites - 1}, 0), ({"fewest_rows": 81}, 0)):
        assert len(Trains(replace(rows, settings=replace(own, **change)), DEVICE, 0).penalties) == kept
    for bond, kept in ((1, 0), (2, 3)):  # a train over straight lines has a bond more over the states
        assert len(Trains(replace(rows, settings=own, bond=bond), DEVICE, 0).penalties) == kept


def test_folds_that_come_first_have_rows_enough_and_the_others_follow_alone(rows):
    few = replace(rows, settings=replace(rows.settings, train_steps=3, raced_rows=30, train_penalties=(0.1, 0.01)))
    trains = Trains(few, DEVICE, 0)
    assert trains.raced == 2  # 16 rows in each of five folds
    trains.fit(trains.penalties, range(2))
    trains.fit([0.01], range(2, 5))
    found = trains.held_out([0.01], 5)[0]
    alone = replace(few, settings=replace(few.settings, train_penalties=(0.01,)))
    assert found == pytest.approx(held_out_logits(alone), abs=1e-9)
    assert len(trains.refined(0.01, few)) == 5


@pytest.mark.parametrize("rows", [2], indirect=True)
def test_steps_and_runs_by_the_number_of_rows(rows, monkeypatch):
    """Whole tables up to the rows of a step; else batches, in passes over all rows."""
    seen = []
    monkeypatch.setattr(class_trains, "_train", lambda *given: seen.append(given[5:8]))
    own = replace(rows.settings, step_rows=80, train_steps=7, refining_steps=9, batch=16, many_steps=20, most_epochs=4)
    for step_rows, trained, runs, refined in (
        (80, (7, None), 5, (9, None)),
        (79, (7, 79), 4, (4, 16)),
        (20, (2, 20), 1, (4, 16)),
        (3, (1, 3), 1, (4, 16)),
    ):
        trains = Trains(replace(rows, settings=replace(own, step_rows=step_rows)), DEVICE, 0)
        trains.fit([0.1], range(5))
        assert len(trains.refined(0.1, trains.rows)) == runs
        assert seen[-2:] == [(own.rate, *trained), (own.refining_rate, *refined)]
    for many_steps, epochs in ((15, 3), (14, 2), (4, 1), (1, 1)):  # of 80 rows five batches
        trains = replace(trains, rows=replace(rows, settings=replace(own, step_rows=3, many_steps=many_steps)))
        trains.refined(0.1, trains.rows)
        assert seen[-1][1:] == (epochs, 16)
    before = len(seen)
    trains.fit([], range(5))
    assert len(seen) == before
    assert trains.held_out([], 5).shape == (0, 80, 2)


@pytest.mark.parametrize("rows", [2], indirect=True)
def test_few_folds_with_rows_enough_come_first(rows):
    """16 rows in each of five folds."""
    for needed, raced in ((1, 1), (16, 1), (17, 2), (80, 5), (81, 5)):
        assert Trains(replace(rows, settings=replace(rows.settings, raced_rows=needed)), DEVICE, 0).raced == raced
