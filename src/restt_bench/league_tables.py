"""The tables of the league: real ones, and made ones whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
    make_friedman1,
    make_friedman2,
    make_friedman3,
)

from restt import data

Task = Literal["regression", "classification"]
# Random splits of the paper's two tables, of other real ones, of made ones, and of those with many rows.
PAPERS_SPLITS, REAL_SPLITS, MADE_SPLITS, LARGE_SPLITS = 20, 3, 2, 1
# How the paper splits its tables, beside random splits.
PAPERS_SEED = 16
# Made tables whose generators tools/other_tables.py shares: they chose the weights of the prior in 0.8.0.
CHOSE_WEIGHTS = {
    *("friedman 1", "friedman 2", "friedman 3", "product", "categories", "ties", "skewed", "rough"),
    "60 rows, 40 columns",
}


@dataclass(frozen=True, eq=False)
class LeagueTable:
    """One table. ``train`` is the number or share of rows to fit; ``made`` is whether its truth is known."""

    name: str
    task: Task
    x: Any  # (B, C), an array or a data frame with categories
    y: np.ndarray  # (B,)
    splits: int
    train: float | int = 0.7
    made: bool = True
    seeds: tuple[int, ...] | None = None  # of the splits; by default 0, 1, …

    @property
    def fit_rows(self) -> int:
        """Rows of a fit."""
        return self.train if isinstance(self.train, int) else int(self.train * len(self.x))

    @property
    def categories(self) -> list[str]:
        """Names of the columns of categories."""
        return [] if isinstance(self.x, np.ndarray) else list(self.x.select_dtypes("category"))

    @property
    def split_seeds(self) -> tuple[int, ...]:
        """Seeds of the splits."""
        return tuple(range(self.splits)) if self.seeds is None else self.seeds


def league_tables(seed: int, *, quick: bool = False) -> Iterator[LeagueTable]:
    """All tables; two tiny ones for a quick run."""
    if quick:
        x, y = make_friedman1(120, 5, noise=1.0, random_state=seed)
        yield LeagueTable("friedman 1", "regression", x, y, 2, train=60)
        x, y = load_iris(return_X_y=True)
        yield LeagueTable("iris", "classification", x, y, 2, made=False)
        return
    yield from _paper()
    for make in (_real, _made_values, _made_classes, _large):
        yield from make(seed)


def _paper() -> Iterator[LeagueTable]:
    """The paper's two, on random splits and on its own."""
    for name in ("boston", "ale"):
        loaded = data.load(name)
        x, y = loaded.x.double().numpy(), loaded.y.double().numpy()
        yield LeagueTable(name, "regression", x, y, PAPERS_SPLITS, made=False)
        yield LeagueTable(f"{name}, the paper's split", "regression", x, y, 1, made=False, seeds=(PAPERS_SEED,))


def _real(seed: int) -> Iterator[LeagueTable]:
    x, y = load_diabetes(return_X_y=True)
    yield LeagueTable("diabetes", "regression", x, y, REAL_SPLITS, made=False)
    loaders: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
        "iris": load_iris,
        "wine": load_wine,
        "breast cancer": load_breast_cancer,
        "digits": load_digits,
    }
    for name, load in loaders.items():
        x, y = load(return_X_y=True)
        yield LeagueTable(name, "classification", x, y, REAL_SPLITS, made=False)


