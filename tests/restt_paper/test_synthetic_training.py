from __future__ import annotations

import math

import pytest
import torch

from restt import data
from restt_paper.synthetic_training import choose_rate, hold_out, linear_regression, train_chains

SETTINGS = {
    "bond_dim": 4,
    "repeats": 2,
    "epochs": 12,
    "batch_size": 64,
    "weight_decay": 1e-6,
    "validation_fraction": 0.1,
    "seed": 0,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def dataset():
    return data.load("synthetic", d=2, n_train=600, n_test=300, spread="variance")


@pytest.fixture(scope="module")
def trained(dataset):
    return train_chains(dataset, "residual", rates=(1e-7, 2e-2), **SETTINGS)


def test_the_rate_is_the_best_on_held_out_rows(trained):
    means = {rate: sum(errors) / len(errors) for rate, errors in trained["validation_by_rate"].items()}
    assert trained["lr"] == 2e-2
    assert means["0.02"] < 0.5 * means["1e-07"]


def test_final_and_selected_are_the_curves_entries(trained):
    for repeat in range(SETTINGS["repeats"]):
        test, validation = (trained["curves"][name][repeat] for name in ("test", "validation"))
        epoch = trained["selected_epoch"][repeat]
        assert validation[epoch - 1] == min(validation)
        assert trained["selected"][repeat] == pytest.approx(test[epoch - 1], rel=1e-4)
        assert trained["final"][repeat] == pytest.approx(test[-1], rel=1e-4)
        assert trained["best_on_test"][repeat] == pytest.approx(min(test), rel=1e-4)


def test_repeats_differ_and_do_not_depend_on_the_other_rates(dataset, trained):
    alone = train_chains(dataset, "residual", rates=(2e-2,), **SETTINGS)
    assert alone["final"] == pytest.approx(trained["final"], rel=1e-4)
    assert alone["final"][0] != pytest.approx(alone["final"][1], rel=1e-3)


def test_the_plain_train_lacks_what_the_residual_one_has(dataset, trained):
    plain = train_chains(dataset, "plain", rates=(2e-2,), **SETTINGS)
    assert min(plain["selected"]) > 1.5 * max(trained["selected"])


def test_held_out_rows_are_no_training_rows(dataset):
    (x, _), (held, y_held) = hold_out(dataset, 0.1)
    assert (len(x), len(held)) == (540, 60)
    torch.testing.assert_close(torch.cat([x, held]), dataset.x_train)
    torch.testing.assert_close(y_held, dataset.y_train[-60:])


def test_linear_regression_is_least_squares_on_the_same_rows(dataset):
    (x, y), _ = hold_out(dataset, 0.1)
    columns, new = (torch.nn.functional.pad(part.flatten(1), (0, 1), value=1.0) for part in (x, dataset.x_test))
    fitted = torch.linalg.lstsq(columns, y[:, None]).solution[:, 0]
    expected = float((new @ fitted - dataset.y_test).square().mean().sqrt())
    assert linear_regression(dataset, 0.1)["final"] == pytest.approx([expected], rel=1e-4)


@pytest.mark.parametrize(("lost", "chosen"), [((1, slice(None)), 1), ((0, 1), 2)], ids=["a rate", "a repeat"])
def test_a_rate_that_explodes_is_not_chosen(lost, chosen):
    errors = torch.tensor([[[0.1, 0.1], [0.5, 0.5]], [[0.2, 0.2], [0.4, 0.4]]])  # (epochs, rates, repeats)
    errors[:, lost[0], lost[1]] = math.nan
    assert choose_rate(dict.fromkeys(("training", "validation", "test"), errors), (1, 2))["lr"] == chosen


def test_an_exploded_repeat_has_no_selected_error():
    errors = torch.tensor([[[0.1, math.nan]], [[0.2, math.nan]]])
    found = choose_rate(dict.fromkeys(("training", "validation", "test"), errors), (1,))
    assert found["selected"] == pytest.approx([0.1, math.nan], nan_ok=True)
    assert found["final"] == pytest.approx([0.2, math.nan], nan_ok=True)
