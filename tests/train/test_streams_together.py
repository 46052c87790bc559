"""Two processes that train on one stream have what one process would have."""

import shutil

import numpy as np
import pytest
import torch

from tests.train import streams_together as together
from tests.train.forked import launch
from tests.train.test_together import assert_close, pytestmark  # noqa: F401

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
# Rows of the files, and of their row groups: 21 of them, of 7 to 40 rows.
FILES = ((400, 40), (127, 20), (60, 20), (7, 20))
ROWS = sum(rows for rows, _ in FILES)


def write(folder):
    folder.mkdir()
    for part, (rows, group) in enumerate(FILES):
        rng = np.random.default_rng(part)
        a, b, c = rng.random((3, rows))
        kind = rng.choice([f"level {part}", "common"], rows)
        table = pa.table({"a": a, "b": b, "c": c, "kind": kind, "y": a * b + c})
        pq.write_table(table, folder / f"{part}.parquet", row_group_size=group)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A table, the same damaged in several ways, and what two processes found."""
    folder = tmp_path_factory.mktemp("streams")
    write(folder / "table")
    for name in ("shorter", "page"):
        shutil.copytree(folder / "table", folder / name)
    pq.write_table(pq.read_table(folder / "table" / "1.parquet").slice(0, 100), folder / "shorter" / "1.parquet")
    page = folder / "page" / "3.parquet"
    held = bytearray(page.read_bytes())
    held[4:300] = bytes(296)
    page.write_bytes(held)
    ends = launch("tests.train.streams_together", "2", str(folder))
    assert [end[0] for end in ends] == [0, 0], ends
    return folder, [torch.load(folder / f"streams-{rank}.pt", weights_only=False) for rank in range(2)]


def test_two_processes_equal_one(begun):
    folder, found = begun
    weights, records = together.trained(folder / "table")
    assert_close(found[0]["weights"], weights, 1e-6)
    for one, other in zip(found[0]["records"], records, strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-6)
    assert_close(found[0]["weights"], found[1]["weights"], 0.0)


def test_a_fit_looks_at_the_rows_together(begun, monkeypatch):
    folder, found = begun
    monkeypatch.setattr(together.streams, "SAMPLE_ROWS", together.streams.SAMPLE_ROWS)
    together.small_samples()
    alone = together.surveyed(folder / "table")
    for each in found:
        for name, values in alone.items():
            assert np.array_equal(each["survey"][name], values)
    assert set(alone["kind"]) == {"common", *(f"level {part}" for part in range(4))}
    expected = together.fitted(folder / "table")
    assert (found[0]["fitted"] == found[1]["fitted"]).all()
    np.testing.assert_allclose(found[0]["fitted"], expected, rtol=1e-4)


def test_a_damaged_or_odd_file_is_refused_by_all_before_anything_is_trained(begun):
    _, found = begun
    assert found[0]["page"].startswith("RuntimeError: rank 1 of 2 could not read the rows: ValueError: ")
    assert "3.parquet is damaged" in found[0]["page"]
    assert found[1]["page"].startswith("ValueError")
    assert "3.parquet is damaged" in found[1]["page"]
    assert found[0]["shorter"] == found[1]["shorter"]
    assert "must be given the same arguments and rows" in found[0]["shorter"]
    assert f"'rows': {ROWS}" in found[0]["shorter"]
    assert f"'rows': {ROWS - 27}" in found[0]["shorter"]
