"""Models saved by earlier code load and predict what they predicted then."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from restt.estimators import ResTTClassifier, ResTTRegressor, load

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
PROBE = pd.DataFrame(EXPECTED["rows"], columns=EXPECTED["columns"])


def test_a_regressor_of_before():
    model = load(FIXTURES / "regressor.safetensors")
    assert isinstance(model, ResTTRegressor)
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
    assert isinstance(model, ResTTClassifier)
    np.testing.assert_allclose(model.predict_proba(table), EXPECTED["probabilities"], rtol=1e-12)
    assert model.predict(table).tolist() == EXPECTED["classes"]
    assert model.site_means_ is None


def test_a_model_of_before_saved_again_is_the_same(tmp_path):
    model = load(FIXTURES / "regressor.safetensors")
    again = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(PROBE), model.predict(PROBE))
    assert again.get_params() == model.get_params()
