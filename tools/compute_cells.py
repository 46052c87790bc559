"""Compute cells of the paper's tables, several side by side on one device, without the command line's packages.

PYTHONPATH=src python tools/compute_cells.py table2 table5 --match "*trial*" "*dmtrl*" --out FOLDER --jobs 6 --limit 450
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

from restt_paper.store import Store

IMAGES = "restt_paper.images"
COMMITTED = Path(__file__).parents[1] / "results" / "paper"


def wanted(tables: list[str], patterns: list[str], *stores: Store) -> list[tuple[str, str]]:
    """Table and key of every cell that no store has, in the order of the ``patterns`` that their names match."""
    found = []
    for pattern in patterns:
        for table in tables:
            for cell in importlib.import_module(f"{IMAGES}.{table}").cells("paper"):
                missing = all(store.load(cell) is None for store in stores)
                if fnmatch(cell.name, pattern) and missing and (table, cell.key) not in found:
                    found.append((table, cell.key))
    return found


def compute(table: str, key: str, out: str, device: str) -> None:
    """One cell, in a process of its own."""
    module = importlib.import_module(f"{IMAGES}.{table}")
    (cell,) = {cell.key: cell for cell in module.cells("paper") if cell.key == key}.values()
    store = Store(Path(out), device=device, command=f"restt reproduce {table} --profile paper")
    began = time.perf_counter()
    result = module.EXPERIMENT.compute_cell(cell, store)["result"]
    print(key, result["final"], f"{time.perf_counter() - began:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", help="modules of restt_paper.images")
    parser.add_argument("--match", nargs="+", required=True, help="patterns of the names of cells, in order of need")
    parser.add_argument("--out", required=True)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--limit", type=float, default=450, help="seconds; what runs then is ended")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    waiting = wanted(given.tables, given.match, Store(Path(given.out)), Store(COMMITTED))
    print(f"{len(waiting)} cells", flush=True)
    spawn, began, running = multiprocessing.get_context("spawn"), time.perf_counter(), {}
    while (waiting or running) and time.perf_counter() - began < given.limit:
        while waiting and len(running) < given.jobs:
            table, key = waiting.pop(0)
            running[key] = spawn.Process(target=compute, args=(table, key, given.out, given.device))
            running[key].start()
        running = {key: process for key, process in running.items() if process.is_alive()}
        time.sleep(0.2)
    for key, process in running.items():
        process.terminate()
        print(key, "ended at the limit", flush=True)
    for _, key in waiting:
        print(key, "not begun", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
