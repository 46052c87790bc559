"""What the defaults make of long tables: seconds and score of a fit, the kernels compiled by a fit before.

900,000 rows of 20 columns (100,000 on a CPU) of which five matter, and MNIST as a table of 196 columns where its files
are there, 10,000 rows of it on a CPU.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from restt import data
from restt.estimators import ResTTClassifier, ResTTRegressor
from restt_bench.case import Settings
from restt_bench.targets import Target

if TYPE_CHECKING:
    from rich.console import Console

ROWS = {"cpu": 100_000, "cuda": 900_000}
IMAGES = {"cpu": 10_000, "cuda": 60_000}
TEST_ROWS, COLUMNS, NOISE = 20_000, 20, 0.188
QUICK_ROWS = 60
# Most seconds and least score, R² or the share of right classes; on a CPU images have none.
WANTED = {"smooth": {"cpu": (90.0, 0.964), "cuda": (8.0, 0.964)}, "mnist": {"cuda": (15.0, 0.983)}}

Part = tuple[np.ndarray, np.ndarray]  # columns (B, C) and y (B,)


def smooth_table(rows: int, seed: int = 0) -> tuple[Part, Part]:
    """Rows to fit and to test: a sum, a wave, a product and a square, of variance 1 before the noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows + TEST_ROWS, COLUMNS))
    clean = x[:, 0] + np.sin(2 * x[:, 1]) + x[:, 2] * x[:, 3] + 0.5 * x[:, 4] ** 2
    y = clean / clean.std() + NOISE * rng.standard_normal(len(x))
    return (x[:rows], y[:rows]), (x[rows:], y[rows:])


def image_table(rows: int) -> tuple[Part, Part]:
    """MNIST's pixels, averaged two by two, as columns."""
    found = data.load("mnist")
    parts = (found.x_train[:rows], found.y_train[:rows]), (found.x_test, found.y_test)
    train, test = ((x.flatten(1).numpy(), y.numpy()) for x, y in parts)
    return train, test


def long_tables(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Seconds and score of both tables."""
    kind = device.partition(":")[0]
    tables: dict[str, tuple[Any, tuple[Part, Part]]] = {
        "smooth": (ResTTRegressor, smooth_table(QUICK_ROWS if settings.quick else ROWS[kind]))
    }
    if not settings.quick:
        try:
            tables["mnist"] = ResTTClassifier, image_table(IMAGES[kind])
        except OSError as error:
            console.print(f"without MNIST: {error}")
    rows, targets = [], []
    for name, (maker, (train, test)) in tables.items():
        model = maker(device=device, random_state=settings.seed, verbose=1)
        row = _measured(name, model, train, test, warm=kind == "cuda", console=console)
        rows.append(row)
        if kind in WANTED[name] and not settings.quick:
            seconds, score = WANTED[name][kind]
            targets.append(Target(f"{name}, a default fit", "at most", seconds, "s", row["seconds"]).as_dict())
            targets.append(Target(f"{name}, score", "at least", score, "", row["score"]).as_dict())
    return {"title": "Default fits of long tables", "tables": rows, "targets": targets}


def _measured(name: str, model: Any, train: Part, test: Part, *, warm: bool, console: Console) -> dict[str, Any]:
    first = None
    if warm:
        first = _seconds(clone(model), train)
        console.print(f"{name}: {first:.1f} s with kernels to be compiled")
    made = clone(model)
    seconds = _seconds(made, train)
    score = float(made.score(*test))
    console.print(f"{name}: {seconds:.2f} s, score {score:.4f}")
    return {
        "table": name,
        "shape": list(train[0].shape),
        "seconds": round(seconds, 3),
        "first_seconds": None if first is None else round(first, 3),
        "score": score,
        "bond_dim": made.module_.bond_dim,
        "report": dict(made.fit_report_),
    }


def _seconds(model: Any, train: Part) -> float:
    began = time.perf_counter()
    model.fit(*train)
    return time.perf_counter() - began
