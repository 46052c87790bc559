import math

import numpy as np
import pytest
import torch

from restt import baselines
from restt.features.formulas import PAPER_ANGLE
from restt_baselines.registry import BASELINES
from tests.restt_baselines.cases import (
    assert_is_a_proper_estimator,
    assert_runs_are_independent,
    diabetes,
    digits,
    score_after_fit,
    small_table,
)

MEANTT = BASELINES["meantt"]
TENSOR_TRAIN = BASELINES["tt"]

BOTH = (TENSOR_TRAIN, MEANTT)


@pytest.mark.parametrize("baseline", BOTH)
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_output_is_the_product_of_one_matrix_per_column(baseline, columns):
    estimator = baseline.make("regression", bond_dim=3, angle=0.7)
    module = estimator.build(columns, 4, runs=2, seed=1).double()
    rows = torch.rand(6, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = module(estimator.feature_map()(rows)).detach().numpy()
    first, chain, last = (
        None if value is None else value.detach().numpy() for value in (module.first, module.chain, module.last_chain)
    )
    for run in range(2):
        for row, x in enumerate(rows.numpy()):
            product = math.cos(0.7 * x[0]) * first[run, 0] + math.sin(0.7 * x[0]) * first[run, 1]
            for n in range(1, columns):
                core = last[run] if n == columns - 1 else chain[run, n - 1]
                product = product @ (math.cos(0.7 * x[n]) * core[0] + math.sin(0.7 * x[n]) * core[1])
            np.testing.assert_allclose(found[run, row], product, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("baseline", BOTH)
def test_before_training_rows_correlate_as_the_product_of_cosines(baseline):
    angle, difference = 0.8, torch.tensor([0.9, -0.5, 0.3, 1.0])
    estimator = baseline.make("regression", bond_dim=8, angle=angle)
    module = estimator.build(4, 20, runs=300, seed=0)
    base = torch.tensor([0.0, 0.6, 0.2, 0.0])
    with torch.no_grad():
        outputs = module(estimator.feature_map()(torch.stack([base, base + difference])))  # (S, 2, O)
    expected = (angle * difference).cos().prod().item()
    assert 0.4 < expected < 0.6
    assert torch.corrcoef(outputs.transpose(0, 1).flatten(1))[0, 1].item() == pytest.approx(expected, abs=0.06)


def test_meantt_starts_with_the_papers_variance():
    """N(0, σ²/r) for all tensors, σ² = 1 for site vectors of length 1."""
    module = MEANTT.make("classification", bond_dim=16).build(40, 10, runs=3, seed=0)
    for parameter in module.parameters():
        assert parameter.var().item() == pytest.approx(1 / 16, rel=0.35)
    assert module.chain.var().item() == pytest.approx(1 / 16, rel=0.02)


def test_tt_keeps_the_length_of_every_state():
    estimator = TENSOR_TRAIN.make("classification", bond_dim=6)
    module = estimator.build(30, 10, runs=1, seed=0)
    x = estimator.feature_map()(torch.rand(30, generator=torch.Generator().manual_seed(0)))
    with torch.no_grad():
        state = x[0] @ module.first[0]
        steps = torch.einsum("ni,niab->nab", x[1:-1], module.chain[0])
        begun = state.norm().item()
        for step in steps:
            state = state @ step
    assert state.norm().item() == pytest.approx(begun, rel=1e-4)


def test_defaults_are_our_recipe_and_the_papers():
    assert baselines.make("tt").get_params()["init"] == "orthogonal"
    paper = baselines.make("meantt").get_params()
    assert (paper["init"], paper["loss"], paper["schedule"]) == ("paper", "mse", "cosine")
    assert paper["angle"] < PAPER_ANGLE
    assert (paper["batch_size"], paper["weight_decay"]) == (512, 1e-6)


def test_tt_learns_digits():
    estimator = baselines.make("tt", epochs=30, batch_size=128, random_state=0)
    assert score_after_fit(estimator, digits()) > 0.95


def test_meantt_learns_digits_of_16_pixels():
    estimator = baselines.make("meantt", epochs=30, batch_size=128, lr=1e-2, random_state=0)
    assert score_after_fit(estimator, digits(side=4)) > 0.85


@pytest.mark.parametrize("name", ["tt", "meantt"])
def test_learns_diabetes(name):
    assert score_after_fit(baselines.make(name, task="regression", random_state=0), diabetes()) > 0.2


@pytest.mark.parametrize("baseline", BOTH)
def test_runs_are_independent(baseline):
    assert_runs_are_independent(baseline.make("regression", bond_dim=3))


@pytest.mark.parametrize("baseline", BOTH)
def test_is_a_proper_estimator(baseline):
    assert_is_a_proper_estimator(baseline.make, bond_dim=3)


def test_images_are_rows_of_pixels():
    X, y = small_table("classification", columns=6)
    flat, shaped = (TENSOR_TRAIN.make("classification", bond_dim=3, epochs=2, random_state=0) for _ in range(2))
    images = X.reshape(-1, 2, 3)
    assert np.array_equal(flat.fit(X, y).predict_proba(X), shaped.fit(images, y).predict_proba(images))


@pytest.mark.parametrize(
    ("setting", "words"),
    [({"angle": 0.0}, "angle"), ({"bond_dim": 0}, "bond_dim"), ({"init": "zeros"}, "init")],
)
def test_bad_settings_are_named(setting, words):
    X, y = small_table("classification")
    with pytest.raises(ValueError, match=words):
        TENSOR_TRAIN.make("classification", **setting).fit(X, y)
