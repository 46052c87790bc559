"""Score the default estimators on CSV tables, split by split.

Of a regression R² and coverage of 90 % intervals, of classes log-loss and accuracy, of both the seconds of a fit.

    python tools/score_tables.py FOLDER --workers 2
    python tools/score_tables.py FOLDER --tables california-housing,kin40k --rows 100000 --record long-regressions
    python tools/score_tables.py FOLDER --task classes
    python tools/score_tables.py FOLDER --task classes --tables nursery,california-housing --rows 100000 --record long

Every table of FOLDER (``*.csv.gz``, with a column ``target``, a regression where it has more than ten different
numbers): two random splits 70/30, or the published one, at most 2,000 rows to fit, at most 5,000 to score. A regression
that is named with ``--task classes`` is above or below its median. CatBoost at its defaults, where it is installed,
beside it. Written to results/tabular/regressions.json or classes.json.
"""

from __future__ import annotations

import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import is_regression, name_of, parser, read_table, spread, table_paths, write_results
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import train_test_split

from restt import ResTTClassifier, ResTTRegressor

SPLITS, MOST_TEST_ROWS = 2, 5000
# Rows to fit, the first ones, of tables with a published split.
PUBLISHED = {"monks-1": 124, "monks-2": 169, "monks-3": 122, "spect": 80}


def scored(task: tuple[str, Path, int, int, int]) -> dict[str, Any]:
    """One split of one table."""
    kind, path, split, rows, threads = task
    torch.set_num_threads(threads)
    (x, y), name = read_table(path), name_of(path)
    if kind == "classes":
        y = y > y.median() if is_regression(y) else y
    y = y.to_numpy()
    if name in PUBLISHED:
        fit, test = np.split(np.arange(len(y)), [PUBLISHED[name]])
    else:
        fit, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=split)
    fit, test = np.random.default_rng(split).permutation(fit)[:rows], test[:MOST_TEST_ROWS]
    given = x.iloc[fit], y[fit], x.iloc[test], y[test]
    score = classes_scored if kind == "classes" else regression_scored
    return {
        "table": name, "split": split, "rows": len(fit), "columns": x.shape[1],
        **score(*given), **catboost(kind, *given, threads),
    }  # fmt: skip


def regression_scored(x: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, wanted: np.ndarray) -> dict[str, Any]:
    began = time.perf_counter()
    model = ResTTRegressor(random_state=0).fit(x, y)
    seconds = time.perf_counter() - began
    low, high = model.predict_interval(new).T
    return {
        "r2": float(r2_score(wanted, model.predict(new))),
        "coverage": float(np.mean((wanted >= low) & (wanted <= high))),
        "seconds": seconds, "report": dict(model.fit_report_),
    }  # fmt: skip


def classes_scored(x: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, wanted: np.ndarray) -> dict[str, Any]:
    began = time.perf_counter()
    model = ResTTClassifier(random_state=0).fit(x, y)
    seconds = time.perf_counter() - began
    shares = np.mean(y[:, None] == model.classes_, axis=0)
    probabilities = model.predict_proba(new)
    return {
        "log_loss": float(log_loss(wanted, probabilities, labels=model.classes_)),
        "accuracy": float(np.mean(model.classes_[probabilities.argmax(axis=1)] == wanted)),
        "shares_log_loss": float(log_loss(wanted, np.tile(shares, (len(wanted), 1)), labels=model.classes_)),
        "seconds": seconds, "report": dict(model.fit_report_),
    }  # fmt: skip


def catboost(
    kind: str, x: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, wanted: np.ndarray, threads: int
) -> dict[str, Any]:
    """CatBoost's score and seconds, nothing where it is not installed."""
    if find_spec("catboost") is None:
        return {}
    from catboost import CatBoostClassifier, CatBoostRegressor

    words = [name for name in x.columns if not pd.api.types.is_numeric_dtype(x[name])]
    began = time.perf_counter()
    estimator = CatBoostClassifier if kind == "classes" else CatBoostRegressor
    model = estimator(cat_features=words, verbose=0, thread_count=threads, random_seed=0)
    model.fit(x, y)
    score = {"catboost_seconds": time.perf_counter() - began, "catboost_version": version("catboost")}
    if kind == "classes":
        # Of booleans its classes are text.
        loss = log_loss(wanted.astype(str), model.predict_proba(new), labels=[str(label) for label in model.classes_])
        return score | {"catboost_log_loss": float(loss)}
    return score | {"catboost_r2": float(r2_score(wanted, model.predict(new)))}


def main() -> None:
    reader = parser(__doc__, "folder", workers=2)
    reader.add_argument("--task", choices=("regressions", "classes"), default="regressions")
    reader.add_argument("--threads", type=int, default=1, help="of each worker")
    reader.add_argument("--rows", type=int, default=2000, help="most rows to fit")
    reader.add_argument("--tables", default="", help="only these, with commas between")
    reader.add_argument("--record", help="name of the results file, by default the task")
    given = reader.parse_args()
    record = given.record or given.task
    paths = table_paths(given.folder, regressions=given.task == "regressions", only=given.tables)
    tasks = [
        (given.task, path, split, given.rows, given.threads)
        for path in paths
        for split in range(1 if name_of(path) in PUBLISHED else SPLITS)
    ]
    results = []
    for result in spread(scored, tasks, given.workers):
        results.append(result)
        print({name: value for name, value in result.items() if name != "report"}, flush=True)
    measures = ("r2", "coverage", "seconds") if given.task == "regressions" else ("log_loss", "accuracy", "seconds")
    # A table counts once, however many splits it has.
    tables = pd.DataFrame(results).groupby("table")[list(measures)].mean()
    content = {
        "title": f"{given.task.capitalize()} at the defaults, {given.threads} thread(s) each",
        "means": {name: float(tables[name].mean()) for name in measures},
        "tables": tables.round(6).to_dict("index"),
        "results": results,
    }
    chosen = f" --tables {given.tables}" if given.tables else ""
    options = f"--task {given.task} --rows {given.rows}{chosen} --record {record}"
    write_results(f"tabular/{record}.json", content, f"score_tables.py FOLDER {options}")
    print(content["means"])


if __name__ == "__main__":
    main()
