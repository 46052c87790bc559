"""Checks, times and tunes the fused GPU chain, and writes gpu_chain-<gpu>.json.

    PYTHONPATH=src python benchmarks/gpu_chain.py --check --time --tune --output DIR

--check compares outputs and every gradient with float64, fresh memory poisoned by NaN, and repeats every run bit for
bit. --time times whole training steps, peers and the machine's limits, and holds them against the targets. --tune times
other launch constants (all, or only those of the sweeps or the weights); it changes none, the fastest are for
restt/chain/cuda/launch.py. --tiny shrinks all sizes and runs on the CPU under TRITON_INTERPRET=1, to test this script.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from gpu.checks import check_cases
from gpu.measure import BATCH, DEVICE, OUTPUTS, SITES, Record, guarded
from gpu.steps import time_all
from gpu.tables import print_tables
from gpu.tuning import fastest, tune, tune_cases
from gpu.verdicts import speed_ups, verdicts
from gpu.workers import spread

from restt._common.files import write_json_atomic
from restt._common.provenance import provenance
from restt.chain.cuda import launch as cuda_launch

SEED = 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--check", "--time", "--tiny"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--tune", nargs="?", const="all", choices=("all", "sweeps", "weights"))
    parser.add_argument("--output", type=Path, default=Path("."))
    parser.add_argument("--peers", type=Path, help="folder that holds tensorkrowch and opt_einsum")
    parser.add_argument("--workers", type=int, default=14, help="processes that compile side by side")
    parser.add_argument("--commit", help="of these files, where there is no git to ask")
    options = parser.parse_args()
    if DEVICE == "cpu" and not options.tiny:
        parser.error("no CUDA device; only --tiny runs without one")
    return options


def described(case: Record) -> Record:
    """A case as JSON takes it."""
    plain = {key: value for key, value in case.items() if key != "topology"}
    plain.update({key: asdict(plain[key]) for key in ("sweep", "weights") if key in plain})
    if "topology" in case:
        plain["topology"] = f"{case['topology'].name}, {case['topology'].sites} sites"
        if len(set(plain.get("widths", [0]))) == 1:
            plain["width"] = plain.pop("widths", [2])[0]
    return plain


def finite(value: Any) -> Any:
    """The same with NaN and infinity as text, which JSON has no number for: a failed check must still be written."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def launch_tables() -> Record:
    """The constants everything but --tune ran with."""
    sweeps = {f"{tile} {precision}": asdict(launch) for (tile, precision), launch in cuda_launch.SWEEPS.items()}
    return {"sweeps": sweeps, "weights": {str(tile): asdict(launch) for tile, launch in cuda_launch.WEIGHTS.items()}}


def main() -> int:
    options = parsed()
    if options.peers is not None:
        sys.path.insert(0, str(options.peers))
    if options.commit:
        os.environ["RESTT_COMMIT"] = options.commit
    asked = [f"--{name}" for name in ("check", "time", "tiny") if getattr(options, name)]
    asked += [f"--tune {options.tune}"] if options.tune else []
    command = " ".join(["python benchmarks/gpu_chain.py", *asked])
    report: Record = {"provenance": provenance(DEVICE, seed=SEED, command=command)}
    report |= {"sites": SITES, "batch": BATCH, "outputs": OUTPUTS, "launch": launch_tables()}
    name = torch.cuda.get_device_name().removeprefix("NVIDIA ") if DEVICE == "cuda" else "interpreted"
    path = options.output / f"gpu_chain-{name.lower().replace(' ', '-')}.json"
    options.output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()

    def save(section: str) -> None:
        report[f"{section}_seconds"] = round(time.perf_counter() - started, 1)
        write_json_atomic(path, finite(report))
        print(f"{section}: done after {report[f'{section}_seconds']} s", flush=True)

    if options.check:
        cases = check_cases(options.tiny)
        results = spread([("check", case, options.tiny) for case in cases], options.workers)
        report["check"] = [{**described(case), **result} for case, result in zip(cases, results, strict=True)]
        save("check")
    if options.time:
        report["time"] = time_all(options.tiny)
        report["targets"], report["speed_ups"] = verdicts(report["time"]), speed_ups(report["time"])
        save("time")
    if options.tune:
        tried = tune_cases(options.tune, options.tiny)
        compiled = spread([("tune", case, options.tiny) for case in tried], options.workers)
        save("compile")
        found = [
            {**case, **(warm if "error" in warm else guarded(tune, case, options.tiny))}
            for case, warm in zip(tried, compiled, strict=True)
        ]
        report["tune"], report["fastest"] = [described(result) for result in found], fastest(found)
        save("tune")
    print_tables(report)
    return 0 if all(case.get("passed") for case in report.get("check", [])) else 1


if __name__ == "__main__":
    sys.exit(main())
