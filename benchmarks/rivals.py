"""The rivals at a glance: what each reaches, what the paper reports for it, and how long it took.

    restt reproduce table2 --profile paper
    restt reproduce table4 --profile paper
    restt reproduce table5 --profile paper
    restt reproduce table6 --profile paper
    python benchmarks/rivals.py

Reads the cells of these tables and writes results/rivals/images.json and results/rivals/tables.json.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from restt._common.files import write_json_atomic
from restt._common.provenance import provenance
from restt.data.dataset import PAPER_SPLIT_SEED
from restt_paper.engine.cell import Cell
from restt_paper.engine.store import Store
from restt_paper.images import table2, table4, table5
from restt_paper.images.accuracy import mean_final
from restt_paper.images.data import NAMES
from restt_paper.paper_numbers import paper_numbers
from restt_paper.tabular import table6

# Which row of the paper's Table II a rival is; table5.BASELINES has those of Table V.
TABLE2 = {rival: label for label, rival in table2.BASELINES.items()}
# Of the two TT-BN the one of the authors' code, which Table II sets beside the paper's.
PAPER_STATISTICS = "shared"
# How far below the paper a rival may stay: a point of accuracy, a hundredth of R².
POINTS, R2 = 1.0, 0.01


def images(store: Store) -> list[dict[str, Any]]:
    """One row per rival, data set, bond dimension and fraction, from Tables II, IV and V."""
    rows = []
    for cell in _unique([*table5.cells("paper"), *table2.cells("paper"), *table4.cells("paper")]):
        found = store.load(cell)
        name = cell.settings.get("baseline") or cell.settings.get("recipe")
        if found is None or name == "restt":
            continue
        result = found["result"]
        params = cell.settings.get("params", {})
        bond_dim = cell.settings.get("bond_dim", params.get("bond_dim"))
        paper = _paper_accuracy(name, cell.settings["dataset"], cell.settings["fraction"], bond_dim, params)
        final = mean_final(store, cell)
        rows.append(
            {
                "rival": name,
                "params": params or cell.settings.get("recipe_settings"),
                "dataset": cell.settings["dataset"],
                "fraction": cell.settings["fraction"],
                "bond_dim": bond_dim,
                "seeds": len(result["final"]),
                **{kind: result.get(kind) for kind in ("final", "selected", "best_on_test")},
                "mean_final": round(final, 2),
                "paper": paper,
                "reaches_the_paper_within_a_point": None if paper is None else final >= paper - POINTS,
                **_origin(cell, found),
            }
        )
    return rows


def tables(store: Store) -> list[dict[str, Any]]:
    """One row per rival and table, from Table VI: the paper's split, and the mean over the random ones."""
    rows = []
    for cell in table6.cells("paper"):
        found, model = store.load(cell), cell.settings["model"]
        if found is None or model.startswith("restt"):
            continue
        scores = [math.nan if value is None else value for value in found["result"]["r2"]]  # of a failed fit
        by_split = dict(zip(found["result"]["splits"], scores, strict=True))
        own = by_split.pop(PAPER_SPLIT_SEED)
        printed = paper_numbers()["table6_tabular"][table6.DATASETS[cell.settings["dataset"]]]
        paper = next((row[0] for label, row in printed.items() if label.lower() == model), None)
        rows.append(
            {
                "rival": model,
                "dataset": cell.settings["dataset"],
                "r2_on_the_papers_split": _rounded(own),
                "mean_r2_on_random_splits": _rounded(statistics.fmean(by_split.values())),
                "paper": paper,
                "reaches_the_paper_within_0.01": None if paper is None else own >= paper - R2,
                **_origin(cell, found),
            }
        )
    return rows


def _paper_accuracy(
    name: str, dataset: str, fraction: float, bond_dim: int | None, params: dict[str, Any]
) -> float | None:
    numbers, label = paper_numbers(), NAMES[dataset]
    limited = numbers["table5_limited"]
    if name in table5.BASELINES:
        return dict(zip(limited["fractions"], limited[label][table5.BASELINES[name]], strict=True))[fraction][0]
    if name in table5.MULTITASK:
        printed = limited["MNIST_1_percent_multitask"][table5.MULTITASK[name]]
        return float(printed[0] if isinstance(printed, list) else printed)
    if name in ("meantt", "tt"):  # the paper has one plain train
        fractions = numbers["table4_fractions"]
        printed = fractions[label].get(f"MeanTT r={bond_dim}")
        return None if printed is None else dict(zip(fractions["fractions"], printed, strict=True))[fraction][0]
    found: float | None = numbers["table2_accuracy"][label].get(_table2_row(name, bond_dim, params))
    return found


def _table2_row(name: str, bond_dim: int | None, params: dict[str, Any]) -> str | None:
    if name != "tt-bn":
        return TABLE2.get(name)
    return f"TT-BN(r={bond_dim})" if params["statistics"] == PAPER_STATISTICS else None


def _origin(cell: Cell, found: dict[str, Any]) -> dict[str, Any]:
    names = ("wall_seconds", "provenance")
    return {**{name: found[name] for name in names}, "file": f"{cell.key}.json"}


def _rounded(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


def _unique(cells: Iterable[Cell]) -> list[Cell]:
    return list({cell.key: cell for cell in cells}.values())


def main() -> None:
    """Write the two files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/paper"))
    parser.add_argument("--output", type=Path, default=Path("results/rivals"))
    options = parser.parse_args()
    store = Store(options.results)
    for name, rows in (("images", images(store)), ("tables", tables(store))):
        content = {"provenance": provenance(command="python benchmarks/rivals.py"), "rivals": rows}
        path = write_json_atomic(options.output / f"{name}.json", content)
        print(f"{path}: {len(rows)} rows")


if __name__ == "__main__":
    main()
