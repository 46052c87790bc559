"""Models saved by earlier code load and predict what they predicted then."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import yeojohnson

from restt import interop
from restt.estimators import ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor, files, load
from restt.estimators.modelled import Modelled
from restt.estimators.saved import (
    LEVELS,
    OldScale,
    SavedSpread,
    _level_table,
    _number_table,
    _yeo_johnson,
    current_kind,
)
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
        for coverage in (1.0, 1.5):
            with pytest.raises(ValueError, match="coverage must be between 0 and 1, got 1"):
                again.predict_interval(table, coverage)
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


def test_deviations_of_0_8_are_those_of_its_process():
    """s Π (1 + k) + Σ b k/a with main effects b beside the products, which the stored models do not have."""
    _, extra = interop.load_module(FIXTURES / "posterior-log.safetensors")
    state, encoding = extra["estimator"], load(FIXTURES / "posterior-log.safetensors").encoding_
    config, effects = state["spread"]["config"], np.array([0.3, -0.7, 0.1])
    plain = SavedSpread.read(state, files._tensors(state["spread"]), encoding)
    assert plain.effects.tolist() == [0.0] * 3
    theta = [*config["theta"], *effects]
    changed = {**state, "spread": {**state["spread"], "config": {**config, "theta": theta}}}
    spread = SavedSpread.read(changed, files._tensors(state["spread"]), encoding)
    places = np.cumsum([2, *(3 if site["knots"] else 1 for site in config["sites"])])[:3]
    log_sizes = np.array(theta)[places]
    ratios, noise, size = np.exp(effects - log_sizes), np.exp(theta[0]), np.exp(theta[1])
    assert spread.effects == pytest.approx(ratios)

    def vectors(numbers: np.ndarray, n: int) -> np.ndarray:
        place = list(encoding.order).index(n)
        return encoding.vectors(torch.from_numpy(numbers)).numpy()[:, place, : encoding.widths[place]]

    def combined(kernels: list[np.ndarray]) -> np.ndarray:
        return size * np.prod([1 + k for k in kernels], axis=0) + np.tensordot(ratios, np.array(kernels), 1)

    new, kept, tables = spread.numbers[:7] * 1.5, spread.numbers, [table.numpy() for table in spread.tables]
    coded = [column.levels is not None for column in encoding.columns]
    new[:, coded] = kept[:7, coded]
    pairs = [(vectors(new, n), table, vectors(kept, n)) for n, table in enumerate(tables)]
    inner = combined([z @ table @ z.T for _, table, z in pairs]) + np.diag(noise / spread.weights)
    cross = combined([x @ table @ z.T for x, table, z in pairs])
    own = [np.einsum("bi,ij,bj->b", x, table, x) for x, table, _ in pairs]
    unseen = [not column.missing for column in encoding.columns].index(True)
    for values in (new, np.where(np.arange(3) == unseen, np.nan, new)):
        if np.isnan(values[0, unseen]):
            own[unseen] = np.full(7, np.exp(log_sizes[unseen]))
            cross = combined([vectors(values, n) @ table @ vectors(kept, n).T for n, table in enumerate(tables)])
        known = combined(own) - (cross * np.linalg.solve(inner, cross.T).T).sum(1)
        assert spread._deviations(values) ** 2 == pytest.approx(known.clip(0) + noise + config["extra"], rel=1e-6)


def test_extrapolation_of_0_8_is_shrunk_by_its_variance():
    """Towards the range of y, by what the posterior variance in units of y is above a tenth."""
    spread = load(FIXTURES / "posterior-log.safetensors").spread_
    changed = {"theta": spread.theta + np.log([2.0, 300.0]), "quantiles": 20 * spread.quantiles}
    spread = replace(spread, extra=0.3, **changed)
    assert spread._deviations(spread.numbers).min() ** 2 > 0.3 + np.exp(spread.theta[0])
    numbers = np.repeat(spread.numbers[:1], 5, axis=0)
    numbers[:, 0] *= 9  # the size, far away
    low, high, below, above = (float(part[0]) for part in spread.reach.values())
    variance = spread._deviations(numbers)[0] ** 2 - 0.3 - np.exp(spread.theta[0])
    squares = np.interp((np.arange(50) + 0.5) / 50, LEVELS, spread.quantiles[:, 0]) ** 2
    beyond = variance * squares.mean() - 0.1
    assert beyond > 0
    outputs = np.array(
        [low - 99 * beyond / below, low - 1e-6, (low + high) / 2, high + 1e-6, high + 99 * beyond / above]
    )
    expected = [outputs[0] + beyond / below, low, outputs[2], high, outputs[4] - beyond / above]
    assert spread.shrunk(outputs[:, None], numbers)[:, 0] == pytest.approx(expected)


@pytest.mark.parametrize("scale", ["identity", "sqrt", "log", "asinh"])
def test_explanations_of_0_8_add_up_on_the_scale_that_is_named(scale):
    """outputs · scale + mean is what that scale makes of y."""
    arrays = {"mean": 0.4, "std": 1.5, "shift": 2.0, "width": 3.0}
    model = OldScale(scale, **{name: np.array([value]) for name, value in arrays.items()}, lift=np.zeros(1), smear=1.0)
    target = Modelled(model, np.array([4]), np.array([np.nan]), True)
    outputs = np.array([[0.1], [0.7]])
    y = target.undivided(model.decode(outputs))
    on_scale = {"identity": y, "sqrt": np.sqrt(y), "log": np.log(y), "asinh": np.arcsinh((y / 16 - 2) / 3)}[scale]
    assert (outputs * target.scale + target.mean)[:, 0] == pytest.approx(on_scale)
    assert target.label == {"identity": "y", "sqrt": "√y", "log": "log y", "asinh": "asinh y"}[scale]
    constant = Modelled(model, np.array([4]), np.array([7.0]), True)
    assert constant.scale.tolist() == [0.0]
    if scale == "identity":
        assert constant.mean.tolist() == [7.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": "cube"}, "y cannot be on the scale 'cube'"),
        ({"smear": float("nan")}, "y cannot be on the scale 'log' with nan"),
        ({"lift": [0.0, 0.0]}, "lift of y must have 1 finite entries"),
        ({"lift": [float("inf")]}, "lift of y must have 1 finite entries"),
        ({"std": [float("inf")]}, "std of y must have 1 finite entries"),
        ({"mean": [0.0, 1.0], "lift": [0.0, 0.0]}, "mean of y must have 1 finite entries"),
    ],
)
def test_a_scale_of_0_8_that_makes_no_sense_is_refused(change, message):
    model = {"scale": "log", "smear": 1.0, "mean": [0.0], "std": [1.0], "shift": [0.0], "width": [1.0], "lift": [0.0]}
    config = {"exponents": [0], "constant": [None], "flat": True}
    assert Modelled.from_config({**config, "model": model}).label == "log y"
    with pytest.raises(ValueError, match=message):
        Modelled.from_config({**config, "model": {**model, **change}})
    for wrong, told in (
        ({"exponents": [[0]]}, "exponents and constants"),
        ({"exponents": [], "constant": []}, "exponents and constants"),
        ({"constant": [None, None]}, "exponents and constants"),
    ):
        with pytest.raises(ValueError, match=told):
            Modelled.from_config({**config, "model": model, **wrong})
    two = {name: values * 2 if isinstance(values, list) else values for name, values in model.items()}
    with pytest.raises(ValueError, match="y cannot be flat with 2 outputs"):
        Modelled.from_config({"exponents": [0, 0], "constant": [None, 1.0], "flat": True, "model": two})


def test_parameters_of_0_8_by_their_names_of_today():
    parameters = {"bond_dim": "auto", "handle_missing": "learn", "solver": "auto", "verbose": 1, "lr": 0.1}
    state = {"kind": "ResTTClassifier", "solver": "posterior"}
    expected = {"bond_dim": "auto", "handle_missing": "average", "verbose": 1}
    assert current_kind(state, parameters) == ("ResTTClassifier", expected)
    trained = {**expected, "bond_dim": 10, "lr": 0.1}
    assert current_kind({**state, "solver": "gradient"}, parameters) == ("ResTTNetClassifier", trained)
    given = {**parameters, "bond_dim": 4, "handle_missing": "error"}
    expected = {**trained, "bond_dim": 4, "handle_missing": "error"}
    assert current_kind({**state, "solver": "gradient"}, given)[1] == expected
