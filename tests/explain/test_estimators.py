"""Fitted estimators are explained in their columns' names and order, on the decision scale."""

from __future__ import annotations

import copy
from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

from restt import ResTTNetRegressor, ResTTRegressor
from restt.explain import (
    effect,
    interaction,
    interaction_index,
    order_spectrum,
    polynomial,
    prune,
    shapley_values,
    sobol_indices,
    top_interactions,
)
from tests.explain import brute
from tests.explain.conftest import Fitted

FITTED = ["regressor", "two_outputs", "two_classes", "three_classes"]


def decision(fitted: Fitted) -> np.ndarray:  # (B, O)
    model = fitted.model
    values = model.predict(fitted.table) if hasattr(model.target_, "scale") else model.decision_function(fitted.table)
    return np.asarray(values).reshape(len(fitted.table), -1)


@pytest.fixture(params=FITTED)
def fitted(request: pytest.FixtureRequest) -> Fitted:
    return request.getfixturevalue(request.param)


def test_orders_and_shapley_values_sum_to_the_decision(fitted: Fitted) -> None:
    expected = decision(fitted)
    spectrum = order_spectrum(fitted.model, fitted.table)
    assert spectrum.shape == (90, 5, expected.shape[1])
    np.testing.assert_allclose(spectrum.sum(1), expected, rtol=1e-9, atol=1e-9)
    values = shapley_values(fitted.model, fitted.table)
    np.testing.assert_allclose(values.sum(1) + spectrum[:, 0], expected, rtol=1e-9, atol=1e-9)


def test_the_default_background_is_the_rows_of_the_fit(fitted: Fitted) -> None:
    with_rows = shapley_values(fitted.model, fitted.table[:5], fitted.table)
    torch.testing.assert_close(shapley_values(fitted.model, fitted.table[:5]), with_rows, rtol=1e-9, atol=1e-9)


def test_values_are_those_of_the_definition_in_the_tables_order(regressor: Fitted) -> None:
    model, frame = regressor.model, regressor.table
    vectors = model.encoding_.vectors(torch.from_numpy(model.numbers(frame)))
    means = vectors.mean(0)
    games = [brute.game(model.module_, row, means) for row in vectors[:3]]
    expected = torch.stack([brute.shapley(game) for game in games]) * torch.from_numpy(model.target_.scale)
    order = list(model.encoding_.order)
    assert order != sorted(order)
    found = shapley_values(model, frame[:3], frame)
    torch.testing.assert_close(found[:, order], expected, rtol=1e-9, atol=1e-9)
    pairs = torch.stack([brute.pair_index(game, "SII") for game in games]) * torch.from_numpy(model.target_.scale)
    index = interaction_index(model, frame[:3], frame)[:, order][:, :, order]
    off = ~torch.eye(4, dtype=torch.bool)
    torch.testing.assert_close(index[:, off], pairs[:, off], rtol=1e-9, atol=1e-9)


def test_terms_by_name_sum_to_the_prediction(regressor: Fitted) -> None:
    names = list(regressor.table.columns)
    subsets = [members for order in range(5) for members in combinations(names, order)]
    total = sum(interaction(regressor.model, regressor.table, members) for members in subsets)
    np.testing.assert_allclose(total, decision(regressor), rtol=1e-9)
    by_number = interaction(regressor.model, regressor.table, [1, 2])
    torch.testing.assert_close(interaction(regressor.model, regressor.table, ["count", "colour"]), by_number)


def test_sobol_indices_find_the_columns_and_the_pair(regressor: Fitted) -> None:
    found = sobol_indices(regressor.model, regressor.table)
    assert found.names == ("size", "colour", "count", "new")
    assert found.outputs == ("y",)
    pairs = found.pairs[..., 0].fill_diagonal_(0)
    assert divmod(int(pairs.argmax()), 4) == (1, 2)
    top = top_interactions(regressor.model, regressor.table, k=20)
    assert next(term.names for term in top.terms if len(term.names) == 2) == ("colour", "count")
    assert top.complete
    assert sum(float(term.share) for term in top.terms) == pytest.approx(1.0)


def test_stored_moments_serve_as_the_background(regressor: Fitted) -> None:
    model, frame = copy.copy(regressor.model), regressor.table
    vectors = model.encoding_.vectors(torch.from_numpy(model.numbers(frame)))
    expected = sobol_indices(model, frame)
    vars(model).pop("site_covariances_", None)
    with pytest.raises(ValueError, match="background must be given"):
        sobol_indices(model)
    model.site_means_ = vectors.mean(0)
    centred = vectors - model.site_means_
    model.site_covariances_ = torch.einsum("bni,bnj->nij", centred, centred) / len(frame)
    torch.testing.assert_close(sobol_indices(model).total, expected.total)


def test_a_map_that_is_not_centred_asks_for_a_background() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = ResTTNetRegressor(feature_map="trigonometric", epochs=5, random_state=0).fit(X, X[:, 0])
    vars(model).pop("site_means_", None)
    with pytest.raises(ValueError, match="background must be given: this estimator did not keep the mean"):
        order_spectrum(model, X)
    spectrum = order_spectrum(model, X, background=X)
    np.testing.assert_allclose(spectrum.sum(1)[:, 0], model.predict(X), rtol=1e-9)


