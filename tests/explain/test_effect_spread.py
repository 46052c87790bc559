"""How sure a model of the posterior solver is of an effect: against the dense posterior of the function itself."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from restt import ResTTRegressor, load
from restt.estimators.posterior import spread_states
from restt.explain import effect
from restt.prior.posterior import covariance


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.standard_normal(9), "kind": rng.choice(["a", "b", "c"], 9)})
    frame["depth"] = rng.integers(0, 4, 9).astype(float)
    frame.loc[3, "depth"] = np.nan
    return frame


@pytest.fixture(scope="module")
def model(table: pd.DataFrame) -> ResTTRegressor:
    y = 5 * table["size"] * (table["kind"] == "a") + table["depth"].fillna(0)
    return ResTTRegressor(random_state=0).fit(table, y + np.random.default_rng(1).standard_normal(9))


def dense_deviations(
    model: ResTTRegressor, points: dict[str, Any], background: pd.DataFrame, columns: tuple[str, ...]
) -> np.ndarray:  # (G,)
    """The definition: inclusion and exclusion over averages of the function at all combinations of background rows.

    The function is a Gaussian process at finitely many points here, so its averages have the covariance W K Wᵀ.
    """
    names = list(background.columns)
    count = len(next(iter(points.values())))
    combined = list(product(range(len(background)), repeat=len(names)))
    rows, functionals = [], []
    for g in range(count):
        own: list[tuple[float, dict[str, Any]]] = []
        for kept in product([True, False], repeat=len(columns)):
            sign = (-1.0) ** kept.count(False)
            fixed = {name: points[name][g] for name, keep in zip(columns, kept, strict=True) if keep}
            for places in combined:
                row = {name: background[name].iloc[place] for name, place in zip(names, places, strict=True)}
                own.append((sign / len(combined), {**row, **fixed}))
        functionals.append(np.array([weight for weight, _ in own]))
        rows.append(pd.DataFrame([row for _, row in own], columns=names))
    spread, found = model.spread_, []
    seen = spread.states(spread.numbers)
    noise = torch.diag(spread.prior.noise / torch.from_numpy(spread.weights))
    inverse = torch.linalg.inv(covariance(spread.prior, seen) + noise)
    for weights, frame in zip(functionals, rows, strict=True):
        weight = torch.from_numpy(weights)
        states = spread_states(model.encoding_, model.numbers(frame))
        cross = covariance(spread.prior, states, seen)
        posterior = covariance(spread.prior, states) - cross @ inverse @ cross.T
        found.append(float(weight @ posterior @ weight))
    return np.sqrt(np.maximum(found, 0)) * float(model.target_.scale[0])


@pytest.mark.parametrize("columns", [("size",), ("kind",), ("depth",), ("kind", "size")])
@pytest.mark.parametrize("rows", [None, 4], ids=["rows of the fit", "other rows"])
@pytest.mark.parametrize("apart", [False, True])
def test_it_is_the_posterior_of_the_centred_term(model, table, columns, rows, apart):
    if apart:  # main effects of their own, which more rows than these are learned with
        model = copy.copy(model)
        own = model.spread_.prior
        theta = np.r_[own.theta, np.log([0.5, 0.2, 0.9])]
        model.spread_ = replace(model.spread_, prior=replace(own, theta=theta))
    # Any background will do for the closed form; few rows keep its enumeration small.
    background = table if rows is None else table[1 : 1 + rows]
    points = {
        "size": np.array([-1.0, 0.3, 2.0]),
        "kind": np.array(["a", "b", "c"], dtype=object),
        "depth": np.array([0.0, 1.5, np.nan]),
    }
    grid = [points[name] for name in columns]
    found = effect(model, list(columns), None if rows is None else background, grid if len(grid) > 1 else grid[0])
    assert found.spread_over == "posterior"
    assert found.spread.shape == found.values.shape
    spread = found.spread[..., 0].numpy()
    if len(columns) > 1:
        spread = spread.diagonal()
    expected = dense_deviations(model, points, background, columns)
    assert (expected > 0.01).all()
    np.testing.assert_allclose(spread, expected, rtol=1e-6)


def additive(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (rows, 3))
    return x, np.sin(2 * x[:, 0]) + 0.4 * x[:, 1] ** 2 + 0.3 * rng.standard_normal(rows)


def test_the_band_shrinks_with_rows_and_holds_the_true_effect():
    grid = np.linspace(-1.9, 1.9, 39)
    truths = {0: np.sin(2 * grid), 1: 0.4 * grid**2, 2: np.zeros_like(grid)}
    widths, away = {}, []
    for rows in (60, 400):
        x, y = additive(rows, seed=rows)
        model = ResTTRegressor(random_state=0).fit(x, y)
        averages = {0: np.sin(2 * x[:, 0]).mean(), 1: 0.4 * (x[:, 1] ** 2).mean(), 2: 0.0}
        for column, truth in truths.items():
            found = effect(model, column, grid=grid)
            values, spread = found.values[:, 0].numpy(), found.spread[:, 0].numpy()
            widths[rows, column] = spread.mean()
            away.append(np.abs(values - (truth - averages[column])) / spread)
    assert all(widths[400, column] < 0.7 * widths[60, column] for column in (0, 1))
    within = [float(np.mean(np.concatenate(away) <= deviations)) for deviations in (0.5, 2.0)]
    assert within[1] > 0.8
    assert within[0] < 0.7  # the band is not merely wide


def test_rows_that_say_nothing_leave_the_prior(model):
    spread = model.spread_
    deaf = type(spread)(spread.prior, spread.numbers, 1e-12 * spread.weights, spread.quantiles, spread.extra)
    kernel, values = spread.prior.kernels[0], spread.prior.parts[0]
    points = torch.eye(kernel.site.width, dtype=torch.float64)
    found = deaf.term_deviations({0: points}, [one.mean for one in spread.prior.kernels])
    expected = (spread.prior.scale * (kernel.factor(points, points, values).diagonal() - 1)).sqrt()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.usefixtures("hasty")
def test_outputs_have_it_in_their_own_units():
    x, y = additive(60, seed=0)
    found = effect(ResTTRegressor(random_state=0).fit(x, np.stack([y, -3 * y, np.ones(60)], axis=1)), 0)
    torch.testing.assert_close(found.spread[:, 1], 3 * found.spread[:, 0])
    assert found.spread[:, 0].min() > 0
    assert (found.spread[:, 2] == 0).all()


def test_a_loaded_model_and_a_frame_have_it(model, tmp_path):
    found = effect(model, "size")
    assert found.to_frame()["spread"].tolist() == found.spread[:, 0].tolist()
    model.save(tmp_path / "model")
    again = effect(load(tmp_path / "model"), "size")
    torch.testing.assert_close(again.spread, found.spread)


def test_the_pictures_show_it(model):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    curve = effect(model, "size")
    axes = curve.plot()
    low, high = (curve.values - curve.spread).min(), (curve.values + curve.spread).max()
    band = axes.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == pytest.approx((float(low), float(high)))
    assert axes.get_legend().get_texts()[0].get_text() == "± one standard deviation of the posterior"
    pair = effect(model, ["kind", "size"])
    axes = pair.plot()
    axes.figure.canvas.draw()
    faded = np.asarray(axes.collections[0].get_alpha()) < 1
    np.testing.assert_array_equal(faded.ravel(), (pair.values.abs() < pair.spread)[..., 0].T.ravel())
    pyplot.close("all")
