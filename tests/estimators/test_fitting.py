"""What fit does with data, weights, seeds and earlier fits; both estimators."""

import copy
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from restt import Topology
from restt.estimators import ResTTClassifier, ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor, load
from restt.estimators.encoding import fit_encoding
from restt.estimators.tables import frame_table
from restt.estimators.targets import Labels, Values
from restt.train import Penalty
from tests.estimators.conftest import QUICK


def test_learns_an_interaction():
    x = np.random.default_rng(0).uniform(-1, 1, size=(300, 3))
    y = x[:, 0] * x[:, 1]
    model = ResTTNetRegressor(random_state=0, penalty=1e-4).fit(x[:200], y[:200])
    assert model.score(x[200:], y[200:]) > 0.9
    linear = ResTTNetRegressor(random_state=0, penalty=1e-4, topology="linear").fit(x[:200], y[:200])
    assert linear.score(x[200:], y[200:]) < 0.3


def test_every_kind_of_table_gives_the_same_model(numbers):
    x, y = numbers
    names = ["a", "b", "c"]
    want = ResTTNetRegressor(**QUICK).fit(x, y).predict(x)
    for table in (
        x.tolist(),
        np.asfortranarray(x),
        x.astype(object),
        pd.DataFrame(x, columns=names),
        sparse.csr_array(x),
        sparse.coo_matrix(x),
    ):
        np.testing.assert_array_equal(ResTTNetRegressor(**QUICK).fit(table, y).predict(table), want)


def test_polars_gives_the_model_of_pandas(numbers, mixed):
    pl = pytest.importorskip("polars")
    x, y = numbers
    plain = pl.DataFrame(x, schema=["a", "b", "c"])
    np.testing.assert_array_equal(
        ResTTNetRegressor(**QUICK).fit(plain, y).predict(plain), ResTTNetRegressor(**QUICK).fit(x, y).predict(x)
    )
    frame, y = mixed
    other = pl.DataFrame({name: frame[name].astype(object).where(frame[name].notna(), None).tolist() for name in frame})
    want = ResTTNetRegressor(**QUICK).fit(frame, y)
    found = ResTTNetRegressor(**QUICK).fit(other, y)
    np.testing.assert_array_equal(found.predict(other), want.predict(frame))
    assert found.feature_names_in_.tolist() == want.feature_names_in_.tolist() == list(frame.columns)


def test_mixed_table_is_learned(mixed):
    frame, y = mixed
    model = ResTTNetRegressor(random_state=0, penalty=1e-3).fit(frame, y)
    assert model.score(frame, y) > 0.95
    assert [column.levels for column in model.encoding_.columns] == [None, ("blue", "green", "red"), None, None]
    assert [column.missing for column in model.encoding_.columns] == [True, True, False, False]


def test_a_missing_value_is_learned_as_its_own_state():
    x = np.array([[0.0], [1.0], [np.nan]] * 20)
    y = np.array([0.0, 1.0, 5.0] * 20)
    model = ResTTNetRegressor(**{**QUICK, "epochs": 300}, lr=0.1, penalty=0.0).fit(x, y)
    np.testing.assert_allclose(model.predict(x[:3]), [0, 1, 5], atol=0.05)


def test_categorical_features_by_number_name_and_mask():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(0, 3, 40), rng.normal(size=40)])
    y = np.array([3.0, -1.0, 2.0])[x[:, 0].astype(int)]
    frame = pd.DataFrame(x, columns=["kind", "noise"])
    want = ResTTNetRegressor(**QUICK, categorical_features=[0]).fit(x, y)
    assert want.encoding_.columns[0].levels == (0, 1, 2)
    for given, table in (([True, False], x), (["kind"], frame), (np.array([0]), frame)):
        found = ResTTNetRegressor(**QUICK, categorical_features=given).fit(table, y)
        np.testing.assert_array_equal(found.predict(table), want.predict(x))


def test_scale_and_shift_of_columns_and_target_do_not_matter(numbers):
    x, y = numbers
    want = ResTTNetRegressor(**QUICK).fit(x, y).predict(x)
    moved = ResTTNetRegressor(**QUICK).fit(1000 * x + 5, 1e6 * y - 3).predict(1000 * x + 5)
    np.testing.assert_allclose((moved + 3) / 1e6, want, rtol=1e-6, atol=1e-8)


