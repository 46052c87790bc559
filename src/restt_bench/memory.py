"""Peak memory of one implementation's training step, in a process of its own (Linux)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from restt_bench.case import Case

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
STEPS = 3


def peak_memory(implementation: str, case: Case, *, seed: int, threads: int) -> dict[str, Any]:
    """MiB at the peak of a few steps and MiB before the model was made, from the kernel's own high-water mark.

    An implementation that runs out of memory or fails otherwise gives ``{"failed": why}``.
    """
    if not STATUS.exists():
        return {"failed": "needs Linux's /proc"}
    asked = json.dumps({"implementation": implementation, "case": case.as_dict(), "seed": seed, "threads": threads})
    command = [sys.executable, "-m", "restt_bench.memory", asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"ended with status {done.returncode}"]
        return {"failed": last[0]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def high_water_mib() -> float:
    """The most that was resident since the mark was last reset through ``CLEAR``."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _measured(asked: dict[str, Any]) -> dict[str, float]:
    import torch

    from restt_bench.implementations import implementation_named

    torch.set_num_threads(asked["threads"])
    case, implementation = Case(**asked["case"]), implementation_named(asked["implementation"])
    # A first tiny step loads the libraries, which are no part of what is measured.
    implementation.build(case.scaled_down(), asked["seed"]).step()
    CLEAR.write_text("5")  # resets the high-water mark to what is in use now
    before = high_water_mib()
    work = implementation.build(case, asked["seed"])
    for _ in range(STEPS):
        work.step()
    peak = high_water_mib()
    return {"peak_mib": round(peak, 1), "before_mib": round(before, 1), "step_mib": round(peak - before, 1)}


if __name__ == "__main__":
    print(json.dumps(_measured(json.loads(sys.argv[1]))))
