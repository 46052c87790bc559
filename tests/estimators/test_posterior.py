"""The regressor in closed form: good, robust and saved."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from restt import ResTTNetRegressor, ResTTRegressor, load
from restt.estimators import posterior
from restt.estimators.columns import Column
from restt.estimators.settings import NET
from restt.estimators.targets import Values
from restt.explain import sobol_indices
from restt.prior import Settings
from tests.hasty import hasty_solvers


def product(rows: int, seed: int = 0, columns: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A table, y = x0 + x1·x2 with noise of 0.1, and without."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns))
    clean = x[:, 0] + x[:, 1] * x[:, 2]
    return x, clean + 0.1 * rng.standard_normal(rows), clean


@pytest.fixture(scope="module")
def fitted() -> ResTTRegressor:
    x, y, _ = product(150)
    return ResTTRegressor(random_state=0).fit(x, y)


@pytest.fixture(scope="module")
def skewed() -> ResTTRegressor:
    """Fitted to the exponential of the product."""
    x, y, _ = product(150)
    return ResTTRegressor(random_state=0).fit(x, np.exp(y) * 3)


@pytest.fixture(scope="module")
def mixed_model() -> tuple[ResTTRegressor, pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=120),
            "colour": rng.choice(["red", "green", "blue"], 120),
            "new": rng.random(120) < 0.5,
        }
    )
    y = (frame["size"] + 2.0 * (frame["colour"] == "red") * frame["new"]).to_numpy()
    frame.loc[3:6, "size"] = np.nan
    frame.loc[[8, 9], "colour"] = None
    return ResTTRegressor(random_state=0).fit(frame, y), frame, y


def test_it_is_the_default_and_finds_the_product(fitted):
    x, _, clean = product(400, seed=1)
    assert fitted.score(x, clean) > 0.98
    assert fitted.module_.runs == 1
    assert fitted.module_.first.dtype == torch.float64
    assert fitted.fit_report_["evaluations"] > 10


def test_a_table_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(posterior, "available_memory", lambda device: 2.0**20)
    x, y, _ = product(400)
    with pytest.raises(
        ValueError, match=r"X is too large: 4 columns as sites of width up to 33 on 400 rows would need"
    ):
        ResTTRegressor().fit(x, y)


def test_bytes_are_those_of_numbers_states_products_and_matrices(monkeypatch):
    """32 knots of a number and three states of a category, each beside a missing one: 60 of 120 rows are solved."""
    columns = (Column("a"), Column("b", ("x", "y"), other=True))
    settings = Settings(exact_rows=50, scale_rows=20)
    widths = 33 + 4
    need = 3 * 120 * 2 + 60 * widths + 6 * (4 * 50 + 2) * widths + 40 * 3**2 + max(4 * 20**2, 50**2 / 2)
    for free, fits in ((8 * need, True), (8 * need - 1, False)):
        monkeypatch.setattr(posterior, "available_memory", lambda device, free=free: free)
        with nullcontext() if fits else pytest.raises(ValueError, match="sites of width up to 33 on 120 rows"):
            posterior._check_fits(columns, 120, 60, settings)


@pytest.mark.usefixtures("hasty")
def test_a_bond_can_be_given():
    x, y, _ = product(60)
    assert ResTTRegressor(bond_dim=2).fit(x, y).module_.bond_dim == 2


def test_intervals_cover_and_the_deviation_is_that_of_new_rows(fitted):
    x, y, _ = product(1000, seed=2)
    low, high = fitted.predict_interval(x, coverage=0.9).T
    assert 0.84 < np.mean((low <= y) & (y <= high)) < 0.97
    narrow = fitted.predict_interval(x, coverage=0.5)
    assert (narrow[:, 0] > low).all()
    assert (narrow[:, 1] < high).all()
    mean, std = fitted.predict(x, return_std=True)
    np.testing.assert_array_equal(mean, fitted.predict(x))
    inside = (np.abs(x) < 2).all(axis=1)
    assert np.sqrt(np.mean((y - mean)[inside] ** 2)) == pytest.approx(np.sqrt(np.mean(std[inside] ** 2)), rel=0.3)
    with pytest.raises(ValueError, match="coverage must be between 0 and 1"):
        fitted.predict_interval(x, coverage=1.5)


def test_intervals_of_a_skewed_y_lean_to_the_right(skewed):
    x, y, _ = product(500, seed=3)
    assert skewed.target_.label == "transformed y"
    low, high = skewed.predict_interval(x).T
    middle = skewed.predict_distribution(x).quantile(0.5)
    assert np.mean(high - middle) > 1.1 * np.mean(middle - low)
    assert 0.84 < np.mean((low <= 3 * np.exp(y)) & (3 * np.exp(y) <= high)) < 0.97


def test_the_prior_is_printed_by_column(mixed_model):
    model, frame, _ = mixed_model
    lines = str(model.prior_).splitlines()
    assert [line.split()[0] for line in lines[2:]] == list(frame.columns)
    assert model.prior_.relevance.shape == (3,)


def test_importances_are_of_the_columns_that_matter(fitted):
    found = fitted.feature_importances_
    assert found.shape == (4,)
    assert found.sum() == pytest.approx(1.0)
    # Var x0 = Var x1·x2, and the product counts for both of its columns.
    np.testing.assert_allclose(found, [1 / 3, 1 / 3, 1 / 3, 0.0], atol=0.04)
    assert not hasattr(ResTTRegressor(), "feature_importances_")


@pytest.mark.usefixtures("hasty")
def test_importances_of_several_outputs_are_averaged_by_the_variance_predicted():
    x, y, _ = product(80)
    noise = np.random.default_rng(7).standard_normal(80)  # of which little is predicted
    model = ResTTRegressor(random_state=0).fit(x, np.column_stack([y, noise + 0.3 * x[:, 3]]))
    indices = sobol_indices(model)
    variance = indices.variance.numpy() / model.target_.scale**2
    assert variance[1] < 0.7 * variance[0]
    expected = (indices.total.numpy() * variance).sum(1)
    assert model.feature_importances_ == pytest.approx(expected / expected.sum(), rel=1e-6)
    flat = ResTTRegressor(random_state=0).fit(x, np.ones(80))
    assert flat.feature_importances_.tolist() == [0.0] * 4


def test_importances_of_gradients_and_of_models_that_kept_no_covariances():
    x, y, _ = product(60)
    model = ResTTNetRegressor(epochs=40, random_state=0).fit(x, y)
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    model.site_covariances_ = None
    with pytest.raises(AttributeError, match="needs the covariances of the site vectors"):
        _ = model.feature_importances_


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("model", [ResTTRegressor(random_state=0), ResTTNetRegressor(epochs=5, random_state=0)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_moments_of_the_rows_are_weighted(model):
    x, y, _ = product(30)
    weights = np.random.default_rng(0).integers(1, 4, 30)
    model.fit(x, y, sample_weight=weights)
    vectors = model.encoding_.vectors(torch.from_numpy(x.repeat(weights, axis=0)))
    centred = vectors - vectors.mean(0)
    torch.testing.assert_close(model.site_means_, vectors.mean(0), atol=1e-12, rtol=1e-12)
    expected = torch.einsum("bni,bnj->nij", centred, centred) / len(vectors)
    torch.testing.assert_close(model.site_covariances_, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.usefixtures("hasty")
def test_a_weight_of_two_is_a_repeated_row_also_on_another_scale():
    x, y, _ = product(50)
    y = np.exp(2 * y)
    weights = np.random.default_rng(0).integers(0, 3, 50)
    weighted = ResTTRegressor(random_state=0).fit(x, y, sample_weight=weights)
    order = np.random.default_rng(1).permutation(int(weights.sum()))
    repeated = ResTTRegressor(random_state=0).fit(x.repeat(weights, axis=0)[order], y.repeat(weights)[order])
    assert weighted.target_.model.power == pytest.approx(repeated.target_.model.power)
    assert weighted.target_.model.power < 0.9
    np.testing.assert_allclose(weighted.predict(x), repeated.predict(x), rtol=1e-10)
    np.testing.assert_allclose(weighted.predict_interval(x), repeated.predict_interval(x), rtol=1e-8)


def test_unseen_categories_and_missing_values_are_averages_with_one_warning(mixed_model):
    model, frame, _ = mixed_model
    assert model.encoding_.site_means.sum(1) == pytest.approx(np.ones(3))
    rows = frame[10:14].copy()
    assert model.predict_interval(frame[3:10]).shape == (7, 2)
    with pytest.warns(UserWarning, match="the category 'violet'"):
        odd = model.predict_interval(rows.assign(colour="violet"))
    assert (odd[:, 1] > odd[:, 0]).all()
    with pytest.warns(UserWarning, match="'new' misses 4 value"):
        model.predict(rows.assign(new=np.nan))


@pytest.fixture(scope="module")
def many_levels() -> tuple[ResTTRegressor, pd.DataFrame, np.ndarray]:
    """150 levels of four rows each, none of which is a hundredth of the table."""
    rng = np.random.default_rng(0)
    code = np.tile(np.arange(150), 14)
    frame = pd.DataFrame({"place": [f"p{number}" for number in code], "size": rng.random(len(code))})
    y = rng.standard_normal(150)[code] + frame["size"].to_numpy() + 0.3 * rng.standard_normal(len(code))
    frame.loc[0, "place"] = "seen once"
    return ResTTRegressor(random_state=0).fit(frame[:600], y[:600]), frame, y


def test_levels_of_a_few_rows_have_effects_of_their_own(many_levels):
    model, frame, y = many_levels
    assert model.score(frame[600:], y[600:]) > 0.85
    ends = model.predict_interval(frame[600:])
    assert 0.85 < np.mean((ends[:, 0] <= y[600:]) & (y[600:] <= ends[:, 1])) < 0.95
    # One of a single row is no more than one that the fit has not seen.
    place = model.encoding_.columns[0]
    assert (len(place.levels), place.rare) == (150, ("seen once",))


@pytest.mark.usefixtures("hasty")
def test_the_most_frequent_levels_have_states_of_their_own(monkeypatch):
    monkeypatch.setattr(posterior, "MOST_LEVELS", 3)
    frame = pd.DataFrame({"c": list("aaabbbbccddddd") * 10})
    model = ResTTRegressor(random_state=0).fit(frame, np.arange(140.0) % 14)
    assert model.encoding_.columns[0].levels == ("a", "b", "d")


@pytest.mark.parametrize("kind", ["fitted", "skewed", "mixed_model", "several"])
def test_a_saved_model_keeps_everything(kind, request, tmp_path):
    if kind == "several":
        x, y, _ = product(60)
        with hasty_solvers():
            model, table = ResTTRegressor().fit(x, np.column_stack([y, np.full(60, 0.1), 1e200 * y])), x
    else:
        found = request.getfixturevalue(kind)
        model, table = found[:2] if isinstance(found, tuple) else (found, product(20)[0])
    for again in (load(model.save(tmp_path / "model")), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(again.predict_interval(table), model.predict_interval(table))
        np.testing.assert_array_equal(
            again.predict(table, return_std=True)[1], model.predict(table, return_std=True)[1]
        )
        np.testing.assert_array_equal(again.feature_importances_, model.feature_importances_)
        assert again.fit_report_ == model.fit_report_
        assert str(again.prior_) == str(model.prior_)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("size", [1.0, 1e200])
def test_exported_graphs_undo_the_transform_of_y(size, mixed_model, tmp_path):
    _, frame, y = mixed_model
    powers = []
    for number, values in enumerate((y, np.exp(2 * y), -np.exp(2 * y))):
        model = ResTTRegressor(bond_dim=3, random_state=0).fit(frame, size * values)
        powers.append(float(model.target_.model.power[0]))
        session = onnxruntime.InferenceSession(model.export(tmp_path / f"{number}.onnx", inputs="numbers"))
        found = session.run(None, {"x": model.numbers(frame)})[0]
        np.testing.assert_allclose(found, model.predict(frame), rtol=1e-6, atol=1e-6 * size)
        # Tracing takes seconds; the program of size 1 differs by a constant alone.
        if size > 1:
            program = torch.export.load(model.export(tmp_path / f"{number}.pt2")).module()
            again = program(torch.from_numpy(model.numbers(frame))).numpy()
            np.testing.assert_allclose(again, model.predict(frame), rtol=1e-9, atol=1e-9 * size)
    assert powers[1] < min(0.9, powers[0])
    assert powers[2] == pytest.approx(2 - powers[1])


@pytest.mark.usefixtures("hasty")
def test_several_outputs_and_constant_ones(tmp_path):
    x, y, _ = product(100)
    model = ResTTRegressor(random_state=0).fit(x, np.column_stack([y, np.full(100, 0.1), 1000 * y]))
    found, intervals = model.predict(x), model.predict_interval(x)
    assert intervals.shape == (100, 2, 3)
    assert found[:, 1].tolist() == [0.1] * 100
    assert (intervals[:, :, 1] == 0.1).all()
    np.testing.assert_allclose(found[:, 2], 1000 * found[:, 0], rtol=1e-6, atol=1e-6)
    assert model.predict(x, return_std=True)[1][:, 1].tolist() == [0.0] * 100
    session = onnxruntime.InferenceSession(model.export(tmp_path / "m.onnx"))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], found, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("constant", [0.1, 7.0, -1e-9, 1e300, 1e-300, 0.0, 1e5 / 3])
def test_a_constant_target_is_predicted_exactly(constant):
    x = np.random.default_rng(0).normal(size=(30, 2))
    model = ResTTRegressor().fit(x, np.full(30, constant))
    assert model.predict(10 * x).tolist() == [constant] * 30
    assert model.predict_interval(x).tolist() == [[constant, constant]] * 30


def hostile() -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Tables to fit, y, and 300 fresh rows of the same kind."""
    (x, y, _), (z, _, _) = product(120), product(300, seed=1)
    spoilt = np.where(np.arange(480).reshape(120, 4) == 9, 1e30, x)

    def with_column(make):
        return np.column_stack([x, make(x)]), y, np.column_stack([z, make(z)])

    return {
        "constant": with_column(lambda t: np.full(len(t), 5.0)),
        "duplicate": with_column(lambda t: t[:, 0]),
        "all missing": with_column(lambda t: np.full(len(t), np.nan)),
        "huge": (1e30 * x, y, 1e30 * z),
        "tiny": (1e-300 * x, y, 1e-300 * z),
        "to the end of floats": (3e307 * x, y, 3e307 * z),
        "one huge value": (spoilt, y, z),
    }


