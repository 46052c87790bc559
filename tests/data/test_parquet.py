"""Streams of Parquet files: every row once, in blocks that are shuffled, and bad files refused by name."""

import numpy as np
import pytest
import torch

from restt import ResTT
from restt.data import stream
from restt.train import TrainConfig, train

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 900


@pytest.fixture
def folder(tmp_path):
    """Three files of 300 rows in row groups of 50; ``number`` counts the rows."""
    for part in range(3):
        pq.write_table(table(300 * part, 300), tmp_path / f"part-{part}.parquet", row_group_size=50)
    return tmp_path


def table(start: int, rows: int):
    number = np.arange(start, start + rows)
    x = np.random.default_rng(start).random(rows)
    return pa.table({"number": number, "a": x, "b": (x * 7).astype(np.float32), "y": 2 * x})


def numbers_of(rows, epoch, lane):
    return [block.column("number").to_numpy() for _, block in rows.tables(epoch, lane)]


def epoch_of(rows, epoch):
    return np.concatenate([block for lane in range(rows.lane_count) for block in numbers_of(rows, epoch, lane)])


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_every_row_comes_once_in_every_epoch_and_in_another_order(folder, lanes):
    rows = stream(folder, "y", shuffle_block=120, lanes=lanes, seed=3)
    assert (rows.rows, rows.columns) == (ROWS, ("number", "a", "b"))
    first, again, second = (epoch_of(rows, epoch) for epoch in (1, 1, 2))
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert (first == again).all()
    assert (first != second).any()
    assert (np.concatenate([numbers for numbers, _ in rows.tables_in_order()]) == np.arange(ROWS)).all()
    for found, block in rows.tables(1, lanes - 1):
        assert (found == block.column("number").to_numpy()).all()


