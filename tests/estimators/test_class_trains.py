"""Trains over views of the states are trains over the states themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from restt import ResTT
from restt.estimators.class_rows import ClassRows
from restt.estimators.class_settings import ClassSettings
from restt.estimators.class_trains import View, hat_view, line_view
from restt.estimators.settings import settle
from restt.features import Hat
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


def views_of(rows: ClassRows) -> list[View]:
    read = range(len(rows.sites))
    return [hat_view(rows, read, 8), line_view(rows.sites, read, 2.5)]


def assert_same_function(view: View, rows: ClassRows) -> None:
    module = ResTT(len(view.widths), view.widths, 3, 2, bias=True, runs=2, dtype=torch.float64)
    module.reset_parameters(seed=0)
    with torch.no_grad():
        module.bias.copy_(torch.tensor([0.3, -0.2]))
        expected = module(view.vectors(rows, DEVICE))[1]
    got = train_values(view.cores(module, 1, [site.width for site in rows.sites]), rows.states)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_cores_over_the_states_are_the_same_function(rows):
    for view in views_of(rows):
        assert_same_function(view, rows)


@pytest.mark.parametrize("rows", [4], indirect=True)
def test_a_site_that_is_not_read_passes_the_state_on(rows):
    assert_same_function(line_view(rows.sites, (0, 2, 3), 2.5), rows)


def test_a_view_of_lines_is_the_standardised_number(rows):
    column, site = rows.table[:, 0], rows.sites[0]
    present = ~np.isnan(column)
    at_knots = np.isin((column - site.shift) / site.scale, site.knots) & present
    vectors = line_view(rows.sites, range(len(rows.sites)), np.inf).vectors(rows, DEVICE)[:, 0]
    assert at_knots.sum() >= 12
    assert vectors[torch.from_numpy(present), 0].tolist() == pytest.approx([1.0] * int(present.sum()))
    slope = np.polyfit(column[at_knots], vectors[torch.from_numpy(at_knots), 1].numpy(), 1)
    assert np.polyval(slope, column[at_knots]) == pytest.approx(vectors[at_knots, 1].numpy(), abs=1e-9)
    assert vectors[~present, :3].tolist() == [[0.0, 0.0, 1.0]] * int((~present).sum())


def test_a_view_of_hats_is_hats_of_fewer_knots(rows):
    view, site, column = hat_view(rows, range(len(rows.sites)), 4), rows.sites[0], rows.table[:, 0]
    present = ~np.isnan(column)
    assert view.widths[0] <= 4 + 1
    vectors = view.vectors(rows, DEVICE)[:, 0]
    share = torch.from_numpy(rows.weights / rows.weights.sum())
    assert (share @ vectors).tolist() == pytest.approx([0.0] * vectors.shape[1], abs=1e-12)
    plain = view.matrices[0] - view.matrices[0].min(dim=0).values  # every hat is 0 in some state
    coarse = [knot for knot, row in zip(site.knots, plain, strict=False) if row.max() > 1 - 1e-9]
    assert len(coarse) == view.widths[0] - 1
    hats = Hat(knots=[coarse])(((column[present] - site.shift) / site.scale)[:, None])[:, 0]
    expected = hats - share[torch.from_numpy(present)] @ hats
    torch.testing.assert_close(vectors[torch.from_numpy(present), : len(coarse)], expected, rtol=0, atol=1e-9)


def test_lines_are_flat_beyond_the_furthest(rows):
    bounded = line_view(rows.sites, range(len(rows.sites)), 0.5).vectors(rows, DEVICE)
    assert float(bounded[:, 0, 1].abs().max()) == pytest.approx(0.5)
