"""How good is the default regressor on small tables? R², seconds and coverage of 90 % intervals, beside baselines.

Boston and ALE: random 70/30 splits, the paper's (random_state=16) apart. Made tables: a fixed number of rows to fit, at
least twice as many to test. Every model has its defaults and sees the same rows; nothing is chosen on the test rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVR

from restt import data
from restt.estimators import ResTTRegressor
from restt_bench.case import Settings

if TYPE_CHECKING:
    from rich.console import Console

PAPER_SPLIT = 16
# Random splits of the paper's two tables, and of the others.
SPLITS, OTHER_SPLITS = 20, 3
COVERAGE = 0.9
OURS = "ResTT"
# Mean R² over 20 splits that the default fit should reach.
WANTED = {"boston": 0.885, "ale": 0.76}


@dataclass(frozen=True, eq=False)
class Table:
    """``train`` is the number or share of rows to fit."""

    name: str
    x: np.ndarray  # (B, C)
    y: np.ndarray  # (B,)
    train: float | int = 0.7
    categories: tuple[int, ...] = ()


def tables(settings: Settings) -> Iterator[Table]:
    """Real tables, then made ones; two small ones for a quick run."""
    rng = np.random.default_rng(settings.seed + 1)
    if not settings.quick:
        for name in ("boston", "ale"):
            found = data.load(name)
            yield Table(name, found.x.double().numpy(), found.y.double().numpy())
    x, y = load_diabetes(return_X_y=True)
    yield Table("diabetes", x, y, 60 if settings.quick else 0.7)
    x = rng.standard_normal((1300, 10))
    product = x[:, 0] + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(1300)
    yield Table("product", x, product, train=60 if settings.quick else 300)
    if settings.quick:
        return
    seed = settings.seed
    for name, (x, y), train in (
        ("friedman 1", make_friedman1(1500, 10, noise=1.0, random_state=seed), 500),
        ("friedman 2", make_friedman2(1200, noise=100.0, random_state=seed), 400),
        ("friedman 3", make_friedman3(1200, noise=0.1, random_state=seed), 400),
    ):
        yield Table(name, x, y, train)
    codes = rng.integers(0, [4, 6, 30, 3], (1500, 4))
    pairs, single = rng.standard_normal((4, 6)), rng.standard_normal(30)
    x = np.column_stack([codes, rng.standard_normal((1500, 3))])
    y = pairs[codes[:, 0], codes[:, 1]] + single[codes[:, 2]] + x[:, 4] * (codes[:, 3] == 1)
    yield Table("categories", x, y + 0.3 * rng.standard_normal(1500), 500, (0, 1, 2, 3))
    x = rng.integers(0, 5, (1500, 8)).astype(float)
    y = np.round(0.5 * x[:, 0] + (x[:, 1] > 2) * x[:, 2] + rng.standard_normal(1500))
    yield Table("ties", x, y, 500)
    x = rng.lognormal(size=(1400, 6))
    y = np.exp(0.6 * np.log(x[:, 0]) + 0.4 * np.log(x[:, 1]) * (x[:, 2] > 1) + 0.5 * rng.standard_normal(1400))
    yield Table("skewed", x, y, 500)
    x = rng.random((1500, 5))
    y = np.sin(12 * x[:, 0]) * x[:, 1] + 2 * (x[:, 2] > 0.5) + 4 * np.abs(x[:, 3] - 0.5)
    yield Table("rough", x, y + 0.2 * rng.standard_normal(1500), 500)


def models(table: Table, seed: int) -> dict[str, Callable[[], Any]]:
    """All with their defaults, but for what is fitted by cross-validation on the training rows."""
    categories = list(table.categories) or None
    penalties = np.logspace(-3, 4, 15)
    return {
        OURS: lambda: ResTTRegressor(categorical_features=categories, random_state=seed),
        "linear": LinearRegression,
        "polynomial ridge": lambda: make_pipeline(
            StandardScaler(), PolynomialFeatures(2), StandardScaler(), RidgeCV(penalties)
        ),
        # Its tube has a width of its own, for a y of variance 1.
        "SVR": lambda: TransformedTargetRegressor(
            GridSearchCV(make_pipeline(StandardScaler(), SVR()), {"svr__C": (1, 10, 100)}, cv=3),
            transformer=StandardScaler(),
        ),
        "random forest": lambda: RandomForestRegressor(random_state=seed),
        "histogram boosting": lambda: HistGradientBoostingRegressor(random_state=seed, categorical_features=categories),
    }


def compare_tables(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Means over the splits, for every table and model. Everything here runs on the CPU."""
    results: list[dict[str, Any]] = []
    for table in tables(settings):
        of_paper = table.name in WANTED
        random = range(2 if settings.quick else SPLITS if of_paper else OTHER_SPLITS)
        for label, splits in (("random", list(random)), ("paper's", [PAPER_SPLIT])):
            if label == "random" or of_paper:
                rows = _means(table, splits, settings.seed)
                results += [{"table": table.name, "splits": label, "count": len(splits), **row} for row in rows]
                told = ", ".join(f"{row['model']} {row['r2']:.3f}" for row in rows)
                ours = rows[0]
                console.print(
                    f"{table.name}, {len(splits)} {label} split(s): {told}; coverage {ours['coverage']:.3f}, "
                    f"{ours['seconds']:.1f} s"
                )
    return {
        "title": "Small tables: the default regressor beside baselines",
        "coverage_wanted": COVERAGE,
        "results": results,
        "targets": [],
    }


def _means(table: Table, splits: list[int], seed: int) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, float]]] = {}
    for split in splits:
        fit, test = train_test_split(np.arange(len(table.x)), train_size=table.train, random_state=split)
        for name, make in models(table, seed).items():
            began = time.perf_counter()
            model = make().fit(table.x[fit], table.y[fit])
            taken = time.perf_counter() - began
            row = {"r2": r2_score(table.y[test], model.predict(table.x[test])), "seconds": taken}
            if name == OURS:
                low, high = model.predict_interval(table.x[test], COVERAGE).T
                inside = (table.y[test] >= low) & (table.y[test] <= high)
                row |= {"coverage": float(inside.mean()), "bond": model.module_.bond_dim}
            found.setdefault(name, []).append(row)
    rows = []
    for name, entries in found.items():
        means = {key: float(np.mean([entry[key] for entry in entries])) for key in entries[0]}
        rows.append({"model": name, **means, "r2_std": float(np.std([entry["r2"] for entry in entries]))})
    return rows
