"""Time the way from a CSV file to a page, at each effort, and weigh the page.

    python tools/time_pages.py [--rows 1000] [--columns 20] [--efforts quick auto] [--record pages]

Runs `restt fit` and `restt explain` as a user does, a process each. Wall time depends on what else the machine does:
processor seconds and the load average stand beside it. Writes ``results/bench/<record>.json``.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from common import parser, write_results


def main() -> None:
    reader = parser(__doc__)
    reader.add_argument("--rows", type=int, default=1000)
    reader.add_argument("--columns", type=int, default=20)
    reader.add_argument("--efforts", nargs="+", default=["quick", "auto"])
    reader.add_argument("--record", default=None)
    given = reader.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.csv"
        _table(given.rows, given.columns).to_csv(data, index=False)
        for effort in given.efforts:
            model, page = Path(folder) / effort, Path(folder) / f"{effort}.html"
            fit = _run("fit", data, "--target", "y", "-o", model, "--effort", effort, "--quiet")
            explain = _run("explain", model, data, "-o", page, "--quiet")
            result = {"effort": effort, "rows": given.rows, "columns": given.columns, "fit": fit, "explain": explain}
            result |= {"seconds": round(fit["seconds"] + explain["seconds"], 1), "page_bytes": page.stat().st_size}
            result |= {"cores": os.cpu_count(), "load_average": os.getloadavg()[0]}
            print(json.dumps(result))
            results.append(result)
    if given.record:
        options = f"--rows {given.rows} --columns {given.columns} --efforts {' '.join(given.efforts)}"
        write_results(
            f"bench/{given.record}.json", {"results": results}, f"time_pages.py {options} --record {given.record}"
        )


def _table(rows: int, columns: int) -> pd.DataFrame:
    """Numbers of which three matter, two of them together."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(rows, columns)).round(4), columns=[f"c{k}" for k in range(columns)])
    return table.assign(y=(table.c0 * table.c1 + table.c2 + 0.3 * rng.normal(size=rows)).round(4))


def _run(*words: object) -> dict[str, float]:
    """Wall and processor seconds of a command of restt."""
    began, before = time.monotonic(), _processor_seconds()
    subprocess.run([sys.executable, "-m", "restt", *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    wall, spent = time.monotonic() - began, _processor_seconds() - before
    return {"seconds": round(wall, 1), "processor_seconds": round(spent, 1)}


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
