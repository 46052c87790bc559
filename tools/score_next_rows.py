"""Labels that next_rows needs to reach the error of 200 random ones, on tables of numbers to predict.

    python tools/score_next_rows.py FOLDER --workers 16

Every table of FOLDER (``*.csv.gz``, with a column ``target`` of more than ten different numbers and at least 300 rows):
ten starts of 20 random labels, then ten labels at a time by :func:`restt.design.next_rows` out of at most 1,500 rows,
the model fitted anew after each batch. Errors are root mean squares on held-out rows, averaged over the starts; beside
them those of as many random labels. ``labels`` is where the averaged curve first reaches the error of 200 random
labels, linear between two batches, None where it does not within 200. Written to results/few-labels.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from restt import ResTTRegressor
from restt._common.files import write_json_atomic
from restt._common.provenance import provenance
from restt.design import next_rows

RESULTS = Path(__file__).resolve().parent.parent / "results"
FIRST, LAST, MOST_CANDIDATES, MOST_TEST_ROWS, LEAST_VALUES, LEAST_ROWS = 20, 200, 1500, 3000, 10, 300


def read(path: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns, those of few whole numbers or text as they stand in the table's README, and the target."""
    frame = pd.read_csv(path)
    if path.name.startswith("gametes"):
        frame = frame.astype({name: str for name in frame.columns if name != "target"})
    return frame.drop(columns="target"), frame["target"].to_numpy(float)


def scored(task: tuple[Path, int, int, str]) -> dict[str, Any]:
    """Both curves of one start."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    path, start, step, effort = task
    x, y = read(path)
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
    return {"table": path.name.split(".")[0], "start": start, "labels": counts, "random": by_chance, "chosen": chosen}


def needed(counts: list[int], errors: np.ndarray, wanted: float) -> float | None:
    """Where the curve first reaches the error, linear between two of its points."""
    for k, error in enumerate(errors):
        if error <= wanted:
            share = 0.0 if k == 0 else (errors[k - 1] - wanted) / (errors[k - 1] - error)
            return float(counts[0] if k == 0 else counts[k - 1] + share * (counts[k] - counts[k - 1]))
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--step", type=int, default=10)
    parser.add_argument("--effort", default="auto")
    parser.add_argument("--tables", default="", help="only these, with commas between")
    given = parser.parse_args()
    only = set(filter(None, given.tables.split(",")))
    paths = []
    for path in sorted(given.folder.glob("*.csv.gz")):
        target = pd.read_csv(path)["target"]
        numbers = pd.api.types.is_numeric_dtype(target) and target.nunique() > LEAST_VALUES
        if numbers and len(target) >= LEAST_ROWS and (not only or path.name.split(".")[0] in only):
            paths.append(path)
    record: dict[str, Any] = {"title": "Labels needed for the error of 200 random ones", "tables": {}}
    command = (
        f"python tools/score_next_rows.py FOLDER --starts {given.starts} --step {given.step} --effort {given.effort}"
    )
    record["provenance"] = provenance(seed=list(range(given.starts)), command=command)
    tasks = [(path, start, given.step, given.effort) for path in paths for start in range(given.starts)]
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        results = pool.map(scored, tasks, chunksize=1)
    for name in dict.fromkeys(start["table"] for start in results):
        own = [start for start in results if start["table"] == name]
        by_chance, chosen = (np.mean([start[kind] for start in own], axis=0) for kind in ("random", "chosen"))
        counts, wanted = own[0]["labels"], float(by_chance[-1])
        record["tables"][name] = {
            "labels": needed(counts, chosen, wanted),
            "labels_random": needed(counts, by_chance, wanted),
            "error_of_200_random": wanted,
            "counts": counts, "random": by_chance.tolist(), "chosen": chosen.tolist(),
        }  # fmt: skip
        print(name, record["tables"][name]["labels"], (chosen / wanted).round(3).tolist(), flush=True)
    write_json_atomic(RESULTS / "few-labels.json", record)


if __name__ == "__main__":
    main()
