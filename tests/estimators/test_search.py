"""The search finds what scikit-learn's finds, whatever was trained beside whatever."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from restt import ResTTClassifier, ResTTRegressor, ResTTSearchCV, chain
from tests.estimators.conftest import short_fits

SMALL = {"bond_dim": 2, "epochs": 8, "random_state": 0}
GRID = {"lr": [0.02, 0.05], "penalty": ["auto", 0.1, None]}

pytestmark = short_fits


def regressor(**settings):
    return ResTTRegressor(**{**SMALL, "solver": "gradient", **settings})


def both(estimator, grid, x, y, *, fit_params=None, **settings):
    """The search and scikit-learn's, fitted to the same and compared in all they found."""
    fit_params = fit_params or {}
    own = {name: settings.pop(name) for name in ("runs_at_once", "n_jobs") if name in settings}
    found = ResTTSearchCV(estimator, grid, **settings, **own).fit(x, y, **fit_params)
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
    found, wanted = both(regressor(), GRID, x[:53], y[:53], cv=KFold(4, shuffle=True, random_state=1))
    assert found.alone_ == {}
    assert sum(found.beside_.values()) == 24
    assert found.best_score_ == pytest.approx(wanted.best_score_, rel=1e-8)
    np.testing.assert_allclose(found.predict(x), wanted.predict(x), rtol=1e-8)
    assert found.score(x, y) == pytest.approx(wanted.score(x, y), rel=1e-8)
    assert found.best_estimator_.lr == found.best_params_["lr"]
    assert found.refit_time_ > 0
    assert (found.cv_results_["mean_fit_time"] > 0).all()
    assert (found.cv_results_["mean_score_time"] > 0).all()


@pytest.mark.parametrize("runs_at_once", [1, 7, 100])
def test_the_size_of_a_group_changes_nothing(numbers, runs_at_once):
    x, y = numbers
    found, _ = both(regressor(), GRID, x, y, cv=3, runs_at_once=runs_at_once, refit=False, n_jobs=1)
    assert max(found.beside_) <= runs_at_once
    assert sum(found.beside_.values()) == 18
    if runs_at_once == 100:
        assert found.beside_ == {18: 18}


def test_groups_on_several_threads(numbers):
    x, y = numbers
    threads = torch.get_num_threads()
    with chain.backend("eager"):
        found, _ = both(regressor(), GRID, x, y, cv=3, n_jobs=2, refit=False)
    assert found.beside_ == {9: 18}
    assert torch.get_num_threads() == threads


def test_all_that_may_differ_within_a_group(numbers):
    x, y = numbers
    grid = [
        {"lr": [0.01, 0.1], "epochs": [5, 8], "random_state": [0, 7]},
        {"dropout": [0.0, 0.3], "penalty": [{"chain": 0.3, "head": 0.01}, 0.02]},
    ]
    found, _ = both(regressor(), grid, x, y, cv=3, refit=False, n_jobs=1)
    assert found.beside_ == {36: 36}


def test_batches_and_members(numbers):
    x, y = numbers
    grid = {"lr": [0.02, 0.05], "batch_size": [16, "auto"], "runs": [1, 2]}
    found, _ = both(regressor(), grid, x[:47], y[:47], cv=3, refit=False)
    assert sum(found.beside_.values()) == 24


def test_settings_that_shape_the_module_or_its_rows(numbers):
    x, y = numbers
    grid = [
        {"bond_dim": [2, 3], "topology": ["residual", "linear"]},
        {"feature_map": ["affine", "trigonometric"], "sigma2": ["auto", 0.3]},
        {"loss": ["huber"], "precision": ["float32"], "schedule": ["constant", "plateau"]},
    ]
    found, _ = both(regressor(), grid, x, y, cv=2, refit=False)
    assert sum(found.beside_.values()) == 20
    assert len(found.beside_) > 1


def test_early_stopping(numbers):
    x, y = numbers
    settings = {"early_stopping": 3, "validation_fraction": 0.2, "epochs": 40}
    grid = {"lr": [0.05, 0.3], "random_state": [0, 1]}
    found, _ = both(regressor(**settings), grid, x, y, cv=3, refit=False)
    assert sum(found.beside_.values()) == 12


def test_categories_and_missing_values(mixed):
    frame, y = mixed
    found, wanted = both(regressor(), {"lr": [0.02, 0.05]}, frame, y, cv=KFold(4, shuffle=True, random_state=2))
    assert found.alone_ == {}
    assert found.feature_names_in_.tolist() == wanted.feature_names_in_.tolist()
    np.testing.assert_allclose(found.predict(frame), wanted.predict(frame), rtol=1e-8)