@pytest.mark.parametrize("kind", hostile())
def test_hostile_columns_leave_a_good_model(kind):
    x, y, fresh = hostile()[kind]
    model = ResTTRegressor(random_state=0).fit(x, y)
    assert model.score(fresh, product(300, seed=1)[2]) > 0.97
    assert np.isfinite(model.predict_interval(fresh)).all()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("size", [1e160, 1e-200, 1e300, 2.0**-1000])
def test_targets_of_any_size_are_learned_alike(size):
    x, y, _ = product(60)
    fitted, model = (ResTTRegressor(random_state=0).fit(x, y * factor) for factor in (1.0, size))
    np.testing.assert_allclose(model.predict(x) / size, fitted.predict(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.predict_interval(x) / size, fitted.predict_interval(x), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.feature_importances_, fitted.feature_importances_, atol=1e-4)


@pytest.mark.parametrize("rare", [0, 5])
def test_intervals_are_wide_where_a_category_is_rare_or_new(rare):
    rng = np.random.default_rng(0)
    effects = rng.standard_normal(1000)
    codes = np.r_[rng.integers(0, 15, 250 - rare), 100 + np.arange(rare)]
    frame = pd.DataFrame({"x": rng.standard_normal(250), "place": [f"p{code}" for code in codes]})
    y = frame["x"].to_numpy() + effects[codes] + 0.1 * rng.standard_normal(250)
    model = ResTTRegressor(random_state=0).fit(frame, y)
    assert model.encoding_.columns[1].other == bool(rare)
    new = 200 + np.arange(400)
    fresh = pd.DataFrame({"x": rng.standard_normal(400), "place": [f"p{code}" for code in new]})
    with pytest.warns(UserWarning, match="unseen in the fit"):
        low, high = model.predict_interval(fresh).T
    truth = fresh["x"].to_numpy() + effects[new] + 0.1 * rng.standard_normal(400)
    assert ((low <= truth) & (truth <= high)).mean() > 0.7
    assert np.median(high - low) > 4 * np.median(np.diff(model.predict_interval(frame[: 250 - rare])))


def test_one_absurd_y_is_left_out_with_a_warning():
    x, y, _ = product(120)
    y[3] = 1e12
    with pytest.warns(UserWarning, match=r"1 row\(s\) are left out of the fit: their y, such as 1e\+12"):
        model = ResTTRegressor(random_state=0).fit(x, y)
    fresh, _, clean = product(300, seed=1)
    assert model.score(fresh, clean) > 0.98
    assert model.fit_report_["left_out"] == {"rows of implausible y": 1}


@pytest.mark.parametrize(("rows", "columns"), [(1, 4), (2, 4), (3, 40), (20, 30)])
def test_few_rows_give_a_cautious_model(rows, columns):
    x, y, _ = product(rows, columns=columns)
    model = ResTTRegressor(random_state=0).fit(x, y)
    fresh, _, _ = product(50, seed=1, columns=columns)
    found, (low, high) = model.predict(fresh), model.predict_interval(fresh).T
    assert np.isfinite([found, low, high]).all()
    assert (found <= y.max() + np.ptp(y) + 1e-9).all()
    assert (low <= high).all()


def test_fits_repeat_and_do_not_depend_on_the_order_of_rows():
    x, y, _ = product(80)
    order = np.random.default_rng(0).permutation(80)
    model = ResTTRegressor(random_state=0).fit(x, y)
    np.testing.assert_array_equal(clone(model).fit(x, y).predict(x), model.predict(x))
    np.testing.assert_allclose(clone(model).fit(x[order], y[order]).predict(x), model.predict(x), rtol=1e-9)


@pytest.mark.usefixtures("hasty")
def test_one_line_of_progress(capsys):
    x, y, _ = product(80)
    count = ResTTRegressor(verbose=1).fit(x, y).fit_report_["evaluations"]
    assert capsys.readouterr().out.startswith(f"closed form · {count} evaluations of the evidence · bond ")


def test_explanations_are_methods(fitted):
    x, _, _ = product(5)
    assert type(fitted.explain_local(x)).__name__ == "LocalExplanation"
    assert type(fitted.explain_global()).__name__ == "GlobalExplanation"


def test_the_penalty_of_training_falls_with_the_rows():
    values = Values(np.zeros(1), np.ones(1), True)
    assert values.auto_penalty(10) == values.auto_penalty(NET.penalised_rows) == pytest.approx(0.02)
    assert values.auto_penalty(100 * NET.penalised_rows) == pytest.approx(0.0002)


def test_many_rows_are_trained_to_more_than_a_constant():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((21_000, 20))
    clean = x[:, 0] + 0.5 * x[:, 1] + x[:, 2] * x[:, 3]
    y = clean + 0.5 * rng.standard_normal(21_000)
    model = ResTTNetRegressor(epochs=8, random_state=0).fit(x[:20_000], y[:20_000])
    assert model.score(x[20_000:], clean[20_000:]) > 0.9


def test_rows_are_taken_in_parts(fitted, monkeypatch):
    x, _, _ = product(50, seed=4)
    whole = fitted.predict_interval(x), fitted.predict(x, return_std=True)[1]
    monkeypatch.setattr("restt.prior.predictive._ROWS_AT_ONCE", 7)
    # Where there is little noise a variance is the difference of numbers 1e4 times as large.
    np.testing.assert_allclose(fitted.predict_interval(x), whole[0], rtol=1e-10)
    np.testing.assert_allclose(fitted.predict(x, return_std=True)[1], whole[1], rtol=1e-10)


def test_the_prior_is_drawn(fitted):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    assert len(fitted.prior_.plot().patches) == 4
    pyplot.close("all")
