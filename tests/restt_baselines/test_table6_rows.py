"""The paper's Table VI on its split: the rows of the baselines whose settings could be found."""

from __future__ import annotations

import numpy as np
import pytest

from restt import baselines
from restt_paper.table import paper_numbers
from restt_paper.table6 import PAPER_SETTINGS
from tests.data.conftest import load_or_skip as load_or_skip

PAPER_NAMES = {"lr": "LR", "pr": "PR", "rr": "RR", "prr": "PRR", "lar": "LaR", "plar": "PLaR", "svr": "SVR"}
TITLES = {"boston": "Boston", "ale": "ALE"}
# The paper prints R² with three digits behind the point; these baselines have all three right.
EXACT = {"boston": ("lr", "pr", "rr", "lar", "plar", "svr"), "ale": ("lr", "pr", "rr", "prr", "lar", "svr")}
CASES = [(dataset, baseline) for dataset in TITLES for baseline in PAPER_NAMES]


@pytest.fixture(params=CASES, ids="-".join)
def row(request, load_or_skip):
    """Data set, baseline, our R² and RMSE, the paper's R² and RMSE."""
    dataset, baseline = request.param
    parts = load_or_skip(dataset).split()
    x, y, x_test, y_test = (part.numpy() for part in (parts.x_train, parts.y_train, parts.x_test, parts.y_test))
    model = baselines.make(baseline, task="regression", **PAPER_SETTINGS[dataset][baseline]).fit(x, y)
    rmse = np.sqrt(np.mean((model.predict(x_test) - y_test) ** 2))
    paper = paper_numbers()["table6_tabular"][TITLES[dataset]][PAPER_NAMES[baseline]]
    return dataset, baseline, (model.score(x_test, y_test), rmse), paper


def test_r2_is_the_papers(row):
    dataset, baseline, (r2, _), (paper_r2, _) = row
    if baseline in EXACT[dataset]:
        assert round(r2, 3) == paper_r2
    else:
        assert r2 == pytest.approx(paper_r2, abs=1e-3)


def test_rmse_is_the_papers_as_far_as_it_fits_its_own_r2(row):
    dataset, _, (_, rmse), (_, paper_rmse) = row
    if dataset == "boston":
        assert round(rmse, 2) == paper_rmse
    else:
        # The split fixes the variance, so the paper's R² and RMSE cannot both hold for ALE.
        assert rmse == pytest.approx(paper_rmse, abs=3e-3)


def test_the_defaults_are_the_settings_for_boston():
    for baseline, settings in PAPER_SETTINGS["boston"].items():
        estimator = baselines.make(baseline, task="regression")
        assert estimator.get_params() == baselines.make(baseline, task="regression", **settings).get_params()


def test_the_lasso_of_boston_leaves_nothing_of_ale(load_or_skip):
    parts = load_or_skip("ale").split()
    predicted = baselines.make("lar", task="regression").fit(parts.x_train, parts.y_train).predict(parts.x_test)
    np.testing.assert_allclose(predicted, parts.y_train.mean().item())
