"""What a search over settings costs: ResTTSearchCV beside scikit-learn's GridSearchCV on two processes.

24 candidates on 5 folds of Boston (of diabetes where there is no Boston), ResTTNetRegressor's defaults otherwise, the
best candidate fitted to all rows; on a GPU both searches use it. Processes are started and kernels compiled before:
by the whole search where fits are side by side, since kernels depend on how many there are, else by a few fits.
"""

from __future__ import annotations

import gc
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV, KFold

from restt import data
from restt.estimators import ResTTNetRegressor, ResTTSearchCV
from restt_bench.case import Settings
from restt_bench.targets import Target

if TYPE_CHECKING:
    from rich.console import Console

FOLDS = 5
GRID = {"lr": [0.02, 0.05, 0.1], "penalty": [0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.3]}
QUICK_GRID = {"lr": [0.02, 0.05], "penalty": [0.02, 0.1]}
JOBS = 2
# How many times faster it should be, on two cores and on a GPU.
WANTED = {"cpu": 2.0, "cuda": 20.0}
# By how much a score may differ from that of the same fit alone: float64 on a CPU, float32 on a GPU.
TOLERANCE = {"cpu": 1e-8, "cuda": 1e-2}


def table(quick: bool) -> tuple[str, np.ndarray, np.ndarray]:
    """Name, columns (B, C) and values (B,)."""
    if not quick:
        try:
            found = data.load("boston")
            return "boston", found.x.double().numpy(), found.y.double().numpy()
        except OSError:
            pass
    x, y = load_diabetes(return_X_y=True)
    return "diabetes", x[:60] if quick else x, y[:60] if quick else y


def search(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Seconds of both searches, and by how much their scores differ."""
    name, x, y = table(settings.quick)
    kind = device.partition(":")[0]
    model = ResTTNetRegressor(device=device, random_state=settings.seed)
    if settings.quick:
        model.set_params(bond_dim=2, epochs=40)
    grid, jobs = (QUICK_GRID, 1) if settings.quick else (GRID, JOBS)
    folds = KFold(FOLDS, shuffle=True, random_state=settings.seed)
    rows, found = [], {}
    for label, tool in (("ResTTSearchCV", ResTTSearchCV), ("GridSearchCV", partial(GridSearchCV, n_jobs=jobs))):
        first = grid if tool is ResTTSearchCV and kind == "cuda" else {"lr": [0.02, 0.05]}
        tool(model, first, cv=folds).fit(x, y)
        gc.collect()  # what was left by all that came before is nothing that this search costs
        began = time.perf_counter()
        found[label] = made = tool(model, grid, cv=folds).fit(x, y)
        row = {"search": label, "seconds": round(time.perf_counter() - began, 3), "best": made.best_params_}
        rows.append(row | {"refit_seconds": round(made.refit_time_, 3), "best_score": float(made.best_score_)})
        console.print(row)
    ours, wanted = found["ResTTSearchCV"], found["GridSearchCV"]
    parts = [f"split{fold}_test_score" for fold in range(FOLDS)]
    gap = max(float(np.abs(ours.cv_results_[part] - wanted.cv_results_[part]).max()) for part in parts)
    ratio = rows[1]["seconds"] / rows[0]["seconds"]
    console.print(f"{name}: {ratio:.1f} times as fast, scores differ by at most {gap:.1e}")
    return {
        "title": "Search over settings: side by side, and one by one on two processes",
        "table": name,
        "shape": list(x.shape),
        "folds": FOLDS,
        "grid": grid,
        "jobs": jobs,
        "searches": rows,
        "times_as_fast": round(ratio, 2),
        "largest_difference": gap,
        "same_best": ours.best_params_ == wanted.best_params_,
        "targets": [
            Target(f"{name}, beside GridSearchCV(n_jobs={jobs})", "at least", WANTED[kind], "×", ratio).as_dict(),
            Target("difference of a score", "at most", TOLERANCE[kind], "", gap).as_dict(),
        ],
    }
