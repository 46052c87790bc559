from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from restt import prior
from restt.prior.evidence import Evidence
from restt.prior.learning import Prior, hyper_prior
from restt.prior.mixture import Learner
from restt.prior.posterior import Posterior
from restt.prior.tails import heavy_tailed, is_worth_it, trust_of
from tests.prior.problems import assert_gradient_matches_differences, bound, mixed_table, some_prior
from tests.prior.test_mixture import learner_of


def table(rows: int, seed: int, tails: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y with noise of these tails, and y without noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 3))
    truth = x[:, 0] + np.sin(2 * x[:, 1])
    noise = 0.2 * rng.standard_normal(rows)
    if tails == "outliers":
        noise += (rng.random(rows) < 0.03) * rng.choice([-1, 1], rows) * rng.uniform(10, 30, rows)
    if tails == "student":
        noise = 0.5 * rng.standard_t(2, rows)
    return x, truth + noise, truth


def learned(learner: Learner, targets: torch.Tensor) -> tuple[Prior, Posterior]:
    alike = learner.learn("alike", targets, "identity")
    return alike, learner.condition(learner.learn("smooth", targets, "identity", alike), targets)


@pytest.mark.parametrize("tails", ["outliers", "student"])
def test_a_few_wild_values_of_y_do_not_spoil_the_rest(tails):
    x, y, truth = table(1200, 0, tails)
    fitted = prior.fit(x[:200], y[:200])
    away = fitted.predict(x[200:])[:, 0] - truth[200:]
    assert np.mean(away**2) < 0.05 * truth.var()
    ends = fitted.predict_interval(x[200:])[..., 0]
    # Of 200 rows, whose own luck it depends on.
    assert 0.84 < np.mean((ends[:, 0] <= y[200:]) & (y[200:] <= ends[:, 1])) < 0.96


def test_normal_noise_is_left_as_it_is():
    x, y, _ = table(150, 0, "normal")
    learner, targets = learner_of(x, y)
    assert heavy_tailed(learner, *learned(learner, targets), targets) is None


def test_a_mean_of_all_priors_that_needs_no_distrust_has_none(monkeypatch):
    x, y, _ = table(120, 1, "outliers")
    fit = sys.modules["restt.prior.fit"]
    trusting = prior.fit(x, y, scale="identity")
    monkeypatch.setattr(fit, "is_worth_it", lambda first, even, weights: False)
    found = prior.fit(x, y, scale="identity")
    monkeypatch.setattr(fit, "heavy_tailed", lambda *arguments: None)
    even = prior.fit(x, y, scale="identity")
    assert np.array_equal(found.predict(x), even.predict(x))
    assert np.array_equal(found.predict_interval(x), even.predict_interval(x))
    assert not np.allclose(found.predict(x), trusting.predict(x))


def test_residuals_speak_for_and_against_distrust():
    rng = np.random.default_rng(0)
    wild = (rng.random(300) < 0.05) * 10.0 * rng.choice([-1, 1], 300)
    ones = torch.ones(300)
    sure = torch.from_numpy(0.2 * rng.standard_normal(300) + 1.1 * wild)[:, None]
    pulled = torch.from_numpy(0.8 * rng.standard_normal(300) + wild)[:, None]
    # Wild rows predicted worse, the others much better.
    assert sure.square().mean() > pulled.square().mean()
    assert is_worth_it(sure, pulled, ones)
    assert not is_worth_it(pulled, 0.9 * pulled, ones)
    assert is_worth_it(0.9 * pulled, pulled, ones)
    # A group of like rows that one of them knows.
    group = torch.from_numpy(0.2 * rng.standard_normal(300) + 3.0 * (np.arange(300) < 15))[:, None]
    known = torch.from_numpy(0.24 * rng.standard_normal(300))[:, None]
    assert not is_worth_it(group, known, ones)


def test_wild_rows_are_trusted_less_than_others():
    x, y, truth = table(150, 1, "outliers")
    learner, targets = learner_of(x, y)
    found = heavy_tailed(learner, *learned(learner, targets), targets)
    assert found is not None
    trust, wild = found[0].trust.numpy(), np.abs(y - truth) > 5
    assert trust[wild].max() < 0.05 < 0.3 < np.median(trust[~wild])


def test_gradients_with_trust_match_differences():
    numbers, y = mixed_table(40)
    weights = np.random.default_rng(3).random(40) + 0.5
    kernels, states = bound(numbers, weights)
    trust = trust_of(torch.linspace(0, 30, 40, dtype=torch.float64), 1)
    given = torch.from_numpy(y[:, None]), torch.from_numpy(weights)
    evidence = Evidence(kernels, states, *given, hyper_prior(kernels), trust=trust)
    assert_gradient_matches_differences(evidence, some_prior(kernels).theta)


def test_rows_of_a_long_table_that_are_wild_are_trusted_less_too():
    x, y, truth = table(900, 2, "outliers")
    fitted = prior.fit(x, y, max_rows=200)
    assert np.mean((fitted.predict(x)[:, 0] - truth) ** 2) < 0.03 * truth.var()
