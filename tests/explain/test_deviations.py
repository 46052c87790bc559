"""Error bars of values in y's units: the linearised functional, where it has a closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from restt import ResTTClassifier, ResTTRegressor, load
from restt.explain import effect
from restt.explain.subject import Subject
from restt.prior.functionals import product_covariance


@pytest.fixture(scope="module")
def model() -> ResTTRegressor:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 1))
    found = ResTTRegressor(random_state=0).fit(x, np.exp(x[:, 0] + 0.3 * rng.standard_normal(40)))
    assert found.target_.model.power < 0.8
    assert len(found.spread_.numbers) == found.spread_.rows
    return found


def test_one_columns_deviation_is_that_of_the_difference_of_predictions(model):
    """With one column ∫ d/dt [g'(f) δf] dt is g'(f(x)) δf(x) - g'(f(μ)) δf(μ)."""
    x = np.array([[-1.5], [0.4], [1.6]])
    found = model.explain_local(x).on("y")
    subject, posterior = Subject.of(model), model.spread_
    means = subject.means(None)
    points = torch.cat([subject.vectors(x), means[None]])
    slopes = torch.from_numpy(found.link.slopes(subject.decide(points).numpy())[:, 0, 0])
    products, seen = subject.by_column(points), posterior.kernel.vectors(posterior.inducing)
    for row in range(3):
        weight = torch.zeros(4, dtype=torch.float64)
        weight[row], weight[3] = slopes[row], -slopes[3]
        variances, middles = [], []
        for _, process, root, mean in posterior.members:
            cross = product_covariance(process, products, seen)
            known = cross @ root.T
            variances.append(
                float(weight @ (product_covariance(process, products, products) - known @ known.T) @ weight)
            )
            middles.append(float(weight @ cross @ mean[:, 0]))
        share = posterior.weights
        between = share @ (np.array(middles) - share @ np.array(middles)) ** 2
        expected = np.sqrt(share @ np.array(variances) + between) * float(model.target_.scale[0])
        assert found.std[row, 0, 0] == pytest.approx(expected, rel=2e-3)


def test_a_row_and_a_loaded_model_have_the_same(model, tmp_path):
    x = np.array([[-1.0], [0.5]])
    found = model.explain_local(x)
    for scale in ("y", "latent"):
        np.testing.assert_allclose(found.on(scale)[1].std, found.on(scale).std[1:], rtol=1e-10)
        np.testing.assert_allclose(found[1].on(scale).std, found.on(scale).std[1:], rtol=1e-10)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model").explain_local(x)
    np.testing.assert_allclose(again.std, found.std, rtol=1e-9)
    assert found.to_frame()["std"].tolist() == found.on("y").std[..., 0].ravel().tolist()


def test_a_term_of_a_row_has_the_deviation_of_the_effect_there(model):
    x = np.array([[-1.5], [0.4]])
    values, std = model.explain_local(x).interaction(0)
    curve = effect(model, 0, grid=x[:, 0])
    np.testing.assert_allclose(values, curve.values, rtol=1e-9)
    np.testing.assert_allclose(std, curve.spread, rtol=1e-9)
    assert (std > 0).all()
    with pytest.raises(ValueError, match="columns must be one or more, got none"):
        model.explain_local(x).interaction([])


def test_models_without_a_closed_form_posterior_have_none(two_classes):
    found = two_classes.model.explain_local(two_classes.table[:2])
    assert found.std is None
    assert found.on("y").std is None
    values, std = found.interaction(["size", "colour"])
    assert values.shape == (2, 1)
    assert std is None


@pytest.mark.usefixtures("hasty")
def test_a_closed_form_classifier_has_none(tmp_path):
    x = np.random.default_rng(0).standard_normal((40, 2))
    model = ResTTClassifier(random_state=0).fit(x, x[:, 0] > 0)
    found = model.explain_local(x[:2])
    assert found.std is None
    assert found.on("y").std is None
    assert found.interaction([0, 1])[1] is None
    assert "std" not in found.to_frame()
    assert "no standard deviations: ResTTClassifier" in repr(found)
    assert "no standard deviations: ResTTClassifier" in repr(model.explain_global())
    assert model.module_.runs > 1  # parts of one average, no members
    model.save(tmp_path / "model")
    for each in (model, load(tmp_path / "model")):
        curve = effect(each, 0)
        assert (curve.spread_over, float(curve.spread.max())) == ("none", 0.0)