def test_several_outputs(numbers):
    x, y = numbers
    found, _ = both(regressor(), {"lr": [0.02, 0.05]}, x, np.column_stack([y, x[:, 0], np.ones(60)]), cv=3)
    assert found.alone_ == {}
    assert found.predict(x).shape == (60, 3)


def test_classification_of_text_labels(numbers):
    x, y = numbers
    labels = np.select([y < -0.5, y < 0.5], ["low", "middle"], "high")
    scoring = {"right": "accuracy", "loss": "neg_log_loss", "area": "roc_auc_ovr"}
    grid = {"lr": [0.02, 0.1], "class_weight": [None, "balanced"], "loss": ["cross-entropy", "mse"]}
    found, wanted = both(
        ResTTClassifier(**SMALL), grid, x, labels, cv=2, scoring=scoring, refit="loss", return_train_score=True
    )
    assert found.alone_ == {}
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
    found, wanted = both(regressor(), GRID, x, y, cv=GroupKFold(3), fit_params=params)
    assert found.alone_ == {}
    np.testing.assert_allclose(found.predict(x), wanted.predict(x), rtol=1e-8)


def test_sample_weights_are_routed(numbers):
    x, y = numbers
    weights = np.linspace(0.1, 2.0, 60)
    with config_context(enable_metadata_routing=True):
        model = regressor().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        found, _ = both(model, {"lr": [0.02, 0.05]}, x, y, cv=3, fit_params={"sample_weight": weights})
    assert found.alone_ == {}


def test_scorers_and_the_choice_of_the_best_may_be_callables(numbers):
    x, y = numbers
    grid = {"lr": [0.02, 0.05]}
    worst = make_scorer(mean_absolute_error, greater_is_better=False)
    both(regressor(), grid, x, y, cv=2, scoring=worst)
    found, _ = both(regressor(), grid, x, y, cv=2, scoring=["r2", "neg_mean_squared_error"], refit=lambda results: 1)
    assert found.best_index_ == 1
    both(regressor(), grid, x, y, cv=2, scoring=lambda model, x, y: {"a": model.score(x, y), "b": 1.0}, refit="a")


def test_data_frames_lists_and_sparse_columns(numbers):
    from scipy.sparse import csr_array

    x, y = numbers
    for table in (pd.DataFrame(x, columns=["a", "b", "c"]), x.tolist(), csr_array(x)):
        found, _ = both(regressor(), {"lr": [0.02, 0.05]}, table, y, cv=2, refit=False)
        assert found.alone_ == {}, type(table)


def test_an_exploding_candidate_warns_and_scores_as_it_would_alone(numbers):
    x, y = numbers
    grid = {"lr": [0.05, 1e4]}
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.warns(ConvergenceWarning, match="worse than the mean of y"):
            found, _ = both(regressor(epochs=30), grid, x, y, cv=3)
    assert found.best_params_ == {"lr": 0.05}


