"""Models saved by earlier code load and predict what they predicted then."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import yeojohnson

from restt.estimators import ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor, load
from restt.estimators.saved import _level_table, _number_table, _yeo_johnson
from restt.explain import effect
from restt.prior.sites import Site

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
PROBE = pd.DataFrame(EXPECTED["rows"], columns=EXPECTED["columns"])


def test_a_regressor_of_before():
    model = load(FIXTURES / "regressor.safetensors")
    assert isinstance(model, ResTTNetRegressor)
    assert PROBE["size"].isna().any()
    np.testing.assert_allclose(model.predict(PROBE), EXPECTED["regression"], rtol=1e-12)
    with pytest.warns(UserWarning, match="the category 'violet' in row 0"):
        np.testing.assert_allclose(model.predict(PROBE.assign(colour="violet")), EXPECTED["unknown"], rtol=1e-12)
    assert model.site_means_.equal(torch.zeros(4, 9, dtype=torch.float64))
    # It was fitted when this was an error.
    with pytest.raises(ValueError, match="column 'count' misses 10"):
        model.predict(PROBE.assign(count=np.nan))
    assert model.n_iter_ == len(model.history_) == 12


def test_a_classifier_of_before():
    model, table = load(FIXTURES / "classifier.safetensors"), PROBE.drop(columns="colour")
    assert isinstance(model, ResTTNetClassifier)
    np.testing.assert_allclose(model.predict_proba(table), EXPECTED["probabilities"], rtol=1e-12)
    assert model.predict(table).tolist() == EXPECTED["classes"]
    assert model.site_means_ is None


def test_a_model_of_before_saved_again_is_the_same(tmp_path):
    model = load(FIXTURES / "regressor.safetensors")
    again = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(PROBE), model.predict(PROBE))
    assert again.get_params() == model.get_params()


POSTERIOR = json.loads((FIXTURES / "posterior.json").read_text())


@pytest.mark.parametrize("scale", ["identity", "sqrt", "log", "asinh"])
def test_a_closed_form_model_of_0_8(scale, tmp_path):
    """Predictions, deviations and intervals, also far outside and with missing values."""
    table, expected = pd.DataFrame(POSTERIOR["rows"], columns=POSTERIOR["columns"]), POSTERIOR[scale]
    model = load(FIXTURES / f"posterior-{scale}.safetensors")
    assert isinstance(model, ResTTRegressor)
    assert model.target_.label == expected["label"]
    for again in (model, load(model.save(tmp_path / "model"))):
        mean, std = again.predict(table, return_std=True)
        np.testing.assert_allclose(mean, expected["predictions"], rtol=1e-6)
        np.testing.assert_allclose(std, expected["deviations"], rtol=1e-6)
        np.testing.assert_allclose(again.predict_interval(table, 0.8), expected["intervals"], rtol=1e-6)
        assert effect(again, "size", grid=np.array([-1.0, 0.0, 2.0])).spread_over == "members"
        assert again.feature_importances_.sum() == pytest.approx(1.0)


def table_of(values: np.ndarray, counts: np.ndarray, bend: float, line: float) -> np.ndarray:
    """The covariance of a number in a model of 0.8, its size 2, the length exp(0.3) and the power 1.5."""
    share = torch.from_numpy(counts / counts.sum())
    site = Site(tuple(values), tuple(values / 2), tuple(values))
    table = _number_table(site, torch.diag(share), np.array([np.log(2.0), 0.3, line]), 1.5, bend, False)
    centred = np.eye(len(share)) - share.numpy()
    np.testing.assert_allclose(table, centred @ table.numpy() @ centred.T, atol=1e-12)
    assert float(share @ table.diagonal()) == pytest.approx(2.0)
    return table.numpy() / float(table[0, 0])


def test_a_number_of_0_8_has_a_curve_a_parabola_and_a_line():
    values, counts = np.array([-2.0, -0.5, 1.0, 12.0]), np.array([2.0, 3.0, 4.0, 1.0])
    share = counts / counts.sum()
    centred = np.eye(4) - share

    def unit(table: np.ndarray) -> np.ndarray:
        found = centred @ table @ centred.T
        return found / found[0, 0]

    away = np.abs(values[:, None] - values) / 2
    curve = np.exp(-0.5 * (away / np.exp(0.3)) ** 1.5)
    np.testing.assert_allclose(table_of(values, counts, 0.0, -50.0), unit(curve), rtol=1e-10)
    np.testing.assert_allclose(table_of(values, counts, 0.0, 50.0), unit(np.outer(values, values)), rtol=1e-10)
    bounded = np.clip(values, -2.5, 2.5)  # a parabola beside its line, without tails
    root = np.sqrt(share)
    design = np.stack([np.ones(4), bounded], 1)
    rest = bounded**2 - design @ np.linalg.lstsq(root[:, None] * design, root * bounded**2)[0]
    np.testing.assert_allclose(table_of(values, counts, 1.0, -50.0), unit(np.outer(rest, rest)), rtol=1e-8)
    # Where values are transformed, so is the half of a position that is the value.
    even = _yeo_johnson(values, share)
    made = [
        _number_table(Site(tuple(values), tuple(place), tuple(at)), torch.diag(torch.from_numpy(share)), *given)
        for place, at, given in (
            (values / 2, values, (np.array([0.1, 0.3, 0.2]), 1.5, 0.4, True)),
            (even / 2, even, (np.array([0.1, 0.3, 0.2]), 1.5, 0.4, False)),
        )
    ]
    torch.testing.assert_close(*made)
    # A column of two values has none.
    two = [table_of(values[:2], counts[:2], bend, -50.0) for bend in (0.0, 1.0)]
    np.testing.assert_allclose(two[1], two[0], rtol=1e-12)


def test_levels_of_0_8_are_independent_and_centred():
    share = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    centred = torch.eye(3, dtype=torch.float64) - share
    expected = centred @ centred.T
    torch.testing.assert_close(
        _level_table(share, np.array([np.log(2.0)])), 2 * expected / (share @ expected.diagonal())
    )
    assert not _level_table(torch.tensor([1.0, 0.0], dtype=torch.float64), np.array([0.0])).any()


def test_values_of_0_8_are_made_normal_by_the_likeliest_power():
    values = np.array([-1.0, -0.9, -0.5, 0.2, 1.5, 4.0])
    expected, _ = yeojohnson(values)
    found = _yeo_johnson(values, np.ones(6))
    np.testing.assert_allclose(found, (expected - expected.mean()) / expected.std(), atol=1e-4)
    # Values beyond those of rows are no further away from them than they were.
    values = np.r_[-9.0, -3.0, values, 5.0, 9.0]
    inner, power = yeojohnson(values[2:8])
    moved = (yeojohnson(values, power) - inner.mean()) / inner.std()
    moved[:2] = np.maximum(moved[:2], moved[2] + values[:2] - values[2])
    moved[8:] = np.minimum(moved[8:], moved[7] + values[8:] - values[7])
    np.testing.assert_allclose(_yeo_johnson(values, np.r_[0, 0, np.ones(6), 0, 0]), moved, atol=1e-3)
    values = values[2:8]
    assert _yeo_johnson(values, np.array([1.0, 0, 0, 0, 0, 1])) is values  # two values have no shape


def test_a_closed_form_model_of_0_8_is_not_exported(tmp_path):
    with pytest.raises(ValueError, match=r"saved by restt 0\.8: fit it again to export it"):
        load(FIXTURES / "posterior-log.safetensors").export(tmp_path / "m.onnx")
