from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import make_friedman1
from sklearn.linear_model import RidgeCV

from restt import prior
from restt.prior.evidence import Evidence
from restt.prior.kernels import JUMPING
from restt.prior.learning import hyper_prior, learn, learn_alike
from restt.prior.mixture import Learner, mix, stacked
from tests.prior.problems import assert_gradient_matches_differences, bound, mixed_table, some_prior


def squares(predicted: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean((predicted - y) ** 2) / y.var())


def learner_of(x: np.ndarray, y: np.ndarray, rows: np.ndarray | None = None) -> tuple[Learner, torch.Tensor]:
    sites = prior.sites.fit_sites(x, np.ones(len(x)))
    states = [site.vectors(column) for site, column in zip(sites, x.T, strict=True)]
    ones = torch.ones(len(x), dtype=torch.float64)
    kernels = tuple(
        prior.kernels.make_kernel(s, prior.kernels.measure(s, v, ones)) for s, v in zip(sites, states, strict=True)
    )
    names = tuple(f"column {n}" for n in range(x.shape[1]))
    targets = torch.from_numpy((y - y.mean())[:, None] / y.std())
    return Learner(kernels, states, ones, np.arange(len(x)) if rows is None else rows, names), targets


def dense(rows: int, columns: int, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns))
    return x, x @ rng.standard_normal(columns) / columns**0.5 + noise * rng.standard_normal(rows)


@pytest.mark.parametrize(("rows", "columns", "noise"), [(60, 40, 0.5), (120, 20, 1.5)])
def test_many_columns_that_matter_alike_are_nearly_as_good_as_ridge(rows, columns, noise):
    ours, ridge = [], []
    for seed in (0, 1):
        x, y = dense(rows + 500, columns, noise, seed)
        ours.append(squares(prior.fit(x[:rows], y[:rows]).predict(x[rows:])[:, 0], y[rows:]))
        ridge.append(squares(RidgeCV(np.logspace(-3, 4, 15)).fit(x[:rows], y[:rows]).predict(x[rows:]), y[rows:]))
    assert np.mean(ours) < np.mean(ridge) + 0.04


def test_columns_are_alike_until_the_rows_say_otherwise():
    x, y = dense(120, 12, 1.5, 0)
    learner, targets = learner_of(x, y)
    given = learner.states, targets, learner.weights
    alike, _ = learn_alike(learner.kernels, *given)
    assert len(np.unique(alike[2::3])) == len(np.unique(alike[3::3])) == 1
    near, _ = learn(learner.kernels, *given, around=alike)
    free, _ = learn(learner.kernels, *given)
    assert np.ptp(near[2::3]) < 0.75 * np.ptp(free[2::3])
    product, wanted = learner_of(x, x[:, 0] * x[:, 1])
    given = product.states, wanted, product.weights
    found, _ = learn(product.kernels, *given, around=learn_alike(product.kernels, *given)[0])
    assert found[2::3][:2].min() > found[2::3][2:].max() + 2


def test_gradients_of_shared_parameters_match_differences():
    numbers, y = mixed_table(40)
    kernels, states = bound(numbers, np.ones(40))
    own = some_prior(kernels).theta
    hyper = hyper_prior(kernels, around=own + 0.3)
    ties = np.array([0, 1, 2, 3, 4, 2, 3, 4, 5])
    first = np.array([0, 1, 2, 3, 4, 8])
    parts = (hyper.centre, hyper.spread, hyper.low, hyper.high, hyper.heavy)
    shared = type(hyper)(*(part[first] for part in parts))
    ones = torch.ones(40, dtype=torch.float64)
    evidence = Evidence(kernels, states, torch.from_numpy(y[:, None]), ones, shared, ties)
    assert_gradient_matches_differences(evidence, own[first])


def test_weights_are_those_of_least_squares_between_none_and_all():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((400, 2))
    first, second = (y + rng.standard_normal((400, 2)) for _ in range(2))
    useless = rng.standard_normal((400, 2))
    weights = stacked(np.stack([first, second, useless], axis=-1), y, np.ones(400), np.full(3, 1 / 3))
    assert weights.sum() == pytest.approx(1)
    assert weights[0] == pytest.approx(0.5, abs=0.1)
    assert 0 <= weights[2] < 0.25
    # A row of weight 0 does not count.
    spoilt = np.stack([y, -y], axis=-1)
    spoilt[0] = 1e3
    ones = np.ones(400)
    ones[0] = 0
    assert stacked(spoilt, y, ones, np.full(2, 0.5))[0] > 0.99


def test_one_row_does_not_decide_the_weights():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((100, 1))
    good, poor = y + 0.1 * rng.standard_normal((100, 1)), np.zeros((100, 1))
    good[7] = 40.0
    assert stacked(np.stack([good, poor], axis=-1), y, np.ones(100), np.full(2, 0.5))[0] > 0.8


def test_predictions_that_hardly_differ_keep_the_usual_weights():
    rng, usual = np.random.default_rng(0), np.array([0.4, 0.3, 0.15, 0.1, 0.05])
    y = rng.standard_normal((200, 1))
    alike = y[..., None] + 1e-7 * rng.standard_normal((200, 1, 5))
    np.testing.assert_allclose(stacked(alike, y, np.ones(200), usual), usual, atol=1e-3)


