"""What exact explanations of a tree ensemble cost, beside shap and shapiq (of the dev extra; left out where missing).

Seconds are those of the processor, all threads together, so that a busy machine measures the same.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from restt.explain import (
    from_trees,
    interaction_index,
    order_spectrum,
    shapley_values,
    sobol_indices,
    top_interactions,
)
from restt_bench.case import Settings

if TYPE_CHECKING:
    from rich.console import Console

# trees, leaves, columns, rows explained, rows of the background (marginal, joint), rows of pair indices
SIZE = (300, 31, 20, 1000, 1000, 100, 10)
QUICK_SIZE = (5, 7, 5, 20, 50, 10, 2)
SEED = 0


def problem(size: tuple[int, ...]) -> tuple[Any, np.ndarray]:
    """A fitted ensemble and rows: pairs, a triple and main effects of half of the columns."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    trees, leaves, columns = size[:3]
    x = np.random.default_rng(SEED).normal(size=(5000, columns))
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) * x[:, 3] * (x[:, 0] > 0) + x[:, columns // 2 :].sum(1) / 4
    model = HistGradientBoostingRegressor(max_iter=trees, max_leaf_nodes=leaves, early_stopping=False).fit(x, y)
    return model, x


def processor_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds on all cores together, and what the work gave."""
    begin = time.process_time()
    found = work()
    return round(time.process_time() - begin, 3), found


def explaining_trees(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Seconds of every exact explanation of one ensemble, and of shap and shapiq for theirs."""
    size = QUICK_SIZE if settings.quick else SIZE
    *_, rows, marginal, joint, paired = size
    model, x = problem(size)
    explained, background = x[:rows], x[rows : rows + marginal]
    taken, trees = processor_seconds(lambda: from_trees(model))
    seconds = {"from_trees": taken}
    gap = float(np.abs(trees.predict(explained)[:, 0] - model.predict(explained)).max())
    kinds: dict[str, Callable[[], Any]] = {
        "shapley_values": lambda: shapley_values(trees, explained, background),
        "shapley_values_joint": lambda: shapley_values(trees, explained, background[:joint], "joint"),
        "order_spectrum_to_8": lambda: order_spectrum(trees, explained, background, max_order=8),
        f"interaction_index_{paired}_rows": lambda: interaction_index(trees, explained[:paired], background),
        "sobol_indices_to_4": lambda: sobol_indices(trees, background, max_order=4),
        "top_interactions_to_4": lambda: top_interactions(trees, background, 10, 4),
    }
    found = {}
    for name, work in kinds.items():
        seconds[name], found[name] = processor_seconds(work)
        console.print(name, seconds[name])
    top = found["top_interactions_to_4"]
    names = ("trees", "leaves", "columns", "rows", "background", "joint_background")
    return {
        "title": "What exact explanations of trees cost",
        "size": dict(zip(names, size, strict=False)),
        "ensemble": repr(trees),
        "largest_gap_to_predict": gap,
        "top_interactions_complete": top.complete,
        "processor_seconds": seconds,
        "others": _others(model, explained, background[:joint], found["shapley_values_joint"][..., 0], console),
        "targets": [],
    }


def _others(model: Any, rows: np.ndarray, background: np.ndarray, exact: Any, console: Console) -> list[dict[str, Any]]:
    """Time shap on the same game, and both on theirs of one row, which weighs branches by the rows of the fit."""
    found: list[dict[str, Any]] = []
    try:
        shap = importlib.import_module("shap")
    except ImportError:
        console.print("shap is not installed: left out")
    else:
        explainer = shap.TreeExplainer(model, background, feature_perturbation="interventional")
        taken, values = processor_seconds(lambda: explainer.shap_values(rows, check_additivity=False))
        gap = float(np.abs(values - exact.numpy()).max())
        found.append({"method": "shap, interventional", "rows": len(rows), "seconds": taken, "largest_gap": gap})
        explainer = shap.TreeExplainer(model)
        taken, _ = processor_seconds(lambda: explainer.shap_values(rows, check_additivity=False))
        found.append({"method": "shap, path-dependent", "rows": len(rows), "seconds": taken})
    try:
        shapiq = importlib.import_module("shapiq")
        explainer = shapiq.TreeExplainer(model, max_order=2, index="SII")
    except (ImportError, TypeError, NotImplementedError, AttributeError) as error:
        console.print(f"shapiq is left out: {error}")
    else:
        taken, _ = processor_seconds(lambda: explainer.explain(rows[0]))
        found.append({"method": "shapiq, path-dependent pairs", "rows": 1, "seconds": taken})
    for row in found:
        console.print(row)
    return found
