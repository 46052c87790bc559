"""Inside scikit-learn's own tools."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

from restt.estimators import ResTTClassifier, ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor
from tests.estimators.conftest import QUICK


def test_pipeline_with_a_column_transformer(mixed):
    frame, y = mixed
    frame["colour"] = frame["colour"].fillna(np.nan)  # OrdinalEncoder takes pandas 2's None for a category
    encode = ColumnTransformer(
        [("text", OrdinalEncoder(encoded_missing_value=-1), ["colour"])], remainder="passthrough"
    )
    model = make_pipeline(encode, ResTTNetRegressor(**QUICK, penalty=1e-3, categorical_features=[0]))
    model.fit(frame, y, resttnetregressor__sample_weight=np.ones(80))
    assert model.score(frame, y) > 0.7
    assert model[-1].encoding_.columns[0].levels == (-1, 0, 1, 2)


def test_frames_pass_through_a_pipeline_with_names(numbers):
    x, y = numbers
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), ResTTNetRegressor(**QUICK)).fit(frame, y)
    assert model[-1].feature_names_in_.tolist() == ["a", "b", "c"]


def test_cross_validate_in_processes(numbers):
    x, y = numbers
    found = cross_validate(ResTTNetClassifier(**QUICK), x, y > 0, cv=3, scoring=["accuracy", "neg_log_loss"], n_jobs=2)
    alone = cross_validate(ResTTNetClassifier(**QUICK), x, y > 0, cv=3, scoring=["accuracy", "neg_log_loss"])
    for name in ("test_accuracy", "test_neg_log_loss"):
        np.testing.assert_allclose(found[name], alone[name], rtol=1e-6)


def test_grid_search_finds_the_interaction():
    x = np.random.default_rng(0).uniform(-1, 1, size=(120, 2))
    grid = GridSearchCV(
        ResTTNetRegressor(random_state=0, penalty=1e-3), {"topology": ["linear", "residual"], "bond_dim": [2]}, cv=3
    )
    grid.fit(x, x[:, 0] * x[:, 1])
    assert grid.best_params_ == {"bond_dim": 2, "topology": "residual"}
    assert grid.best_estimator_.n_features_in_ == 2


def test_clone_is_unfitted_and_equal(fitted_classifier):
    other = clone(fitted_classifier)
    assert other.get_params() == fitted_classifier.get_params()
    assert not hasattr(other, "module_")


def test_what_a_clone_copies_and_what_it_refuses():
    penalty = {"chain": 0.1}
    assert clone(ResTTNetRegressor(penalty=penalty)).penalty == penalty
    assert clone(ResTTNetRegressor(penalty=penalty)).penalty is not penalty
    assert clone(ResTTNetRegressor(lr=0.02)).get_params() == ResTTNetRegressor(lr=0.02).get_params()
    with config_context(enable_metadata_routing=True):
        asking = clone(ResTTNetRegressor().set_fit_request(sample_weight=True))
        assert asking.get_metadata_routing().fit.requests == {"sample_weight": True}

    class Rounding(ResTTNetRegressor):
        def __init__(self, lr=0.5):
            super().__init__(lr=round(lr, 1))

    with pytest.raises(RuntimeError, match="modifies parameter lr"):
        clone(Rounding().set_params(lr=0.123))


def test_meta_estimators(numbers):
    x, y = numbers
    positive = np.exp(y)
    logged = TransformedTargetRegressor(ResTTNetRegressor(**QUICK), func=np.log, inverse_func=np.exp).fit(x, positive)
    assert (logged.predict(x) > 0).all()
    calibrated = CalibratedClassifierCV(ResTTNetClassifier(**QUICK), cv=2).fit(x, y > 0)
    np.testing.assert_allclose(calibrated.predict_proba(x).sum(axis=1), 1)
    out = cross_val_predict(ResTTNetClassifier(**QUICK), x, y > 0, cv=2, method="decision_function")
    assert out.shape == (60,)
    importance = permutation_importance(ResTTNetRegressor(**QUICK).fit(x, y), x, y, n_repeats=2, random_state=0)
    assert importance.importances_mean.shape == (3,)


def test_metadata_routing(numbers):
    x, y = numbers
    weights = np.where(np.arange(60) < 30, 1.0, 0.0)
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        model = make_pipeline(scaler, ResTTNetRegressor(**QUICK).set_fit_request(sample_weight=True))
        model.fit(x, y, sample_weight=weights)
    scaled = StandardScaler().fit_transform(x)
    want = ResTTNetRegressor(**QUICK).fit(scaled[:30], y[:30]).predict(scaled)
    np.testing.assert_allclose(model.predict(x), want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", [ResTTClassifier, ResTTRegressor, ResTTNetRegressor, ResTTNetClassifier])
def test_repr_shows_only_what_was_changed(kind):
    assert repr(kind(bond_dim=4)) == f"{kind.__name__}(bond_dim=4)"
