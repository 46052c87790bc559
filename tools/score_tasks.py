"""Score one train for several tasks beside one model a task, with few rows of each.

    python tools/score_tasks.py FOLDER

Tables of FOLDER with a column of groups, each group a task: abalone by sex, auto-mpg by origin; and the three outputs
of scikit-learn's linnerud. Random draws of so many rows a task, scored on all others of the task: mean squared error
over the variance of y in the task, averaged over tasks and draws. Written to results/tabular/tasks.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import be_quiet, parser, write_results
from sklearn.datasets import load_linnerud

from restt import ResTTRegressor, tasks

GROUPS = {"abalone": ("c0", (15, 30)), "auto-mpg": ("c7", (15, 30))}
Tables = dict[str, tuple[pd.DataFrame, np.ndarray]]


def model(effort: str) -> ResTTRegressor:
    return ResTTRegressor(effort=effort, handle_unknown="error", random_state=0)


def grouped(path: Path, column: str) -> Tables:
    """The groups of a table, each with its rows."""
    frame = pd.read_csv(path, dtype={column: str})
    return {
        name: (part.drop(columns=[column, "target"]).reset_index(drop=True), part["target"].to_numpy(float))
        for name, part in frame.groupby(column)
    }


def linnerud() -> Tables:
    """Three outputs as tasks, each relative to its own mean and size."""
    x, y = load_linnerud(return_X_y=True, as_frame=True)
    return {name: (x, ((y[name] - y[name].mean()) / y[name].std()).to_numpy()) for name in y}


def errors(tables: Tables, rows: int, draw: int, effort: str) -> tuple[float, float]:
    """Errors of the joint model and of one model a task."""
    rng = np.random.default_rng(draw)
    fit, test = {}, {}
    for name, (x, y) in tables.items():
        order = rng.permutation(len(y))
        fit[name], test[name] = ((x.iloc[part], y[part]) for part in (order[:rows], order[rows:]))
    joint = model(effort).fit(*tasks.join(fit))
    together = [np.mean((joint.predict(tasks.as_task(x, n)) - y) ** 2) / np.var(y) for n, (x, y) in test.items()]
    alone = [np.mean((model(effort).fit(*fit[n]).predict(x) - y) ** 2) / np.var(y) for n, (x, y) in test.items()]
    return float(np.mean(together)), float(np.mean(alone))


def main() -> None:
    reader = parser(__doc__, "folder")
    reader.add_argument("--draws", type=int, default=10)
    reader.add_argument("--effort", default="quick")
    given = reader.parse_args()
    be_quiet()
    problems = [
        (name, grouped(given.folder / f"{name}.csv.gz", column), rows)
        for name, (column, counts) in GROUPS.items()
        for rows in counts
    ]
    results: list[dict[str, Any]] = []
    for name, tables, rows in [*problems, ("linnerud", linnerud(), 14)]:
        pairs = np.array([errors(tables, rows, draw, given.effort) for draw in range(given.draws)])
        together, alone = pairs.mean(axis=0).tolist()
        wins = int((pairs[:, 0] < pairs[:, 1]).sum())
        results.append({"table": name, "rows_per_task": rows, "joint": together, "alone": alone, "wins": wins})
        print(results[-1], flush=True)
    content = {"title": "Squared error over variance: one train for all tasks, one a task", "results": results}
    command = f"score_tasks.py FOLDER --draws {given.draws} --effort {given.effort}"
    write_results("tabular/tasks.json", content, command, seed=list(range(given.draws)))


if __name__ == "__main__":
    main()
