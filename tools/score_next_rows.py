"""Labels that next_rows needs to reach the error of 200 random ones, on tables of numbers to predict.

    python tools/score_next_rows.py FOLDER --workers 16

Every table of FOLDER (``*.csv.gz``, with a column ``target`` of more than ten different numbers and at least 300 rows):
ten starts of 20 random labels, then ten labels at a time by :func:`restt.design.next_rows` out of at most 1,500 rows,
the model fitted anew after each batch. Errors are root mean squares on held-out rows, averaged over the starts; beside
them those of as many random labels. ``labels`` is where the averaged curve first reaches the error of 200 random
labels, linear between two batches, None where it does not within 200. Written to results/few-labels.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from common import name_of, parser, read_table, spread, table_paths, write_results

from restt import ResTTRegressor
from restt.design import next_rows

FIRST, LAST, MOST_CANDIDATES, MOST_TEST_ROWS, LEAST_ROWS = 20, 200, 1500, 3000, 300


def scored(task: tuple[Path, int, int, str]) -> dict[str, Any]:
    """Both curves of one start."""
    path, start, step, effort = task
    x, target = read_table(path)
    y = target.to_numpy(float)
    order = np.random.default_rng(start).permutation(len(y))
    test, pool = np.split(order, [min(MOST_TEST_ROWS, round(0.3 * len(y)))])
    pool = pool[:MOST_CANDIDATES]

    def fitted(rows: np.ndarray) -> tuple[ResTTRegressor, float]:
        model = ResTTRegressor(effort=effort, random_state=0).fit(x.iloc[rows], y[rows])
        return model, float(np.sqrt(np.mean((model.predict(x.iloc[test]) - y[test]) ** 2)))

    counts = list(range(FIRST, LAST + 1, step))
    by_chance = [fitted(pool[:count])[1] for count in counts]
    labelled, chosen = pool[:FIRST], []
    for count in counts:
        model, error = fitted(labelled)
        chosen.append(error)
        if count < LAST:
            rest = np.setdiff1d(pool, labelled)
            labelled = np.concatenate([labelled, rest[next_rows(model, x.iloc[rest], step)]])
    return {"table": name_of(path), "start": start, "labels": counts, "random": by_chance, "chosen": chosen}


def needed(counts: list[int], errors: np.ndarray, wanted: float) -> float | None:
    """Place at which the curve first reaches the error, linear between two of its points."""
    for k, error in enumerate(errors):
        if error <= wanted:
            share = 0.0 if k == 0 else (errors[k - 1] - wanted) / (errors[k - 1] - error)
            return float(counts[0] if k == 0 else counts[k - 1] + share * (counts[k] - counts[k - 1]))
    return None


def main() -> None:
    reader = parser(__doc__, "folder", workers=2)
    reader.add_argument("--starts", type=int, default=10)
    reader.add_argument("--step", type=int, default=10)
    reader.add_argument("--effort", default="auto")
    reader.add_argument("--tables", default="", help="only these, with commas between")
    given = reader.parse_args()
    paths = [path for path in table_paths(given.folder, only=given.tables) if len(read_table(path)[1]) >= LEAST_ROWS]
    tasks = [(path, start, given.step, given.effort) for path in paths for start in range(given.starts)]
    results = list(spread(scored, tasks, given.workers))
    tables: dict[str, Any] = {}
    for name in dict.fromkeys(start["table"] for start in results):
        own = [start for start in results if start["table"] == name]
        by_chance, chosen = (np.mean([start[kind] for start in own], axis=0) for kind in ("random", "chosen"))
        counts, wanted = own[0]["labels"], float(by_chance[-1])
        tables[name] = {
            "labels": needed(counts, chosen, wanted),
            "labels_random": needed(counts, by_chance, wanted),
            "error_of_200_random": wanted,
            "counts": counts, "random": by_chance.tolist(), "chosen": chosen.tolist(),
        }  # fmt: skip
        print(name, tables[name]["labels"], (chosen / wanted).round(3).tolist(), flush=True)
    content = {"title": "Labels needed for the error of 200 random ones", "tables": tables}
    command = f"score_next_rows.py FOLDER --starts {given.starts} --step {given.step} --effort {given.effort}"
    write_results("few-labels.json", content, command, seed=list(range(given.starts)))


if __name__ == "__main__":
    main()