def test_constant_columns_and_constant_target(numbers):
    x, y = numbers
    model = ResTTNetRegressor(**QUICK).fit(np.column_stack([np.full(60, 3.0), x]), y)
    assert np.isfinite(model.predict(np.column_stack([np.full(60, 9.0), x]))).all()
    constant = ResTTNetRegressor(**QUICK).fit(np.full((10, 2), 3.0), np.full(10, 7.0))
    np.testing.assert_allclose(constant.predict([[0.0, 1.0]]), 7.0, atol=1e-8)


def test_one_row_is_enough():
    assert ResTTNetRegressor(**QUICK).fit([[1.0, 2.0]], [3.0]).predict([[1.0, 2.0]]) == pytest.approx([3.0], abs=1e-8)
    assert ResTTNetClassifier(**QUICK).fit([[1.0, 2.0]], ["only"]).predict([[5.0, 2.0]]).tolist() == ["only"]


@pytest.mark.parametrize("kind", [ResTTNetRegressor, ResTTNetClassifier])
def test_weights_are_repetitions(kind):
    rng = np.random.default_rng(5)
    x, y, counts = rng.normal(size=(25, 3)), rng.integers(0, 3, 25), rng.integers(0, 4, 25)
    weighted = kind(**QUICK).fit(x, y, sample_weight=counts)
    repeated = kind(**QUICK).fit(x.repeat(counts, axis=0), y.repeat(counts))
    np.testing.assert_allclose(weighted._members(x), repeated._members(x), rtol=1e-8, atol=1e-10)


def test_a_single_number_weighs_all_rows_alike(numbers):
    x, y = numbers
    want = ResTTNetRegressor(**QUICK).fit(x, y).predict(x)
    np.testing.assert_allclose(ResTTNetRegressor(**QUICK).fit(x, y, sample_weight=2.5).predict(x), want, rtol=1e-8)


def test_random_state_decides_everything(numbers):
    x, y = numbers
    options = {"bond_dim": 3, "epochs": 5, "dropout": 0.2, "batch_size": 16}
    first = ResTTNetRegressor(**options, random_state=1).fit(x, y).predict(x)
    np.testing.assert_array_equal(ResTTNetRegressor(**options, random_state=1).fit(x, y).predict(x), first)
    from_generator = ResTTNetRegressor(**options, random_state=np.random.RandomState(1)).fit(x, y).predict(x)
    np.testing.assert_array_equal(from_generator, first)
    assert not np.array_equal(ResTTNetRegressor(**options, random_state=2).fit(x, y).predict(x), first)
    np.random.seed(3)  # noqa: NPY002
    unseeded = ResTTNetRegressor(**options).fit(x, y).predict(x)
    assert not np.array_equal(ResTTNetRegressor(**options).fit(x, y).predict(x), unseeded)


def test_a_member_is_the_same_alone_or_among_many(numbers):
    x, y = numbers
    one = ResTTNetRegressor(**QUICK, runs=1).fit(x, y)._members(x)
    four = ResTTNetRegressor(**QUICK, runs=4).fit(x, y)._members(x)
    assert four.shape == (4, 60, 1)
    np.testing.assert_allclose(four[:1], one, rtol=1e-9, atol=1e-12)


def test_records_and_counts(numbers):
    x, y = numbers
    model = ResTTNetRegressor(bond_dim=3, epochs=4, random_state=0).fit(x, y)
    assert model.n_iter_ == 4
    assert [record.epoch for record in model.history_] == [1, 2, 3, 4]
    assert model.history_[-1].train_loss[0] < model.history_[0].train_loss[0]
    assert model.module_.bond_dim == 3
    assert model.n_features_in_ == 3
    assert not hasattr(model, "feature_names_in_")


def test_warm_start_goes_on(numbers):
    x, y = numbers
    model = ResTTNetRegressor(**QUICK, warm_start=True).fit(x, y)
    loss = model.history_[-1].train_loss[0]
    model.fit(x, y)
    assert [record.epoch for record in model.history_] == list(range(1, 61))
    assert model.n_iter_ == 60
    assert model.history_[30].train_loss[0] < 1.5 * loss
    fresh = model.set_params(warm_start=False).fit(x, y)
    assert fresh.n_iter_ == 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bond_dim": 4}, "bond_dim changed since the first fit from 3 to 4"),
        ({"runs": 2}, "runs changed since the first fit from 1 to 2"),
        ({"topology": "linear"}, "topology changed"),
    ],
)
def test_warm_start_refuses_another_shape(numbers, change, message):
    model = ResTTNetRegressor(**QUICK, warm_start=True).fit(*numbers)
    with pytest.raises(ValueError, match=message):
        model.set_params(**change).fit(*numbers)


