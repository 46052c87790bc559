"""Cost of exact explanations, of modules and of tree ensembles, beside shap and shapiq.

Both are of the dev extra and left out where missing. Samplers explain one row of the same game, with twice the budget
each time until their root mean square error is below 1 % of the values' own.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Tensor

import restt
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

# Of a game's values by coalition, its sites and a budget of evaluations.
Sampler = Callable[[Callable[[Any], np.ndarray], int, int], np.ndarray]
Row = dict[str, Any]
# sites, feature width, bond, outputs, rows
SIZES = ((13, 8, 10, 1, 500), (13, 8, 20, 1, 500), (50, 4, 20, 1, 500), (196, 2, 10, 10, 100))
IMAGES = (196, 2, 50, 10, 1000)
QUICK_SIZES = ((6, 2, 4, 1, 20),)
PAIR_ROWS = 10  # pair indices cost N times as much
TARGET_ERROR, MOST_EVALUATIONS = 0.01, 2**17
# trees, leaves, columns, rows explained, rows of the background (marginal, joint), rows of pair indices
TREES, QUICK_TREES = (300, 31, 20, 1000, 1000, 100, 10), (5, 7, 5, 20, 50, 10, 2)
SEED = 0


def explain_modules(device: str, settings: Settings, console: Console) -> Row:
    """Seconds of every exact explanation by size, and on the CPU what samplers need for the same values."""
    sizes = QUICK_SIZES if settings.quick else SIZES if device == "cpu" else (*SIZES, IMAGES)
    exact = [_exact_row(size, device) for size in sizes]
    sampling = []
    if device == "cpu":
        samplers = _samplers(console)
        for size in {size[0]: size for size in sizes}.values():
            sampling += _sampling_rows(size, samplers)
    for row in (*exact, *sampling):
        console.print(row)
    return {"title": "What exact explanations cost", "exact": exact, "sampling": sampling}


def _problem(size: tuple[int, ...], device: str) -> tuple[restt.ResTT, Tensor]:
    """A module with its initial weights, which hold every order, and rows in [-1, 1]."""
    sites, width, bond, outputs, rows = size
    module = restt.ResTT(sites, width, bond, outputs, second_moment=width / 3, dtype=torch.float64, device=device)
    module.reset_parameters(seed=SEED)
    generator = torch.Generator().manual_seed(SEED)
    x = 2 * torch.rand(rows, sites, width, generator=generator, dtype=torch.float64) - 1
    return module, x.to(device)


def _exact_row(size: tuple[int, ...], device: str) -> Row:
    """Seconds of every exact explanation at one size, the faster of two runs, and how well Shapley values add up."""
    module, x = _problem(size, device)
    with torch.no_grad():
        gap = shapley_values(module, x, x).sum(1) - (module(x) - module(x.mean(0, keepdim=True)))
    kinds: dict[str, Callable[[], object]] = {
        "shapley_values": lambda: shapley_values(module, x, x),
        "order_spectrum_to_4": lambda: order_spectrum(module, x, x, max_order=4),
        "sobol_indices_to_4": lambda: sobol_indices(module, x, max_order=4),
        "top_interactions_pairs": lambda: top_interactions(module, x, 10, 2),
        f"interaction_index_{PAIR_ROWS}_rows": lambda: interaction_index(module, x[:PAIR_ROWS], x),
    }
    seconds = {}
    for name, work in kinds.items():
        spent = []
        for _ in range(2):
            begin = time.perf_counter()
            work()
            if device != "cpu":
                torch.cuda.synchronize()
            spent.append(time.perf_counter() - begin)
        seconds[name] = round(min(spent), 4)
    sizes = dict(zip(("sites", "width", "bond", "outputs", "rows"), size, strict=True))
    return {**sizes, "efficiency_gap": float(gap.abs().max()), "seconds": seconds}


def _sampling_rows(size: tuple[int, ...], samplers: dict[str, Sampler]) -> list[Row]:
    """Time of samplers for one row's first output, beside that of the exact values."""
    module, x = _problem(size, "cpu")
    means, sites = x.mean(0), size[0]

    def value(coalitions: Any) -> np.ndarray:
        chosen = torch.as_tensor(np.asarray(coalitions)).bool()[..., None]
        with torch.no_grad():
            return module(torch.where(chosen, x[0], means))[:, 0].numpy()

    begin = time.perf_counter()
    exact = shapley_values(module, x[:1], x)[0, :, 0].numpy()
    rows: list[Row] = [{"method": "exact", "error": 0.0, "seconds": time.perf_counter() - begin}]
    for name, sampler in samplers.items():
        budget, error = 2 * sites, np.inf
        while error > TARGET_ERROR and 2 * budget <= MOST_EVALUATIONS:
            budget *= 2
            begin = time.perf_counter()
            error = float(np.linalg.norm(sampler(value, sites, budget) - exact) / np.linalg.norm(exact))
            seconds = time.perf_counter() - begin
        rows.append({"method": name, "error": error, "seconds": seconds, "budget": budget})
    return [{"sites": sites, **row, "seconds": round(row["seconds"], 4)} for row in rows]


