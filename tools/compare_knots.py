"""Compare numbers of knots of the closed-form regressor on tables of many rows, by rows held out of the fit's.

    python tools/compare_knots.py FOLDER --workers 16 --device cuda

Of the fit's rows of a 70/30 split (at most 14,000), four fifths are fitted and the rest is scored. Written to
results/tabular/knots.json: R², seconds, and the train of every number of knots.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import parser, read_table, spread, write_results
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

from restt import ResTTRegressor
from restt.prior import Settings

MOST_ROWS = 14_000
# Table, split, rows and the numbers of knots compared on them.
CASES = (
    ("california-housing", 0, 2000, (32, 45, 64, 128)),
    ("california-housing", 1, 2000, (32, 45, 64)),
    ("california-housing", 0, MOST_ROWS, (32, 64, 107, 128, 192, 256)),
    ("california-housing", 1, MOST_ROWS, (32, 107)),
    ("kin40k", 0, MOST_ROWS, (32, 107)),
    ("pumadyn32nm", 0, MOST_ROWS, (32, 68)),
    ("abalone", 0, MOST_ROWS, (32, 48)),
    ("airfoil", 0, 2000, (32, 64)),
    ("airfoil", 1, 2000, (32, 64)),
)


def scored(task: tuple[Path, str, int, int, int, str]) -> dict[str, Any]:
    """One number of knots on one split."""
    folder, name, split, rows, knots, device = task
    settings = replace(Settings(), fewest_knots=knots, most_knots=knots)
    Settings.of_effort = classmethod(lambda cls, effort: settings)  # type: ignore[assignment, method-assign]
    x, target = read_table(folder / f"{name}.csv.gz")
    y = target.to_numpy(float)
    fit, _ = train_test_split(np.arange(len(y)), test_size=0.3, random_state=split)
    fit = np.random.default_rng(split).permutation(fit)[:rows]
    fit, held_out = np.split(fit, [int(0.8 * len(fit))])
    began = time.perf_counter()
    model = ResTTRegressor(random_state=0, device=device).fit(x.iloc[fit], y[fit])
    seconds = time.perf_counter() - began
    return {
        "table": name, "split": split, "rows": len(fit), "knots": knots,
        "r2": float(r2_score(y[held_out], model.predict(x.iloc[held_out]))), "seconds": seconds,
        "train": model.fit_report_["train"], "bond": model.fit_report_["bond_dim"],
    }  # fmt: skip


def main() -> None:
    reader = parser(__doc__, "folder", workers=2)
    reader.add_argument("--device", default="cpu")
    given = reader.parse_args()
    tasks = [
        (given.folder, name, split, rows, knots, given.device if rows == MOST_ROWS else "cpu")
        for name, split, rows, choices in CASES
        for knots in choices
    ]
    results = list(spread(scored, tasks, given.workers))
    for one in results:
        print({key: round(value, 4) if isinstance(value, float) else value for key, value in one.items()})
    write_results("tabular/knots.json", {"title": "Numbers of knots compared", "results": results}, "compare_knots.py")


if __name__ == "__main__":
    main()
