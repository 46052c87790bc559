"""Scores the default estimators on CSV tables, split by split: R² and coverage of 90 % intervals, or log-loss and
accuracy, and seconds.

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
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import train_test_split

from restt import ResTTClassifier, ResTTRegressor
from restt._common.files import write_json_atomic
from restt._common.provenance import provenance

RESULTS = Path(__file__).resolve().parent.parent / "results" / "tabular"
SPLITS, MOST_TEST_ROWS, LEAST_VALUES = 2, 5000, 10
# Tables whose columns are all categories, and how many of the first rows are to be fitted by the published split.
CATEGORIES = ("car", "gametes", "gametes-continuous", "monks-1", "monks-2", "monks-3", "nursery", "tic-tac-toe")
PUBLISHED = {"monks-1": 124, "monks-2": 169, "monks-3": 122, "spect": 80}


def read(path: Path) -> pd.DataFrame:
    """A table, with categories as text."""
    frame = pd.read_csv(path)
    if name_of(path) in CATEGORIES:
        frame = frame.astype({column: str for column in frame.columns if column != "target"})
    return frame


def name_of(path: Path) -> str:
    return path.name.split(".")[0]


def is_regression(target: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(target) and target.nunique() > LEAST_VALUES)


def scored(task: tuple[str, Path, int, int, int]) -> dict[str, Any]:
    """One split of one table."""
    warnings.simplefilter("ignore")
    kind, path, split, rows, threads = task
    torch.set_num_threads(threads)
    frame, name = read(path), name_of(path)
    x, y = frame.drop(columns="target"), frame["target"]
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
    made = CatBoostClassifier if kind == "classes" else CatBoostRegressor
    model = made(cat_features=words, verbose=0, thread_count=threads, random_seed=0)
    model.fit(x, y)
    found = {"catboost_seconds": time.perf_counter() - began, "catboost_version": version("catboost")}
    if kind == "classes":
        # Of booleans its classes are text.
        loss = log_loss(wanted.astype(str), model.predict_proba(new), labels=[str(each) for each in model.classes_])
        return found | {"catboost_log_loss": float(loss)}
    return found | {"catboost_r2": float(r2_score(wanted, model.predict(new)))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", choices=("regressions", "classes"), default="regressions")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--rows", type=int, default=2000, help="most rows to fit")
    parser.add_argument("--tables", default="", help="only these, with commas between")
    parser.add_argument("--record", help="name of the results file, by default the task")
    given = parser.parse_args()
    record_name = given.record or given.task
    only = set(filter(None, given.tables.split(",")))
    tasks = []
    for path in sorted(given.folder.glob("*.csv.gz")):
        if only and name_of(path) not in only:
            continue
        if is_regression(pd.read_csv(path)["target"]) == (given.task == "regressions") or (
            only and given.task == "classes"
        ):
            splits = 1 if name_of(path) in PUBLISHED else SPLITS
            tasks += [(given.task, path, split, given.rows, given.threads) for split in range(splits)]
    results = []
    with multiprocessing.Pool(given.workers) as pool:
        for result in pool.imap(scored, tasks):
            results.append(result)
            print({name: value for name, value in result.items() if name != "report"}, flush=True)
    measures = ("r2", "coverage", "seconds") if given.task == "regressions" else ("log_loss", "accuracy", "seconds")
    # A table counts once, however many splits it has.
    tables = pd.DataFrame(results).groupby("table")[list(measures)].mean()
    means = {name: float(tables[name].mean()) for name in measures}
    record = {
        "title": f"{given.task.capitalize()} at the defaults, {given.threads} thread(s) each",
        "means": means,
        "tables": tables.round(6).to_dict("index"),
        "results": results,
    }
    chosen = f" --tables {given.tables}" if given.tables else ""
    command = (
        f"python tools/score_tables.py FOLDER --task {given.task} --rows {given.rows}{chosen} --record {record_name}"
    )
    record["provenance"] = provenance(seed=0, command=command)
    write_json_atomic(RESULTS / f"{record_name}.json", record)
    print(means)


if __name__ == "__main__":
    main()
