"""Gaussian processes of the logits: their modes, their kernels, and the trains that hold their average."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from restt.estimators.class_kernels import Kernels, Searched, class_modes, principal_axes
from restt.estimators.class_rows import ClassRows, ClassSettings
from restt.prior import Settings
from restt.prior.rounding import train_values
from tests.estimators.class_problems import class_rows

SETTINGS = ClassSettings(folds=3, first_iterations=3, iterations=6, penalties=(1.0, 1 / 16))
ORDER = (2, 0, 1)
EXACT = replace(SETTINGS, mode_tolerance=1e-12, mode_iterations=1000)


def some_rows(classes: int) -> ClassRows:
    """Two numbers, of which the first decides, and a category, in rows of several weights."""
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.standard_normal((60, 2)), rng.integers(0, 3, 60)])
    cuts = np.quantile(table[:, 0], np.linspace(0, 1, classes + 1)[1:-1])
    labels = np.digitize(table[:, 0] + 0.3 * rng.standard_normal(60), cuts)
    rows = class_rows(table, labels, [2], SETTINGS)
    return replace(rows, weights=rng.integers(1, 3, 60).astype(float))


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request) -> tuple[ClassRows, Kernels]:
    rows = some_rows(request.param)
    return rows, Kernels.learned(rows, Settings())


@pytest.fixture(scope="module")
def searched(fitted) -> list[Searched]:
    return [search() for search in fitted[1].searches()]


def test_a_mode_is_where_the_posterior_is_flat(fitted):
    """K α with α = w (y - p)/penalty over all rows, once it has a share."""
    rows = replace(fitted[0], settings=EXACT)
    candidates = replace(fitted[1], rows=rows)
    solved = candidates.solve(np.eye(len(candidates.names))[candidates.names.index("process, factor 16")])
    (posterior,) = solved.posteriors
    covariance = posterior.process.covariance(rows.codes).numpy()
    size = covariance.diagonal().mean() - covariance.mean()
    logits = posterior.mean(rows.codes).numpy() + solved.constant
    residuals = rows.weights[:, None] * (np.eye(rows.classes)[rows.labels] - softmax(logits, axis=1))
    expected = covariance @ residuals * 16 / size + solved.constant
    assert logits == pytest.approx(expected, abs=0.01 * logits.std())


def test_held_out_rows_are_judged_by_a_regression_that_did_not_see_them(fitted, searched):
    """Straight lines of standardised columns: scikit-learn's logistic regression."""
    rows, candidates = fitted
    values = principal_axes(rows, candidates.processes["linear"], 1).values.double().numpy()
    own = rows.folds == 1
    # The penalty of two classes scikit-learn counts once, not for each class.
    reference = LogisticRegression(C=2.0 if rows.classes == 2 else 1.0, tol=1e-8, max_iter=10_000)
    reference.fit(values[~own], rows.labels[~own], sample_weight=rows.weights[~own])
    held_out = candidates.held_out(searched)[candidates.names.index("linear, factor 1")]
    assert softmax(held_out[own], axis=1) == pytest.approx(reference.predict_proba(values[own]), abs=5e-3)


def test_parts_of_the_rows_are_searched_without_mixing(fitted):
    rows, process = replace(fitted[0], settings=EXACT), fitted[1].processes["gaussian"]
    axes, parts = principal_axes(rows, process, 1), [np.arange(40), np.arange(60)]
    both = class_modes(rows, axes, parts, (1.0,))[0]
    for mode, part in zip(both, parts, strict=True):
        (alone,) = class_modes(rows, axes, [part], (1.0,))[0]
        torch.testing.assert_close(axes.logits(mode).softmax(1), axes.logits(alone).softmax(1), rtol=0, atol=1e-4)


