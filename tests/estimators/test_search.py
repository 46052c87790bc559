"""The search finds what scikit-learn's finds, whatever was trained beside whatever."""

import pickle
import time
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.utils.estimator_checks import check_estimator

from restt import ResTTClassifier, ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor, ResTTSearchCV
from restt.estimators import search
from restt.estimators.settings import training_bytes
from restt.train import Event
from tests.estimators.conftest import short_fits

SMALL = {"bond_dim": 2, "epochs": 5, "random_state": 0}
GRID = {"lr": [0.02, 0.05], "penalty": ["auto", None]}

pytestmark = short_fits


def regressor(**settings):
    return ResTTNetRegressor(**{**SMALL, **settings})


def assert_finds_the_same(estimator, grid, x, y, *, fit_params=None, **settings):
    """The search and scikit-learn's, fitted to the same and compared in all they found."""
    fit_params = fit_params or {}
    found = ResTTSearchCV(estimator, grid, **settings).fit(x, y, **fit_params)
    wanted = GridSearchCV(estimator, grid, **settings).fit(x, y, **fit_params)
    assert list(found.cv_results_) == list(wanted.cv_results_)
    for name, values in wanted.cv_results_.items():
        if name == "params":
            assert found.cv_results_[name] == values
        elif name.startswith("param_"):
            assert found.cv_results_[name].tolist() == values.tolist()
        elif not name.endswith("_time"):
            np.testing.assert_allclose(found.cv_results_[name], values, rtol=1e-8, atol=1e-10, err_msg=name)
    for name in ("best_index_", "best_params_", "n_splits_", "multimetric_"):
        assert getattr(found, name, None) == getattr(wanted, name, None)
    return found, wanted


def test_regression_with_folds_of_unequal_length(numbers):
    x, y = numbers
    found, wanted = assert_finds_the_same(regressor(), GRID, x[:53], y[:53], cv=KFold(3, shuffle=True, random_state=1))
    assert found.best_score_ == pytest.approx(wanted.best_score_, rel=1e-8)
    np.testing.assert_allclose(found.predict(x), wanted.predict(x), rtol=1e-8)
    assert found.score(x, y) == pytest.approx(wanted.score(x, y), rel=1e-8)
    assert found.best_estimator_.lr == found.best_params_["lr"]
    assert found.refit_time_ > 0
    assert (found.cv_results_["mean_fit_time"] > 0).all()
    assert (found.cv_results_["mean_score_time"] > 0).all()


def test_fits_side_by_side_share_the_time_that_passed(numbers):
    began = time.perf_counter()
    found = ResTTSearchCV(regressor(), GRID, cv=3, refit=False).fit(*numbers)
    assert 0 < 3 * found.cv_results_["mean_fit_time"].sum() < time.perf_counter() - began


@pytest.mark.parametrize("cached_bytes", [1.0, 1e9])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_size_of_a_group_and_its_thread_change_nothing(numbers, monkeypatch, cached_bytes, threads):
    x, y = numbers
    monkeypatch.setattr(search, "NET", replace(search.NET, cached_bytes=cached_bytes))
    torch.set_num_threads(threads)
    try:
        assert_finds_the_same(regressor(), GRID, x, y, cv=3, refit=False)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(1)