def test_a_warning_that_is_an_error_is_a_failed_fit(numbers):
    x, y = numbers
    search = ResTTSearchCV(regressor(epochs=30), {"lr": [0.05, 1e4]}, cv=3, refit=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warnings.simplefilter("error", ConvergenceWarning)
        search.fit(x, y)
    failed = [str(warning.message) for warning in told if warning.category is FitFailedWarning]
    assert len(failed) == 1
    assert "3 fits failed out of a total of 6" in failed[0]
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [False, True]


def test_refused_candidates_have_the_error_score(numbers):
    x, y = numbers
    grid = {"lr": [0.05, -1.0], "penalty": [0.01, {"wrong": 1.0}]}
    with pytest.warns(FitFailedWarning, match="must be a float in the range"):
        found, _ = both(regressor(), grid, x, y, cv=3, error_score=-7.0)
    assert found.cv_results_["mean_test_score"][1:].tolist() == [-7.0] * 3
    with pytest.raises(ValueError, match="penalty may hold chain, linear and head"):
        ResTTSearchCV(regressor(), grid, cv=3, error_score="raise").fit(x, y)
    with pytest.raises(ValueError, match=r"(?s)All the 3 fits failed.*lr"):
        ResTTSearchCV(regressor(), {"lr": [-1.0]}, cv=3).fit(x, y)


def test_a_fold_that_lacks_a_class_is_like_one_alone(numbers):
    x, _ = numbers
    labels = np.where(np.arange(60) < 20, "a", np.where(np.arange(60) < 40, "b", "c"))
    found, _ = both(ResTTClassifier(**SMALL), {"lr": [0.02, 0.05]}, x, labels, cv=KFold(3), refit=False)
    assert sum(found.beside_.values()) == 6


@pytest.mark.usefixtures("hasty")
def test_what_cannot_be_beside_others_is_fitted_alone(numbers, tmp_path):
    x, y = numbers
    grid = [
        {"lr": [0.02, 0.05], "solver": ["gradient"]},
        {"solver": ["posterior"]},
        {"solver": ["gradient"], "lr": [0.03], "checkpoint_dir": [str(tmp_path)]},
    ]
    model = ResTTRegressor(bond_dim=2, random_state=0)
    found, _ = both(model, grid, x, y, cv=2, refit=False, n_jobs=1)
    assert found.beside_ == {4: 4}
    assert sorted(found.alone_.values()) == [2, 2]
    assert any("gradients" in reason for reason in found.alone_)
    assert any("checkpoint_dir" in reason for reason in found.alone_)


def test_other_estimators_and_pipelines_work_as_in_scikit_learn(numbers):
    x, y = numbers
    found, _ = both(Ridge(), {"alpha": [0.1, 1.0]}, x, y, cv=3)
    assert found.alone_ == {"Ridge is no ResTTRegressor or ResTTClassifier": 6}
    pipeline = make_pipeline(StandardScaler(), regressor())
    found, _ = both(pipeline, {"resttregressor__lr": [0.02, 0.05]}, x, y, cv=2)
    assert found.alone_ == {"Pipeline is no ResTTRegressor or ResTTClassifier": 4}
    assert found.beside_ == {}


def test_a_subclass_with_a_fit_of_its_own_is_fitted_by_it(numbers):
    class Doubled(ResTTRegressor):
        def fit(self, X, y, sample_weight=None):
            return super().fit(X, 2 * y, sample_weight)

    x, y = numbers
    found, _ = both(Doubled(**SMALL, solver="gradient"), {"lr": [0.02, 0.05]}, x, y, cv=2, refit=False)
    assert found.beside_ == {}


def test_arguments_that_are_refused(numbers):
    x, y = numbers
    with pytest.raises(ValueError, match="'runs_at_once' parameter of ResTTSearchCV must be"):
        ResTTSearchCV(regressor(), {"lr": [0.05]}, runs_at_once=0).fit(x, y)
    with pytest.raises(ValueError, match="Invalid parameter 'rate' for estimator ResTTRegressor"):
        ResTTSearchCV(regressor(), {"rate": [0.05]}).fit(x, y)
    with pytest.raises(ValueError, match="Parameter grid for parameter 'lr'"):
        ResTTSearchCV(regressor(), {"lr": []}).fit(x, y)
    with pytest.raises(NotFittedError):
        ResTTSearchCV(regressor(), {"lr": [0.05]}).predict(x)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        ResTTSearchCV(regressor(), {"lr": [0.05]}, error_score="raise").fit(x, y, nonsense=1)


def test_scikit_learns_own_checks():
    search = ResTTSearchCV(regressor(epochs=25), {"lr": [0.1]}, cv=2, error_score="raise")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(search, on_fail=None, on_skip=None)
    assert [result["check_name"] for result in results if result["status"] == "failed"] == []
    assert len(results) > 50


def test_clone_parameters_and_pickle(numbers):
    x, y = numbers
    search = ResTTSearchCV(regressor(), {"lr": [0.02, 0.05]}, cv=2, runs_at_once=3)
    assert "pre_dispatch" not in search.get_params()
    assert clone(search).get_params()["runs_at_once"] == 3
    assert search.set_params(estimator__bond_dim=3).estimator.bond_dim == 3
    search.fit(x, y)
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(x), search.predict(x))
    assert again.beside_ == search.beside_
    assert clone(search).__dict__.keys().isdisjoint({"beside_", "cv_results_"})


def test_messages_are_scikit_learns(numbers, capsys):
    x, y = numbers
    ResTTSearchCV(regressor(), {"lr": [0.02, 0.05]}, cv=2, verbose=3, refit=False).fit(x, y)
    told = capsys.readouterr().out
    assert "Fitting 2 folds for each of 2 candidates, totalling 4 fits" in told
    assert told.count("END") == 4


