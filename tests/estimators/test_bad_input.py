"""Every mistake is told in the user's words, before any work is lost."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils._param_validation import InvalidParameterError

from restt import Topology
from restt.estimators import ResTTClassifier, ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor, settings
from tests.estimators.conftest import QUICK, short_fits

X = np.random.default_rng(0).normal(size=(12, 2))
Y = np.arange(12.0)
FRAME = pd.DataFrame({"a": X[:, 0], "kind": ["x", "y", "z"] * 4})


@pytest.fixture(scope="module")
def on_frame():
    return ResTTNetRegressor(**QUICK, handle_unknown="error", handle_missing="error").fit(FRAME, Y)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, np.where(Y == 3, np.nan, Y), "Input y contains NaN"),
        (X, np.where(Y == 3, np.inf, Y), "Input y contains infinity"),
        (np.where(X[2, 1] == X, np.inf, X), Y, r"Input X contains infinity: column 1, first in row 2"),
        (X, Y[:5], r"inconsistent numbers of samples: \[12, 5\]"),
        (X, None, "requires y to be passed, but the target y is None"),
        (X[:0], Y[:0], r"Found array with 0 sample\(s\)"),
        (X[:, :0], Y, r"0 feature\(s\)"),
        (FRAME[:0], Y[:0], r"Found array with 0 sample\(s\) \(shape=\(0, 2\)\)"),
        (FRAME[[]], Y, r"Found array with 0 feature\(s\) \(shape=\(12, 0\)\)"),
        (X[:, 0], Y, "Expected 2D array, got 1D array"),
        (X[:, :, None], Y, "Found array with dim 3"),
        (X + 1j, Y, "Complex data not supported"),
        (np.array([["a", "b"]] * 12), Y, r"column 0 of X must hold numbers, got the text .*'a'.* in row 0"),
        (X, ["yes", "no"] * 6, r"y must hold numbers \(.*'yes'.*\); classes are for ResTTClassifier"),
        (X, Y.astype("datetime64[s]"), r"y must hold numbers, got dtype datetime64\[s\]: make a number of it"),
        (X, np.ones((12, 2, 2)), "y must have shape|Found array with dim 3"),
        (X, pd.Series(pd.period_range("2020", periods=12)), r"y must hold numbers \(.*'Period'\)"),
        (
            np.array([[pd.Timestamp("2020-01-01")]] * 12),
            Y,
            r"column 0 of X must hold numbers or dates, got Timestamp.* in row 0: dates and durations are columns of a",
        ),
        (FRAME["a"], Y, r"X must be a table of shape \(B, C\), got a pandas Series of 12 values: .*X.to_frame\(\)"),
    ],
)
def test_fit_refuses(x, y, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ResTTNetRegressor(**QUICK).fit(x, y)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(12), "sample_weight must be above zero"),
        (-np.ones(12), "sample_weight must be finite, at least 0"),
        (np.full(12, np.nan), "sample_weight must be finite"),
        (np.full(12, 1e-100), "sample_weight must have its largest weight between 1e-30 and"),
        (np.full(12, 1e100), r"sample_weight must have its largest weight .* got 1e\+100"),
        (np.ones(5), r"sample_weight must have shape \(12,\)"),
        (np.ones((12, 2)), r"sample_weight must have shape \(12,\)"),
        (["heavy"] * 12, "sample_weight must hold numbers, got"),
    ],
)
def test_weights_are_checked(weights, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ResTTNetRegressor(**QUICK).fit(X, Y, sample_weight=weights)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (FRAME.rename(columns={"a": "b"}), "Feature names unseen at fit time:\n- b"),
        (FRAME[["kind", "a"]], "Feature names must be in the same order as they were in fit"),
        (FRAME[["a"]], "Feature names seen at fit time, yet now missing:\n- kind"),
        (FRAME.assign(a=["1"] * 12), "column 'a' of X must hold numbers, got text or categories, first '1'"),
        (
            FRAME.assign(a=pd.Categorical([1] * 12)),
            "column 'a' of X must hold numbers, got text or categories, first 1",
        ),
        (FRAME.assign(a=[np.inf] + [0.0] * 11), "Input X contains infinity: column 'a', first in row 0"),
        (FRAME.assign(a=[0.0, np.nan] * 6), "column 'a' misses 6 value.*first in row 1.*none missing in the fit"),
        (FRAME.assign(kind=["x", None] * 6), "column 'kind' misses 6 value"),
        (
            FRAME.assign(kind=["x", "new"] * 6),
            r"column 'kind' of X has the category 'new' in row 1, unseen in the fit; known are \['x', 'y', 'z'\]. "
            'handle_unknown="other"',
        ),
        (FRAME[:0], r"Found array with 0 sample\(s\)"),
    ],
)
def test_predict_refuses(on_frame, table, message):
    with pytest.raises(ValueError, match=message):
        on_frame.predict(table)


def test_predict_on_another_number_of_columns():
    model = ResTTNetRegressor(**QUICK).fit(X, Y)
    with pytest.raises(ValueError, match="X has 3 features, but ResTTNetRegressor is expecting 2 features as input"):
        model.predict(np.zeros((2, 3)))


def test_unnamed_table_after_a_frame_warns(on_frame):
    model = ResTTNetRegressor(**QUICK).fit(FRAME[["a"]], Y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(FRAME[["a"]].to_numpy())


def test_missing_values_where_they_are_not_wanted():
    x = X.copy()
    x[4, 1] = np.nan
    with pytest.raises(ValueError, match='NaN: column 1 has missing values, which handle_missing="error" refuses'):
        ResTTNetRegressor(**QUICK, handle_missing="error").fit(x, Y)
    with pytest.raises(ValueError, match="column 'kind' has missing values"):
        ResTTNetRegressor(**QUICK, handle_missing="error").fit(FRAME.assign(kind=[None, "x"] * 6), Y)


def test_unseen_values_are_average_with_one_warning_each():
    model = ResTTNetRegressor(**QUICK).fit(FRAME, Y)
    with pytest.warns(
        UserWarning, match=r"column 'kind' of X has the category 'new' in row 0.*unseen.*average"
    ) as told:
        unknown = model.predict(FRAME.assign(kind="new"))
    assert len(told) == 1
    with pytest.warns(UserWarning, match=r"column 'a' misses 12 value.* 1 more column.*none missing") as told:
        missing = model.predict(FRAME.assign(kind=None, a=np.nan))
    assert len(told) == 1
    with pytest.warns(UserWarning, match="column 'kind' misses"):
        np.testing.assert_array_equal(model.predict(FRAME.assign(kind=pd.NA).astype({"kind": "string"})), unknown)
    assert len(set(missing)) == 1


def test_one_unseen_value_does_not_end_the_batch():
    model = ResTTNetRegressor(**QUICK).fit(FRAME, Y)
    table = FRAME.assign(kind=["new", *FRAME["kind"][1:]])
    with pytest.warns(UserWarning, match="unseen in the fit"):
        found = model.predict(table)
    np.testing.assert_array_equal(found[1:], model.predict(FRAME)[1:])
    assert np.isfinite(found).all()


@short_fits
def test_rare_categories_of_the_fit_are_no_surprise():
    frame = pd.DataFrame({"kind": ["a", "b"] * 100 + ["rare"]})
    model = ResTTNetRegressor(**QUICK).fit(frame, np.r_[np.tile([1.0, 2.0], 100), 3.0])
    assert np.isfinite(model.predict(frame)).all()
    with pytest.warns(UserWarning, match="the category 'never' in row 0"):
        never = model.predict(pd.DataFrame({"kind": ["never"]}))
    assert never == model.predict(frame)[-1:]


@pytest.mark.parametrize("y", [np.linspace(0, 1, 12), np.eye(12)[:, :2]])
def test_classifier_refuses_numbers_that_are_no_classes(y):
    with pytest.raises(ValueError, match=r"Unknown label type|y should be a 1d array"):
        ResTTNetClassifier(**QUICK).fit(X, y)


def test_classifier_refuses_missing_labels():
    with pytest.raises(ValueError, match="Input y contains NaN"):
        ResTTNetClassifier(**QUICK).fit(X, np.r_[np.nan, np.ones(11)])


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (["a", np.nan] * 6, ValueError, "Input y contains NaN: the label in row 1 is missing"),
        (["a", None] * 6, ValueError, "Input y contains NaN: the label in row 1 is missing"),
        (["a", pd.NA] * 6, ValueError, "Input y contains NaN: the label in row 1 is missing"),
        (["a", "b", 3] * 4, TypeError, "y must hold labels of one kind, got 'a' in row 0 and 3 in row 2"),
    ],
)
def test_classifier_refuses_text_labels_that_are_missing_or_mixed(labels, error, message):
    with pytest.raises(error, match=message):
        ResTTNetClassifier(**QUICK).fit(X, np.array(labels, dtype=object))


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["2024-01-01", "NaT", "2025-01-01"] * 4, dtype="datetime64[D]"),
        np.array([60, "NaT", 90] * 4, dtype="timedelta64[s]"),
        np.ma.masked_array([0, 7, 1] * 4, mask=[False, True, False] * 4),
    ],
)
def test_classifier_refuses_labels_that_are_missing_without_being_nan(labels):
    with pytest.raises(ValueError, match="Input y contains NaN: the label in row 1 is missing"):
        ResTTNetClassifier(**QUICK).fit(X, labels)


@pytest.mark.parametrize("solver", ["posterior", "gradient"])
@pytest.mark.parametrize("dtype", [np.float64, np.int64, object])
def test_regressor_refuses_masked_targets(solver, dtype):
    y = np.ma.array(np.arange(len(X)).astype(dtype), mask=np.arange(len(X)) == 3)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        ResTTRegressor().fit(X, y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        ResTTRegressor().fit(X, np.ma.column_stack([y, y]))


def test_masked_weights_are_refused():
    weights = np.ma.array(np.ones(len(X)), mask=np.arange(len(X)) == 3)
    with pytest.raises(ValueError, match="sample_weight must be finite"):
        ResTTNetRegressor(**QUICK).fit(X, Y, weights)


def test_frames_of_polars_are_refused_in_the_same_words(on_frame):
    pl = pytest.importorskip("polars")
    with pytest.raises(ValueError, match="got a polars Series of 12 values"):
        ResTTNetRegressor(**QUICK).fit(pl.Series(X[:, 0]), Y)
    with pytest.raises(ValueError, match=r"must hold numbers or dates, got datetime\.time"):
        ResTTNetRegressor(**QUICK).fit(pl.DataFrame({"a": [datetime.time(12)] * 12}), Y)
    with pytest.raises(ValueError, match="column 'a' of X must hold numbers, got text or categories, first 'one'"):
        on_frame.predict(pl.DataFrame({"a": ["one"], "kind": ["x"]}))


def test_a_lazy_frame_has_to_be_collected():
    pl = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"polars LazyFrame, which holds no rows yet: pass X.collect\(\)"):
        ResTTNetRegressor(**QUICK).fit(pl.DataFrame(X).lazy(), Y)


@pytest.mark.parametrize("kind", [ResTTRegressor, ResTTClassifier])
def test_a_misspelt_parameter_names_the_class(kind):
    with pytest.raises(
        TypeError, match=rf"{kind.__name__}.__init__\(\) got an unexpected keyword argument 'bond_dims'"
    ):
        kind(bond_dims=3)


def test_empty_paths_are_not_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="checkpoint_dir must be a folder, got ''"):
        ResTTNetRegressor(**QUICK, checkpoint_dir="").fit(X, Y)
    with pytest.raises(ValueError, match='path must name a folder or a file, got ""'):
        ResTTNetRegressor(**QUICK).fit(X, Y).save("")
    assert list(tmp_path.iterdir()) == []


def test_a_million_columns_are_refused_with_the_memory_they_need():
    wide = np.zeros((2, 1_000_000))
    with pytest.raises(ValueError, match=r"1000000 columns .* would need \d+\.\d GiB"):
        ResTTNetRegressor().fit(wide, [0.0, 1.0])
    with pytest.raises(ValueError, match=r"X has 1000000 columns and the closed form takes up to 2000: .*Net"):
        ResTTRegressor().fit(wide, [0.0, 1.0])


def test_memory_of_wide_categories_is_known_after_the_levels(monkeypatch):
    frame = pd.DataFrame({"id": [f"u{i}" for i in range(300)]})
    monkeypatch.setattr(settings, "available_memory", lambda device: 2.0**20)
    # Levels of one row in 300 are rare, so by default the column is narrow.
    narrow = ResTTNetRegressor(bond_dim=2).fit(frame, np.arange(300.0))
    assert narrow.encoding_.widths == (1,)
    with pytest.raises(
        ValueError, match=r"1 columns as sites of width 300 .* would need .* GiB, 0.0 GiB are available"
    ):
        ResTTNetRegressor(bond_dim=10, handle_unknown="error").fit(frame, np.arange(300.0))


def test_long_chains_are_refused_whatever_the_memory(monkeypatch):
    monkeypatch.setattr(settings, "available_memory", lambda device: float("inf"))
    settled = settings.settle(1, 1, 1, 1, device="cpu", precision="float64", batch_size="auto", epochs="auto")
    with pytest.raises(ValueError, match=r"X is too large: 100001 columns .* a chain may have 100000 sites"):
        settings.check_fits(100_001, 1, 1, 1, 1, 1, settled)
    settings.check_fits(100_000, 1, 1, 1, 1, 1, settled)


def test_a_training_takes_what_is_written_down():
    """Fifteen copies of the weights, the rows' site vectors, and the states, features and outer product of a step."""
    sizes = {"sites": 3, "width": 4, "bond_dim": 5, "outputs": 2, "runs": 6}
    weights = 3 * 4 * (25 + 5) + 4 * 5 * 2
    for precision, size in (("float32", 4), ("float64", 8)):
        for batch, steps in ((None, 100), (70, 70)):
            settled = settings.settle(
                100, 12, 5, 6, device="cpu", precision=precision, batch_size=batch or 100, epochs=1
            )
            expected = 15 * 6 * weights + 100 * 3 * 4 + steps * 6 * (3 * 3 * 5 + 2 * 3 * 4 + 2 * 4 * 5)
            assert settings.training_bytes(settled, **sizes, rows=100) == size * expected


