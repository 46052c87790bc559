"""Error against fit time: every model at its defaults on the regressions of a folder, one thread each.

    python tools/plot_error_time.py FOLDER [--models restt,LightGBM] [--rows 1000] [--tabpfn CHECKPOINT]

FOLDER as in tools/score_tables.py. One split 70/30 of every table, the first 1,000 rows of its larger part to fit.
Time is the processor time of `fit` alone, so that other work on the machine counts little. TabPFN does its work while
it predicts: its time includes the prediction of the test rows, of which it gets 1,000 at most. Models that are not
installed are left out. Each model's scores go to results/tabular/error-time.json once it is done, in place of its
earlier ones, with its versions; then all are drawn as docs/images/error-time.png. `--models none` only draws.

TabPFN v2 and CatBoost are no dependencies. In an environment of its own `pip install tabpfn==2.2.1 catboost==1.2.10`,
and for CHECKPOINT

    pip download --no-deps --no-binary :all: --no-build-isolation tabpfn-time-series==0.1.3

whose archive holds tabpfn-v2-regressor-2noar4o2.ckpt.
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
from matplotlib.transforms import Bbox
from score_others import _numbers, _of_scaled_y, _Process
from score_tables import MOST_TEST_ROWS
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from restt import ResTTRegressor
from restt._common.provenance import provenance

RECORD, PICTURE = ROOT / "results/tabular/error-time.json", ROOT / "docs/images/error-time.png"
# What is drawn, and the package that its version is of; those of scikit-learn and restt are in every provenance.
PACKAGES = {"LightGBM": "lightgbm", "CatBoost": "catboost", "EBM": "interpret-core", "TabPFN v2": "tabpfn"}
TABPFN, TABPFN_TEST_ROWS = "TabPFN v2", 1000


def models(words: list[str], tabpfn: Path | None) -> dict[str, Callable[[], Any]]:
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
    if tabpfn is not None:
        from tabpfn import TabPFNRegressor

        makers[TABPFN] = lambda: TabPFNRegressor(device="cpu", model_path=tabpfn, n_jobs=1, random_state=0)
    return makers


def scores(name: str, folder: Path, rows: int, tabpfn: Path | None) -> list[dict[str, Any]]:
    """R² and seconds of a model, table by table."""
    results = []
    for path in table_paths(folder):
        x, target = read_table(path)
        y = target.to_numpy(float)
        words = [column for column in x.columns if not pd.api.types.is_numeric_dtype(x[column])]
        numbers = x.drop(columns=words).astype(float)
        kind = "category" if name in ("boosting", "LightGBM") else object
        x = pd.concat([numbers, x[words].astype(kind)], axis=1)
        fit, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=0)
        fit, test = fit[:rows], test[: TABPFN_TEST_ROWS if name == TABPFN else MOST_TEST_ROWS]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            began = time.process_time()
            model = models(words, tabpfn)[name]().fit(x.iloc[fit], y[fit])
            fitted = time.process_time()
            predicted = model.predict(x.iloc[test])
            seconds = (time.process_time() if name == TABPFN else fitted) - began
        results.append({"table": name_of(path), "r2": float(r2_score(y[test], predicted)), "seconds": seconds})
        print(f"{name_of(path)} {name}: R² {results[-1]['r2']:.3f}, {seconds:.2f} s", flush=True)
    return results


def draw(results: dict[str, list[dict[str, Any]]]) -> None:
    """The mean of 1 − R² against the mean seconds of a fit."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    means = {
        name: (np.mean([row["seconds"] for row in rows]), np.mean([1 - row["r2"] for row in rows]))
        for name, rows in results.items()
    }
    figure, axes = pyplot.subplots(figsize=(7.2, 4), layout="constrained")
    axes.set(xscale="log", xlabel="seconds of a fit on one thread, mean of the tables", ylabel="1 − R², mean")
    axes.margins(0.14)
    axes.grid(alpha=0.3)
    own = [name for name in means if name.startswith("restt")]
    axes.plot(*zip(*(means[name] for name in own), strict=True), color="#c2410c", lw=1.2, zorder=2)
    for name, place in means.items():
        color = "#c2410c" if name in own else "#475569"
        axes.scatter(*place, color=color, s=44 if name in own else 26, zorder=3)
    figure.canvas.draw()  # sets the scales that the boxes of labels need
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in axes.transData.transform(list(means.values()))]
    for name, place in means.items():
        style = {"color": "#c2410c", "weight": "bold"} if name in own else {"color": "#334155"}
        _label(axes, name, place, taken, style)
    axes.xaxis.set_major_formatter("{x:g}")
    figure.savefig(PICTURE, dpi=150)


def _label(axes: Any, name: str, place: tuple[Any, Any], taken: list[Bbox], style: dict[str, str]) -> None:
    """Write a name beside its point, where it covers least of what is ``taken``, and take that place."""
    sides = ((1, 0.5), (1, 1), (1, -1), (-1, 0.5), (-1, 1), (-1, -1), (0, 1.6), (0, -1.6))
    tried = []
    for right, up in sides:
        text = axes.annotate(
            name, place, xytext=(7 * right, 7 * up), textcoords="offset points", fontsize=9, va="center",
            ha=("right", "center", "left")[right + 1], **style,
        )  # fmt: skip
        box = text.get_window_extent()
        shared = [Bbox.intersection(box, other) for other in taken]
        inside = Bbox.intersection(box, axes.bbox)
        outside = box.width * box.height - (inside.width * inside.height if inside else 0)
        tried.append((outside + sum(both.width * both.height for both in shared if both), len(tried), text, box))
    _, best, _, box = min(tried, key=lambda one: one[:2])
    taken.append(box)
    for _, k, text, _ in tried:
        if k != best:
            text.remove()


def main() -> None:
    reader = parser(__doc__, "folder")
    reader.add_argument("--models", default="", help="only names that begin so, with commas between")
    reader.add_argument("--rows", type=int, default=1000, help="most rows to fit")
    reader.add_argument("--tabpfn", type=Path, help="checkpoint of TabPFN v2's regressor")
    given = reader.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    command = f"plot_error_time.py FOLDER --rows {given.rows}"
    for name in models([], given.tabpfn):
        if not any(name.startswith(wanted) for wanted in given.models.split(",")):
            continue
        origin = provenance(seed=0, command=f"python tools/{command}")
        if name in PACKAGES:
            origin["versions"][PACKAGES[name]] = version(PACKAGES[name])
        rows = scores(name, given.folder, given.rows, given.tabpfn)
        content = _recorded()  # read again: another call may have added to it
        content["title"] = f"Error against processor time of a fit, at most {given.rows} rows, one thread"
        content["results"][name], content["origins"][name] = rows, origin
        write_results("tabular/error-time.json", content, command)
    draw(_recorded()["results"])


def _recorded() -> dict[str, Any]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {"results": {}, "origins": {}}


if __name__ == "__main__":
    main()