def test_callbacks_of_the_search_and_of_the_estimator(numbers):
    pytest.importorskip("sklearn.callback")

    class Names:
        def __init__(self):
            self.tasks = []

        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context):
            self.tasks.append(context.task_name)

        def on_fit_task_end(self, estimator, context):
            return False

    x, y = numbers
    own, inner = Names(), Names()
    ResTTSearchCV(regressor(), {"lr": [0.02, 0.05]}, cv=2).set_callbacks(own).fit(x, y)
    assert own.tasks.count("candidate-split-evaluation") == 4
    search = ResTTSearchCV(regressor().set_callbacks(inner), {"lr": [0.02, 0.05]}, cv=2, refit=False).fit(x, y)
    assert search.alone_ == {"callbacks watch each training": 4}
    assert inner.tasks.count("epoch") == 4 * SMALL["epochs"]


def test_a_search_within_folds(numbers):
    from sklearn.model_selection import cross_val_score

    x, y = numbers
    found, wanted = (
        cross_val_score(kind(regressor(), {"lr": [0.02, 0.05]}, cv=2), x, y, cv=3)
        for kind in (ResTTSearchCV, GridSearchCV)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


def test_epochs_that_are_trained_at_once_as_on_a_gpu_change_nothing(numbers, monkeypatch):
    from restt.train import epoch
    from restt.train.state import TrainState

    x, y = numbers
    wanted = GridSearchCV(regressor(epochs=60), {"lr": [0.02, 1.0, 30.0]}, cv=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted.fit(x, y)
        monkeypatch.setattr(epoch, "ASYNCHRONOUS", ("cpu",))
        sizes, inner = [], TrainState.set_aside
        monkeypatch.setattr(TrainState, "set_aside", lambda state: (sizes.append(len(state.runs)), inner(state))[1])
        found = ResTTSearchCV(regressor(epochs=60), {"lr": [0.02, 1.0, 30.0]}, cv=3, n_jobs=1).fit(x, y)
    assert set(sizes) >= {1, 9}, "the groups and the refit"
    for name in ("split0_test_score", "split1_test_score", "split2_test_score"):
        np.testing.assert_allclose(found.cv_results_[name], wanted.cv_results_[name], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.predict(x), wanted.predict(x), rtol=1e-8)
    records, others = found.best_estimator_.history_, wanted.best_estimator_.history_
    assert [record.epoch for record in records] == [record.epoch for record in others]
    assert [record.train_loss for record in records] == [record.train_loss for record in others]
    sizes.clear()
    regressor(epochs=60).fit(x, y)
    assert sizes == [], "a fit of one's own can be interrupted after any epoch"


def test_the_data_may_be_more_than_is_held_at_once(numbers, monkeypatch):
    from restt.estimators import together

    monkeypatch.setattr(together, "HELD_BYTES", 0)
    x, y = numbers
    found, _ = both(regressor(), {"lr": [0.02, 0.05]}, x, y, cv=2, refit=False)
    assert found.beside_ == {1: 4}


def test_rows_of_a_fold_are_encoded_once_for_all_candidates(numbers, monkeypatch):
    from restt.estimators.encoding import Encoding

    x, y = numbers
    seen, vectors = [], Encoding.vectors

    def noted(self, values):
        seen.append(len(values))
        return vectors(self, values)

    monkeypatch.setattr(Encoding, "vectors", noted)
    counts = []
    for rates in ([0.02], [0.02, 0.03, 0.05, 0.1]):
        seen.clear()
        ResTTSearchCV(regressor(), {"lr": rates}, cv=3, refit=False).fit(x, y)
        counts.append(len(seen))
    assert counts[0] == counts[1] > 0


def test_a_scorer_that_looks_at_other_rows_or_fits_again_is_told_the_truth(numbers):
    x, y = numbers
    models = []

    def scorer(model, rows, values):
        models.append(model)
        parts = [model.predict(rows).sum(), model.predict(rows[::-1]).sum(), model.predict(2 * rows).sum()]
        assert model.predict(rows[:3].tolist()).shape == (3,)
        parts += [model.predict(rows[:2])[1], clone(model).fit(rows, values).score(rows, values)]
        return sum(parts) + model.partial_fit(rows, values).score(rows, values)

    both(regressor(), {"lr": [0.02, 0.05]}, x, y, cv=2, scoring=scorer, refit=False)
    kept = models[0]
    before = kept.predict(x)
    assert not np.allclose(kept.set_params(epochs=2, lr=0.3).fit(x, y).predict(x), before)


def test_missing_values_in_test_rows_alone_warn_as_they_would(numbers):
    x, y = numbers
    x = x.copy()
    x[55, 1] = np.nan
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        both(regressor(), {"lr": [0.02, 0.05]}, x, y, cv=KFold(3), refit=False)
    texts = [str(warning.message) for warning in told if "missing" in str(warning.message)]
    assert len(texts) == 4
    assert len(set(texts)) == 1
