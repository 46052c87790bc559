"""Logistic regressions on functions of single columns, and the trains that hold them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from restt.estimators.additive import Sums, curve_candidates, line_candidates
from restt.estimators.candidates import ClassRows, stratified_folds
from restt.estimators.views import centred, line_view
from restt.prior.kernels import make_kernel, measure
from restt.prior.learning import Prior, starting_point
from restt.prior.sites import fit_sites

COLUMNS, CLASSES = 3, 7


@pytest.fixture(scope="module")
def rows() -> ClassRows:
    """Two numbers and a category; more classes than columns."""
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.standard_normal((70, 2)), rng.integers(0, 3, 70)])
    numbers = np.digitize(table[:, 0] ** 2 + table[:, 1], np.linspace(-1, 2, CLASSES - 1))
    sites = fit_sites(table, np.ones(70), [None, None, 3], knots=8, average=False)
    return ClassRows(
        sites,
        tuple(site.vectors(column) for site, column in zip(sites, table.T, strict=True)),
        numbers,
        np.ones(70),
        np.zeros(CLASSES),
        stratified_folds(numbers, 5, rng),
    )


@pytest.fixture(scope="module")
def lines(rows) -> Sums:
    return line_candidates(rows, centred(line_view(rows.sites, constant=False), rows.states, rows.weights))


@pytest.fixture(scope="module")
def curves(rows) -> Sums:
    weights = torch.from_numpy(rows.weights)
    pairs = zip(rows.sites, rows.states, strict=True)
    kernels = tuple(make_kernel(site, measure(site, states, weights)) for site, states in pairs)
    priors = []
    for fold in range(len(rows.parts)):
        theta = starting_point(kernels)
        theta[2] += 0.1 * fold  # the folds' priors differ
        priors.append(Prior(kernels, theta, ("a", "b", "c")))
    return curve_candidates(rows, priors, (1.0, 0.01))


@pytest.mark.parametrize("family", ["lines", "curves"])
def test_the_train_is_the_mean_over_folds_and_candidates(family, rows, request):
    sums = request.getfixturevalue(family)
    shares = np.linspace(0.1, 0.3, len(sums.penalties))
    (member,) = sums.members(shares)
    expected = sum(
        share * (view.columns(rows.states).numpy() @ sums.slopes[place, fold] + sums.constants[place, fold])
        for place, share in enumerate(shares / shares.sum())
        for fold, view in enumerate(sums.views)
    )
    with torch.no_grad():
        got = member.module(member.view.vectors(rows.states))[0].numpy()
    assert got == pytest.approx(expected / len(sums.views), abs=1e-9)
    assert member.share == pytest.approx(shares.sum())


def test_held_out_rows_are_judged_by_the_fold_that_did_not_see_them(rows, curves):
    fold = 2
    own = rows.folds == fold
    said = curves.views[fold].columns(rows.states).numpy() @ curves.slopes[1, fold] + curves.constants[1, fold]
    assert curves.held_out[1, own] == pytest.approx(said[own], abs=1e-9)


def test_the_bond_is_the_rank_of_the_slopes_and_not_the_number_of_classes(lines):
    (member,) = lines.members(np.ones(len(lines.penalties)))
    assert member.module.bond_dim == 2 + 2  # two lines, and a category of three levels that sum to one
    assert lines.members(np.zeros(len(lines.penalties))) == []


def test_curves_bend_where_lines_do_not(rows, lines, curves):
    judged = rows.folds >= 0
    hits = [(sums.held_out.argmax(axis=2) == rows.numbers)[:, judged].mean(axis=1).max() for sums in (lines, curves)]
    assert hits[1] > hits[0] + 0.05