def _imported(name: str, console: Console) -> Any:
    """An optional package, or None with a line."""
    try:
        return importlib.import_module(name)
    except ImportError:
        console.print(f"{name} is not installed: left out")
        return None


def _samplers(console: Console) -> dict[str, Sampler]:
    """Samplers that are installed, by name."""
    shap, shapiq = (_imported(name, console) for name in ("shap", "shapiq"))

    def permutations(value: Callable[[Any], np.ndarray], sites: int, budget: int) -> np.ndarray:
        explainer = shap.PermutationExplainer(value, np.zeros((1, sites)), seed=SEED)
        return explainer(np.ones((1, sites)), max_evals=max(budget, 2 * sites + 1), silent=True).values[0]

    def kernel(value: Callable[[Any], np.ndarray], sites: int, budget: int) -> np.ndarray:
        sampler = shapiq.KernelSHAP(n=sites, random_state=SEED)
        values = sampler.approximate(budget=min(budget, 2**sites), game=value)
        return np.array([values[(site,)] for site in range(sites)])

    samplers = {"shap, permutations": (shap, permutations), "shapiq, KernelSHAP": (shapiq, kernel)}
    return {name: sampler for name, (package, sampler) in samplers.items() if package is not None}


def explain_trees(device: str, settings: Settings, console: Console) -> Row:
    """Processor seconds (all threads together) of every exact explanation of one ensemble, and of shap's."""
    size = QUICK_TREES if settings.quick else TREES
    trees, leaves, columns, rows, marginal, joint, paired = size
    x = np.random.default_rng(SEED).normal(size=(5000, columns))
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) * x[:, 3] * (x[:, 0] > 0) + x[:, columns // 2 :].sum(1) / 4
    model = HistGradientBoostingRegressor(max_iter=trees, max_leaf_nodes=leaves, early_stopping=False).fit(x, y)
    explained, background = x[:rows], x[rows : rows + marginal]
    begin = time.process_time()
    ensemble = from_trees(model)
    seconds = {"from_trees": round(time.process_time() - begin, 3)}
    kinds: dict[str, Callable[[], Any]] = {
        "shapley_values": lambda: shapley_values(ensemble, explained, background),
        "shapley_values_joint": lambda: shapley_values(ensemble, explained, background[:joint], "joint"),
        "order_spectrum_to_8": lambda: order_spectrum(ensemble, explained, background, max_order=8),
        f"interaction_index_{paired}_rows": lambda: interaction_index(ensemble, explained[:paired], background),
        "sobol_indices_to_4": lambda: sobol_indices(ensemble, background, max_order=4),
        "top_interactions_to_4": lambda: top_interactions(ensemble, background, 10, 4),
    }
    if (shap := _imported("shap", console)) is not None:
        own = shap.TreeExplainer(model, background[:joint], feature_perturbation="interventional")
        kinds["shap, interventional"] = lambda: own.shap_values(explained, check_additivity=False)
    values = {}
    for name, work in kinds.items():
        begin = time.process_time()
        values[name] = work()
        seconds[name] = round(time.process_time() - begin, 3)
        console.print(name, seconds[name])
    result: Row = {
        "title": "What exact explanations of trees cost",
        "size": dict(zip(("trees", "leaves", "columns", "rows", "background", "joint_background"), size, strict=False)),
        "ensemble": repr(ensemble),
        "largest_gap_to_predict": float(np.abs(ensemble.predict(explained)[:, 0] - model.predict(explained)).max()),
        "top_interactions_complete": values["top_interactions_to_4"].complete,
        "processor_seconds": seconds,
    }
    if shap is not None:
        gap = values["shap, interventional"] - values["shapley_values_joint"][..., 0].numpy()
        result["largest_gap_to_shap"] = float(np.abs(gap).max())
    return result
