"""Scores the default regressor on CSV tables: R², coverage of 90 % intervals and seconds, split by split.

    python tools/score_tables.py FOLDER --workers 2

Every table of FOLDER (``*.csv.gz``, the column ``target`` last or not) whose target is a number of more than ten values:
two random splits 70/30, at most 2,000 rows to fit, at most 5,000 to score. Written to results/tabular/regressions.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

from restt import ResTTRegressor
from restt._common.files import write_json_atomic
from restt._common.provenance import provenance

RECORD = Path(__file__).resolve().parent.parent / "results" / "tabular" / "regressions.json"
SPLITS, MOST_ROWS, MOST_TEST_ROWS, LEAST_VALUES = 2, 2000, 5000, 10


def scored(task: tuple[Path, int]) -> dict[str, Any]:
    """One split of one table."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    path, split = task
    frame = pd.read_csv(path)
    x, y = frame.drop(columns="target"), frame["target"].to_numpy(float)
    fit, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=split)
    fit, test = np.random.default_rng(split).permutation(fit)[:MOST_ROWS], test[:MOST_TEST_ROWS]
    began = time.perf_counter()
    model = ResTTRegressor(random_state=0).fit(x.iloc[fit], y[fit])
    seconds = time.perf_counter() - began
    low, high = model.predict_interval(x.iloc[test]).T
    return {
        "table": path.name.split(".")[0], "split": split, "rows": len(fit), "columns": x.shape[1],
        "r2": float(r2_score(y[test], model.predict(x.iloc[test]))),
        "coverage": float(np.mean((y[test] >= low) & (y[test] <= high))), "seconds": seconds,
        "report": model.fit_report_,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    paths = []
    for path in sorted(given.folder.glob("*.csv.gz")):
        target = pd.read_csv(path)["target"]
        if pd.api.types.is_numeric_dtype(target) and target.nunique() > LEAST_VALUES:
            paths.append(path)
    results = []
    with multiprocessing.Pool(given.workers) as pool:
        for result in pool.imap(scored, [(path, split) for path in paths for split in range(SPLITS)]):
            results.append(result)
            print({name: result[name] for name in ("table", "split", "rows", "r2", "coverage", "seconds")}, flush=True)
    means = {name: float(np.mean([r[name] for r in results])) for name in ("r2", "coverage", "seconds")}
    record = {"title": "Regressions at the defaults, one thread each", "means": means, "results": results}
    record["provenance"] = provenance(seed=0, command="python tools/score_tables.py")
    write_json_atomic(RECORD, record)
    print(means)


if __name__ == "__main__":
    main()