def test_lanes_hold_whole_row_groups_and_their_blocks_are_shuffled(folder):
    rows = stream(folder, "y", shuffle_block=100)
    assert rows.lanes(1) == (450, 450)
    lanes = [numbers_of(rows, 1, lane) for lane in range(2)]
    assert {len(block) for blocks in lanes for block in blocks} == {50}
    groups = [{number // 50 for number in np.concatenate(blocks)} for blocks in lanes]
    assert groups[0] | groups[1] == set(range(18))
    assert not groups[0] & groups[1]
    assert (np.diff(lanes[0][0]) < 0).any()


def test_lanes_have_as_many_rows_as_can_be_where_row_groups_differ(tmp_path):
    for part, rows in enumerate((400, 30, 30, 150, 200, 10)):
        pq.write_table(table(0, rows), tmp_path / f"{part}.parquet")
    sizes = [stream(tmp_path, "y", lanes=3).lanes(epoch) for epoch in range(1, 9)]
    assert {sum(size) for size in sizes} == {820}
    assert all(max(size) <= 800 and min(size) > 0 for size in sizes)
    assert len(set(sizes)) > 1
    assert stream(tmp_path, "y", lanes=7).lanes(1).count(0) == 1


@pytest.mark.parametrize("parts", [1, 2, 4, 30])
def test_parts_in_order_make_the_table(folder, parts):
    rows = stream(folder, "y")
    tables = [rows.tables_in_order(part, parts) for part in range(parts)]
    found = [np.concatenate([[], *(numbers for numbers, _ in blocks)]) for blocks in tables]
    assert (np.concatenate(found) == np.arange(ROWS)).all()
    assert max(map(len, found)) - min(map(len, found)) <= 50


def test_blocks_are_numbers_and_whole_targets_are_classes(folder):
    rows = stream(sorted(folder.iterdir()), ["y", "b"], columns=["a"])
    x, y = next(rows.blocks(1, 0))
    assert (x.shape, y.shape) == ((ROWS // 2, 1), (ROWS // 2, 2))
    assert torch.allclose(y[:, 0], 2 * x[:, 0])
    assert next(stream(folder, "number").blocks(1, 0))[1].dtype == torch.int64
    assert rows.head()[0].shape == (50, 1)


def test_a_module_trains_on_files(folder):
    rows = stream(folder, "y", columns=["a", "b"], shuffle_block=200)
    module = ResTT(sites=2, feature_dim=2, bond_dim=2, outputs=1)
    module.reset_parameters(seed=0)
    records = train(
        module,
        rows,
        config=TrainConfig(epochs=30, batch_size=64, lr=0.05, seed=0),
        feature_map=lambda x: torch.stack([torch.ones_like(x), x], dim=-1).float(),
    )
    losses = [record.train_loss[0] for record in records]
    assert losses[-1] < 0.02 * losses[0]


def test_files_may_differ_in_the_width_of_numbers(tmp_path):
    pq.write_table(pa.table({"a": np.arange(3, dtype=np.int32), "y": [1.0, 2.0, 3.0]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"y": [4.0], "a": [0.5]}), tmp_path / "1.parquet")
    rows = stream(tmp_path, "y", lanes=1)
    x, y = next(rows.blocks(1, 0))
    assert sorted(zip(x[:, 0].tolist(), y.tolist(), strict=True)) == [(0, 1), (0.5, 4), (1, 2), (2, 3)]


def test_equal_streams_have_equal_configs(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("copy")
    for path in folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    config = stream(folder, "y").to_config()
    assert stream(other, "y").to_config() == config
    assert stream(folder, "y", seed=1).to_config() != config
    assert stream(folder, "y", lanes=3).to_config() != config
    early = stream(other, "y")
    pq.write_table(table(7, 300), other / "part-1.parquet", row_group_size=50)
    assert stream(other, "y").to_config() != config
    with pytest.raises(ValueError, match=r"part-1\.parquet has changed since the stream was made of it"):
        early.to_config()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"number": [1], "a": [0.5], "y": [1.0]}, "'b' is missing"),
        ({"number": [1], "a": [0.5], "b": [1.0], "y": [1.0], "c": [1]}, "'c' is added"),
        ({"number": [1], "a": ["text"], "b": [1.0], "y": [1.0]}, "'a' holds text and not numbers"),
        ({"number": [1], "a": [0.5], "b": [1.0], "y": [1]}, "'y' holds whole numbers and not numbers"),
    ],
)
def test_a_file_with_other_columns_is_refused_by_name(folder, columns, message):
    pq.write_table(pa.table(columns), folder / "part-3.parquet")
    with pytest.raises(ValueError, match=rf"part-3\.parquet has other columns than .*part-0\.parquet: {message}"):
        stream(folder, "y")


@pytest.mark.parametrize("keep", [0, 100, -20])
def test_a_damaged_file_is_refused_by_name(folder, keep):
    path = folder / "part-1.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"part-1\.parquet is damaged or no Parquet file"):
        stream(folder, "y")


def test_damage_within_a_file_is_named_when_it_is_read(folder):
    path = folder / "part-1.parquet"
    held = bytearray(path.read_bytes())
    held[4:2000] = bytes(1996)
    path.write_bytes(held)
    with pytest.raises(ValueError, match=r"part-1\.parquet is damaged"):
        list(stream(folder, "y").tables_in_order())


def test_a_file_that_changes_is_named(folder):
    rows = stream(folder, "y")
    pq.write_table(table(0, 100), folder / "part-0.parquet")
    with pytest.raises(ValueError, match=r"part-0\.parquet has changed since the stream was made"):
        list(rows.tables_in_order())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "z"}, "target names 'z', which is no column of"),
        ({"target": "y", "columns": ["a", "z"]}, "columns names 'z'"),
        ({"target": "y", "columns": ["a", "y"]}, "columns and target both name 'y'"),
        ({"target": "y", "columns": ["a", "a"]}, "columns must name each column once"),
        ({"target": "y", "columns": []}, "columns must name at least one column"),
        ({"target": "y", "shuffle_block": 0}, "shuffle_block must be at least 1"),
        ({"target": "y", "lanes": 0}, "lanes must be at least 1"),
        ({"target": "y", "seed": -1}, "seed must be at least 0"),
    ],
)
def test_arguments_that_do_not_fit_are_named(folder, arguments, message):
    with pytest.raises(ValueError, match=message):
        stream(folder, **arguments)


def test_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.parquet, which does not exist"):
        stream(tmp_path / "nothing.parquet", "y")
    with pytest.raises(ValueError, match=r"holds no \*\.parquet files"):
        stream(tmp_path, "y")
    with pytest.raises(ValueError, match="at least one Parquet file"):
        stream([], "y")


def test_values_that_a_loop_cannot_take_are_refused(tmp_path):
    pq.write_table(pa.table({"a": [1.0, None], "t": ["x", "y"], "y": [1.0, 2.0]}), tmp_path / "0.parquet")
    with pytest.raises(ValueError, match="column 'a' must be finite"):
        stream(tmp_path, "y", columns=["a"]).head()
    with pytest.raises(ValueError, match="column 't' must hold numbers to be trained on as it is, got text"):
        stream(tmp_path, "y").head()
