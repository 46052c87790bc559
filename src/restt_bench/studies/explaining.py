"""What exact explanations cost: seconds by sites, bond and rows, beside sampling at equal error.

Samplers (shap and shapiq of the dev extra; left out where missing) explain one row of the same game, values by the same
module, with twice the budget each time until their root mean square error is below 1 % of the values' own.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import restt
from restt.explain import interaction_index, order_spectrum, shapley_values, sobol_indices, top_interactions
from restt_bench.case import Settings

if TYPE_CHECKING:
    from rich.console import Console

# Of a game's values by coalition, its sites and a budget of evaluations.
Sampler = Callable[[Callable[[Any], np.ndarray], int, int], np.ndarray]
# sites, feature width, bond, outputs, rows
SIZES = ((13, 8, 10, 1, 500), (13, 8, 20, 1, 500), (50, 4, 20, 1, 500), (196, 2, 10, 10, 100))
QUICK_SIZES = ((6, 2, 4, 1, 20),)
IMAGES = (196, 2, 50, 10, 1000)
PAIR_ROWS = 10  # pair indices cost N times as much
TARGET_ERROR = 0.01
MOST_EVALUATIONS = 2**17
SEED = 0


def problem(size: tuple[int, ...], device: str) -> tuple[restt.ResTT, Tensor]:
    """A module with its initial weights, which hold every order, and rows in [-1, 1]."""
    sites, width, bond, outputs, rows = size
    module = restt.ResTT(sites, width, bond, outputs, second_moment=width / 3, dtype=torch.float64, device=device)
    module.reset_parameters(seed=SEED)
    generator = torch.Generator().manual_seed(SEED)
    x = 2 * torch.rand(rows, sites, width, generator=generator, dtype=torch.float64) - 1
    return module, x.to(device)


def seconds(work: Callable[[], object], device: str) -> float:
    """The faster of two runs; the first also loads what is loaded once."""
    taken = []
    for _ in range(2):
        begin = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def exact_row(size: tuple[int, ...], device: str) -> dict[str, Any]:
    """Seconds of every exact explanation at one size, and how well Shapley values add up."""
    module, x = problem(size, device)
    values = shapley_values(module, x, x)
    with torch.no_grad():
        gap = values.sum(1) - (module(x) - module(x.mean(0, keepdim=True)))
    kinds: dict[str, Callable[[], object]] = {
        "shapley_values": lambda: shapley_values(module, x, x),
        "order_spectrum_to_4": lambda: order_spectrum(module, x, x, max_order=4),
        "sobol_indices_to_4": lambda: sobol_indices(module, x, max_order=4),
        "top_interactions_pairs": lambda: top_interactions(module, x, 10, 2),
        f"interaction_index_{PAIR_ROWS}_rows": lambda: interaction_index(module, x[:PAIR_ROWS], x),
    }
    names = ("sites", "width", "bond", "outputs", "rows")
    return {
        **dict(zip(names, size, strict=True)),
        "efficiency_gap": float(gap.abs().max()),
        "seconds": {name: round(seconds(work, device), 4) for name, work in kinds.items()},
    }


def sampling_rows(size: tuple[int, ...], tools: dict[str, Sampler]) -> list[dict[str, Any]]:
    """What samplers need for one row's first output, and what the exact values took."""
    module, x = problem(size, "cpu")
    means = x.mean(0)

    def value(coalitions: Any) -> np.ndarray:
        chosen = torch.as_tensor(np.asarray(coalitions)).bool()[..., None]
        with torch.no_grad():
            return module(torch.where(chosen, x[0], means))[:, 0].numpy()

    begin = time.perf_counter()
    exact = shapley_values(module, x[:1], x)[0, :, 0].numpy()
    rows = [{"sites": size[0], "method": "exact", "error": 0.0, "seconds": round(time.perf_counter() - begin, 4)}]
    for name, sampler in tools.items():
        budget = 4 * size[0]
        while True:
            begin = time.perf_counter()
            found = sampler(value, size[0], budget)
            taken = time.perf_counter() - begin
            error = float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
            if error <= TARGET_ERROR or 2 * budget > MOST_EVALUATIONS:
                break
            budget *= 2
        rows.append({"sites": size[0], "method": name, "error": error, "seconds": round(taken, 4), "budget": budget})
    return rows


def samplers(console: Console) -> dict[str, Sampler]:
    """Those that are installed."""
    found: dict[str, Any] = {}
    try:
        shap = importlib.import_module("shap")

        def permutations(value: Callable[[Any], np.ndarray], sites: int, budget: int) -> np.ndarray:
            explainer = shap.PermutationExplainer(value, np.zeros((1, sites)), seed=SEED)
            return explainer(np.ones((1, sites)), max_evals=max(budget, 2 * sites + 1), silent=True).values[0]

        found["shap, permutations"] = permutations
    except ImportError:
        console.print("shap is not installed: left out")
    try:
        shapiq = importlib.import_module("shapiq")

        def kernel(value: Callable[[Any], np.ndarray], sites: int, budget: int) -> np.ndarray:
            sampler = shapiq.KernelSHAP(n=sites, random_state=SEED)
            values = sampler.approximate(budget=min(budget, 2**sites), game=value)
            return np.array([values[(site,)] for site in range(sites)])

        found["shapiq, KernelSHAP"] = kernel
    except ImportError:
        console.print("shapiq is not installed: left out")
    return found


def explaining(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Seconds of every exact explanation by size, and on the CPU what samplers need for the same values."""
    sizes = QUICK_SIZES if settings.quick else SIZES if device == "cpu" else (*SIZES, IMAGES)
    exact = [exact_row(size, device) for size in sizes]
    for row in exact:
        console.print(row)
    sampling = []
    if device == "cpu":
        tools = samplers(console)
        for size in {size[0]: size for size in sizes}.values():
            sampling += sampling_rows(size, tools)
        for row in sampling:
            console.print(row)
    return {"title": "What exact explanations cost", "exact": exact, "sampling": sampling}