def test_settings_follow_from_the_rows_and_their_work():
    def settled(rows, batch="auto", epochs="auto", precision="auto"):
        given = {"device": "cpu", "precision": precision, "batch_size": batch, "epochs": epochs}
        return settings.settle(rows, 80, 10, 2, **given)

    net = settings.NET
    whole, more = settled(net.whole_rows), settled(net.whole_rows + 1)
    assert (whole.batch_size, more.batch_size) == (None, net.batch_size)
    assert whole.step_work == net.whole_rows * 80 * 100 * 2
    assert more.step_work == net.batch_size * 80 * 100 * 2
    assert (settled(100, batch=100).batch_size, settled(100, batch=99).batch_size) == (None, 99)
    steps = -(-(net.whole_rows + 1) // net.batch_size)
    assert more.epochs == max(net.fewest_epochs, -(-net.steps // steps))
    assert settled(10**9, precision="float32").epochs == net.fewest_epochs
    assert (settled(100, epochs=3).epochs, settled(100).epochs) == (3, net.steps)
    most = int(net.float64_work / 80 / 100 / 2)
    assert [settled(most + step).precision for step in (0, 1)] == ["float64", "float32"]


def test_available_memory_is_a_size():
    assert 2**20 < settings.available_memory(torch.device("cpu")) < 2**60


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"bond_dim": 0}, "'bond_dim' parameter of ResTTNetRegressor must be an int in the range"),
        ({"epochs": 0}, "'epochs' parameter"),
        ({"lr": -1.0}, "'lr' parameter"),
        ({"loss": "cross-entropy"}, "'loss' parameter"),
        ({"feature_map": "spline"}, "'feature_map' parameter"),
        ({"topology": "ring"}, "'topology' parameter"),
        ({"dropout": 1.0}, "'dropout' parameter"),
        ({"penalty": "strong"}, "'penalty' parameter"),
        ({"early_stopping": 0}, "'early_stopping' parameter"),
    ],
)
def test_parameters_are_checked_by_name(option, message):
    with pytest.raises(InvalidParameterError, match=message):
        ResTTNetRegressor(**option).fit(X, Y)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"penalty": {"cores": 1.0}}, r"penalty may hold chain, linear and head, got \['cores'\]"),
        ({"penalty": {"chain": -1.0}}, "penalty.chain must be"),
        ({"topology": Topology.residual(5)}, "topology has 5 sites, the module has sites=2"),
        ({"device": "abacus"}, 'device must be "auto", "cpu", .* got .abacus.'),
        ({"site_order": ["a", "b"]}, "X has no column names"),
    ],
)
def test_parameters_are_checked_against_the_data(option, message):
    with pytest.raises(ValueError, match=message):
        ResTTNetRegressor(**option).fit(X, Y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there():
    with pytest.raises(ValueError, match="torch finds no CUDA device"):
        ResTTRegressor(device="cuda").fit(X, Y)


def test_early_stopping_needs_two_rows():
    with pytest.raises(ValueError, match="at least 2 rows, got n_samples=1"):
        ResTTNetRegressor(early_stopping=True).fit(X[:1], Y[:1])
