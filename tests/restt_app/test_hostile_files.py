"""Twenty files that are no table, or hardly one: each ends in one line that says why, and the right exit code."""

import gzip
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from restt_app.cli import main

ROWS = 30


def text(**changes):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=ROWS).round(3), "b": ["u", "v"] * 15, "y": rng.normal(size=ROWS).round(3)}
    )
    return frame.assign(**changes).to_csv(index=False)


def parquet():
    made = io.BytesIO()
    pd.read_csv(io.StringIO(text())).to_parquet(made)
    return made.getvalue()


# Name -> bytes of the file, and what the line says.
FILES = {
    "empty": (b"", "is empty"),
    "blank lines": (b"\n\n \n", "is empty"),
    "header only": (b"a,b,y\n", "has column names but no rows"),
    "numbers for names": (b"1,2,3\n4,5,6\n", "expected a first line of column names"),
    "one column": (b"y\n" + b"\n".join(str(k).encode() for k in range(30)), "no column is left to predict 'y' from"),
    "names twice": (text().replace("a,b,y", "a,a,y", 1).encode(), "has 2 columns named 'a'"),
    "long rows": (text().encode() + b"1,u,2,3,4\n", "is no table of 3 column(s)"),
    "open quote": (text().encode() + b'"1,u,2\n', "is no table"),
    "all bytes": (bytes(range(256)) * 20, "is neither text nor Parquet"),
    "picture": (b"\x89PNG\r\n\x1a\n" + bytes(400), "is neither text nor Parquet"),
    "cut gzip": (gzip.compress(text().encode() * 50)[:200], "is damaged"),
    "false gzip": (b"\x1f\x8b" + b"nonsense" * 20, "is damaged"),
    "cut Parquet": (parquet()[:-40], "damaged"),
    "false Parquet": (b"PAR1" + b"nonsense" * 20, "damaged"),
    "text among numbers": (
        text(a=["oops", *map(str, range(ROWS - 1))]).encode(),
        "holds numbers and text, such as 'oops'",
    ),
    "infinite": (text(a=[*range(ROWS - 1), "inf"]).encode(), "infinite value in row 30"),
    "constant target": (text(y=1).encode(), "has one value"),
    "no target": (text(y="").encode(), "0 rows have a value in the target 'y'"),
    "dates for a target": (text(y=pd.date_range("2024", periods=ROWS)).encode(), "target 'y' holds dates"),
    "two readings": (
        text(y=range(ROWS), a=[f"{k + 1},{k:03d}" for k in range(ROWS)]).encode(),
        "can be read in two ways",
    ),
    "ids for classes": (text(y=[f"id {k}" for k in range(ROWS)]).encode(), "two classes of at least 2 rows each"),
    "three rows": ("\n".join(text().splitlines()[:4]).encode(), "3 rows have a value in the target 'y': at least 10"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_ends_in_one_line(name, tmp_path, monkeypatch, capsys):
    content, expected = FILES[name]
    monkeypatch.chdir(tmp_path)
    Path("data").write_bytes(content)
    monkeypatch.setattr("sys.argv", ["restt", "fit", "data", "-t", "y", "-o", "model", "-q"])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (1, "")
    assert re.fullmatch(r"restt: .*\n", err)
    assert expected in err
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
