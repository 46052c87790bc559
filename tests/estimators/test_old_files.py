"""Models saved by earlier code load and predict what they predicted then."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from restt.estimators import ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor, load
from restt.explain import effect

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


def test_a_closed_form_model_of_0_8_is_not_exported(tmp_path):
    with pytest.raises(ValueError, match=r"saved by restt 0\.8: fit it again to export it"):
        load(FIXTURES / "posterior-log.safetensors").export(tmp_path / "m.onnx")
