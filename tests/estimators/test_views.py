"""Trains over views of the states are trains over the states themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from restt import ResTT
from restt.estimators.views import View, centred, hat_view, line_view, rewritten, whole_view
from restt.features import Hat
from restt.prior.sites import fit_sites


@pytest.fixture(params=[1, 2, 4])
def table(request):
    """Numbers, one column with missing values, and from four columns on a category."""
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((80, request.param))
    numbers[::7, 0] = np.nan
    levels = [None] * request.param
    if request.param == 4:
        numbers[:, 3], levels[3] = rng.integers(0, 3, 80), 3
    weights = rng.integers(1, 3, 80).astype(float)
    sites = fit_sites(numbers, weights, levels, 16, average=False)
    return numbers, weights, sites, [site.vectors(column) for site, column in zip(sites, numbers.T, strict=True)]


def views_of(table) -> list[View]:
    numbers, weights, sites, states = table
    return [
        hat_view(sites, list(numbers.T), states, weights, 8),
        line_view(sites, constant=True, furthest=2.5),
        centred(line_view(sites, constant=False), states, weights),
        whole_view(sites),
    ]


def test_rewritten_trains_are_the_same_function(table):
    _, _, sites, states = table
    for view in views_of(table):
        module = ResTT(len(sites), view.widths, 3, 2, bias=True, runs=2, dtype=torch.float64)
        module.reset_parameters(seed=0)
        with torch.no_grad():
            module.bias.copy_(torch.tensor([0.3, -0.2]))
            wide = rewritten(module, view, [site.width for site in sites], 5)
            whole = whole_view(sites).vectors(states)
            assert wide.bond_dim == 5
            torch.testing.assert_close(wide(whole), module(view.vectors(states)), rtol=0, atol=1e-12)


def test_a_view_of_lines_is_the_standardised_number(table):
    numbers, _, sites, states = table
    present = ~np.isnan(numbers[:, 0])
    at_knots = np.isin((numbers[:, 0] - sites[0].shift) / sites[0].scale, sites[0].knots) & present
    vectors = line_view(sites, constant=True).vectors(states)[:, 0]
    assert at_knots.sum() >= 16
    assert vectors[torch.from_numpy(present), 0].tolist() == pytest.approx([1.0] * int(present.sum()))
    slope = np.polyfit(numbers[at_knots, 0], vectors[torch.from_numpy(at_knots), 1].numpy(), 1)
    assert np.polyval(slope, numbers[at_knots, 0]) == pytest.approx(vectors[at_knots, 1].numpy(), abs=1e-9)
    assert vectors[~present].tolist() == [[0.0, 0.0, 1.0]] * int((~present).sum())


def test_a_view_of_hats_is_hats_of_fewer_knots(table):
    numbers, weights, sites, states = table
    view = hat_view(sites, list(numbers.T), states, weights, 4)
    present = ~np.isnan(numbers[:, 0])
    assert view.widths[0] <= 4 + 1
    shown = view.vectors(states)[:, 0]
    mean = torch.from_numpy(weights / weights.sum()) @ shown
    assert mean.tolist() == pytest.approx([0.0] * len(mean), abs=1e-12)
    plain = view.matrices[0] - view.matrices[0].min(dim=0).values  # every hat is 0 in some state
    coarse = [knot for knot, row in zip(sites[0].knots, plain, strict=False) if row.max() > 1 - 1e-9]
    assert len(coarse) == view.widths[0] - 1
    scaled = (numbers[present, 0] - sites[0].shift) / sites[0].scale
    hats = Hat(knots=[coarse])(scaled[:, None])[:, 0]
    expected = hats - torch.from_numpy(weights[present] / weights.sum()) @ hats
    torch.testing.assert_close(shown[torch.from_numpy(present), : len(coarse)], expected, rtol=0, atol=1e-9)


def test_lines_are_flat_beyond_the_furthest(table):
    _, _, sites, states = table
    bounded = line_view(sites, constant=False, furthest=0.5).vectors(states)
    assert float(bounded[:, 0, 0].abs().max()) == pytest.approx(0.5)


@pytest.mark.parametrize("table", [4], indirect=True)
def test_a_site_that_is_not_in_the_view_passes_the_state_on(table):
    _, _, sites, states = table
    view = views_of(table)[0].at((0, 2, 3))
    module = ResTT(3, view.widths, 3, 2, bias=True, runs=2, dtype=torch.float64)
    module.reset_parameters(seed=0)
    wide = rewritten(module, view, [site.width for site in sites], 3)
    with torch.no_grad():
        torch.testing.assert_close(
            wide(whole_view(sites).vectors(states)), module(view.vectors(states)), atol=1e-12, rtol=0
        )
