"""R² and coverage of the learned prior beside three baselines, on small tables of varied character.

    RESTT_DATA_HOME=... python benchmarks/prior_tables.py [--splits 20] [--tables boston ale] [--no-baselines]

Boston and ALE: random 70/30 splits, the paper's (random_state=16) first and apart. Made tables: a fixed number of rows
to fit, at least twice as many to test. Every model sees the same rows; nothing is chosen on the test rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

from restt import data, prior

PAPER_SPLIT = 16


@dataclass(frozen=True)
class Table:
    name: str
    x: np.ndarray
    y: np.ndarray
    levels: tuple[int | None, ...] | None = None
    train: float | int = 0.7


def tables() -> Iterator[Table]:
    for name in ("boston", "ale"):
        found = data.load(name)
        yield Table(name, found.x.double().numpy(), found.y.double().numpy())
    yield Table("diabetes", *load_diabetes(return_X_y=True))
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1300, 10))
    yield Table("product", x, x[:, 0] + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(1300), train=300)
    yield Table("friedman 1", *make_friedman1(1500, 10, noise=1.0, random_state=0), train=500)
    yield Table("friedman 2", *make_friedman2(1200, noise=100.0, random_state=0), train=400)
    yield Table("friedman 3", *make_friedman3(1200, noise=0.1, random_state=0), train=400)
    codes = rng.integers(0, [4, 6, 30, 3], (1500, 4))
    pairs, single = rng.standard_normal((4, 6)), rng.standard_normal(30)
    x = np.column_stack([codes, rng.standard_normal((1500, 3))])
    y = pairs[codes[:, 0], codes[:, 1]] + single[codes[:, 2]] + x[:, 4] * (codes[:, 3] == 1)
    levels = (4, 6, 30, 3, None, None, None)
    yield Table("categories", x, y + 0.3 * rng.standard_normal(1500), levels, 500)
    x = rng.integers(0, 5, (1500, 8)).astype(float)
    y = np.round(0.5 * x[:, 0] + (x[:, 1] > 2) * x[:, 2] + rng.standard_normal(1500))
    yield Table("ties", x, y, train=500)
    yield Table("noise", rng.standard_normal((900, 8)), rng.standard_normal(900), train=300)
    x, slopes = rng.standard_normal((1100, 60)), rng.standard_normal(60) * (rng.random(60) < 0.4)
    yield Table("60 lines", x, x @ slopes + 2 * rng.standard_normal(1100), train=300)
    x = rng.lognormal(size=(1400, 6))
    y = np.exp(0.6 * np.log(x[:, 0]) + 0.4 * np.log(x[:, 1]) * (x[:, 2] > 1) + 0.5 * rng.standard_normal(1400))
    yield Table("skewed", x, y, train=500)
    x = rng.random((1500, 5))
    y = np.sin(12 * x[:, 0]) * x[:, 1] + 2 * (x[:, 2] > 0.5) + 4 * np.abs(x[:, 3] - 0.5)
    yield Table("rough", x, y + 0.2 * rng.standard_normal(1500), train=500)


def measure(table: Table, split: int, baselines: bool) -> dict[str, float]:
    fit, test = train_test_split(np.arange(len(table.x)), train_size=table.train, random_state=split)
    x, y, fresh, truth = table.x[fit], table.y[fit], table.x[test], table.y[test]
    start, cpu = time.perf_counter(), time.process_time()
    model = prior.fit(x, y, levels=table.levels)
    found = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    low, high = model.predict_interval(fresh)[:, :, 0].T
    found["coverage"] = float(np.mean((truth >= low) & (truth <= high)))
    found["bond"] = model.module.bond_dim
    found["prior"] = r2_score(truth, model.predict(fresh)[:, 0])
    if baselines:
        forest, boosting = RandomForestRegressor(200, random_state=0), HistGradientBoostingRegressor(random_state=0)
        for name, baseline in {"ridge": RidgeCV(), "forest": forest, "boosting": boosting}.items():
            found[name] = r2_score(truth, baseline.fit(x, y).predict(fresh))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--no-baselines", dest="baselines", action="store_false")
    given = parser.parse_args()
    for table in tables():
        if given.tables and table.name not in given.tables:
            continue
        if table.name in ("boston", "ale"):
            print(f"{table.name:12s} paper's split", _line([measure(table, PAPER_SPLIT, given.baselines)]), flush=True)
        found = [measure(table, split, given.baselines) for split in range(given.splits)]
        print(f"{table.name:12s} {given.splits:2d} splits    ", _line(found), flush=True)


def _line(found: list[dict[str, float]]) -> str:
    return "  ".join(f"{name} {np.mean([one[name] for one in found]):.3f}" for name in found[0])


if __name__ == "__main__":
    main()