def test_axes_are_those_of_the_kernel_and_the_largest_where_there_are_too_many(fitted):
    rows, process = fitted[0], fitted[1].processes["gaussian"]
    covariance = process.covariance(rows.codes)
    scaled = covariance / (covariance.diagonal().mean() - covariance.mean())
    sizes = torch.linalg.eigvalsh(scaled)
    few = replace(rows, settings=replace(SETTINGS, fewest_axes=2, mode_work=1.0))
    assert principal_axes(few, process, 1).values.square().sum(0).tolist() == pytest.approx(sizes[-2:].tolist())
    values = principal_axes(rows, process, 1).values.double()
    torch.testing.assert_close(values @ values.T, scaled, rtol=0, atol=1e-3)
    inducing = replace(rows, settings=replace(SETTINGS, inducing_rows=29))
    assert principal_axes(inducing, process, 1).directions.shape[0] == 20


def test_the_trains_are_the_average_of_all_modes_within_the_tolerance(fitted):
    rows, candidates = fitted
    shares = np.linspace(0, 1, len(candidates.names))
    solved = candidates.solve(shares / shares.sum())
    expected = sum(one.mean(rows.codes) for one in solved.posteriors).numpy() + solved.constant
    states = [rows.states[n] for n in ORDER]
    products, error = solved.product_cores(ORDER, 40)
    additive = solved.additive_cores(ORDER, 40)
    assert max(core.shape[2] for core in additive[:-1]) <= rows.classes + 1
    got = (train_values(products, states) + train_values(additive, states)).numpy()
    away = np.sqrt(np.average(((got - expected) ** 2).mean(1), weights=rows.weights))
    assert away <= SETTINGS.tolerance
    assert away == pytest.approx(error, rel=1e-3, abs=1e-9)


def test_main_effects_alone_need_no_products(fitted):
    candidates = fitted[1]
    chosen = [float(name.startswith("linear")) for name in candidates.names]
    assert candidates.solve(np.array(chosen)).product_cores(ORDER, 40) == ([], 0.0)


def test_the_column_that_decides_is_the_most_relevant(fitted):
    assert fitted[1].relevance.argmax() == 0


def test_a_single_fold_learns_once():
    rows = some_rows(2)
    rows = replace(rows, folds=np.where(rows.folds == 0, 0, -1))
    candidates = Kernels.learned(rows, Settings())
    held_out = candidates.held_out([search() for search in candidates.searches()])
    assert np.isfinite(held_out[:, rows.judged]).all()
    assert candidates.relevance.argmax() == 0


def test_columns_count_the_same_in_fixed_kernels(fitted):
    rows, candidates = fitted
    # Along one number, at its knots, straight lines are straight.
    knots = torch.tensor(rows.sites[0].values, dtype=torch.float64)
    first = rows.codes.take(torch.zeros(len(knots), dtype=torch.long))
    first.code[:, 0], first.share[:, 0] = torch.arange(len(knots), dtype=torch.int32), 0.0
    line = candidates.processes["linear"].covariance(first)[0]
    bend = line - line[0] - (knots - knots[0]) / (knots[-1] - knots[0]) * (line[-1] - line[0])
    assert float(bend.abs().max()) < 1e-6 * float(line.abs().max())
    # Another level is a distance of 1.
    category = rows.codes.take(torch.zeros(2, dtype=torch.long))
    category.share.zero_()
    category.code[1, 2] = (category.code[0, 2] + 1) % 3
    gaussian = candidates.processes["gaussian"].covariance(category)
    assert gaussian[0].tolist() == pytest.approx([1.0, np.exp(-1 / 3)])
    # Main effects alone: the mixed difference over two columns is 0.
    corners = rows.codes.take(torch.zeros(4, dtype=torch.long))
    corners.code[:, 0] = torch.tensor([0, 1, 0, 1])
    corners.code[:, 2] = torch.tensor([0, 0, 1, 1])
    corners.share.zero_()
    effects = candidates.processes["linear"].covariance(corners)[0]
    assert float(effects[0] - effects[1] - effects[2] + effects[3]) == pytest.approx(0.0, abs=1e-12)
