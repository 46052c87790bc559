"""partial_fit of the closed-form regressor: the same model given more rows."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import restt
from restt import DiagonalTT, ResTTClassifier, ResTTRegressor
from restt.estimators import files
from restt.estimators.columns import Column
from restt.estimators.more_rows import (
    ScalesWarning,
    _plausible,
    added_levels,
    check_room,
    learned_anew,
    may_miss,
    recoded,
    warn_if_unlikely,
    with_new_levels,
)
from restt.estimators.tables import Table
from restt.prior import Settings
from restt.prior.fitting import student_precision
from restt.prior.rows import FitRows
from restt.prior.sites import rows_of


def made(rows: int, seed: int = 0, noise: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 3))
    return x, np.sin(4 * x[:, 0]) * x[:, 1] + x[:, 2] ** 2 + noise * rng.standard_normal(rows)


@pytest.fixture(scope="module")
def fitted() -> ResTTRegressor:
    x, y = made(260)
    return ResTTRegressor(effort="quick", random_state=0).fit(x[:120], y[:120])


def more(model: ResTTRegressor, *given: object, **options: object) -> ResTTRegressor:
    return copy.deepcopy(model).partial_fit(*given, **options)


def test_batches_equal_all_rows_at_once_in_any_order(fitted):
    x, y = made(260)
    new = made(50, seed=1)[0]
    once = more(fitted, x[120:], y[120:])
    batches = more(fitted, x[200:], y[200:]).partial_fit(x[120:160], y[120:160]).partial_fit(x[160:200], y[160:200])
    assert np.abs(once.predict(new) - fitted.predict(new)).max() > 1e-3
    np.testing.assert_allclose(batches.predict(new), once.predict(new), rtol=0, atol=1e-6)
    np.testing.assert_allclose(batches.predict_interval(new), once.predict_interval(new), rtol=0, atol=1e-6)


def test_mean_is_the_gaussian_process_given_all_rows(monkeypatch):
    """Against the equations: k(x, X) (K + D)⁻¹ t with the first fit's kernel, noise and transform."""
    settings = replace(Settings.of_effort("quick"), tolerance=1e-12)
    monkeypatch.setattr(Settings, "of_effort", lambda effort: settings)
    x, y = made(300)
    model = ResTTRegressor(random_state=0).fit(x[:150], y[:150])
    first, warp = model.spread_, model.target_.model
    model.partial_fit(x[150:], y[150:])
    assert isinstance(model.module_, DiagonalTT)  # nothing is rounded
    kept = model.fit_rows_
    rows, new = rows_of(first.kernel.sites, kept.numbers), rows_of(first.kernel.sites, x[:20] / 2)
    targets, precision, level, expected = warp.encode(kept.targets), np.ones(300), np.zeros(300), 0.0

    def inverse(process):
        noise = process.noise(rows, torch.from_numpy(level)).numpy()
        return np.linalg.inv(process.covariance(rows).numpy() + np.diag(noise / (kept.weights * precision)))

    # Levels of the noise and precisions of the rows, from leave-one-out residuals of the first process.
    solved = inverse(first.processes[0])
    residuals = solved @ targets / np.diag(solved)[:, None]
    noise = first.processes[0].noise(rows, torch.zeros(300, dtype=torch.float64)).numpy()
    squares = residuals[:, 0] ** 2 / (1 / np.diag(solved) - noise / kept.weights + noise)
    precision = student_precision(squares / np.average(squares, weights=kept.weights), kept.weights, kept.tail)
    level = (targets - residuals)[:, 0]
    for weight, process in zip(first.weights, first.processes, strict=True):
        expected = expected + weight * process.covariance(new, rows).numpy() @ inverse(process) @ targets
    found, _ = model._outputs_and_numbers(x[:20] / 2)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_numbers_of_levels_are_those_of_other_columns():
    """A level that the others do not have is rare there, or unseen where they have no state for rare ones."""
    had = Column("a", ("x", "y", "z"), True, False)
    numbers = np.array([0.0, 1, 2, 3, -1, np.nan])[:, None]  # 3 is the state of rare levels
    for other, levels, expected in (
        (True, ("z", "x"), [1, 2, 0, 2, -1, np.nan]),
        (False, ("z", "x"), [1, -1, 0, 2, -1, np.nan]),
        (False, had.levels, [0, 1, 2, 3, -1, np.nan]),
        (False, None, [0, 1, 2, 3, -1, np.nan]),
    ):
        found = recoded(numbers, [had], [replace(had, levels=levels, other=other)])
        np.testing.assert_array_equal(found[:, 0], expected)


