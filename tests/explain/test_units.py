"""Explanations in y's units and as probabilities: Aumann–Shapley values along the straight path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from restt import ResTTClassifier, ResTTRegressor
from restt.explain import effect, explain_local, variance_shares
from restt.explain.subject import Subject
from tests.explain import brute
from tests.hasty import hasty_solvers


def made_table(rows: int = 90) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.standard_normal((rows, 3)), columns=["a", "b", "c"])
    frame["kind"] = rng.choice(["u", "v", "w"], rows)
    frame.loc[2:5, "c"] = np.nan
    return frame


def made_target(frame: pd.DataFrame) -> np.ndarray:
    noise = np.random.default_rng(3).standard_normal(len(frame))
    return (frame["a"] + frame["b"] * (frame["kind"] == "u") + frame["c"].fillna(1) + 0.2 * noise).to_numpy()


def fitted(kind: str) -> tuple[Any, pd.DataFrame]:
    frame = made_table()
    y = made_target(frame)
    with hasty_solvers():
        if kind == "skewed":
            model = ResTTRegressor(random_state=0).fit(frame, np.exp(y))
            assert model.target_.model.power < 0.9
        elif kind == "two outputs":
            model = ResTTRegressor(random_state=0).fit(frame, np.stack([np.exp(y), -y], 1))
        elif kind == "two classes":
            model = ResTTClassifier(random_state=0).fit(frame, np.where(y > 0, "yes", "no"))
        else:
            model = ResTTClassifier(random_state=0).fit(frame, np.digitize(y, [-0.5, 1.0]))
    return model, frame


KINDS = ["skewed", "two outputs", "two classes", "three classes"]


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest) -> tuple[Any, pd.DataFrame]:
    return fitted(request.param)


def predicted(model: Any, frame: pd.DataFrame) -> np.ndarray:  # (B, O)
    if hasattr(model, "predict_proba"):
        found = model.predict_proba(frame)
        return found[:, 1:] if found.shape[1] == 2 else found
    return model.predict(frame).reshape(len(frame), -1)


def far(frame: pd.DataFrame, rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    found = frame.sample(rows, replace=True, random_state=0).reset_index(drop=True)
    found[["a", "b", "c"]] = 1e3 * rng.standard_normal((rows, 3))
    return found


def test_latent_values_are_those_of_all_subsets(case):
    model, frame = case
    found = explain_local(model, frame[:4])
    subject = Subject.of(model)
    vectors, means = subject.vectors(frame[:4]), subject.means(None)
    for row in range(2):
        bits = brute.coalitions(len(means))
        game = subject.decide(torch.where(bits[..., None], vectors[row], means))
        expected = subject.in_columns(brute.shapley(game), 0)
        np.testing.assert_allclose(found.values[row], expected, rtol=1e-10, atol=1e-10)
    assert found.scale == "latent"
    assert found.quadrature_error == 0


def test_values_and_orders_sum_to_the_predictions_on_both_scales(case):
    model, frame = case
    rows = pd.concat([frame, far(frame, 100)], ignore_index=True)
    latent = explain_local(model, rows)
    found = latent.on("y")
    wanted = predicted(model, rows)
    size = np.abs(wanted).max()
    np.testing.assert_allclose(found.predictions, wanted, atol=1e-10 * size)
    np.testing.assert_allclose(found.base + found.values.sum(1), wanted, atol=1e-10 * size)
    np.testing.assert_allclose(found.orders.sum(1), wanted, atol=1e-10 * size)
    np.testing.assert_allclose(latent.base + latent.values.sum(1), latent.predictions, atol=1e-9)
    np.testing.assert_allclose(latent.orders.sum(1), latent.predictions, atol=1e-9 * np.abs(latent.predictions).max())
    if hasattr(model, "decision_function"):
        np.testing.assert_allclose(latent.predictions.squeeze(), model.decision_function(rows), atol=1e-9)
    assert found.on("latent") is latent


def test_orders_that_were_left_out_have_no_part_in_the_others(case):
    model, frame = case
    whole, some = (explain_local(model, frame[:5], max_order=order).on("y").orders for order in (None, 3))
    np.testing.assert_allclose(some, whole[:, :4], atol=1e-6 * np.abs(whole).max())


@pytest.mark.parametrize("name", ["two_classes", "regressor"])
def test_values_sum_to_the_predictions_on_20000_rows_half_of_them_far_outside(name, request):
    fitted = request.getfixturevalue(name)
    rows = fitted.table.sample(20_000, replace=True, random_state=0).reset_index(drop=True)
    rows.loc[10_000:, "size"] = 1e3 * np.random.default_rng(5).standard_normal(10_000)
    latent = explain_local(fitted.model, rows)
    found = latent.on("y")
    wanted = predicted(fitted.model, rows)
    np.testing.assert_allclose(found.base + found.values.sum(1), wanted, atol=1e-10 * np.abs(wanted).max())
    np.testing.assert_allclose(latent.base + latent.values.sum(1), latent.predictions, rtol=1e-10, atol=1e-9)


def test_values_are_the_integral_along_the_straight_path(case):
    model, frame = case
    found = explain_local(model, frame[:2]).on("y")
    subject = Subject.of(model)
    vectors, means = subject.vectors(frame[:2]), subject.means(None)
    steps = 2000
    times = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
    link = found.link
    for row in range(2):
        way = vectors[row] - means
        ends = {shift: means + (times + shift / steps)[:, None, None] * way for shift in (-0.5, 0.5)}
        for site, column in enumerate(subject.columns):
            # The change of the prediction when this site alone takes one step of the path, summed over steps.
            middle = means + times[:, None, None] * way
            moved = []
            for shift in (-0.5, 0.5):
                point = middle.clone()
                point[:, site] = ends[shift][:, site]
                moved.append(link(subject.decide(point).numpy()))
            expected = (moved[1] - moved[0]).sum(axis=0)
            size = np.abs(found.values[row]).sum()
            np.testing.assert_allclose(found.values[row, column], expected, atol=2e-5 * size + found.quadrature_error)


def test_columns_and_orders_share_the_variance_of_predictions_in_ys_units(case):
    model, frame = case
    explanation = explain_local(model, frame).on("y")
    columns, orders = explanation.variance_shares()
    np.testing.assert_allclose(columns.sum(0), 1, atol=1e-8)
    np.testing.assert_allclose(orders.sum(0), 1, atol=1e-8)
    centred = predicted(model, frame) - predicted(model, frame).mean(0)
    expected = (explanation.values[:, 1] * centred).sum(0) / (centred**2).sum(0)
    np.testing.assert_allclose(columns[1], expected, atol=1e-8)
    expected = variance_shares(model, frame, terms=["a"]).of_columns
    np.testing.assert_allclose(explain_local(model, frame, frame).variance_shares()[0], expected, atol=1e-8)


def test_the_quadrature_error_is_stated_and_small(case):
    model, frame = case
    found = explain_local(model, frame).on("y")
    assert 0 <= found.quadrature_error < 1e-3 * np.abs(found.values).sum(1).max()


def test_probabilities_of_all_classes_move_against_each_other():
    model, frame = fitted("three classes")
    found = explain_local(model, frame[:10]).on("y")
    np.testing.assert_allclose(found.values.sum(axis=2), 0, atol=1e-9)
    assert found.measured(1) == "probability of 1"
    assert found.on("latent").measured(1) == "logit of 1"


def test_effects_are_changes_of_the_mean_rows_prediction(case):
    model, frame = case
    latent = effect(model, "a")
    found = latent.on("y")
    subject = Subject.of(model)
    means = subject.means(None)
    site = subject.columns.index(0)
    values = latent.grids[0][:5]
    points = means.repeat(5, 1, 1)
    numbers = np.zeros((5, len(frame.columns)))
    numbers[:, 0] = values
    points[:, site] = model.encoding_.vectors(torch.from_numpy(numbers))[:, site]
    link = latent.link
    expected = link(subject.decide(points).numpy()) - link(subject.decide(means[None]).numpy())
    np.testing.assert_allclose(found.values[:5], expected, atol=1e-9)
    assert (found.scale, latent.scale) == ("y", "latent")
    assert f"scale='{found.scale}'" in repr(found)


def test_frames_and_axes_say_their_scale(case):
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    model, frame = case
    found = explain_local(model, frame[:6])
    tables = {scale: found.to_frame(scale=scale) for scale in ("y", "latent")}
    assert tables["y"].attrs["scale"] == "y"
    assert tables["y"].attrs["method"] == "Aumann–Shapley value"
    assert tables["latent"].attrs["method"] == "Shapley value"
    assert not np.allclose(tables["y"]["shapley"], tables["latent"]["shapley"])
    assert found.to_frame().equals(tables["y"])
    assert "Aumann–Shapley" in repr(found)
    assert "Aumann–Shapley" in found[0]._repr_html_()
    for kind in ("beeswarm", "dependence"):
        assert "Aumann–Shapley value for" in "".join(_labels(found.plot(kind)))
        latent = "".join(_labels(found.plot(kind, scale="latent")))
        assert "latent" in latent or "log" in latent
    pyplot.close("all")


def _labels(axes: Any) -> tuple[str, str]:
    axes.figure.canvas.draw()
    return axes.get_xlabel(), axes.get_ylabel()


def test_wrong_use_is_refused(case):
    model, frame = case
    found = explain_local(model, frame[:2])
    for call in (found.on, found.to_frame, effect(model, "a").on):
        with pytest.raises(ValueError, match=r'scale must be "y" \(y\'s units, or probabilities\) or "latent", got'):
            call("log")
    with pytest.raises(ValueError, match="feature names"):
        model.explain_local(frame.rename(columns={"a": "z"}))
    with pytest.raises(NotFittedError):
        type(model)().explain_local(frame)
    with pytest.raises(ValueError, match=r"column must be one of .*, got 'z'"):
        found.plot("dependence", column="z")
