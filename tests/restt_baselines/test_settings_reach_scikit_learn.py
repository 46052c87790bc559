"""Settings of the baselines that wrap scikit-learn arrive there."""

from __future__ import annotations

import numpy as np
import pytest

from restt_baselines import make


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_restarts_of_the_gaussian_process_and_their_seed_are_passed_on(task):
    (process,) = make("gp", task=task, restarts=3, random_state=7).steps(2)
    assert (process.n_restarts_optimizer, process.random_state) == (3, 7)


def test_a_lasso_that_needs_many_sweeps_gets_them():
    # Columns that are nearly one another's copies make coordinate descent crawl along their difference.
    generator = np.random.default_rng(0)
    common = generator.normal(size=(60, 1))
    x = common + 0.02 * generator.normal(size=(60, 4))
    y = x @ [3.0, -2.0, 1.0, -1.0]
    fitted = make("lar", task="regression", alpha=1e-5).fit(x, y)
    assert fitted.model_[-1].n_iter_ > 1000
    assert fitted.score(x, y) > 0.99
