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


@pytest.fixture(scope="module", params=[2, 3], ids=["two classes", "three classes"])
def classes(request) -> ResTTClassifier:
    x = np.random.default_rng(0).standard_normal((40, 1))
    y = np.digitize(x[:, 0] ** 2 + 0.3 * np.random.default_rng(1).standard_normal(40), [0.5, 1.2][: request.param - 1])
    found = ResTTClassifier(effort="quick", random_state=0).fit(x, y)
    assert found.posterior_.share == 1
    return found


def test_probabilities_are_linearised_in_all_logits(classes):
    """With one column ∫ d/dt [g'(f) δf] dt is g'(f(x)) δf(x) - g'(f(μ)) δf(μ), of all classes together."""
    x = np.array([[-1.2], [0.3], [1.1]])
    found = classes.explain_local(x).on("y")
    subject, posterior = Subject.of(classes), classes.posterior_
    points = torch.cat([subject.vectors(x), subject.means(None)[None]])
    slopes = torch.from_numpy(found.link.slopes(subject.decide(points).numpy())) @ posterior.readouts  # (4, D, H)
    products, seen = subject.by_column(points), posterior.kernel.vectors(posterior.contrasts.inducing)
    for row, d in np.ndindex(3, len(posterior.outputs)):
        weight = torch.zeros(4, len(posterior.basis), dtype=torch.float64)
        weight[row], weight[3] = slopes[row, d], -slopes[3, d]
        variances, middles = [], []
        for _, process, root, mean in posterior.contrasts.members:
            cross = (product_covariance(process, seen, products) @ weight).flatten()
            own = weight.T @ product_covariance(process, products, products) @ weight
            variances.append(float(own.trace() - (root @ cross).square().sum()))
            middles.append(float(cross @ mean[:, 0]))
        share = posterior.weights
        expected = np.sqrt(share @ np.array(variances) + share @ (np.array(middles) - share @ np.array(middles)) ** 2)
        assert found.std[row, 0, d] == pytest.approx(expected, rel=2e-3)


def test_a_classifiers_effects_terms_and_shares_have_deviations(classes, tmp_path):
    x = np.array([[-1.2], [0.3], [1.1]])
    classes.save(tmp_path / "model")
    for model in (classes, load(tmp_path / "model")):
        local, curve = model.explain_local(x), effect(model, 0, grid=x[:, 0])
        _, std = local.interaction(0)
        assert curve.spread_over == "posterior"
        np.testing.assert_allclose(curve.spread, std, rtol=1e-9)
        np.testing.assert_allclose(local.std[:, 0], std, rtol=1e-9)  # one column: its term is its Shapley value
        assert (local.std > 0).all()
        # Logits of three classes sum to 0, so that deviations of probabilities are not those of each alone.
        steps, slopes = curve.on("y").spread.numpy(), curve.link.slopes((curve.base + curve.values).numpy())
        alone = np.sqrt((slopes**2 @ (curve.spread.numpy() ** 2)[..., None])[..., 0])
        assert np.allclose(steps, alone) == (len(model.classes_) == 2)
        assert "P(> 1 %)" in repr(model.explain_global())
        np.testing.assert_allclose(model.explain_local(x).std, classes.explain_local(x).std, rtol=1e-9)


@pytest.mark.usefixtures("hasty")
def test_only_trains_have_no_deviations(tmp_path):
    x = np.random.default_rng(0).standard_normal((40, 2))
    model = ResTTClassifier(random_state=0).fit(x, x[:, 0] > 0)
    model.posterior_ = None
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
