"""Profile default fits: where the time of a regressor goes, stage by stage.

    python tools/profile_fit.py --threads 2

Friedman's function with columns that do not matter, in four shapes. Written to results/bench/fit-cpu.json: CPU and wall
seconds of the whole fit, and of the functions below with those that they call.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import parser, write_results

from restt import ResTTRegressor

SHAPES = ((350, 13), (1000, 10), (2000, 20), (400, 300))
# Functions whose time is reported, by file and name.
STAGES = (
    ("fitting.py", "fit_members"),
    ("fitting.py", "climb"),
    ("fitting.py", "_evaluate"),
    ("kernel.py", "tables"),
    ("pairs.py", "covariance"),
    ("pairs.py", "pull_back"),
    ("gp.py", "condition"),
    ("model.py", "_train_of"),
    ("calibration.py", "fit_predictive"),
)


def friedman(rows: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:  # (B, C), (B,)
    """Friedman's first function of five columns, and noise."""
    rng = np.random.default_rng(seed)
    x = rng.random((rows, columns))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return x, y + rng.standard_normal(rows)


def measured(rows: int, columns: int, effort: str, stages: bool) -> dict[str, Any]:
    """Seconds of one fit without the profiler, and with it the seconds of its stages."""
    x, y = friedman(rows + 2000, columns)
    model = ResTTRegressor(effort=effort, random_state=0)
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(x[:rows], y[:rows])
    result = {"rows": rows, "columns": columns, "effort": effort}
    result |= {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    away = model.predict(x[rows:]) - y[rows:]
    result |= {"evaluations": model.fit_report_["evaluations"], "error": float(np.mean(away**2) / y[rows:].var())}
    if stages:
        profile = cProfile.Profile()
        profile.runcall(ResTTRegressor(effort=effort, random_state=0).fit, x[:rows], y[:rows])
        stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
        result["stages"] = {
            name: {"calls": calls[1], "seconds": calls[3]}
            for file, name in STAGES
            for (path, _, function), calls in stats.items()
            if function == name and Path(path).name == file
        }
    return result


def main() -> None:
    reader = parser(__doc__)
    reader.add_argument("--threads", type=int, default=2)
    reader.add_argument("--only", type=int, nargs=2, metavar=("ROWS", "COLUMNS"), help="one shape; nothing is written")
    reader.add_argument("--efforts", nargs="+", default=["auto", "quick"])
    given = reader.parse_args()
    torch.set_num_threads(given.threads)
    measured(60, 5, "quick", False)  # what is built at first use
    results = []
    for rows, columns in [tuple(given.only)] if given.only else SHAPES:
        for effort in given.efforts:
            # Searches in threads of their own are not seen by the profiler.
            results.append(measured(rows, columns, effort, stages=given.threads == 1))
            print(results[-1], flush=True)
    if not given.only:
        content = {"title": f"Seconds of default fits on {given.threads} threads", "results": results}
        write_results("bench/fit-cpu.json", content, f"profile_fit.py --threads {given.threads}")


if __name__ == "__main__":
    main()