def test_partial_fit_learns_in_pieces():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(400, 2))
    y = 3 * x[:, 0] + 10
    model = ResTTNetRegressor(bond_dim=3, random_state=0, lr=0.02)
    for _ in range(15):
        for start in range(0, 400, 100):
            model.partial_fit(x[start : start + 100], y[start : start + 100])
    assert model.n_iter_ == len(model.history_) == 60
    assert model.score(x, y) > 0.9
    with pytest.raises(ValueError, match="X has 3 features, but ResTTNetRegressor is expecting 2"):
        model.partial_fit(np.zeros((2, 3)), [0, 1])
    with pytest.raises(ValueError, match=r"y must have 1 output\(s\)"):
        model.partial_fit(x, np.column_stack([y, y]))


def test_early_stopping_holds_rows_out_and_keeps_the_best_epoch(numbers):
    x, y = numbers
    y = y + 2 * np.random.default_rng(2).normal(size=60)
    model = ResTTNetRegressor(
        bond_dim=8, random_state=0, penalty=None, early_stopping=5, epochs=300, schedule="constant"
    )
    model.fit(x, y)
    losses = [record.validation["loss"][0] for record in model.history_]
    assert model.n_iter_ == int(np.argmin(losses)) + 1 + 5 < 300
    assert ResTTNetRegressor(**QUICK, early_stopping=True).fit(x, y).history_[0].validation.keys() >= {"loss", "r2"}


def test_fit_epochs_streams_and_can_be_left(numbers):
    x, y = numbers
    model = ResTTNetRegressor(**QUICK)
    scores = []
    for record in model.fit_epochs(x[:40], y[:40], validation=(x[40:], y[40:])):
        scores.append(model.score(x[40:], y[40:]))
        assert scores[-1] == pytest.approx(record.validation["r2"][0], abs=1e-9)
        if record.epoch == 7:
            break
    assert model.n_iter_ == 7
    for wrong in (x, (x,), (x, y, y, y), "xy"):
        with pytest.raises(TypeError, match=r"validation must be \(X, y\)"):
            model.fit_epochs(x, y, validation=wrong)


def test_held_out_rows_may_weigh(numbers):
    x, y = numbers
    weights = np.r_[np.ones(10), np.zeros(10)]
    given, fewer = (
        next(iter(ResTTNetRegressor(**QUICK).fit_epochs(x[:40], y[:40], validation=held))).validation["loss"]
        for held in ((x[40:], y[40:], weights), (x[40:50], y[40:50]))
    )
    assert given == pytest.approx(fewer)


def test_rows_held_out_for_early_stopping_are_a_share_but_neither_none_nor_all(numbers):
    x, y = numbers
    for rows, fraction, held in ((60, 0.2, 12), (60, 0.001, 1), (3, 0.99, 2), (2, 0.5, 1)):
        model = ResTTNetRegressor(**QUICK, early_stopping=True, validation_fraction=fraction)
        given = model._read_examples(x[:rows], y[:rows], None, reset=True)
        kept, out = model._split(given, None, 3)
        assert (len(kept), len(out)) == (rows - held, held)
        assert sorted([*kept.y, *out.y]) == sorted(y[:rows])
        assert model._split(given, None, None) == (given, None)
        assert model._split(given, out, 3) == (given, out)
        assert model.set_params(early_stopping=False)._split(given, None, 3) == (given, None)
    with pytest.raises(ValueError, match="needs at least 2 rows, got n_samples=1"):
        ResTTNetRegressor(early_stopping=True).fit(x[:1], y[:1])


def test_checkpoint_goes_on_and_refuses_other_data(numbers, tmp_path):
    x, y = numbers
    whole = ResTTNetRegressor(**QUICK).fit(x, y)
    model = ResTTNetRegressor(**QUICK, checkpoint_dir=tmp_path)
    for record in model.fit_epochs(x, y):
        if record.epoch == 12:
            break
    resumed = clone(model).fit(x, y)
    assert [record.replayed for record in resumed.history_] == [True] * 12 + [False] * 18
    np.testing.assert_array_equal(resumed.predict(x), whole.predict(x))
    want = model.predict(x)
    with pytest.raises(ValueError, match="holds another training"):
        model.fit(x, y + np.arange(60))
    np.testing.assert_array_equal(model.predict(x), want)


