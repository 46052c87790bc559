"""Models of the league: ours and others, each at its defaults but for choices by folds of the training rows.

LightGBM, CatBoost, EBM (interpret) and TabPFN take part where they are installed; :func:`versions` has their versions.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
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
# Rows beyond which a model is left out: its time grows with their square or cube, or with the columns' squares.
MOST_ROWS = {
    "SVM": 10_000,
    "Gaussian process": 600,
    "polynomial": 100_000,
    "random forest": 30_000,
    "EBM": 600,
    "TabPFN": 3_000,
}
PENALTIES = np.logspace(-3, 4, 15)
SVM_GRID = (1, 10, 100)
# Optional packages: model -> module, distribution.
OPTIONAL = {
    "LightGBM": ("lightgbm", "lightgbm"),
    "CatBoost": ("catboost", "catboost"),
    "EBM": ("interpret.glassbox", "interpret-core"),
    "TabPFN": ("tabpfn", "tabpfn"),
}

Maker = Callable[[], Any]


def players(fixture: Fixture, seed: int) -> dict[str, Maker]:
    """Name -> maker of the unfitted model, for the models that take this table."""
    makers = {**_everywhere(fixture, seed), **_optional(fixture, seed)}
    return {name: make for name, make in makers.items() if fixture.fit_rows <= MOST_ROWS.get(name, fixture.fit_rows)}


def quick_players(fixture: Fixture, seed: int) -> dict[str, Maker]:
    """The models of scikit-learn and ours: a fit of some others takes a minute."""
    return {name: make for name, make in players(fixture, seed).items() if name not in OPTIONAL}


def versions() -> dict[str, str]:
    """Versions of the optional packages that are installed."""
    return {
        distribution: importlib.metadata.version(distribution)
        for module, distribution in OPTIONAL.values()
        if _is_installed(module)
    }


def _everywhere(fixture: Fixture, seed: int) -> dict[str, Maker]:
    categories = list(fixture.categories) or None
    ours: dict[str, Any] = {"categorical_features": categories, "random_state": seed}
    hidden: dict[str, Any] = {"hidden_layer_sizes": (64, 64), "max_iter": 1000, "random_state": seed}

    def scaled(*steps: Any) -> Any:
        return make_pipeline(encoder(fixture), *steps)

    def squares(model: Any) -> Any:
        return scaled(PolynomialFeatures(2), StandardScaler(), model)

    if fixture.task == "classification":
        vectors = SVC(probability=True, random_state=seed)
        return {
            OURS: lambda: ResTTClassifier(**ours),
            "linear": lambda: scaled(LogisticRegression(max_iter=5000)),
            "polynomial": lambda: squares(LogisticRegression(C=0.1, max_iter=5000)),
            "SVM": lambda: GridSearchCV(scaled(vectors), {"svc__C": SVM_GRID}, cv=3),
            "MLP": lambda: scaled(MLPClassifier(**hidden)),
            "random forest": lambda: RandomForestClassifier(200, random_state=seed),
            "boosting": lambda: HistGradientBoostingClassifier(random_state=seed, categorical_features=categories),
        }
    return {
        OURS: lambda: ResTTRegressor(**ours),
        "linear": lambda: scaled(LinearRegression()),
        "polynomial": lambda: squares(RidgeCV(PENALTIES)),
        # Its tube has a width of its own, for a y of variance 1.
        "SVM": lambda: _of_scaled_y(GridSearchCV(scaled(SVR()), {"svr__C": SVM_GRID}, cv=3)),
        "MLP": lambda: _of_scaled_y(scaled(MLPRegressor(early_stopping=True, **hidden))),
        "random forest": lambda: RandomForestRegressor(200, random_state=seed),
        "boosting": lambda: HistGradientBoostingRegressor(random_state=seed, categorical_features=categories),
        "Gaussian process": lambda: _of_scaled_y(scaled(LengthPerColumn(random_state=seed))),
    }


def _optional(fixture: Fixture, seed: int) -> dict[str, Maker]:
    kind = "Regressor" if fixture.task == "regression" else "Classifier"
    categories = list(fixture.categories)
    nominal = ["nominal" if column in categories else "continuous" for column in range(fixture.x.shape[1])]
    quiet: dict[str, Any] = {"verbose": False, "allow_writing_files": False}
    makers: dict[str, Callable[[Any], Any]] = {
        "LightGBM": lambda package: CategoryColumns(
            getattr(package, f"LGBM{kind}")(random_state=seed, verbose=-1), categories
        ),
        "CatBoost": lambda package: CategoryColumns(
            getattr(package, f"CatBoost{kind}")(random_seed=seed, cat_features=categories, **quiet), categories
        ),
        "EBM": lambda package: getattr(package, f"ExplainableBoosting{kind}")(
            random_state=seed, n_jobs=1, feature_types=nominal
        ),
        "TabPFN": lambda package: getattr(package, f"TabPFN{kind}")(
            random_state=seed, categorical_features_indices=categories, ignore_pretraining_limits=True
        ),
    }
    return {
        name: lambda name=name: makers[name](importlib.import_module(OPTIONAL[name][0]))  # type: ignore[misc]
        for name in makers
        if _is_installed(OPTIONAL[name][0])
    }


class LengthPerColumn(GaussianProcessRegressor):
    """A Gaussian process with a length for each column it is fitted to, however many its encoder makes."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit a Matérn kernel and noise to X (B, C) and y (B,)."""
        self.kernel = ConstantKernel() * Matern(np.ones(np.shape(X)[1]), nu=2.5) + WhiteKernel(0.1)
        return super().fit(X, y)


class CategoryColumns(BaseEstimator):
    """A model of another package, given its category columns as a data frame's categories."""

    def __init__(self, model: Any, categories: list[int]) -> None:
        self.model, self.categories = model, categories

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit the model to X (B, C) and y (B,)."""
        self.levels_ = {column: np.unique(X[:, column]) for column in self.categories}
        self.model.fit(self._frame(X), y)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Predictions (B,)."""
        return np.asarray(self.model.predict(self._frame(X))).reshape(len(X))

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Probabilities (B, K)."""
        return np.asarray(self.model.predict_proba(self._frame(X)))

    @property
    def classes_(self) -> np.ndarray:
        """The labels in sorted order."""
        return np.asarray(self.model.classes_)

    def _frame(self, X: np.ndarray) -> Any:
        import pandas

        frame = pandas.DataFrame(X, columns=[f"x{column}" for column in range(X.shape[1])])
        for column, levels in self.levels_.items():
            places = np.searchsorted(levels, X[:, column]).clip(max=len(levels) - 1)
            codes = np.where(levels[places] == X[:, column], places, -1)  # -1: no training row has this level
            frame[f"x{column}"] = pandas.Categorical.from_codes(codes, levels.astype(int))
        return frame


def encoder(fixture: Fixture) -> Any:
    """Numbers standardised, categories one-hot."""
    if not fixture.categories:
        return StandardScaler()
    numbers = [column for column in range(fixture.x.shape[1]) if column not in fixture.categories]
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer((one_hot, list(fixture.categories)), (StandardScaler(), numbers))


def _of_scaled_y(model: Any) -> TransformedTargetRegressor:
    return TransformedTargetRegressor(model, transformer=StandardScaler())


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None