def test_error_falls_as_with_a_fit_to_all_rows(fitted):
    x, y = made(260)
    new, wanted = made(300, seed=2, noise=0.0)
    errors = [np.mean((one.predict(new) - wanted) ** 2) for one in (fitted, more(fitted, x[120:], y[120:]))]
    assert errors[1] < 0.7 * errors[0]


def test_new_levels_of_a_category_are_learned():
    rng = np.random.default_rng(0)
    effect = {"a": 0.0, "b": 1.0, "c": 5.0, "d": -5.0}
    names = rng.choice(["a", "b"], 80).tolist() + rng.choice(["c", "d"], 80).tolist()
    frame = pd.DataFrame({"kind": names, "x": rng.random(160)})
    y = frame["kind"].map(effect).to_numpy() + frame["x"].to_numpy() + 0.1 * rng.standard_normal(160)
    model = ResTTRegressor(effort="quick", random_state=0).fit(frame[:80], y[:80])
    one, other = copy.deepcopy(model), copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScalesWarning)
        one.partial_fit(frame[80:], y[80:])
        other.partial_fit(frame[120:], y[120:]).partial_fit(frame[80:120], y[80:120])
    new = pd.DataFrame({"kind": ["a", "b", "c", "d"], "x": [0.5] * 4})
    np.testing.assert_allclose(one.predict(new), other.predict(new), rtol=0, atol=1e-6)
    assert np.abs(one.predict(new) - np.array([0.5, 1.5, 5.5, -4.5])).max() < 0.6


def test_warns_where_the_scales_no_longer_fit_and_learns_them_anew(fitted):
    x, _ = made(260)
    other = 20 * np.sin(9 * x[120:, 0])
    with pytest.warns(ScalesWarning, match="refit_scales=True"):
        found = more(fitted, x[120:], other)
    assert found.fit_report_["probability_of_new_rows"] < 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = more(fitted, x[120:], other, refit_scales=True)
    assert again.fit_report_["evaluations"] > 0 == found.fit_report_["evaluations"]


def test_rows_of_the_same_kind_are_not_warned_of(fitted):
    odds = [more(fitted, *made(40, seed)).fit_report_["probability_of_new_rows"] for seed in range(10, 16)]
    assert min(odds) > 1e-3  # ScalesWarning would be an error here


def test_constant_target_is_learned_anew():
    x, y = made(80)
    model = ResTTRegressor(effort="quick", random_state=0).fit(x[:20], np.ones(20))
    assert np.corrcoef(model.partial_fit(x[20:], y[20:]).predict(x), y)[0, 1] > 0.5


@pytest.mark.parametrize("kind", [ResTTRegressor, ResTTClassifier])
def test_missing_values_that_come_later_are_learned_with_the_scales(kind):
    x, y = made(60)
    holes = np.where(np.arange(60)[:, None] % 5 == np.arange(3), np.nan, x)
    model = kind(effort="quick", random_state=0).fit(x[:30], y[:30] > 0).partial_fit(holes, y > 0, refit_scales=True)
    assert all(column.missing for column in model.encoding_.columns)
    assert np.corrcoef(model.predict(holes), y)[0, 1] > 0.3


