"""How sure a closed-form model is of an effect: against the dense posterior of the function itself."""

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
from restt.explain import effect
from restt.prior.sites import rows_of


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
    model: ResTTRegressor,
    points: dict[str, Any],
    background: pd.DataFrame,
    columns: tuple[str, ...],
    given: bool = True,
) -> np.ndarray:  # (G,)
    """The definition: inclusion and exclusion over averages of the function at all combinations of background rows.

    The function is a mixture of Gaussian processes at finitely many points here, so its averages have the covariances
    W K Wᵀ and the means W m of the members; those of the prior unless rows are ``given``.
    """
    names = list(background.columns)
    count = len(next(iter(points.values())))
    combined = list(product(range(len(background)), repeat=len(names)))
    found = []
    spread = model.spread_
    sites, shares = spread.kernel.sites, torch.from_numpy(spread.weights)
    assert len(spread.numbers) == spread.rows  # every row is an inducing one, so that the root is exact
    seen = rows_of(sites, spread.numbers)
    for g in range(count):
        own: list[tuple[float, dict[str, Any]]] = []
        for kept in product([True, False], repeat=len(columns)):
            sign = (-1.0) ** kept.count(False)
            fixed = {name: points[name][g] for name, keep in zip(columns, kept, strict=True) if keep}
            for places in combined:
                row = {name: background[name].iloc[place] for name, place in zip(names, places, strict=True)}
                own.append((sign / len(combined), {**row, **fixed}))
        weight = torch.tensor([weight for weight, _ in own], dtype=torch.float64)
        frame = pd.DataFrame([row for _, row in own], columns=names)
        rows = rows_of(sites, model.numbers(frame))
        within, means = [], []
        for _, process, root, mean in spread.members:
            inverse = root.T @ root  # of the covariance and the noise
            cross = process.covariance(rows, seen) * given
            within.append(weight @ (process.covariance(rows) - cross @ inverse @ cross.T) @ weight)
            means.append((weight @ cross @ mean)[0])
        middle = torch.stack(means) @ shares
        found.append(float(torch.stack(within) @ shares + (torch.stack(means) - middle).square() @ shares))
    return np.sqrt(np.maximum(found, 0)) * float(model.target_.scale[0])


POINTS = {
    "size": np.array([-1.0, 0.3, 2.0]),
    "kind": np.array(["a", "b", "c"], dtype=object),
    "depth": np.array([0.0, 1.5, np.nan]),
}


@pytest.mark.parametrize(
    ("columns", "rows"),
    [(("size",), None), (("size",), 4), (("kind",), 4), (("depth",), 4), (("kind", "size"), 4)],
)
def test_it_is_the_posterior_of_the_centred_term(model, table, columns, rows):
    # Any background will do for the closed form; few rows keep its enumeration small.
    background = table if rows is None else table[1 : 1 + rows]
    grid = [POINTS[name] for name in columns]
    found = effect(model, list(columns), None if rows is None else background, grid if len(grid) > 1 else grid[0])
    assert found.spread_over == "posterior"
    assert found.spread.shape == found.values.shape
    spread = found.spread[..., 0].numpy()
    if len(columns) > 1:
        spread = spread.diagonal()
    expected = dense_deviations(model, POINTS, background, columns)
    assert (expected > 0.005).all()  # so that the comparison is of more than zeros
    np.testing.assert_allclose(spread, expected, rtol=1e-6)


def additive(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (rows, 3))
    return x, np.sin(2 * x[:, 0]) + 0.4 * x[:, 1] ** 2 + 0.3 * rng.standard_normal(rows)


def test_the_band_shrinks_with_rows_and_holds_the_true_effect():
    grid = np.linspace(-1.9, 1.9, 39)
    truths = {0: np.sin(2 * grid), 1: 0.4 * grid**2, 2: np.zeros_like(grid)}
    widths, away = {}, []
    for rows in (60, 240):
        x, y = additive(rows, seed=rows)
        model = ResTTRegressor(random_state=0).fit(x, y)
        averages = {0: np.sin(2 * x[:, 0]).mean(), 1: 0.4 * (x[:, 1] ** 2).mean(), 2: 0.0}
        for column, truth in truths.items():
            found = effect(model, column, grid=grid)
            values, spread = found.values[:, 0].numpy(), found.spread[:, 0].numpy()
            widths[rows, column] = spread.mean()
            away.append(np.abs(values - (truth - averages[column])) / spread)
    assert all(widths[240, column] < 0.7 * widths[60, column] for column in (0, 1))
    within = [float(np.mean(np.concatenate(away) <= deviations)) for deviations in (0.5, 2.0)]
    assert within[1] > 0.8
    assert within[0] < 0.7  # the band is not merely wide


def test_rows_that_say_nothing_leave_the_prior(model, table):
    deaf = copy.copy(model)
    deaf.spread_ = replace(model.spread_, roots=1e-9 * model.spread_.roots, means=1e-9 * model.spread_.means)
    found = effect(deaf, "size", table[1:5], POINTS["size"]).spread[:, 0].numpy()
    expected = dense_deviations(model, POINTS, table[1:5], ("size",), given=False)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert (effect(model, "size", table[1:5], POINTS["size"]).spread[:, 0].numpy() < expected).all()


@pytest.mark.usefixtures("hasty")
def test_outputs_have_it_in_their_own_units():
    x, y = additive(60, seed=0)
    found = effect(ResTTRegressor(random_state=0).fit(x, np.stack([y, -3 * y, np.ones(60)], axis=1)), 0)
    torch.testing.assert_close(found.spread[:, 1], 3 * found.spread[:, 0])
    assert found.spread[:, 0].min() > 0
    assert (found.spread[:, 2] == 0).all()


def test_a_loaded_model_and_a_frame_have_it(model, tmp_path):
    found = effect(model, "size")
    assert found.to_frame("latent")["spread"].tolist() == found.spread[:, 0].tolist()
    model.save(tmp_path / "model")
    again = effect(load(tmp_path / "model"), "size")
    torch.testing.assert_close(again.spread, found.spread)


def test_the_pictures_show_it(model):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    curve = effect(model, "size").on("y")
    axes = curve.plot()
    low, high = (curve.values - curve.spread).min(), (curve.values + curve.spread).max()
    band = axes.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == pytest.approx((float(low), float(high)))
    assert axes.get_legend().get_texts()[0].get_text() == "± one standard deviation of the posterior"
    pair = effect(model, ["kind", "size"]).on("y")
    axes = pair.plot()
    axes.figure.canvas.draw()
    grey = np.ma.getmaskarray(axes.collections[0].get_array())
    np.testing.assert_array_equal(grey.ravel(), (pair.values.abs() <= 2 * pair.spread)[..., 0].T.ravel())
    pyplot.close("all")
