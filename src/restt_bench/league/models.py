"""Who plays: ours, and others, each with its defaults but for what is fitted by folds of the training rows."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR

from restt import ResTTClassifier, ResTTRegressor
from restt_bench.league.fixtures import Fixture

OURS = "restt"
# Rows beyond which a model is not asked: its time grows with their square or cube, or with the columns' squares.
MOST_ROWS = {"SVM": 10_000, "Gaussian process": 600, "polynomial": 100_000, "random forest": 30_000, "EBM": 600}
# A fit of this takes a minute: it is asked once, not for every split.
MOST_SPLITS = {"EBM": 1}
PENALTIES = np.logspace(-3, 4, 15)
SVM_GRID = (1, 10, 100)

Maker = Callable[[], Any]


def players(fixture: Fixture, seed: int) -> dict[str, Maker]:
    """Name -> what makes the unfitted model, for those that take this table."""
    found = _regressors(fixture, seed) if fixture.task == "regression" else _classifiers(fixture, seed)
    rows = fixture.train if isinstance(fixture.train, int) else int(fixture.train * len(fixture.x))
    splits = len(fixture.split_seeds)
    return {
        name: make
        for name, make in found.items()
        if rows <= MOST_ROWS.get(name, rows) and splits <= MOST_SPLITS.get(name, splits)
    }


def _regressors(fixture: Fixture, seed: int) -> dict[str, Maker]:
    categories = list(fixture.categories) or None
    columns = fixture.x.shape[1]
    found: dict[str, Maker] = {
        OURS: lambda: ResTTRegressor(categorical_features=categories, random_state=seed),
        "linear": lambda: make_pipeline(_scaled(fixture), LinearRegression()),
        "polynomial": lambda: make_pipeline(
            _scaled(fixture), PolynomialFeatures(2), StandardScaler(), RidgeCV(PENALTIES)
        ),
        # Its tube has a width of its own, for a y of variance 1.
        "SVM": lambda: _of_scaled_y(GridSearchCV(make_pipeline(_scaled(fixture), SVR()), {"svr__C": SVM_GRID}, cv=3)),
        "MLP": lambda: _of_scaled_y(
            make_pipeline(
                _scaled(fixture),
                MLPRegressor(hidden_layer_sizes=(64, 64), max_iter=1000, early_stopping=True, random_state=seed),
            )
        ),
        "random forest": lambda: RandomForestRegressor(200, random_state=seed),
        "boosting": lambda: HistGradientBoostingRegressor(random_state=seed, categorical_features=categories),
        "Gaussian process": lambda: _of_scaled_y(make_pipeline(_scaled(fixture), _process(columns, seed))),
    }
    if _installed("lightgbm"):
        found["LightGBM"] = lambda: _imported("lightgbm").LGBMRegressor(random_state=seed, verbose=-1)
    if _installed("catboost"):
        found["CatBoost"] = lambda: _imported("catboost").CatBoostRegressor(
            random_seed=seed, verbose=False, allow_writing_files=False
        )
    if _installed("interpret"):
        found["EBM"] = lambda: _imported("interpret.glassbox").ExplainableBoostingRegressor(random_state=seed, n_jobs=1)
    return found


def _classifiers(fixture: Fixture, seed: int) -> dict[str, Maker]:
    categories = list(fixture.categories) or None
    found: dict[str, Maker] = {
        OURS: lambda: ResTTClassifier(categorical_features=categories, random_state=seed),
        "linear": lambda: make_pipeline(_scaled(fixture), LogisticRegression(max_iter=5000)),
        "polynomial": lambda: make_pipeline(
            _scaled(fixture), PolynomialFeatures(2), StandardScaler(), LogisticRegression(C=0.1, max_iter=5000)
        ),
        "SVM": lambda: GridSearchCV(
            make_pipeline(_scaled(fixture), SVC(probability=True, random_state=seed)), {"svc__C": SVM_GRID}, cv=3
        ),
        "MLP": lambda: make_pipeline(
            _scaled(fixture), MLPClassifier(hidden_layer_sizes=(64, 64), max_iter=1000, random_state=seed)
        ),
        "random forest": lambda: RandomForestClassifier(200, random_state=seed),
        "boosting": lambda: HistGradientBoostingClassifier(random_state=seed, categorical_features=categories),
    }
    if _installed("lightgbm"):
        found["LightGBM"] = lambda: _imported("lightgbm").LGBMClassifier(random_state=seed, verbose=-1)
    if _installed("catboost"):
        found["CatBoost"] = lambda: _imported("catboost").CatBoostClassifier(
            random_seed=seed, verbose=False, allow_writing_files=False
        )
    if _installed("interpret"):
        found["EBM"] = lambda: _imported("interpret.glassbox").ExplainableBoostingClassifier(
            random_state=seed, n_jobs=1
        )
    return found


def _process(columns: int, seed: int) -> GaussianProcessRegressor:
    kernel = ConstantKernel() * Matern(np.ones(columns), nu=2.5) + WhiteKernel(0.1)
    return GaussianProcessRegressor(kernel, random_state=seed)


def _scaled(fixture: Fixture) -> Any:
    """Numbers standardised, categories one-hot."""
    if not fixture.categories:
        return StandardScaler()
    numbers = [column for column in range(fixture.x.shape[1]) if column not in fixture.categories]
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer((encoder, list(fixture.categories)), (StandardScaler(), numbers))


def _of_scaled_y(model: Any) -> TransformedTargetRegressor:
    return TransformedTargetRegressor(model, transformer=StandardScaler())


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _imported(package: str) -> Any:
    return importlib.import_module(package)
