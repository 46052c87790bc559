"""What `import restt` costs beyond `import torch`, in fresh interpreters."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from restt_bench.targets import IMPORT_SECONDS, Target
from restt_bench.timing import summarise

# Packages that only load when something uses them.
HEAVY = ("sklearn", "matplotlib", "triton", "typer", "rich", "pandas", "scipy")

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


def measure_import(rounds: int = 11) -> dict[str, Any]:
    """Seconds of each import, one fresh interpreter per round, and the heavy packages that came along."""
    command = [sys.executable, "-c", _PROGRAM, json.dumps(HEAVY)]
    found = []
    for _ in range(rounds + 1):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"a fresh interpreter could not import restt:\n{done.stderr}")
        found.append(json.loads(done.stdout))
    found = found[1:]  # the first one reads the files from disk
    names = {
        "torch": "import torch",
        "restt": "import restt, after torch",
        "restt_and_model": "the same, and restt.ResTT and restt.Topology used",
    }
    rows = [
        {"what": text, "milliseconds": summarise([run[key] for run in found]).as_milliseconds()}
        for key, text in names.items()
    ]
    target = Target(
        "import restt beyond import torch, model loaded",
        "at most",
        1e3 * IMPORT_SECONDS,
        "ms",
        float(rows[-1]["milliseconds"]["median"]),  # type: ignore[index]
    )
    loaded = sorted({name for run in found for name in run["loaded"]})
    return {"rows": rows, "loaded": loaded, "targets": [target.as_dict()]}
