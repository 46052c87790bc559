"""What a call of a small module costs on the CPU besides its arithmetic, against another version of restt.

One sample, so that almost all of it is Python and torch. The versions take turns, each in processes of its own on one
core; a time is the 2 % quantile of 6,000 calls, for what others do on the machine to stay out of it, and of these the
median over the turns. ``kernel`` is what the compiled code itself takes, which is the same in both. Written to
results/bench/calls-cpu.json:

    git worktree add ../before COMMIT
    python tools/call_overhead.py ../before
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "results" / "bench" / "calls-cpu.json"
CALLS, TURNS = 6000, 5
CASES = ((13, 2), (196, 2))  # sites and bond dimension


def low(seconds: list[float]) -> float:
    """Microseconds, undisturbed."""
    return 1e6 * sorted(seconds)[len(seconds) // 50]


def timed(sites: int, bond: int) -> dict[str, float]:
    """Of one call each: without a gradient, forward, backward; and the compiled code of the last two."""
    import torch

    import restt
    from restt.chain.cpu import contraction

    torch.set_num_threads(1)
    module = restt.ResTT(sites, 2, bond, 10)
    x, grad, clock = torch.rand(1, sites, 2), torch.ones(1, 10), time.perf_counter
    parameters = list(module.parameters())
    found: dict[str, list[float]] = {name: [] for name in ("infer", "forward", "backward", "kernel")}

    def step(kinds: bool) -> None:
        for parameter in parameters:
            parameter.grad = None
        began = clock()
        output = module(x)
        between = clock()
        output.backward(grad)
        if kinds:
            found["forward"].append(between - began)
            found["backward"].append(clock() - between)

    for _ in range(CALLS):
        step(kinds=True)
        with torch.no_grad():
            began = clock()
            module(x)
            found["infer"].append(clock() - began)

    def watched(function: Any) -> Any:
        def call(argument: Any) -> None:
            began = clock()
            function(argument)
            spent.append(clock() - began)

        return call

    spent: list[float] = []
    library = contraction._libraries[torch.float32]
    contraction._libraries[torch.float32] = library._replace(
        forward=watched(library.forward), backward=watched(library.backward)
    )
    for _ in range(CALLS):
        spent.clear()
        step(kinds=False)
        found["kernel"].append(sum(spent))
    return {name: low(values) for name, values in found.items()}


def turn(folder: Path) -> list[dict[str, float]]:
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--time"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: list[dict[str, float]] = json.loads(done.stdout)
    return found


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("before", nargs="?", type=Path, help="another checkout")
    reader.add_argument("--time", action="store_true", help="time the restt that is imported")
    given = reader.parse_args()
    if given.time:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        print(json.dumps([timed(*case) for case in CASES]))
        return
    folders = {"before": given.before.resolve(), "now": ROOT}
    turns: dict[str, list[list[dict[str, float]]]] = {name: [] for name in folders}
    for _ in range(TURNS):
        for name, folder in folders.items():
            turns[name].append(turn(folder))
    rows = []
    for place, (sites, bond) in enumerate(CASES):
        row: dict[str, Any] = {"sites": sites, "bond_dim": bond, "batch": 1}
        for name, found in turns.items():
            row[name] = {
                kind: round(statistics.median(one[place][kind] for one in found), 2) for kind in found[0][place]
            }
        overhead = {name: row[name]["forward"] + row[name]["backward"] - row[name]["kernel"] for name in folders}
        row["ratios"] = {kind: round(row["now"][kind] / row["before"][kind], 3) for kind in row["now"]}
        row["ratios"]["overhead of forward and backward"] = round(overhead["now"] / overhead["before"], 3)
        rows.append(row)
    commits = {
        name: subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.strip()
        for name, folder in folders.items()
    }
    from restt._common.provenance import provenance

    record = {"title": "Microseconds of a call of one sample on one core", "commits": commits, "rows": rows}
    command = "python tools/call_overhead.py BEFORE"
    RECORD.write_text(json.dumps({**record, "provenance": provenance(command=command)}, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