def test_sites_of_other_widths_in_other_folds(numbers):
    """Knots and levels are learned on each fold's rows, so that sites differ in width between folds."""
    x, y = numbers
    x = np.column_stack([x, np.arange(60) % 3, np.arange(60) // 40])
    folds = [(np.arange(40), np.arange(20, 40)), (np.arange(60), np.arange(40, 60))]
    assert_finds_the_same(regressor(categorical_features=[3, 4]), {"lr": [0.02, 0.05]}, x, y, cv=folds, refit=False)


def test_all_that_may_differ_within_a_group(numbers):
    x, y = numbers
    grid = [
        {"lr": [0.01, 0.1], "epochs": [3, 5], "random_state": [0, 7]},
        {"dropout": [0.0, 0.3], "penalty": [{"chain": 0.3, "head": 0.01}, 0.02]},
    ]
    assert_finds_the_same(regressor(), grid, x, y, cv=2, refit=False)


def test_batches_and_members(numbers):
    x, y = numbers
    grid = {"lr": [0.02, 0.05], "batch_size": [16, "auto"], "runs": [1, 2]}
    assert_finds_the_same(regressor(), grid, x[:47], y[:47], cv=2, refit=False)


def test_settings_that_shape_the_module_or_its_rows(numbers):
    x, y = numbers
    grid = [
        {"bond_dim": [2, 3], "topology": ["residual", "linear"]},
        {"feature_map": ["affine", "trigonometric"], "sigma2": ["auto", 0.3]},
        {"loss": ["huber"], "precision": ["float32"], "schedule": ["constant", "cosine"]},
    ]
    assert_finds_the_same(regressor(), grid, x, y, cv=2, refit=False)


def test_early_stopping(numbers):
    x, y = numbers
    settings = {"early_stopping": 3, "validation_fraction": 0.2, "epochs": 40}
    grid = {"lr": [0.05, 0.3], "random_state": [0, 1]}
    assert_finds_the_same(regressor(**settings), grid, x, y, cv=3, refit=False)


def test_categories_and_missing_values(mixed):
    frame, y = mixed
    found, wanted = assert_finds_the_same(
        regressor(), {"lr": [0.02, 0.05]}, frame, y, cv=KFold(4, shuffle=True, random_state=2)
    )
    assert found.feature_names_in_.tolist() == wanted.feature_names_in_.tolist()
    np.testing.assert_allclose(found.predict(frame), wanted.predict(frame), rtol=1e-8)


def test_several_outputs(numbers):
    x, y = numbers
    found, _ = assert_finds_the_same(
        regressor(), {"lr": [0.02, 0.05]}, x, np.column_stack([y, x[:, 0], np.ones(60)]), cv=3
    )
    assert found.predict(x).shape == (60, 3)


def test_classification_of_text_labels(numbers):
    x, y = numbers
    labels = np.select([y < -0.5, y < 0.5], ["low", "middle"], "high")
    scoring = {"right": "accuracy", "loss": "neg_log_loss", "area": "roc_auc_ovr"}
    grid = {"lr": [0.02, 0.1], "class_weight": [None, "balanced"], "loss": ["cross-entropy", "mse"]}
    found, wanted = assert_finds_the_same(
        ResTTNetClassifier(**SMALL), grid, x, labels, cv=2, scoring=scoring, refit="loss", return_train_score=True
    )
    assert found.classes_.tolist() == ["high", "low", "middle"]
    assert set(found.scorer_) == set(scoring)
    for method in ("predict_proba", "predict_log_proba", "decision_function"):
        np.testing.assert_allclose(getattr(found, method)(x), getattr(wanted, method)(x), rtol=1e-7, err_msg=method)
    assert found.predict(x).tolist() == wanted.predict(x).tolist()


def test_sample_weights_and_groups(numbers):
    x, y = numbers
    rng = np.random.default_rng(3)
    weights = rng.integers(0, 3, 60).astype(float)
    params = {"sample_weight": weights, "groups": rng.integers(0, 7, 60)}
    found, wanted = assert_finds_the_same(regressor(), GRID, x, y, cv=GroupKFold(3), fit_params=params)
    np.testing.assert_allclose(found.predict(x), wanted.predict(x), rtol=1e-8)


def test_scorers_and_the_choice_of_the_best_may_be_callables(numbers):
    x, y = numbers
    grid = {"lr": [0.02, 0.05]}
    worst = make_scorer(mean_absolute_error, greater_is_better=False)
    assert_finds_the_same(regressor(), grid, x, y, cv=2, scoring=worst)
    found, _ = assert_finds_the_same(
        regressor(), grid, x, y, cv=2, scoring=["r2", "neg_mean_squared_error"], refit=lambda results: 1
    )
    assert found.best_index_ == 1
    assert_finds_the_same(
        regressor(), grid, x, y, cv=2, scoring=lambda model, x, y: {"a": model.score(x, y), "b": 1.0}, refit="a"
    )


def test_data_frames_lists_and_sparse_columns(numbers):
    from scipy.sparse import csr_array

    x, y = numbers
    for table in (pd.DataFrame(x, columns=["a", "b", "c"]), x.tolist(), csr_array(x)):
        assert_finds_the_same(regressor(), {"lr": [0.02, 0.05]}, table, y, cv=2, refit=False)


def test_an_exploding_candidate_warns_and_scores_as_it_would_alone(numbers):
    x, y = numbers
    grid = {"lr": [0.05, 1e4]}
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.warns(ConvergenceWarning, match="worse than the mean of y"):
            found, _ = assert_finds_the_same(regressor(epochs=30), grid, x, y, cv=3)
    assert found.best_params_ == {"lr": 0.05}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"lr": [0.05, -1.0]}, "'lr' parameter of ResTTNetRegressor must be"),
        ({"penalty": [0.01, {"wrong": 1.0}]}, "penalty may hold chain, linear and head"),
        ({"checkpoint_dir": ["here"]}, "checkpoint_dir must be None in a ResTTSearchCV, got 'here'"),
        ({"rate": [0.05]}, "Invalid parameter 'rate' for estimator ResTTNetRegressor"),
        ({"lr": []}, "Parameter grid for parameter 'lr'"),
    ],
)
def test_a_candidate_that_cannot_be_fitted_raises_its_error(numbers, parameters, message):
    with pytest.raises(ValueError, match=message):
        ResTTSearchCV(regressor(), parameters).fit(*numbers)