def _made_values(seed: int) -> Iterator[LeagueTable]:
    rng = np.random.default_rng(seed + 1)
    for name, (x, y), train in (
        ("friedman 1", make_friedman1(1500, 10, noise=1.0, random_state=seed), 500),
        ("friedman 2", make_friedman2(1200, noise=100.0, random_state=seed), 400),
        ("friedman 3", make_friedman3(1200, noise=0.1, random_state=seed), 400),
    ):
        yield LeagueTable(name, "regression", x, y, MADE_SPLITS, train)
    x = rng.standard_normal((1300, 10))
    y = x[:, 0] + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(1300)
    yield LeagueTable("product", "regression", x, y, MADE_SPLITS, 300)
    codes = rng.integers(0, [4, 6, 30, 3], (1500, 4))
    pairs, single = rng.standard_normal((4, 6)), rng.standard_normal(30)
    numbers = rng.standard_normal((1500, 3))
    y = pairs[codes[:, 0], codes[:, 1]] + single[codes[:, 2]] + numbers[:, 0] * (codes[:, 3] == 1)
    frame = (
        pd.DataFrame(codes, columns=list("abcd")).astype("category").join(pd.DataFrame(numbers, columns=list("xyz")))
    )
    yield LeagueTable("categories", "regression", frame, y + 0.3 * rng.standard_normal(1500), MADE_SPLITS, 500)
    x = rng.integers(0, 5, (1500, 8)).astype(float)
    y = np.round(0.5 * x[:, 0] + (x[:, 1] > 2) * x[:, 2] + rng.standard_normal(1500))
    yield LeagueTable("ties", "regression", x, y, MADE_SPLITS, 500)
    x = rng.lognormal(size=(1400, 6))
    y = np.exp(0.6 * np.log(x[:, 0]) + 0.4 * np.log(x[:, 1]) * (x[:, 2] > 1) + 0.5 * rng.standard_normal(1400))
    yield LeagueTable("skewed", "regression", x, y, MADE_SPLITS, 500)
    x = rng.random((1500, 5))
    y = np.sin(12 * x[:, 0]) * x[:, 1] + 2 * (x[:, 2] > 0.5) + 4 * np.abs(x[:, 3] - 0.5)
    yield LeagueTable("rough", "regression", x, y + 0.2 * rng.standard_normal(1500), MADE_SPLITS, 500)
    x = rng.standard_normal((1060, 40))
    y = x @ rng.standard_normal(40) / 6 + rng.standard_normal(1060)
    yield LeagueTable("60 rows, 40 columns", "regression", x, y, MADE_SPLITS, 60)


def _made_classes(seed: int) -> Iterator[LeagueTable]:
    rng = np.random.default_rng(seed + 2)
    x = rng.choice([-1.0, 1.0], (3000, 20))
    yield LeagueTable("XOR of 2 in 20", "classification", x, (x[:, 2] * x[:, 9] > 0).astype(int), MADE_SPLITS, 1000)
    y = (x[:, 3] * x[:, 8] * x[:, 15] > 0).astype(int)
    yield LeagueTable("XOR of 3 in 20", "classification", x, y, MADE_SPLITS, 1000)
    x = rng.standard_normal((3000, 20))
    y = (x[:, 3] * x[:, 8] > 0).astype(int)
    yield LeagueTable("signs of 2 in 20", "classification", x, y, MADE_SPLITS, 1000)
    x, y = make_classification(
        2000, 12, n_informative=6, n_redundant=2, n_classes=3, n_clusters_per_class=2, random_state=seed
    )
    yield LeagueTable("clusters", "classification", x, y, MADE_SPLITS, 500)
    x, y = make_classification(2400, 10, n_informative=4, weights=[0.93], flip_y=0.02, random_state=seed)
    yield LeagueTable("one class in twelve", "classification", x, y, MADE_SPLITS, 600)
    x = rng.standard_normal((1600, 8))
    chance = 1 / (1 + np.exp(-0.5 * x[:, 0] - 0.4 * x[:, 1] * x[:, 2]))
    yield LeagueTable("weak signal", "classification", x, (rng.random(1600) < chance).astype(int), MADE_SPLITS, 300)
    angle = rng.uniform(0, 2 * np.pi, 1600)
    inner = rng.integers(0, 2, 1600)
    radius = (1 - 0.45 * inner) + 0.12 * rng.standard_normal(1600)
    x = np.column_stack([radius * np.cos(angle), radius * np.sin(angle), rng.standard_normal((1600, 4))])
    yield LeagueTable("rings", "classification", x, inner, MADE_SPLITS, 300)


def _large(seed: int) -> Iterator[LeagueTable]:
    """Smooth functions of many rows: an arm of four joints, and a few columns that act alone and in pairs."""
    rng = np.random.default_rng(seed + 3)
    x = rng.uniform(-np.pi / 2, np.pi / 2, (32_000, 8))
    reach = [np.cumsum(x[:, :4], axis=1), 0.5 + 0.2 * np.abs(x[:, 4:])]
    y = np.hypot((reach[1] * np.cos(reach[0])).sum(1), (reach[1] * np.sin(reach[0])).sum(1))
    yield LeagueTable("arm", "regression", x, y + 0.01 * rng.standard_normal(len(y)), LARGE_SPLITS, 28_000)
    for rows in (500, 5_000, 50_000, 200_000):
        x = rng.random((rows + 20_000, 20))
        y = 3 * x[:, 0] + np.sin(6 * x[:, 1]) + 2 * x[:, 2] * x[:, 3] + 0.3 * rng.standard_normal(len(x))
        yield LeagueTable(f"{rows:,} rows, 20 columns", "regression", x, y, LARGE_SPLITS, rows)
