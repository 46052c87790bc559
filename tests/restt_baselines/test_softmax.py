from __future__ import annotations

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from restt_baselines.registry import BASELINES
from tests.restt_baselines.cases import digits, score_after_fit
from tests.restt_baselines.image_cases import assert_every_parameter_gets_a_gradient

SOFTMAX = BASELINES["lr"]


def test_reaches_the_optimum_that_scikit_learn_finds():
    X, X_test, y, _ = digits()
    X, X_test, decay = X / 16, X_test / 16, 1e-2
    found = SOFTMAX.make("classification", weight_decay=decay, random_state=0, device="cpu").fit(X, y)
    # The penalty also weighs the biases: as the weight of a column of ones.
    exact = LogisticRegression(C=1 / (decay * len(X)), fit_intercept=False, tol=1e-8, max_iter=1000)
    exact.fit(np.c_[X, np.ones(len(X))], y)
    weight, bias = found.module_.parameters()
    np.testing.assert_allclose(weight[0].detach(), exact.coef_[:, :-1], atol=2e-3)
    np.testing.assert_allclose(bias[0].detach(), exact.coef_[:, -1], atol=2e-3)
    expected = exact.predict_proba(np.c_[X_test, np.ones(len(X_test))])
    np.testing.assert_allclose(found.predict_proba(X_test), expected, atol=1e-3)


def test_all_runs_reach_the_same_optimum():
    X, _, y, _ = digits(side=4)
    module = SOFTMAX.make("classification", runs=2, random_state=0, device="cpu").fit(X / 16, y).module_
    for parameter in module.parameters():
        torch.testing.assert_close(parameter[0], parameter[1])


def test_runs_may_have_rows_of_their_own():
    module = SOFTMAX.make("classification").build(6, 3, runs=2, seed=0)
    next(module.parameters()).data.copy_(torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(0)))
    x = torch.rand(2, 5, 6, generator=torch.Generator().manual_seed(1))
    for run in range(2):
        torch.testing.assert_close(module(x)[run], module(x[run])[run])


def test_every_parameter_gets_a_gradient():
    assert_every_parameter_gets_a_gradient(SOFTMAX.make("classification").build(64, 3, runs=2, seed=0))


def test_learns_digits():
    assert score_after_fit(SOFTMAX.make("classification", random_state=0, device="cpu"), digits()) > 0.95
