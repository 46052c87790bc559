"""Beside shap, shapiq and scikit-learn's own tools."""

import contextlib

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import PartialDependenceDisplay, permutation_importance

from restt import ResTTClassifier, ResTTRegressor, explain
from tests.hasty import hasty_solvers

mpl.use("Agg")


@pytest.fixture(scope="module", autouse=True)
def interpreted():
    """What shap has numba compile takes seconds to compile and none to run."""
    with pytest.MonkeyPatch.context() as patch:
        with contextlib.suppress(ImportError):
            patch.setattr("numba.config.DISABLE_JIT", True)
        yield


@pytest.fixture(scope="module")
def fitted():
    """A regressor in closed form and its table."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.random((60, 3)), columns=["a", "b", "c"])
    return ResTTRegressor(effort="quick", random_state=0).fit(x, x["a"] + 2 * x["a"] * x["b"]), x


def test_shap_explanation(fitted):
    pytest.importorskip("shap")
    model, x = fitted
    found = model.explain_local(x[:5])
    other, latent = found.to_shap(), found.to_shap(scale="latent")
    np.testing.assert_array_equal(latent.values, found.values[..., 0])
    np.testing.assert_allclose(latent.base_values + latent.values.sum(1), found.predictions[:, 0], atol=1e-10)
    np.testing.assert_allclose(other.base_values + other.values.sum(1), model.predict(x[:5]), atol=1e-10)
    assert other.feature_names == ["a", "b", "c"]
    assert other[0].data[0] == x["a"][0]


def test_shap_explainer_takes_an_estimator(fitted):
    shap = pytest.importorskip("shap")
    model, x = fitted
    found = shap.Explainer(model, x[:10])(x[:3])
    assert isinstance(found, shap.Explanation)
    np.testing.assert_allclose(found.base_values + found.values.sum(1), model.predict(x[:3]), atol=1e-8)
    with pytest.raises(ValueError, match="masker cannot be None"):  # shap keeps no rows; to_shap() needs none
        shap.Explainer(model)(x[:3])


def test_a_classifier_called_gives_probabilities(fitted):
    _, x = fitted
    with hasty_solvers():
        model = ResTTClassifier(random_state=0).fit(x, x["a"] > 0.5)
    np.testing.assert_array_equal(model(x[:4]), model.predict_proba(x[:4]))


def test_shapiq_values(fitted, monkeypatch):
    shapiq = pytest.importorskip("shapiq")
    model, x = fitted
    found = model.explain_local(x[:5]).on("y")
    values = found.to_shapiq(row=2)
    assert isinstance(values, shapiq.InteractionValues)
    assert values[(1,)] == pytest.approx(float(found.values[2, 1, 0]))
    assert values.baseline_value == pytest.approx(float(found.base[0]))
    with pytest.raises(ValueError, match="output must be at most 0"):
        found.to_shapiq(output=1)
    with monkeypatch.context() as patch:
        patch.setattr("restt.explain.local_explanation.version", lambda name: "1.3.9")
        with pytest.raises(ImportError, match=r"needs shapiq 1\.4, .* got 1\.3\.9"):
            found.to_shapiq()


def test_a_missing_package_is_named(fitted, monkeypatch):
    model, x = fitted
    monkeypatch.setitem(__import__("sys").modules, "shap", None)
    with pytest.raises(ImportError, match="pip install shap"):
        model.explain_local(x[:1]).to_shap()


def test_partial_dependence_display(fitted):
    model, x = fitted
    shown = PartialDependenceDisplay.from_estimator(model, x, ["a"], grid_resolution=5)
    average = shown.pd_results[0]["average"][0]
    at = shown.pd_results[0]["grid_values"][0]
    wanted = [model.predict(x.assign(a=value)).mean() for value in at]
    np.testing.assert_allclose(average, wanted, atol=1e-8)


def test_permutation_importance_ranks_columns(fitted):
    model, x = fitted
    found = permutation_importance(model, x, x["a"] + 2 * x["a"] * x["b"], n_repeats=3, random_state=0)
    assert found.importances_mean.argmax() == 0
    assert found.importances_mean.argmin() == 2
    assert explain.explain_global(model, x).names == ("a", "b", "c")
