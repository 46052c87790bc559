"""What `import restt` costs beyond `import torch`, in fresh interpreters."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from restt_bench.case import Settings
from restt_bench.targets import IMPORT_SECONDS, Target
from restt_bench.timing import summarise

if TYPE_CHECKING:
    from rich.console import Console

# Packages that only load when something uses them.
HEAVY = ("sklearn", "matplotlib", "triton", "typer", "rich", "pandas", "scipy")
ROUNDS = 11  # at most: the spread is small

_PROGRAM = """
import json, sys, time
start = time.perf_counter()
import torch
after_torch = time.perf_counter()
before = set(sys.modules)
import restt
after_restt = time.perf_counter()
restt.ResTT, restt.Topology
after_names = time.perf_counter()
loaded = sorted({name.partition(".")[0] for name in set(sys.modules) - before} & set(json.loads(sys.argv[1])))
print(json.dumps({"torch": after_torch - start, "restt": after_restt - after_torch,
                  "restt_and_model": after_names - after_torch, "loaded": loaded}))
"""
_NAMES = {
    "torch": "import torch",
    "restt": "import restt, after torch",
    "restt_and_model": "the same, and restt.ResTT and restt.Topology used",
}


def import_time(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Seconds of each import, one fresh interpreter per round, and the heavy packages that came along."""
    command = [sys.executable, "-c", _PROGRAM, json.dumps(HEAVY)]
    found = []
    for _ in range(min(settings.rounds, ROUNDS) + 1):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"a fresh interpreter could not import restt:\n{done.stderr}")
        found.append(json.loads(done.stdout))
    found = found[1:]  # the first one reads the files from disk
    rows = [
        {"what": text, "milliseconds": summarise([run[key] for run in found]).as_milliseconds()}
        for key, text in _NAMES.items()
    ]
    loaded = sorted({name for run in found for name in run["loaded"]})
    for row in rows:
        console.print(f"{row['what']}: {row['milliseconds']['median']:.1f} ms")  # type: ignore[index]
    console.print(f"heavy packages that came along: {', '.join(loaded) or 'none'}")
    measured = float(rows[-1]["milliseconds"]["median"])  # type: ignore[index]
    what = "import restt beyond import torch, model loaded"
    target = Target(what, "at most", 1e3 * IMPORT_SECONDS, "ms", measured)
    return {"title": "What importing costs", "rows": rows, "loaded": loaded, "targets": [target.as_dict()]}
