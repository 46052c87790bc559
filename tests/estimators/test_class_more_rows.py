"""partial_fit of the closed-form classifier: the same average given more rows."""

import copy
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_expit
from scipy.stats import ttest_ind_from_stats
from sklearn.metrics import log_loss

import restt
from restt import DiagonalTT, ResTTClassifier
from restt.estimators.class_more_rows import _in_order, probability_of
from restt.estimators.class_rows import ClassSettings
from restt.estimators.columns import Column
from restt.estimators.more_rows import ScalesWarning
from restt.prior.sites import rows_of

QUICK = ClassSettings.of_effort("quick")


def made(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 2))
    return x, np.where(x[:, 0] * x[:, 1] + 0.04 * rng.standard_normal(rows) > 0, "in", "out")


@pytest.fixture(scope="module")
def fitted() -> ResTTClassifier:
    x, y = made(40)
    return ResTTClassifier(effort="quick", random_state=0).fit(x, y)


def more(model: ResTTClassifier, *given: object, **options: object) -> ResTTClassifier:
    return copy.deepcopy(model).partial_fit(*given, **options)


def test_batches_equal_all_rows_at_once_in_any_order(fitted):
    (x, y), (new, wanted) = made(180, seed=1), made(400, seed=2)
    once = more(fitted, x, y)
    batches = more(fitted, x[120:], y[120:]).partial_fit(x[:50], y[:50]).partial_fit(x[50:120], y[50:120])
    np.testing.assert_allclose(batches.predict_proba(new), once.predict_proba(new), rtol=0, atol=1e-6)
    np.testing.assert_allclose(batches.feature_importances_, once.feature_importances_, rtol=0, atol=1e-6)
    losses = [log_loss(wanted, model.predict_proba(new)) for model in (fitted, once)]
    assert losses[1] < 0.95 * losses[0]
    assert (once.fit_report_["rows_before"], once.fit_report_["rows"]) == (40, 220)