def test_a_fold_that_lacks_a_class_is_like_one_alone(numbers):
    x, _ = numbers
    labels = np.where(np.arange(60) < 20, "a", np.where(np.arange(60) < 40, "b", "c"))
    assert_finds_the_same(ResTTNetClassifier(**SMALL), {"lr": [0.02, 0.05]}, x, labels, cv=KFold(3), refit=False)


def test_arguments_that_are_refused(numbers):
    x, y = numbers
    with pytest.raises(NotFittedError):
        ResTTSearchCV(regressor(), {"lr": [0.05]}).predict(x)
    with pytest.raises(ValueError, match="For multi-metric scoring, the parameter refit must be set to a scorer key"):
        ResTTSearchCV(regressor(), {"lr": [0.05]}, scoring=["r2", "neg_mean_squared_error"]).fit(x, y)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        ResTTSearchCV(regressor(), {"lr": [0.05]}).fit(x, y, nonsense=1)


class Doubled(ResTTNetRegressor):
    def fit(self, X, y, sample_weight=None):
        return super().fit(X, 2 * y, sample_weight)


@pytest.mark.parametrize("other", [ResTTRegressor(), ResTTClassifier(), Ridge(), Doubled()])
def test_estimators_that_are_not_trained_are_for_scikit_learns_search(other, numbers):
    with pytest.raises(TypeError, match=rf"got {type(other).__name__}: use scikit-learn's GridSearchCV"):
        ResTTSearchCV(other, {"verbose": [0]}).fit(*numbers)


def test_verbose_counts_the_fits(numbers, capsys):
    ResTTSearchCV(regressor(), {"lr": [0.02, 0.05]}, cv=2, verbose=1, refit=False).fit(*numbers)
    assert capsys.readouterr().out.splitlines() == ["2 folds of 2 candidates, 4 fits"]


