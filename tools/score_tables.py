"""Scores the default regressor on CSV tables: R², coverage of 90 % intervals and seconds, split by split.

    python tools/score_tables.py FOLDER --workers 2
    python tools/score_tables.py FOLDER --tables california-housing,kin40k --rows 100000 --record long-regressions

Every table of FOLDER (``*.csv.gz``, with a column ``target`` of more than ten different numbers):
two random splits 70/30, at most 2,000 rows to fit, at most 5,000 to score. CatBoost at its defaults, where it is
installed, beside it. Written to results/tabular/regressions.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings
from importlib.metadata import version
from importlib.util import find_spec
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

RESULTS = Path(__file__).resolve().parent.parent / "results" / "tabular"
SPLITS, MOST_TEST_ROWS, LEAST_VALUES = 2, 5000, 10


def scored(task: tuple[Path, int, int, int]) -> dict[str, Any]:
    """One split of one table."""
    warnings.simplefilter("ignore")
    path, split, rows, threads = task
    torch.set_num_threads(threads)
    frame = pd.read_csv(path)
    x, y = frame.drop(columns="target"), frame["target"].to_numpy(float)
    fit, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=split)
    fit, test = np.random.default_rng(split).permutation(fit)[:rows], test[:MOST_TEST_ROWS]
    began = time.perf_counter()
    model = ResTTRegressor(random_state=0).fit(x.iloc[fit], y[fit])
    seconds = time.perf_counter() - began
    low, high = model.predict_interval(x.iloc[test]).T
    return {
        "table": path.name.split(".")[0], "split": split, "rows": len(fit), "columns": x.shape[1],
        "r2": float(r2_score(y[test], model.predict(x.iloc[test]))),
        "coverage": float(np.mean((y[test] >= low) & (y[test] <= high))), "seconds": seconds,
        "report": dict(model.fit_report_), **catboost(x.iloc[fit], y[fit], x.iloc[test], y[test], threads),
    }  # fmt: skip


def catboost(x: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, wanted: np.ndarray, threads: int) -> dict[str, Any]:
    """CatBoost's R² and seconds, nothing where it is not installed."""
    if find_spec("catboost") is None:
        return {}
    from catboost import CatBoostRegressor

    words = [name for name in x.columns if not pd.api.types.is_numeric_dtype(x[name])]
    began = time.perf_counter()
    model = CatBoostRegressor(cat_features=words, verbose=0, thread_count=threads, random_seed=0)
    model.fit(x, y)
    seconds = time.perf_counter() - began
    return {
        "catboost_r2": float(r2_score(wanted, model.predict(new))),
        "catboost_seconds": seconds,
        "catboost_version": version("catboost"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--rows", type=int, default=2000, help="most rows to fit")
    parser.add_argument("--tables", default="", help="only these, with commas between")
    parser.add_argument("--record", default="regressions", help="name of the results file")
    given = parser.parse_args()
    only = set(filter(None, given.tables.split(",")))
    paths = []
    for path in sorted(given.folder.glob("*.csv.gz")):
        if only and path.name.split(".")[0] not in only:
            continue
        target = pd.read_csv(path)["target"]
        if pd.api.types.is_numeric_dtype(target) and target.nunique() > LEAST_VALUES:
            paths.append(path)
    tasks = [(path, split, given.rows, given.threads) for path in paths for split in range(SPLITS)]
    results = []
    with multiprocessing.Pool(given.workers) as pool:
        for result in pool.imap(scored, tasks):
            results.append(result)
            print({name: value for name, value in result.items() if name != "report"}, flush=True)
    means = {name: float(np.mean([r[name] for r in results])) for name in ("r2", "coverage", "seconds")}
    record = {
        "title": f"Regressions at the defaults, {given.threads} thread(s) each",
        "means": means,
        "results": results,
    }
    command = f"python tools/score_tables.py FOLDER --rows {given.rows} --tables {given.tables} --record {given.record}"
    record["provenance"] = provenance(seed=0, command=command)
    write_json_atomic(RESULTS / f"{given.record}.json", record)
    print(means)


if __name__ == "__main__":
    main()
