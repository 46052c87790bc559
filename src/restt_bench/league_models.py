"""Models of the league: ours and others, each at its defaults but for choices by folds of the training rows.

LightGBM, CatBoost and EBM (interpret) take part where they are installed.
"""

from __future__ import annotations

import importlib
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
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR

from restt import ResTTClassifier, ResTTRegressor
from restt_baselines import make
from restt_bench.league_tables import LeagueTable

OURS = "restt"
# Rows beyond which a model is left out: its time grows with their square or cube, or with the columns' squares.
MOST_ROWS = {
    "SVM": 10_000,
    "Gaussian process": 600,
    "polynomial": 100_000,
    "random forest": 30_000,
    "EBM": 600,
}
PENALTIES = np.logspace(-3, 4, 15)
SVM_GRID = (1, 10, 100)
# Optional packages: model -> module.
OPTIONAL = {"LightGBM": "lightgbm", "CatBoost": "catboost", "EBM": "interpret.glassbox"}

Maker = Callable[[], Any]


def models(table: LeagueTable, seed: int, *, optional: bool = True) -> dict[str, Maker]:
    """Name -> maker of the unfitted model, for the models that take this table."""
    makers = _values(table, seed) if table.task == "regression" else _classes(table, seed)
    if optional:
        makers |= {
            name: lambda make=make, module=OPTIONAL[name]: make(importlib.import_module(module))  # type: ignore[misc]
            for name, make in _optional(table, seed).items()
            if _is_installed(OPTIONAL[name])
        }
    return {name: make for name, make in makers.items() if table.fit_rows <= MOST_ROWS.get(name, table.fit_rows)}


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def _values(table: LeagueTable, seed: int) -> dict[str, Maker]:
    hidden: dict[str, Any] = {"hidden_layer_sizes": (64, 64), "max_iter": 1000, "random_state": seed}

    def encoded(*steps: Any) -> Any:
        return make_pipeline(encoder(table), *steps)

    def of_scaled_y(model: Any) -> Any:
        return TransformedTargetRegressor(model, transformer=StandardScaler())

    return {
        OURS: lambda: ResTTRegressor(random_state=seed),
        "linear": lambda: encoded(LinearRegression()),
        "polynomial": lambda: encoded(PolynomialFeatures(2), StandardScaler(), RidgeCV(PENALTIES)),
        # The default width of its tube is meant for a y of variance 1.
        "SVM": lambda: of_scaled_y(GridSearchCV(encoded(SVR()), {"svr__C": SVM_GRID}, cv=3)),
        "MLP": lambda: of_scaled_y(encoded(MLPRegressor(early_stopping=True, **hidden))),
        "random forest": lambda: RandomForestRegressor(200, random_state=seed),
        "boosting": lambda: HistGradientBoostingRegressor(random_state=seed),
        "Gaussian process": lambda: encoded(make("gp", "regression", nu=2.5, random_state=seed)),
    }


def _classes(table: LeagueTable, seed: int) -> dict[str, Maker]:
    def encoded(*steps: Any) -> Any:
        return make_pipeline(encoder(table), *steps)

    vectors = SVC(probability=True, random_state=seed)
    return {
        OURS: lambda: ResTTClassifier(random_state=seed),
        "linear": lambda: encoded(LogisticRegression(max_iter=5000)),
        "polynomial": lambda: encoded(
            PolynomialFeatures(2), StandardScaler(), LogisticRegression(C=0.1, max_iter=5000)
        ),
        "SVM": lambda: GridSearchCV(encoded(vectors), {"svc__C": SVM_GRID}, cv=3),
        "MLP": lambda: encoded(MLPClassifier((64, 64), max_iter=1000, random_state=seed)),
        "random forest": lambda: RandomForestClassifier(200, random_state=seed),
        "boosting": lambda: HistGradientBoostingClassifier(random_state=seed),
    }


def _optional(table: LeagueTable, seed: int) -> dict[str, Callable[[Any], Any]]:
    """Makers of models of optional packages, each a function of its module."""
    kind = "Regressor" if table.task == "regression" else "Classifier"
    columns = list(getattr(table.x, "columns", range(table.x.shape[1])))
    types = ["nominal" if column in table.categories else "continuous" for column in columns]

    def lightgbm(package: Any) -> Any:
        return getattr(package, f"LGBM{kind}")(random_state=seed, verbose=-1)

    def catboost(package: Any) -> Any:
        quiet = {"verbose": False, "allow_writing_files": False}
        return getattr(package, f"CatBoost{kind}")(random_seed=seed, cat_features=table.categories, **quiet)

    def ebm(package: Any) -> Any:
        return getattr(package, f"ExplainableBoosting{kind}")(random_state=seed, n_jobs=1, feature_types=types)

    return {"LightGBM": lightgbm, "CatBoost": catboost, "EBM": ebm}


def encoder(table: LeagueTable) -> Any:
    """Numbers standardised, categories one-hot."""
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer((one_hot, table.categories), remainder=StandardScaler())