def test_saved_model_goes_on(fitted, tmp_path, monkeypatch):
    x, y = made(260)
    new = made(30, seed=3)[0]
    expected = more(fitted, x[120:], y[120:]).predict(new)
    loaded = restt.load(fitted.save(tmp_path / "model"))
    np.testing.assert_allclose(loaded.partial_fit(x[120:], y[120:]).predict(new), expected, rtol=0, atol=1e-6)
    size = sum(tensor.nbytes for tensor in fitted.fit_rows_.tensors().values())
    assert size == 120 * 8 * (3 + 1 + 1)  # columns, y and weight of each row
    monkeypatch.setattr(files, "MOST_ROW_BYTES", size)
    assert len(restt.load(fitted.save(tmp_path / "just")).fit_rows_) == 120
    monkeypatch.setattr(files, "MOST_ROW_BYTES", size - 1)
    small = restt.load(fitted.save(tmp_path / "small"))
    assert (tmp_path / "small" / "model.safetensors").stat().st_size < (
        tmp_path / "model" / "model.safetensors"
    ).stat().st_size
    with pytest.raises(ValueError, match="saved without them"):
        small.partial_fit(x[120:], y[120:])


def test_first_call_is_a_fit():
    x, y = made(60)
    one = ResTTRegressor(effort="quick", random_state=0).partial_fit(x, y)
    np.testing.assert_allclose(one.predict(x), ResTTRegressor(effort="quick", random_state=0).fit(x, y).predict(x))


def test_changed_columns_are_refused(fitted):
    x, y = made(20)
    with pytest.raises(ValueError, match="X has 2 features"):
        more(fitted, x[:, :2], y)
    with pytest.raises(ValueError, match=r"y must have 1 column\(s\)"):
        more(fitted, x, np.stack([y, y], axis=1))
    frame = pd.DataFrame(x, columns=list("abc"))
    named = ResTTRegressor(effort="quick", random_state=0).fit(frame, y)
    with pytest.raises(ValueError, match="feature names"):
        named.partial_fit(frame.rename(columns={"a": "z"}), y)


def test_new_categories_become_levels_up_to_a_limit():
    """Neither those known, nor rare ones, nor what is missing; a rare state counts."""
    column = Column("a", ("x", "y"), True, True, ("r",))
    table = Table(np.array([["x"], ["q"], ["r"], [None], ["p"], ["q"]], dtype=object))
    for most, levels in ((9, ("x", "y", "q", "p")), (5, ("x", "y", "q", "p")), (4, ("x", "y", "q")), (1, ("x", "y"))):
        found = with_new_levels(column, table, 0, most)
        assert found == replace(column, levels=levels)
        assert added_levels([column, Column("b")], [found, Column("b")]) == [(2, len(levels) - 2), (0, 0)]
    for fixed in (Column("n"), replace(column, rare=None)):
        assert with_new_levels(fixed, table, 0) is fixed


def test_columns_may_miss_values_unless_these_are_an_error():
    columns = [
        Column("a", missing=given, averages_missing=averages) for given in (True, False) for averages in (True, False)
    ]
    assert [column.missing for column in may_miss(columns)] == [True, True, True, False]


def test_unknown_categories_of_several_batches_count_as_missing():
    numbers = np.array([[0.0, -1.0, -1.0], [-1.0, 2.0, 1.0]])
    columns = (Column("a", ("x",)), Column("n", missing=True), Column("b", ("x", "y"), missing=True))
    made_columns, found = learned_anew(columns, numbers)
    np.testing.assert_array_equal(found, [[0.0, -1.0, np.nan], [np.nan, 2.0, 1.0]])
    assert [column.missing for column in made_columns] == [True, False, True]
    assert numbers[1, 0] == -1.0


def test_room_and_likelihood_have_limits():
    check_room(60, 40, 100)
    with pytest.raises(ValueError, match="at most 100 rows, got 41 beside the 60 it has"):
        check_room(60, 41, 100)
    warn_if_unlikely(1e-3)  # a warning would be an error
    for odds, told in ((9e-4, "0.0009"), (0.0, "1e-300")):
        with pytest.warns(ScalesWarning, match=rf"\(probability {told}\)"):
            warn_if_unlikely(odds)


def test_rows_of_absurd_y_are_left_out_of_a_batch():
    seen = FitRows.of(np.zeros((20, 1)), np.arange(20.0)[:, None], np.ones(20), 0)
    assert _plausible(np.array([[3.0], [25.0]]), seen).tolist() == [0, 1]
    with pytest.warns(UserWarning, match=r"2 row\(s\) are left out: their y is absurdly far"):
        assert _plausible(np.array([[1e9], [3.0], [-1e9]]), seen).tolist() == [1]
