"""Time the first and the second default fit of a process on long tables.

    python tools/time_first_fits.py --device cuda

Friedman's function of 20 columns with 900,000 rows, and MNIST as a table of 196 columns, the means of 2×2 pixels. Each
table has a process of its own; `restt.warm_up` ran in another before. Written to results/bench/first-fits.json: seconds
of both fits, and R² or accuracy of rows that were not fitted.
"""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

from common import parser, write_results
from profile_fit import friedman

import restt
from restt._common.provenance import describe_device
from restt_paper.images.training import load_images

TEST_ROWS = 10_000


def fits(task: tuple[str, int, str]) -> dict[str, Any]:
    """Seconds of two fits of one table in this process, and the score of the second."""
    table, rows, device = task
    if table == "mnist":
        images = load_images("mnist", half=True)
        x, y, kind = images.x.numpy(), images.y.numpy(), restt.ResTTClassifier
    else:
        (x, y), kind = friedman(rows + TEST_ROWS, 20), restt.ResTTRegressor
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        model = kind(random_state=0, device=device).fit(x[:rows], y[:rows])
        seconds.append(time.perf_counter() - started)
    score = model.score(x[rows:][:TEST_ROWS], y[rows:][:TEST_ROWS])
    return {
        "table": table,
        "rows": rows,
        "columns": x.shape[1],
        "first": seconds[0],
        "second": seconds[1],
        "score": score,
    }


def main() -> None:
    reader = parser(__doc__)
    reader.add_argument("--device", default="cpu")
    reader.add_argument("--rows", type=int, nargs=2, default=(900_000, 60_000), help="of Friedman's table and of MNIST")
    given = reader.parse_args()
    tasks = [("friedman", given.rows[0], given.device), ("mnist", given.rows[1], given.device)]
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as pool:
        started = time.perf_counter()
        pool.apply(restt.warm_up, kwds={"device": given.device})
        content: dict[str, Any] = {
            "title": "First and second default fit of a process, kernels compiled before",
            "fitted_on": describe_device(given.device),
            "warm_up": time.perf_counter() - started,
            "fits": [],
        }
        print("warm-up", content["warm_up"], flush=True)
        for found in pool.imap(fits, tasks):
            content["fits"].append(found)
            print(found, flush=True)
    write_results("bench/first-fits.json", content, f"time_first_fits.py --device {given.device}")


if __name__ == "__main__":
    main()
