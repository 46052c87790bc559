"""Logistic regressions on straight lines, the classes' shares, and the trains that hold them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from restt.estimators.candidates import ClassRows, stratified_folds
from restt.estimators.class_settings import ClassSettings
from restt.estimators.logistic import Logistic, Shares, logistic_candidates
from restt.estimators.views import centred, line_view
from restt.prior.sites import fit_sites, rows_of

CLASSES = 7
PENALTIES = (1.0, 0.01)


@pytest.fixture(scope="module")
def rows() -> ClassRows:
    """Two numbers and a category; more classes than columns."""
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.standard_normal((70, 2)), rng.integers(0, 3, 70)])
    numbers = np.digitize(table[:, 0] ** 2 + table[:, 1], np.linspace(-1, 2, CLASSES - 1))
    sites = fit_sites(table, np.ones(70), [None, None, 3], knots=8, average=False)
    shares = np.bincount(numbers, minlength=CLASSES) / 70
    return ClassRows(
        sites,
        tuple(site.vectors(column) for site, column in zip(sites, table.T, strict=True)),
        rows_of(sites, table),
        numbers,
        np.ones(70),
        np.log(shares),
        stratified_folds(numbers, 5),
        ClassSettings(logistic_penalties=PENALTIES),
    )


@pytest.fixture(scope="module")
def lines(rows) -> Logistic:
    return logistic_candidates(rows, centred(line_view(rows.sites, constant=False), rows.states, rows.weights))


def test_the_train_is_the_mean_over_folds_and_candidates(rows, lines):
    shares = np.array([0.1, 0.3])
    (member,) = lines.members(shares)
    features = lines.view.columns(rows.states).numpy()
    logits = features @ lines.slopes + lines.constants[:, :, None]  # (P, F, B, K)
    with torch.no_grad():
        got = member.module(member.view.vectors(rows.states))[0].numpy()
    assert got == pytest.approx(np.tensordot(shares / shares.sum(), logits.mean(1), 1), abs=1e-9)
    assert member.share == pytest.approx(shares.sum())
    assert lines.members(np.zeros(2)) == []


def test_held_out_rows_are_judged_by_a_regression_that_did_not_see_them(rows, lines):
    fold = 2
    features, own = lines.view.columns(rows.states).numpy(), rows.folds == fold
    reference = LogisticRegression(C=1 / PENALTIES[0], tol=1e-8, max_iter=10_000)
    reference.fit(features[~own], rows.numbers[~own])
    expected = reference.predict_proba(features[own])
    assert softmax(lines.held_out[0, own], axis=1) == pytest.approx(expected, abs=2e-3)


def test_the_bond_is_the_rank_of_the_slopes_and_not_the_number_of_classes(lines):
    (member,) = lines.members(np.ones(2))
    assert member.module.bond_dim == 2 + 2  # two lines, and a category of three levels that sum to one


def test_shares_are_those_of_the_rows_outside_a_fold(rows):
    shares = Shares.of(rows)
    own = rows.folds == 1
    counts = np.bincount(rows.numbers[~own], minlength=CLASSES) + 1 / CLASSES
    assert softmax(shares.held_out[0, own], axis=1) == pytest.approx(np.tile(counts / counts.sum(), (own.sum(), 1)))
    (member,) = shares.members(np.array([0.4]))
    with torch.no_grad():
        got = member.module(member.view.vectors(rows.states))[0].numpy()
    assert got == pytest.approx(np.tile(rows.bias, (70, 1)))
