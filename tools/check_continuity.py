"""Measure how far predictions of the default regressor move under changes that should not matter.

    python tools/check_continuity.py FOLDER --workers 2

1. Invariance: on every regression of FOLDER (``*.csv.gz``, last column ``target``), y is scaled, shifted and negated,
   columns are permuted, rescaled and negated, rows are permuted, a constant column is added, numbers become float32.
   The move is the root mean square difference of predictions of held-out rows over the model's error there.
2. One row more: nested samples of n and n + 1 rows of one table, for the numbers of rows in ``--rows``, among them the
   limits of the settings. The move of n is the mean over seeds; its ratio is to the median of the eight nearest n.

Written to results/tabular/continuity.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import RESULTS, name_of, parser, read_table, spread, table_paths, write_results
from sklearn.model_selection import train_test_split

from restt import ResTTRegressor, __version__

MOST_ROWS, TEST_ROWS = 1000, 1000
CHANGES = (
    *("y negated", "y × 1000", "y / 1000", "y + 1000 sd", "columns permuted", "columns rescaled", "columns negated"),
    *("rows permuted", "constant column", "float32"),
)
# Numbers of rows n of the steps from n to n + 1: the limits of the settings are 330 rows of the first searches, 1,056
# with 32 knots, and 2,000 that the scales are learned from.
ROWS = (
    30, 35, 42, 45, 50, 60, 65, 72, 85, 101, 120, 143, 170, 202, 240, 285, 329, 330, 331, 392, 460, 547, 650,
    773, 900, 1055, 1056, 1057, 1250, 1500, 1750, 1999, 2000, 2001, 2400, 2900, 3500, 4200, 5000, 6000,
)  # fmt: skip
SEEDS = 8
CONTINUITY_TABLE = "california-housing"
NAME = "tabular/continuity.json"


def changed(change: str, x: pd.DataFrame, y: np.ndarray, fit: np.ndarray) -> tuple[pd.DataFrame, np.ndarray, Any]:
    """The table, its target and the fit's rows after a change."""
    rng, numbers = np.random.default_rng(0), x.select_dtypes("number").columns
    if change == "y negated":
        return x, -y, fit
    if change == "y × 1000":
        return x, y * 1000, fit
    if change == "y / 1000":
        return x, y / 1000, fit
    if change == "y + 1000 sd":
        return x, y + 1000 * y.std(), fit
    if change == "columns permuted":
        return x[rng.permutation(x.columns)], y, fit
    if change == "columns rescaled":
        return x.assign(**{name: x[name] * 1000 + 5 for name in numbers}), y, fit
    if change == "columns negated":
        return x.assign(**{name: -x[name] for name in numbers}), y, fit
    if change == "rows permuted":
        return x, y, rng.permutation(fit)
    if change == "constant column":
        return x.assign(constant=1.0), y, fit
    return x.astype(dict.fromkeys(numbers, np.float32)), y, fit


def moves_of(path: Path) -> list[dict[str, Any]]:
    """The move of every change on one table."""
    x, target = read_table(path)
    y = target.to_numpy(float)
    fit, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=0)
    fit, test = fit[:MOST_ROWS], test[:TEST_ROWS]
    plain = ResTTRegressor(random_state=0).fit(x.iloc[fit], y[fit]).predict(x.iloc[test])
    error = float(np.sqrt(np.mean((plain - y[test]) ** 2)))
    moves = []
    for change in CHANGES:
        other_x, other_y, rows = changed(change, x, y, fit)
        predicted = ResTTRegressor(random_state=0).fit(other_x.iloc[rows], other_y[rows]).predict(other_x.iloc[test])
        slope, shift = np.polyfit(other_y, y, 1)  # back to y, which the changes leave or map to a line of it
        move = float(np.sqrt(np.mean((slope * predicted + shift - plain) ** 2))) / error
        moves.append({"table": name_of(path), "change": change, "move": move})
    return moves


def steps_of(path: Path, first: int, count: int, seed: int) -> list[dict[str, Any]]:
    """How far predictions move at each of so many steps of one row, from ``first`` rows on."""
    x, target = read_table(path)
    y = target.to_numpy(float)
    order = np.random.default_rng(seed).permutation(len(y))
    test = order[-TEST_ROWS:]

    def predicted(rows: int) -> np.ndarray:
        fit = order[:rows]
        return ResTTRegressor(random_state=0).fit(x.iloc[fit], y[fit]).predict(x.iloc[test])

    values = [predicted(first + k) for k in range(count + 1)]
    moves = [float(np.sqrt(np.mean((values[k + 1] - values[k]) ** 2)) / y.std()) for k in range(count)]
    return [{"rows": first + k, "seed": seed, "move": move} for k, move in enumerate(moves)]


def run(task: tuple[Any, ...]) -> Any:
    """One task in a worker."""
    return moves_of(*task) if len(task) == 1 else steps_of(*task)


def stretches(rows: Sequence[int]) -> list[tuple[int, int]]:
    """The first of every stretch of consecutive numbers, and how many they are: neighbours share a fit.

    >>> stretches([30, 329, 330])
    [(30, 1), (329, 2)]
    """
    found: list[tuple[int, int]] = []
    for n in sorted(set(rows)):
        if found and n == sum(found[-1]):
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((n, 1))
    return found


def ratios(steps: pd.DataFrame) -> dict[int, float]:
    """The mean move of each number of rows over the median of the eight nearest ones."""
    moves = steps.groupby("rows")["move"].mean()
    found = {}
    for k, rows in enumerate(moves.index):
        near = np.delete(np.arange(len(moves)), k)
        near = near[np.argsort(np.abs(near - k), kind="stable")[:8]]
        found[int(rows)] = float(moves.iloc[k] / moves.iloc[near].median())
    return found


def main() -> None:
    reader = parser(__doc__, "folder", workers=2)
    reader.add_argument("--rows", type=int, nargs="+", default=ROWS)
    reader.add_argument("--parts", nargs="+", choices=["steps", "invariance"], default=["steps", "invariance"])
    reader.add_argument("--seeds", type=int, default=SEEDS, help="samples of each number of rows")
    given = reader.parse_args()
    table = given.folder / f"{CONTINUITY_TABLE}.csv.gz"
    tasks: list[tuple[Any, ...]] = [
        (table, *stretch, seed)
        for stretch in reversed(stretches(given.rows))  # the longest first
        for seed in range(given.seeds)
    ]
    made = {"steps": tasks, "invariance": [(path,) for path in table_paths(given.folder)]}
    for part in given.parts:
        found = [one for results in spread(run, made[part], given.workers) for one in results]
        # Written after each part, beside what another run left of the other one.
        stored = RESULTS / NAME
        content: dict[str, Any] = json.loads(stored.read_text()) if stored.exists() else {}
        content |= {"title": "Moves of predictions under changes that should not matter", part: found}
        content.setdefault("versions", {})[part] = __version__
        if part == "steps":
            content["one_row_more"] = ratios(pd.DataFrame(found))
            content["largest_ratio"] = max(content["one_row_more"].values())
            print("largest ratio", content["largest_ratio"], flush=True)
        else:
            content["largest_move"] = max(entry["move"] for entry in found)
            print("largest move", content["largest_move"], flush=True)
        write_results(NAME, content, f"check_continuity.py FOLDER --seeds {given.seeds}")


if __name__ == "__main__":
    main()
