"""What a prediction costs: one row at a time and many at once, by the estimator and by what it exports.

The table has numbers alone, so that the three are given the same array. onnxruntime (`pip install restt[export]`; left
out where missing) has as many threads as torch.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from restt.estimators import ResTTNetRegressor, ResTTRegressor
from restt_bench.case import Settings
from restt_bench.targets import SERVED_ROW_MS, Target
from restt_bench.timing import measure

if TYPE_CHECKING:
    from rich.console import Console

Way = Callable[[np.ndarray], np.ndarray]
# columns, bond, rows of the fit, rows at once
SIZE = (20, 20, 400, 10_000)
QUICK_SIZE = (4, 4, 60, 100)
MAKERS: dict[str, Any] = {"closed form": ResTTRegressor, "trained": partial(ResTTNetRegressor, epochs=5)}
ONE_ROW_ROUNDS = 5  # times as many as of the others, since one call is over at once


def fitted(kind: str, size: tuple[int, ...], seed: int) -> tuple[ResTTRegressor | ResTTNetRegressor, np.ndarray]:
    """A model of that many columns and that bond, and the rows to serve."""
    columns, bond, rows, served = size
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns))
    y = np.sin(x[:, 0]) * x[:, 1] + x[:, 2:].sum(axis=1)
    model = MAKERS[kind](bond_dim=bond, random_state=seed, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # how well it fits is not the question
        model.fit(x, y)
    return model, rng.normal(size=(served, columns))


def ways(model: ResTTRegressor | ResTTNetRegressor, folder: Path, console: Console) -> dict[str, Way]:
    """Each way from an array to predictions."""
    program = torch.export.load(model.export(folder / "model.pt2")).module()
    found: dict[str, Way] = {
        "predict": lambda x: np.asarray(model.predict(x)),
        "torch.export": lambda x: np.asarray(program(torch.from_numpy(x))),
    }
    try:
        import onnx  # noqa: F401
        import onnxruntime
    except ImportError:
        console.print("onnx or onnxruntime is not installed: left out")
        return found
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    path = model.export(folder / "model.onnx")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    found["onnxruntime"] = lambda x: np.asarray(session.run(None, {"x": x})[0])
    return found


def served_rows(kind: str, size: tuple[int, ...], settings: Settings, console: Console) -> list[dict[str, Any]]:
    """Milliseconds of one row and of many by every way, and how far each is from ``predict``."""
    model, x = fitted(kind, size, settings.seed)
    one = x[:1].copy()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        tried = ways(model, Path(folder), console)
        expected = tried["predict"](x)
        scale = np.abs(expected).max()
        gaps = {name: float(np.abs(way(x) - expected).max() / scale) for name, way in tried.items()}
        rounds, budget = settings.rounds, settings.budget
        alone = measure(
            {name: lambda way=way: way(one) for name, way in tried.items()},  # type: ignore[misc]
            rounds=ONE_ROW_ROUNDS * rounds,
            budget=budget,
        )
        together = measure(
            {name: lambda way=way: way(x) for name, way in tried.items()},  # type: ignore[misc]
            rounds=rounds,
            budget=budget,
        )
    return [
        {
            "kind": kind,
            "way": name,
            "columns": size[0],
            "bond": model.module_.bond_dim,
            "width": model.module_.feature_dim,
            "one_row_milliseconds": alone[name].as_milliseconds(),
            "rows": len(x),
            "rows_milliseconds": together[name].as_milliseconds(),
            "rows_per_second": round(len(x) / together[name].median),
            "relative_gap": gaps[name],
        }
        for name in tried
    ]


def serving(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """One row and many through the estimator, onnxruntime and a torch program, always on the CPU."""
    size = QUICK_SIZE if settings.quick else SIZE
    rows = []
    for kind in MAKERS:
        rows += served_rows(kind, size, settings, console)
    targets = []
    for row in rows:
        alone = row["one_row_milliseconds"]
        console.print(
            f"{row['kind']}, {row['way']}: one row {alone['median']:.3f} ms (fastest {alone['fastest']:.3f}), "
            f"{row['rows']} rows {row['rows_milliseconds']['median']:.1f} ms, {row['rows_per_second']:,} rows/s"
        )
        if row["way"] == "predict":
            what = f"predict of one row, {size[0]} columns, r = {row['bond']}, {row['kind']}"
            targets.append(Target(what, "at most", SERVED_ROW_MS, "ms", alone["median"]).as_dict())
    return {"title": "What a prediction costs", "rows": rows, "targets": targets}