def test_kernels_are_at_the_mode_given_all_rows(monkeypatch):
    """Against the objective: -log p(y | g) + g (2 K/penalty)⁻¹ g/2 for the log-odds g of two classes."""
    settings = replace(QUICK, tolerance=1e-9, largest_bond=2, first_bonds=())
    monkeypatch.setattr(ClassSettings, "of_effort", lambda effort: settings)
    x, y = made(90)
    model = ResTTClassifier(random_state=0).fit(x[:60], y[:60])
    first = model._average
    place = first.names.index("gaussian, factor 8")
    only = np.eye(len(first.names))[place]
    model._average = replace(first, weights=only, of_kernels=(only, first.loss))
    model.partial_fit(x[60:], y[60:])
    assert isinstance(model.module_, DiagonalTT)  # nothing is rounded
    process, kept = first.kernels.processes["gaussian"], model.fit_rows_
    matrix = process.covariance(rows_of(process.kernel.sites, kept.numbers)).numpy()
    matrix = 2 * 8 * matrix / (np.diag(matrix).mean() - matrix.mean())
    sign = 2 * kept.targets[:, 0] - 1
    values, vectors = np.linalg.eigh(matrix)
    features = vectors * np.sqrt(values.clip(min=0))

    def objective(u: np.ndarray) -> tuple[float, np.ndarray]:
        scores = sign * (features @ u[:-1] + u[-1])
        slope = -sign * np.exp(log_expit(-scores))
        value = -log_expit(scores).sum() + 0.5 * u[:-1] @ u[:-1]
        return value, np.append(features.T @ slope + u[:-1], slope.sum())

    u = minimize(objective, np.zeros(91), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    found = model.decision_function(kept.numbers)
    np.testing.assert_allclose(found, features @ u[:-1] + u[-1], rtol=0, atol=2e-3)


@pytest.mark.parametrize("late", [["a", "b"], ["d", "c"]])
def test_trains_go_on_and_new_categories_are_learned(monkeypatch, late):
    """Trains have a share, of levels that the fit had seen; missing values come late, in other orders."""
    monkeypatch.setattr(ClassSettings, "of_effort", lambda effort: replace(QUICK, train_cost=-20.0, train_steps=60))
    rng = np.random.default_rng(0)
    kinds = rng.choice(["a", "b"], 70).tolist() + rng.choice(late, 80).tolist()
    frame = pd.DataFrame({"kind": kinds, "x": rng.uniform(-1, 1, 150)})
    signs = frame["kind"].map({"a": 1, "b": -1, "c": 1, "d": -1}).to_numpy()
    y = signs * frame["x"].to_numpy() > 0
    frame.loc[145:, "x"] = np.nan
    model = ResTTClassifier(random_state=0).fit(frame[:70], y[:70])
    assert any(name.startswith("train") for name in model.fit_report_["members"])
    one, other = copy.deepcopy(model), copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*had none missing in the fit|.*unlikely under the first fit")
        one.partial_fit(frame[70:], y[70:])
        other.partial_fit(frame[110:], y[110:]).partial_fit(frame[70:110], y[70:110])
    np.testing.assert_allclose(one.predict_proba(frame[:140]), other.predict_proba(frame[:140]), rtol=0, atol=1e-6)
    assert (late == ["a", "b"]) == any(name.startswith("train") for name in one.fit_report_["members"])
    assert one.score(frame[70:140], y[70:140]) > 0.85


def test_classes_that_come_later():
    x, y = made(120)
    y = np.where(x[:, 0] > 0.5, "new", y)
    known = y != "new"
    model = ResTTClassifier(effort="quick", random_state=0)
    model.partial_fit(x[known][:50], y[known][:50], classes=["new", "out", "in"])
    assert model.predict_proba(x)[:, 1].max() < 0.05  # in, new, out
    with pytest.warns(ScalesWarning, match="refit_scales=True"):
        model.partial_fit(x, y)
    assert model.score(x, y) > 0.8
    with pytest.raises(ValueError, match="classes must be those of the first fit"):
        model.partial_fit(x, y, classes=["in", "out"])
    with pytest.raises(ValueError, match="y has the class 'other' in row 0"):
        model.partial_fit(x[:1], ["other"])


def test_too_few_rows_to_choose_by_are_learned_from_later():
    x, y = made(120)
    model = ResTTClassifier(effort="quick", random_state=0).partial_fit(x[:4], y[:4], classes=["in", "out"])
    assert model.partial_fit(x[4:], y[4:]).fit_report_["out_of_fold_log_loss"] is not None
    fresh = ResTTClassifier(effort="quick", random_state=0).fit(x, y)
    assert abs(log_loss(y, model.predict_proba(x)) - log_loss(y, fresh.predict_proba(x))) < 0.1


def test_refit_scales_is_a_fit_to_all_rows(fitted):
    x, y = made(60, seed=1)
    again = more(fitted, x, y, refit_scales=True)
    whole = [np.concatenate(parts) for parts in zip(made(40), (x, y), strict=True)]
    fresh = ResTTClassifier(effort="quick", random_state=0).fit(*whole)
    np.testing.assert_allclose(again.predict_proba(x), fresh.predict_proba(x), rtol=0, atol=1e-6)


def test_probability_of_losses_is_that_of_a_t_test():
    losses, weights = np.array([0.2, 0.6, 1.0]), np.array([1.0, 2.0, 1.0])
    expected = ttest_ind_from_stats(0.6, 0.08**0.5, 3, 0.4, 0.3, 50, alternative="greater").pvalue
    assert probability_of(losses, weights, (0.4, 0.3, 50)) == pytest.approx(expected, rel=1e-12)
    # Without a spread on either side, a mean that is larger at all; without rows on one of them, none.
    for loss, spread, count, found in ((0.4, 0, 9, 1.0), (0.41, 0, 9, 0.0), (0.9, 0.1, 0, 1.0)):
        assert probability_of(np.full(3, loss), weights, (0.4, spread, count)) == found
    assert 0 < probability_of(np.full(3, 0.41), weights, (0.4, 0.01, 9)) < 0.1
    assert 0 < probability_of(losses, weights, (0.4, 0.0, 9)) < 0.5
    assert probability_of(losses, 0 * weights, (0.1, 0.1, 9)) == probability_of(losses[:0], weights[:0], (0, 1, 9)) == 1


def test_rows_of_the_same_kind_are_not_warned_of(fitted):
    odds = [more(fitted, *made(40, seed)).fit_report_["probability_of_new_rows"] for seed in range(10, 14)]
    assert min(odds) > 1e-3  # ScalesWarning would be an error here


def test_names_what_does_not_fit(fitted, tmp_path):
    x, y = made(20)
    with pytest.raises(ValueError, match="X has 1 features"):
        more(fitted, x[:, :1], y)
    loaded = restt.load(fitted.save(tmp_path / "model"))
    with pytest.raises(ValueError, match="a pickle has them"):
        loaded.partial_fit(x, y)
    pickled = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(pickled.partial_fit(x, y).predict_proba(x), more(fitted, x, y).predict_proba(x))


def test_later_levels_are_sorted_after_those_of_the_first_fit():
    first, numbers = Column("k", ("m", "b")), Column("n")
    assert _in_order(first, replace(first, levels=("m", "b", "z", "a"))).levels == ("m", "b", "a", "z")
    assert _in_order(numbers, numbers) is numbers
    assert _in_order(first, numbers) is numbers
    assert _in_order(numbers, first) is first


def test_rows_are_kept_only_for_trains_with_a_share(fitted):
    """What conditioning on more rows needs of an average."""
    average = fitted._average
    assert len(average.kernels.rows) == 1
    assert average.kernels.by_fold == ()
    modules = {(0.1, 0): "train"}
    trains = replace(average.trains, rows=average.kernels.rows.first(1), modules=modules, logits={(0.1, 0): "logits"})
    for weights, kept in (([0.5, 0.5, 0.0], {}), ([0.5, 0.0, 0.5], modules), ([0.0, 0.0, 1.0], modules)):
        found = replace(
            average, trains=trains, names=("a", "b", "c"), penalties=(0.1,), weights=np.array(weights)
        ).kept()
        assert (found.trains.modules, found.trains.logits) == (kept, {})
