"""What only a GPU can tell of recomputed and packed chains, in a few minutes: parity, time and memory, and tuning.

Run as ``python -m tests.chain.cuda.gpu_report FOLDER [SECONDS]`` from the repository's root. Writes one JSON file for
each part into the folder and goes on where one fails; tuning ends when SECONDS (default 60) are over.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from restt_bench.case import Settings
from restt_bench.studies.kernel_checks import check_cases, recomputed_and_packed_cases
from restt_bench.studies.kernel_tuning import step_cases, sweeps, tune_cases

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SETTINGS = Settings(rounds=9, budget=2.0, quick=DEVICE == "cpu", workers=min(16, os.cpu_count() or 1))


def check(console: Console) -> dict[str, Any]:
    # In turn: every kind of case meets both, and each compiles once.
    precisions = ("float32", "tf32") if DEVICE == "cuda" else ("float32",)
    cases = [
        {**case, "precision": precisions[n % len(precisions)]} for n, case in enumerate(recomputed_and_packed_cases())
    ]
    if SETTINGS.quick:
        cases = [{**case, "batch": 3} for case in cases if case["bond"] == 5]
    return check_cases(cases, DEVICE, SETTINGS, console)


def tune(console: Console, seconds: float) -> dict[str, Any]:
    cases = step_cases() if DEVICE == "cuda" else sweeps(20, "tf32", [(8, 0, 1, 4, False)])
    found = tune_cases(cases, DEVICE, SETTINGS, console, seconds)
    for row in found["fastest"]:
        console.print("fastest", row, markup=False)
    return found


def main() -> None:
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(width=240)
    parts = {
        "check": lambda: check(console),
        "tune-step": lambda: tune(console, seconds),
    }
    for name, part in parts.items():
        started = time.monotonic()
        try:
            (folder / f"{name}.json").write_text(json.dumps(part(), indent=1))
        except Exception:
            traceback.print_exc(limit=8)
        console.print(f"{name}: {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