@pytest.mark.parametrize("columns", ["size", "colour", ["size", "colour"], ["count", "new"]])
def test_effects_are_terms_and_integrate_to_zero(regressor: Fitted, columns: str | list[str]) -> None:
    model, frame = regressor.model, regressor.table
    chosen = [columns] if isinstance(columns, str) else columns
    grids = [frame[name].to_numpy() for name in chosen]
    found = effect(model, columns, frame, grid=grids[0] if len(chosen) == 1 else grids)
    assert found.names == tuple(chosen)
    for axis in range(len(chosen)):
        assert float(found.values.mean(dim=axis).abs().max()) < 1e-9
    own = found.values if len(chosen) == 1 else found.values[torch.arange(90), torch.arange(90)]
    torch.testing.assert_close(own, interaction(model, frame, chosen, frame), rtol=1e-9, atol=1e-9)


def test_the_spread_of_an_effect_is_that_of_its_members(regressor: Fitted) -> None:
    model, frame = regressor.model, regressor.table
    vectors = model.encoding_.vectors(torch.from_numpy(model.numbers(frame)))
    absent = vectors.mean(0).expand_as(vectors).clone()
    site = model.encoding_.order.index(0)
    moved = absent.clone()
    moved[:, site] = vectors[:, site]
    with torch.no_grad():
        members = (model.module_(moved) - model.module_(absent)) * float(model.target_.scale[0])
    found = effect(model, "size", frame, grid=frame["size"])
    torch.testing.assert_close(found.values, members.mean(0), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.spread, members.std(0, correction=0), rtol=1e-8, atol=1e-8)


def test_grids_are_on_the_columns_own_scale(regressor: Fitted) -> None:
    model, frame = regressor.model, regressor.table
    numbers = effect(model, "size").grids[0]
    assert np.isnan(numbers[-1])
    assert numbers[0] == frame["size"].min()
    assert np.nanmax(numbers) == frame["size"].max()
    colours = effect(model, "colour").grids[0].tolist()
    assert colours[:3] == ["blue", "green", "red"]
    assert np.isnan(colours[3])
    assert effect(model, ["colour", "size"]).values.shape == (4, len(numbers), 1)


def test_a_pair_asked_for_the_other_way_round_is_transposed(regressor: Fitted) -> None:
    one, other = effect(regressor.model, ["colour", "size"]), effect(regressor.model, ["size", "colour"])
    torch.testing.assert_close(one.values.transpose(0, 1), other.values)


def test_a_pruned_estimator_predicts_within_what_it_says(regressor: Fitted) -> None:
    found = prune(regressor.model, 0.2, regressor.table)
    assert found.parameters < found.parameters_before
    assert found.model is not regressor.model
    assert found.model.runs == found.module.runs == 1
    gap = found.model.predict(regressor.table) - regressor.model.predict(regressor.table)
    assert 0 < np.sqrt((gap**2).mean()) < 0.4 * regressor.model.predict(regressor.table).std()
    assert regressor.model.module_.runs == 3


def test_the_polynomial_of_an_estimator_has_its_columns_names() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = ResTTNetRegressor(feature_map="identity", epochs=5, random_state=0).fit(X, X[:, 0])
    found = polynomial(model)
    assert list(found.terms) == [(), ("x0",), ("x1",), ("x0", "x1")]
    standard = (X - X.mean(0)) / X.std(0)
    columns = {(): 1.0, ("x0",): standard[:, 0], ("x1",): standard[:, 1], ("x0", "x1"): standard.prod(1)}
    total = sum(float(number) * columns[names] for names, number in found.terms.items())
    np.testing.assert_allclose(total, model.predict(X), rtol=1e-9)


def test_wrong_use_is_refused(regressor: Fitted) -> None:
    model, frame = regressor.model, regressor.table
    with pytest.raises(NotFittedError):
        order_spectrum(ResTTRegressor(), frame)
    with pytest.raises(TypeError, match=r"a fitted estimator of restt, got LinearRegression"):
        shapley_values(LinearRegression(), frame)
    with pytest.raises(ValueError, match="feature names"):
        shapley_values(model, frame.rename(columns={"size": "length"}))
    with pytest.raises(ValueError, match="columns has 'length', which is not one of"):
        effect(model, "length")
    with pytest.raises(ValueError, match="columns must be one or two, got 3"):
        effect(model, ["size", "colour", "new"])
    with pytest.raises(ValueError, match=r"columns must be in 0…3, got 4"):
        effect(model, 4)
    with pytest.raises(ValueError, match="grid has 'purple', which is not one of the levels"):
        effect(model, "colour", grid=["purple"])
    with pytest.raises(ValueError, match="grid has a missing value"):
        effect(model, "count", grid=[np.nan])
    with pytest.raises(TypeError, match="grid must be numbers"):
        effect(model, "size", grid=["tall"])
    with pytest.raises(ValueError, match="grid must hold two lists"):
        effect(model, ["size", "count"], grid=[[1.0]])
