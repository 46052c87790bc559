"""Slopes of the log variance of residuals: the minimum of their penalised likelihood."""

import numpy as np
import pytest
from scipy.optimize import minimize

from restt.prior.predictive import scale_slopes


def penalised(slopes, level, squares, features, spread):
    """Negative log likelihood of normal residuals and of Student's density with two degrees of freedom on slopes."""
    log = level + features @ slopes
    return (log + squares * np.exp(-log)).sum() / 2 + 1.5 * np.log(1 + slopes**2 / (2 * spread**2)).sum()


@pytest.mark.parametrize("spread", [0.05, 0.5])
def test_slopes_minimise_the_penalised_likelihood(spread):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((60, 2))
    residuals = rng.standard_normal(60) * np.exp(0.4 * features[:, 0])
    squares = residuals**2 / np.mean(residuals**2)
    best = minimize(
        lambda p: penalised(p[1:], p[0], squares, features, spread),
        np.zeros(3),
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-12, "maxiter": 4000},
    )
    slopes = scale_slopes(residuals[:, None], features, np.ones(60), spread)
    assert slopes == pytest.approx(best.x[1:], abs=2e-4)


def test_residuals_of_nothing_have_no_slopes():
    assert scale_slopes(np.zeros((5, 1)), np.ones((5, 2)), np.ones(5), 0.5).tolist() == [0.0, 0.0]