def test_scikit_learns_own_checks():
    searched = ResTTSearchCV(regressor(epochs=20), {"lr": [0.15]}, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(searched, on_fail=None, on_skip=None)
    assert [result["check_name"] for result in results if result["status"] == "failed"] == []
    assert len(results) > 50


def test_clone_parameters_and_pickle(numbers):
    x, y = numbers
    searched = ResTTSearchCV(regressor(), {"lr": [0.02, 0.05]}, cv=2)
    assert "pre_dispatch" not in searched.get_params()
    assert clone(searched).get_params()["cv"] == 2
    assert searched.set_params(estimator__bond_dim=3).estimator.bond_dim == 3
    searched.fit(x, y)
    again = pickle.loads(pickle.dumps(searched))
    np.testing.assert_array_equal(again.predict(x), searched.predict(x))


def test_a_search_within_folds(numbers):
    from sklearn.model_selection import cross_val_score

    x, y = numbers
    found, wanted = (
        cross_val_score(kind(regressor(), {"lr": [0.02, 0.05]}, cv=2), x, y, cv=3)
        for kind in (ResTTSearchCV, GridSearchCV)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


def test_a_scorer_that_looks_at_other_rows_or_fits_again_is_told_the_truth(numbers):
    x, y = numbers
    models = []

    def scorer(model, rows, values):
        models.append(model)
        parts = [model.predict(rows).sum(), model.predict(rows[::-1]).sum(), model.predict(2 * rows).sum()]
        assert model.predict(rows[:3].tolist()).shape == (3,)
        parts += [model.predict(rows[:2])[1], clone(model).fit(rows, values).score(rows, values)]
        return sum(parts) + model.partial_fit(rows, values).score(rows, values)

    assert_finds_the_same(regressor(), {"lr": [0.02, 0.05]}, x, y, cv=2, scoring=scorer, refit=False)
    kept = models[0]
    before = kept.predict(x)
    assert not np.allclose(kept.set_params(epochs=2, lr=0.3).fit(x, y).predict(x), before)


def test_missing_values_in_test_rows_alone_warn_as_they_would(numbers):
    x, y = numbers
    x = x.copy()
    x[55, 1] = np.nan
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert_finds_the_same(regressor(), {"lr": [0.02, 0.05]}, x, y, cv=KFold(3), refit=False)
    texts = [str(warning.message) for warning in told if "missing" in str(warning.message)]
    assert len(texts) == 4
    assert len(set(texts)) == 1


def prepared_fits(numbers, candidates: list[dict], folds: int = 1) -> list:
    found = ResTTSearchCV(regressor(), {"lr": [0.05]})
    return found._prepared(*numbers, None, candidates, [np.arange(20 + 20 * fold) for fold in range(folds)])


def test_what_happened_to_a_run_is_told_of_its_fit(numbers, monkeypatch):
    """Epochs of a fit are those in which any of its runs was trained; time is shared."""
    fits = prepared_fits(numbers, [{"runs": 2}, {"runs": 1}])
    events = [Event("failed", "m", run) for run in (0, 1, 2)]
    records = [
        SimpleNamespace(epoch=1, runs=(0, 1, 2), events=[events[2], events[0]]),
        SimpleNamespace(epoch=2, runs=(1, 2), events=[events[1]]),
        SimpleNamespace(epoch=3, runs=(2,), events=[Event("finished", "all of them")]),
    ]
    monkeypatch.setattr(search, "train", lambda module, *others, **options: iter(records))
    before = [fit.prepared.module.first.clone() for fit in fits]
    search._train_group(fits)
    assert [fit.events for fit in fits] == [[events[0], events[1]], [events[2]]]
    assert [fit.epochs for fit in fits] == [2, 3]
    assert fits[0].seconds == fits[1].seconds > 0
    for fit, weights in zip(fits, before, strict=True):
        torch.testing.assert_close(fit.prepared.module.first, weights)


def test_groups_fit_into_the_cache_and_use_all_threads(numbers, monkeypatch):
    fits = prepared_fits(numbers, [{"lr": rate} for rate in (0.05, 0.01, 0.03, 0.02, 0.04)], folds=2)
    given = fits[0].prepared
    module, rows = given.module, len(given.rows.vectors)
    need = training_bytes(given.settings, module.sites, module.feature_dim, module.bond_dim, 1, 1, rows=rows)
    for bytes_left, most in ((3 * need, 3), (3 * need - 1, 2), (need / 2, 1)):
        monkeypatch.setattr(search, "NET", replace(search.NET, cached_bytes=float(bytes_left)))
        assert search._most_fits(given) == most
    seen, chosen = [], []
    monkeypatch.setattr(
        search, "_train_group", lambda group: seen.append([(fit.fold, fit.prepared.config.lr) for fit in group])
    )
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    ordered = [(fold, rate) for fold in range(2) for rate in (0.01, 0.02, 0.03, 0.04, 0.05)]
    for cached, threads, sizes in ((1e12, 1, [10]), (1e12, 2, [5, 5]), (3 * need, 1, [3, 3, 2, 2])):
        seen.clear()
        monkeypatch.setattr(search, "NET", replace(search.NET, cached_bytes=float(cached)))
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        search._train_all(fits)
        assert sorted(map(len, seen), reverse=True) == sizes
        assert sorted(place for group in seen for place in group) == ordered
        assert all(group == sorted(group) for group in seen)
        assert chosen[-2:] == [1, threads]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    search._train_all(fits[:1])
    assert chosen[-2:] == [2, 2]  # a single group has all threads


def test_a_single_fit_of_one_fold(numbers):
    assert_finds_the_same(regressor(), {"lr": [0.05]}, *numbers, cv=[(np.arange(40), np.arange(40, 60))])


def test_candidates_that_only_train_otherwise_share_their_rows(numbers):
    fits = prepared_fits(numbers, [{"lr": 0.01}, {"bond_dim": 3}, {"feature_map": "affine"}], folds=2)
    rows = [fit.prepared.rows for fit in fits]
    assert rows[0] is rows[2]
    assert rows[1] is rows[3]
    assert len({id(one) for one in rows}) == 4
    vectors, targets, weights, subset = search._joined([fit.prepared for fit in fits[:3]], rows[:3])
    assert len(vectors) == len(targets) == len(weights) == 60
    assert [(int(part[0]), int(part[-1]), len(part)) for part in subset] == [(0, 19, 20), (20, 59, 40), (0, 19, 20)]
    assert search._joined([fits[n].prepared for n in (0, 2)], [rows[0], rows[2]])[3] is None