def test_priors_are_weighed_by_what_they_predict():
    x, y = dense(60, 12, 0.3, 0)
    lines = prior.fit(x, y).mixture
    assert lines.weights.sum() == pytest.approx(1)
    assert (np.diff(lines.weights) <= 0).all()
    steps = prior.fit(x[:, :3], np.sign(x[:, 0]) + (x[:, 1] > 0.5)).mixture
    assert steps.posteriors[0].prior.power == JUMPING
    assert steps.weights[0] > 0.5


def test_jumps_are_found():
    rng = np.random.default_rng(0)
    x = rng.random((1300, 3))
    truth = 2.0 * (x[:, 0] > 0.3) - 3.0 * (x[:, 0] > 0.7) + (x[:, 1] > 0.5) * (x[:, 2] > 0.4)
    y = truth + 0.3 * rng.standard_normal(len(x))
    fitted = prior.fit(x[:300], y[:300])
    assert squares(fitted.predict(x[300:])[:, 0], truth[300:]) < 0.09


def test_a_tenth_of_the_columns_in_rows_is_enough_for_a_weak_signal():
    ours, ridge = [], []
    for seed in (0, 1):
        x, y = dense(700, 20, 2.0, seed)
        ours.append(squares(prior.fit(x[:200], y[:200]).predict(x[200:])[:, 0], y[200:]))
        ridge.append(squares(RidgeCV(np.logspace(-3, 4, 15)).fit(x[:200], y[:200]).predict(x[200:]), y[200:]))
    assert np.mean(ours) < np.mean(ridge) + 0.02


def test_residuals_of_rows_that_were_learned_from_grow():
    x, y = dense(300, 4, 0.5, 0)
    learner, targets = learner_of(x, y, np.arange(0, 300, 2))
    alike = learner.learn("alike", targets, "identity")
    smooth = learner.condition(learner.learn("smooth", targets, "identity", alike), targets)
    mixture = mix(learner, alike, smooth, targets, np.random.default_rng(0))
    honest = targets - mixture.left_out
    assert torch.allclose(mixture.residuals[1::2], honest[1::2])
    assert (mixture.residuals[::2].abs() > honest[::2].abs()).all()


def test_few_rows_of_steps_are_sums_that_may_jump():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, (60, 5)).astype(float)
    steps = rng.standard_normal((5, 6))
    y = sum(steps[k][x[:, k].astype(int)] for k in range(5)) + 0.5 * rng.standard_normal(60)
    learner, targets = learner_of(x, y)
    found = learner.learn("alike jumping", targets, "identity")
    assert found.alike
    assert found.power == JUMPING
    assert len(np.unique(found.relevance)) == len(np.unique(found.length)) == 1
    fitted = prior.fit(x, y)
    heaviest = fitted.mixture.posteriors[0].prior
    assert heaviest.sums
    assert heaviest.power == JUMPING
    # What is printed, and what tells the uncertainty, knows of interactions all the same.
    assert not fitted.spread.prior.sums
    assert not fitted.spread.prior.alike
    assert len(np.unique(fitted.spread.prior.relevance)) == 5


def test_usual_weights_count_as_many_rows_as_they_are_told_to():
    signal, noise = 0.3 * np.random.default_rng(0).choice([-1.0, 1.0], (2, 200, 1))
    signal = signal - noise * (signal * noise).mean() / (noise**2).mean()
    y = signal + noise
    predictions, usual = np.stack([signal, -signal], axis=-1), np.array([0.5, 0.5])
    found = {rows: stacked(predictions, y, np.ones(200), usual, rows)[1] for rows in (1, 12, 45, 1e6)}
    assert (np.diff(list(found.values())) > 0).all()
    assert found[1e6] == pytest.approx(0.5, abs=0.001)
    # The least of 200 s (2w)² + 2 rows σ² (½ - w)², with s the signal's mean square and σ² that of what is left at w.
    size = (signal**2).mean()
    left = (noise**2).mean() + size * (2 * found[45]) ** 2
    assert found[45] == pytest.approx(45 * left / (800 * size + 90 * left), rel=1e-3)


def test_a_prior_that_does_not_suit_gets_next_to_nothing_where_there_is_no_noise():
    y = np.random.default_rng(0).standard_normal((60, 1))
    predictions = np.stack([y, 0 * y], axis=-1)
    assert stacked(predictions, y, np.ones(60), np.array([0.5, 0.5]), 45)[1] < 0.01


def test_many_columns_share_their_scales(monkeypatch):
    monkeypatch.setattr("restt.prior.kinds.MOST_OWN_COLUMNS", 20)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 40))
    y = x @ rng.standard_normal(40) + rng.standard_normal(300)
    fitted = prior.fit(x[:100], y[:100])
    assert all(one.prior.alike for one in fitted.mixture.posteriors)
    assert np.ptp(fitted.prior.relevance) == 0
    error = np.mean((fitted.predict(x[100:])[:, 0] - y[100:]) ** 2) / y[100:].var()
    assert error < 0.1
    inside = fitted.predict_interval(x[100:])[..., 0]
    assert 0.85 < np.mean((inside[:, 0] < y[100:]) & (y[100:] < inside[:, 1])) <= 1


def test_a_sum_of_curves_and_one_interaction_is_not_taken_for_interactions_of_all():
    x, y = make_friedman1(2500, 10, noise=1.0, random_state=101)
    fitted = prior.fit(x[:500], y[:500])
    truth = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    assert np.mean((fitted.predict(x[500:])[:, 0] - truth[500:]) ** 2) < 0.13
    assert fitted.prior.apart[2:5].min() > 0.95