def test_a_folder_holds_one_training(numbers, tmp_path):
    x, y = numbers
    ResTTNetRegressor(**QUICK, checkpoint_dir=tmp_path).fit(x, y)
    with pytest.raises(ValueError, match=r"holds another training.*\n.*lr: 0.05 in the checkpoint, 0.01 now"):
        ResTTNetRegressor(**QUICK, checkpoint_dir=tmp_path, lr=0.01).fit(x, y)


def test_more_epochs_on_a_finished_training_go_on(numbers, tmp_path):
    x, y = numbers
    model = ResTTNetRegressor(**QUICK, checkpoint_dir=tmp_path).fit(x, y)
    longer = clone(model).set_params(epochs=45).fit(x, y)
    assert [record.replayed for record in longer.history_] == [True] * 30 + [False] * 15
    assert longer.history_[-1].train_loss[0] < model.history_[-1].train_loss[0]


@pytest.mark.parametrize("kind", [ResTTNetRegressor, ResTTNetClassifier])
def test_a_fit_that_is_worse_than_a_constant_says_so(numbers, kind):
    x, y = numbers
    guess = "the mean of y" if kind is ResTTNetRegressor else "the shares of the classes"
    with pytest.warns(
        ConvergenceWarning, match=rf"ends worse than {guess} on its own training rows.*smaller lr"
    ) as told:
        kind(**{**QUICK, "epochs": 1}, lr=1e-9, sigma2=50.0).fit(x, (y > 0).astype(int))
    assert len(told) == 1


def test_a_fit_that_the_guard_stops_says_so(numbers):
    x, y = numbers
    with pytest.warns(ConvergenceWarning, match=r"the training was stopped because it exploded.*smaller lr"):
        model = ResTTNetRegressor(**{**QUICK, "epochs": 200}, lr=1e6, schedule="constant").fit(x, y)
    assert any(event.kind == "failed" for record in model.history_ for event in record.events)


def test_a_fit_that_is_left_early_is_not_judged(numbers):
    x, y = numbers
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in ResTTNetRegressor(**QUICK, lr=1e-9, sigma2=50.0).fit_epochs(x, y):
            break
        ResTTNetRegressor(**QUICK, lr=1e-9, sigma2=50.0).partial_fit(x, y)
    assert not [one for one in told if issubclass(one.category, ConvergenceWarning)]


@pytest.mark.parametrize("logits", [True, False])
def test_shortfall_of_labels_is_one_for_the_shares(logits):
    y, weights = np.array([0, 0, 1, 2]), np.array([1.0, 2.0, 1.0, 4.0])
    shares = np.array([3.0, 1.0, 4.0]) / 8
    labels = Labels(np.arange(3), shares, None, logits)
    constant = np.tile(np.log(shares) if logits else shares, (4, 1))
    assert labels.shortfall(constant, y, weights) == pytest.approx(1)
    right = np.eye(3)[y] * (50 if logits else 1)
    assert labels.shortfall(right, y, weights) == pytest.approx(0, abs=1e-12)
    outputs = np.random.default_rng(0).standard_normal((4, 3))
    errors = ((outputs - np.eye(3)[y]) ** 2).sum(axis=1), ((shares - np.eye(3)[y]) ** 2).sum(axis=1)
    if logits:
        errors = [-np.log(p[range(4), y]) for p in (softmax(outputs, axis=1), np.tile(shares, (4, 1)))]
    assert labels.shortfall(outputs, y, weights) == pytest.approx(errors[0] @ weights / (errors[1] @ weights))
    assert labels.shortfall(outputs, 0 * y, weights) == 0  # one class


def test_shortfall_of_values_is_one_for_the_mean():
    y, weights = np.array([1.0, 2.0, 7.0]), np.array([1.0, 3.0, 1.0])
    values = Values.fit(y, weights)
    targets = values.encode(y).numpy()
    assert values.shortfall(np.zeros((3, 1)), targets, weights) == pytest.approx(1)
    assert values.shortfall(targets, targets, weights) == 0
    assert values.shortfall(0.5 * targets, targets, weights) == pytest.approx(0.25)
    # Squares of all outputs but constant ones together.
    several = Values.fit(np.stack([y, 0 * y, 10 * y], 1), weights)
    targets = several.encode(np.stack([y, 0 * y, 10 * y], 1)).numpy()
    assert several.shortfall(targets * [0.5, 9, 0] + [0, 9, 0], targets, weights) == pytest.approx((0.25 + 1) / 2)


