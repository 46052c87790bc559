"""Error against fit time: every model at its defaults on the regressions of a folder, one thread each.

    python tools/plot_error_time.py FOLDER [--models restt,LightGBM] [--rows 1000]

FOLDER as in tools/score_tables.py. One split 70/30 of every table, the first 1,000 rows of its larger part to fit.
Time is the processor time of `fit` alone, so that other work on the machine counts little. Models that are not
installed are left out. Written to results/tabular/error-time.json, models of an earlier call kept, and drawn as
docs/images/error-time.png.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import ROOT, name_of, parser, read_table, table_paths, write_results
from score_others import _numbers, _of_scaled_y, _Process
from score_tables import MOST_TEST_ROWS
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from restt import ResTTRegressor

RECORD, PICTURE = ROOT / "results/tabular/error-time.json", ROOT / "docs/images/error-time.png"
PACKAGES = {"lightgbm": "lightgbm", "catboost": "catboost", "interpret": "interpret-core", "sklearn": "scikit-learn"}


def models(words: list[str]) -> dict[str, Callable[[], Any]]:
    """Every installed model by name, for a table with these columns of categories."""
    makers: dict[str, Callable[[], Any]] = {
        f"restt {effort}": lambda effort=effort: ResTTRegressor(effort=effort, device="cpu", random_state=0)
        for effort in ("quick", "auto", "best")
    }
    makers["random forest"] = lambda: make_pipeline(_numbers(), RandomForestRegressor(200, random_state=0))
    makers["boosting"] = lambda: HistGradientBoostingRegressor(categorical_features=words or None, random_state=0)
    makers["Gaussian process"] = lambda: _of_scaled_y(make_pipeline(_numbers(), _Process()))
    if find_spec("lightgbm"):
        from lightgbm import LGBMRegressor

        makers["LightGBM"] = lambda: LGBMRegressor(n_jobs=1, verbose=-1, random_state=0)
    if find_spec("catboost"):
        from catboost import CatBoostRegressor

        makers["CatBoost"] = lambda: CatBoostRegressor(
            cat_features=words, thread_count=1, verbose=0, random_seed=0, allow_writing_files=False
        )
    if find_spec("interpret"):
        from interpret.glassbox import ExplainableBoostingRegressor

        makers["EBM"] = lambda: ExplainableBoostingRegressor(n_jobs=1, random_state=0)
    return makers


def scores(folder: Path, chosen: list[str], rows: int) -> dict[str, list[dict[str, Any]]]:
    """R² and seconds of each chosen model, table by table."""
    results: dict[str, list[dict[str, Any]]] = {}
    for path in table_paths(folder):
        x, target = read_table(path)
        y = target.to_numpy(float)
        words = [name for name in x.columns if not pd.api.types.is_numeric_dtype(x[name])]
        numbers = x.drop(columns=words).astype(float)
        x = pd.concat([numbers, x[words].astype(object)], axis=1)
        fit, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=0)
        fit, test = fit[:rows], test[:MOST_TEST_ROWS]
        for name, make in models(words).items():
            if not any(name.startswith(wanted) for wanted in chosen):
                continue
            table = x.astype(dict.fromkeys(words, "category")) if name in ("boosting", "LightGBM") else x
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                began = time.process_time()
                model = make().fit(table.iloc[fit], y[fit])
                seconds = time.process_time() - began
                r2 = float(r2_score(y[test], model.predict(table.iloc[test])))
            results.setdefault(name, []).append({"table": name_of(path), "r2": r2, "seconds": seconds})
            print(f"{name_of(path)} {name}: R² {r2:.3f}, {seconds:.2f} s", flush=True)
    return results


def draw(results: dict[str, list[dict[str, Any]]]) -> None:
    """The mean of 1 − R² against the mean seconds of a fit."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
    for name, rows in results.items():
        seconds, error = np.mean([row["seconds"] for row in rows]), np.mean([1 - row["r2"] for row in rows])
        own = name.startswith("restt")
        axes.scatter(seconds, error, color="#c2410c" if own else "#64748b", s=36 if own else 22, zorder=3)
        axes.annotate(name, (seconds, error), xytext=(5, 4), textcoords="offset points", fontsize=8)
    axes.set(xscale="log", xlabel="seconds of a fit, one thread, mean", ylabel="1 − R², mean")
    axes.margins(0.14)
    axes.grid(alpha=0.3)
    figure.savefig(PICTURE, dpi=150)


def main() -> None:
    reader = parser(__doc__, "folder")
    reader.add_argument("--models", default="", help="only names that begin so, with commas between")
    reader.add_argument("--rows", type=int, default=1000, help="most rows to fit")
    given = reader.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    earlier = json.loads(RECORD.read_text()) if RECORD.exists() else {"results": {}, "versions": {}}
    installed = {name: version(name) for module, name in PACKAGES.items() if find_spec(module)}
    content = {
        "title": f"Error against processor time of a fit, at most {given.rows} rows, one thread",
        "results": earlier["results"] | scores(given.folder, given.models.split(","), given.rows),
        "versions": earlier["versions"] | installed,
    }
    write_results("tabular/error-time.json", content, f"plot_error_time.py FOLDER --rows {given.rows}")
    draw(content["results"])


if __name__ == "__main__":
    main()
