"""Gaussian processes of the logits: their modes, their kernels, and the trains that hold their average."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from restt.estimators import class_kernels
from restt.estimators.class_kernels import (
    Kernels,
    Searched,
    _principal,
    _standardised,
    class_modes,
    learn,
    principal_axes,
)
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
    (mode,) = solved.modes
    assert (mode.weight, mode.factor) == (1.0, pytest.approx(16 / size))
    assert mode.logits == pytest.approx(logits, abs=1e-4 * logits.std())
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


@pytest.mark.parametrize("rank", [0, 1, 3, 4, 6])
def test_principal_axes_of_few_dimensions_are_as_many(rank):
    """At most half as many as rows: solved of the rows that the others follow from."""
    matrix = (
        torch.from_numpy(np.cov(np.random.default_rng(0).standard_normal((6, rank + 1)))) if rank else torch.zeros(6, 6)
    )
    squares, directions = _principal(matrix.double())
    assert len(squares) == (rank if rank in (1, 3) else 6)
    assert squares.tolist() == pytest.approx(torch.linalg.eigvalsh(matrix.double())[-len(squares) :].tolist(), abs=1e-9)
    axes = (matrix.double() @ directions)[:, -rank:] if rank else torch.zeros(6, 1).double()
    torch.testing.assert_close(axes @ axes.T, matrix.double(), rtol=0, atol=1e-9)
    torch.testing.assert_close(axes.T @ axes, squares[-rank:].diag() if rank else axes.T @ axes, rtol=0, atol=1e-9)


def test_axes_are_fewer_the_more_searches_rows_and_classes(fitted):
    rows, process = fitted[0], fitted[1].processes["gaussian"]
    own = replace(SETTINGS, fewest_axes=3, mode_work=60 * 4 * 5.0)
    counts = [principal_axes(replace(rows, settings=own), process, searches).values.shape[1] for searches in (1, 4, 7)]
    assert counts == ([20, 5, 3] if rows.classes == 2 else [10, 3, 3])


def test_classes_as_numbers_have_mean_0_and_variance_1(fitted):
    rows = fitted[0]
    found, shares = _standardised(rows).numpy(), rows.weights / rows.weights.sum()
    assert found.shape == (60, 1 if rows.classes == 2 else 3)
    assert shares @ found == pytest.approx(0.0, abs=1e-12)
    assert shares @ found**2 == pytest.approx(1.0)
    assert (found[:, -1] > 0).tolist() == (rows.labels == rows.classes - 1).tolist()
    alone = replace(rows, weights=(rows.labels == 0).astype(float), shares=np.zeros(3))
    assert np.isfinite(_standardised(alone).numpy()).all()  # classes without weight have no variance


def test_hyper_parameters_are_learned_where_time_and_rows_are_left(fitted, monkeypatch):
    rows, (process, *_) = fitted[0], fitted[1].processes.values()
    monkeypatch.setattr(class_kernels, "learn", lambda rows, *others: [process] * 4)
    others = ["linear", "additive", "gaussian"]
    work = 60 * 60 * 3.0
    for change, expected in (
        ({"fewest_learned": rows.learned}, [*others, "process"]),
        ({"fewest_learned": 61, "learning_pairs": 4 * 60.0**2}, [*others, "process"]),  # all rows
        ({"fewest_learned": 61, "learning_pairs": 4 * 59.0**2}, others),
        ({"fewest_rows": 61}, others),
        ({"kernel_work": work}, [*others, "process"]),
        ({"kernel_work": work - 1}, ["linear"]),
    ):
        found = Kernels.learned(replace(rows, settings=replace(SETTINGS, **change)), Settings())
        assert list(found.processes) == expected
        assert len(found.by_fold) == 3 * ("process" in expected)
    assert found.processes["linear"].kernel.layout.outputs == {2: 1, 3: 3}[rows.classes]
    few = Kernels.learned(replace(rows, settings=replace(SETTINGS, fewest_rows=61)), Settings())
    assert few.searches() == []
    assert few.held_out([]).shape == (0, 60, rows.classes)
    assert few.relevance.tolist() == [0.0] * 3


def test_every_fold_learns_on_its_first_rows_and_all_rows_on_theirs(monkeypatch):
    rows = some_rows(2)
    rows = replace(rows, weights=np.where(np.arange(60) < 5, 0.0, 1.0), settings=replace(SETTINGS, learning_pairs=4e2))
    seen = []

    def climbed(objective, theta, steps):
        seen.append((len(objective.data.weights), steps))
        return theta

    monkeypatch.setattr(class_kernels, "climb", climbed)
    kernel = class_kernels.Kernel.measured(rows.sites, rows.codes, torch.from_numpy(rows.weights), 1)
    assert len(learn(rows, kernel, Settings())) == 4
    starts = len(seen) - 4
    assert seen == [(10, SETTINGS.first_iterations)] * starts + [(10, SETTINGS.iterations)] * 4


def test_a_search_begun_from_folds_ends_where_one_of_all_rows_does():
    """Two folds, whose hyper-parameters are learned apart from those of all rows."""
    rows = some_rows(3)
    rows = replace(rows, folds=np.where(rows.folds == 2, -1, rows.folds), settings=EXACT)
    candidates = Kernels.learned(rows, Settings())
    assert [len(candidates.by_fold), len(candidates.searches())] == [2, 5]
    shares = np.full(len(candidates.names), 1 / len(candidates.names))
    found = candidates.solve(shares, [search() for search in candidates.searches()])
    for one, other in zip(found.modes, candidates.solve(shares).modes, strict=True):
        assert one.logits == pytest.approx(other.logits, abs=1e-2)


def test_effects_are_cut_to_the_bond_that_is_allowed(fitted):
    rows, candidates = fitted
    solved = candidates.solve(np.eye(len(candidates.names))[candidates.names.index("additive, factor 16")])
    for largest in (1, 2, 3):
        cores = solved.additive_cores(ORDER, largest)
        assert [core.shape[2] for core in cores] == [
            min(largest, rows.classes),
            min(largest, rows.classes),
            rows.classes,
        ]
    (alone,) = solved.additive_cores(ORDER[1:2], 1)
    torch.testing.assert_close(alone[0], solved.effects[0] + torch.from_numpy(solved.constant))


def test_error_bars_are_those_of_the_kernels_and_of_the_shares_of_the_classes(fitted):
    candidates = fitted[1]
    solved = candidates.solve(np.eye(len(candidates.names))[1])
    assert [one.name for one in solved.posterior(0.0).components] == [solved.modes[0].process.component.name]
    with_shares = solved.posterior(0.25)
    assert [one.name for one in with_shares.components][1:] == ["shares"]
    assert with_shares.weights.tolist() == pytest.approx([0.8, 0.2])
    assert with_shares.factors[1] == 1.0
    assert candidates.solve(np.zeros(len(candidates.names))).posterior(1.0) is None
    assert replace(solved, rows=replace(solved.rows, shares=np.zeros(1))).posterior(1.0) is None


@pytest.mark.parametrize(
    ("errors", "largest", "patient", "tried"),
    [
        ([0.03], 40, True, [8]),
        ([9.0, 9.0, 9.0], 40, True, [8, 20, 40]),
        ([9.0, 9.0], 20, True, [8, 20]),
        ([0.48, 0.12, 9.0], 40, False, [8, 20, 40]),
        ([0.49], 40, False, [8]),
        ([0.48, 0.13], 40, False, [8, 20]),
        ([0.1], 5, False, [5]),
    ],
)
def test_larger_bonds_are_tried_while_they_may_do(fitted, monkeypatch, errors, largest, patient, tried):
    """A bond of the next size has seldom less than a quarter of the error; the tolerance is 0.03."""
    solved, bonds, left = fitted[1].solve(np.eye(len(fitted[1].names))[-1]), [], iter(errors)

    def rounded(coefficients, factors, moments, bond, tolerance, sample):
        bonds.append(bond)
        return [], SimpleNamespace(distance=next(left))

    monkeypatch.setattr(class_kernels, "round_products", rounded)
    assert solved.product_cores(ORDER, largest, patient) == ([], errors[-1])
    assert bonds == tried