@pytest.mark.parametrize("feature_map", ["auto", "hat"])
def test_site_means_are_those_of_the_rows(mixed, tmp_path, feature_map):
    frame, y = mixed
    weights = np.random.default_rng(0).random(80) + 0.1
    model = ResTTNetRegressor(**QUICK, feature_map=feature_map).fit(frame, y, sample_weight=weights)
    vectors = model.encoding_.vectors(torch.from_numpy(model.numbers(frame)))
    mean = torch.einsum("b,bni->ni", torch.from_numpy(weights / weights.sum()), vectors)
    assert model.site_means_.dtype == torch.float64
    # The rounding of a sum of 80 numbers of at most one, whatever its order.
    torch.testing.assert_close(model.site_means_, mean, rtol=0, atol=80 * np.finfo(np.float64).eps)
    assert load(model.save(tmp_path / "m")).site_means_.equal(model.site_means_)


@pytest.mark.parametrize("levels", [1825, 5000])
def test_a_text_column_of_many_levels_does_not_widen_the_others(levels):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=5000), "id": [f"u{i}" for i in rng.integers(0, levels, 5000)]})
    frame.loc[:499, "id"] = "usual"
    model = ResTTNetRegressor(bond_dim=2, epochs=2, random_state=0)
    for _ in model.fit_epochs(frame, frame["x"].to_numpy()):
        break
    assert model.encoding_.columns[1].levels == ("usual",)
    assert model.module_.feature_dims == (8, 2)


def test_a_column_has_at_most_as_many_states_as_shares_fit_in_the_whole():
    frame = pd.DataFrame({"id": np.repeat([f"u{i}" for i in range(100)], 11).tolist() + [f"v{i}" for i in range(50)]})
    column = fit_encoding(frame_table(frame[:1100]), np.ones(1100)).columns[0]
    assert (column.states, column.other) == (100, False)
    # With some levels more, all are below their share.
    assert fit_encoding(frame_table(frame), np.ones(1150)).columns[0].states == 1


def test_a_refused_fit_leaves_the_fitted_model_alone(numbers):
    x, y = numbers
    model = ResTTNetRegressor(**QUICK).fit(x, y)
    want = model.predict(x)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(x[:, :2], np.full(60, np.nan))
    np.testing.assert_array_equal(model.predict(x), want)


@pytest.mark.parametrize("precision", ["float32", "float64", "tf32"])
def test_precision_sets_the_weights(numbers, precision):
    x, y = numbers
    model = ResTTNetRegressor(**QUICK, precision=precision).fit(x, y)
    assert model.module_.first.dtype == (torch.float64 if precision == "float64" else torch.float32)
    assert model.score(x, y) > 0.7


@pytest.mark.parametrize(
    "options",
    [
        {"topology": Topology.residual(3).without_skip(2)},
        {"topology": "volterra"},
        {"feature_map": "trigonometric"},
        {"feature_map": "polynomial"},
        {"sigma2": 0.1},
        {"loss": "huber"},
        {"schedule": "warmup"},
        {"penalty": {"chain": 0.1}},
        {"penalty": Penalty(linear=0.1)},
        {"penalty": None},
        {"dropout": 0.1, "batch_size": 20},
        {"site_order": [2, 1, 0]},
    ],
)
def test_options_reach_the_training(numbers, options):
    x, y = numbers
    plain = ResTTNetRegressor(**QUICK).fit(x, y).predict(x)
    found = ResTTNetRegressor(**QUICK, **options).fit(x, y)
    assert np.isfinite(found.predict(x)).all()
    assert not np.allclose(found.predict(x), plain)


@pytest.mark.parametrize("name", ["fitted_regressor", "fitted_classifier"])
def test_pickle_joblib_and_copies_predict_the_same(name, request, tmp_path):
    model = request.getfixturevalue(name)
    x = np.random.default_rng(7).normal(size=(9, 3))
    joblib.dump(model, tmp_path / "model.joblib")
    for same in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib"), copy.deepcopy(model)):
        np.testing.assert_array_equal(same.predict(x), model.predict(x))


@pytest.mark.parametrize("kind", [ResTTClassifier, ResTTRegressor, ResTTNetRegressor, ResTTNetClassifier])
def test_before_fit_there_is_nothing(kind, tmp_path):
    model = kind()
    for call in (model.predict, model.numbers, model.save, model.export):
        with pytest.raises(NotFittedError):
            call(tmp_path / "x.onnx")
    assert not hasattr(model, "module_")
    assert not hasattr(model, "classes_")
