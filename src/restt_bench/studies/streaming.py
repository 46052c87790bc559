"""Rows out of Parquet files against the same rows in memory: rows a second, and how much memory each takes.

What is trained is what a default fit trains after its sample: positions of the values among their states, from which
site vectors are made batch by batch. Each way has a fresh interpreter on one thread, beside which a stream's reader has
another; the reader needs a core of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from restt_bench.case import Settings
from restt_bench.targets import Target

if TYPE_CHECKING:
    from rich.console import Console

# 2 GB of Parquet: numbers that do not compress, in float64.
COLUMNS, ROWS, BOND = 20, 12_000_000, 4
QUICK_ROWS = 2_000
FILE_ROWS, GROUP_ROWS = 500_000, 100_000
SPEED_SHARE, MEMORY_MB = 0.7, 700.0

_PROGRAM = """
import json, resource, sys
import numpy as np, torch
from dataclasses import replace
from restt import ResTT
from restt.data import stream
from restt.estimators.compact import interpolated, state_bases, state_positions
from restt.estimators.encoding import fit_encoding
from restt.estimators.streams import EncodedStream, survey
from restt.estimators.tables import PandasTable
from restt.train import TrainConfig, train

folder, way, bond = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
files = stream(folder, "y")
found = survey(files, set(), classes=False, all_levels=False)
encoding = replace(fit_encoding(PandasTable(found.frame), found.weights), means=None)
rows = EncodedStream(
    files,
    encoding,
    lambda table: iter([state_positions(encoding, torch.from_numpy(encoding.numbers(table)))]),
    lambda y: (torch.tensor(y[:, None], dtype=torch.float32), np.ones(len(y))),
    np.empty(0, dtype=np.int64),
    1.0,
)
module = ResTT(len(encoding.order), list(encoding.widths), bond, 1)
module.reset_parameters(seed=0)
options = {
    "config": TrainConfig(epochs=1, batch_size=512, lr=1e-3, seed=0),
    "feature_map": interpolated(state_bases(encoding), encoding, module.first),
}
if way == "stream":
    records = train(module, rows, **options)
else:
    blocks = list(rows.blocks(1, lambda places: places >= 0))
    x, y = (torch.cat(parts) for parts in list(zip(*blocks))[:2])
    records = train(module, x, y, map_batches=True, **options)
(record,) = records
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"rows a second": record.samples_per_second, "loss": record.train_loss[0], "peak MB": peak}))
"""


def streaming(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """One epoch on rows out of files, and on the same rows in memory."""
    rows = QUICK_ROWS if settings.quick else ROWS
    with tempfile.TemporaryDirectory() as name:
        size = _write(Path(name), rows, settings.seed)
        table = []
        for way in ("stream", "memory"):
            command = [sys.executable, "-c", _PROGRAM, name, way, str(BOND)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"training from {way} failed:\n{done.stderr}")
            table.append({"way": way, **json.loads(done.stdout.splitlines()[-1])})
            told = table[-1]
            console.print(f"{way}: {told['rows a second']:,.0f} rows/s, peak {told['peak MB']:,.0f} MB")
    share = table[0]["rows a second"] / table[1]["rows a second"]
    targets = [
        Target("a stream's speed, as a share of the speed in memory", "at least", SPEED_SHARE, "", share),
        Target("peak memory of a process that trains on a stream", "at most", MEMORY_MB, "MB", table[0]["peak MB"]),
    ]
    sizes = {"rows": rows, "columns": COLUMNS, "bond_dim": BOND, "parquet bytes": size}
    title = "Rows out of Parquet files against rows in memory"
    return {"title": title, "sizes": sizes, "rows": table, "targets": [target.as_dict() for target in targets]}


def _write(folder: Path, rows: int, seed: int) -> int:
    """Files of random numbers and an interaction to learn from them; returns their bytes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    for start in range(0, rows, FILE_ROWS):
        rng = np.random.default_rng([seed, start])
        x = rng.random((COLUMNS, min(FILE_ROWS, rows - start)))
        held = {f"x{column}": values for column, values in enumerate(x)}
        table = pa.table({**held, "y": np.sin(3 * x[0]) * x[1] + x[2] * x[3]})
        pq.write_table(table, folder / f"{start:012}.parquet", row_group_size=GROUP_ROWS)
    return sum(path.stat().st_size for path in folder.iterdir())
