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


def numbers_of(rows, epoch):
    return [frame["number"].to_numpy() for frame in rows.frames(epoch)]


def test_every_row_comes_once_in_every_epoch_and_in_another_order(folder):
    rows = stream(folder, "y", shuffle_block=120, seed=3)
    assert (rows.rows, rows.columns) == (ROWS, ("number", "a", "b"))
    first, again, second = (np.concatenate(numbers_of(rows, epoch)) for epoch in (1, 1, 2))
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert (first == again).all()
    assert (first != second).any()
    assert (np.concatenate([frame.index for frame in rows.frames()]) == np.arange(ROWS)).all()
    for frame in rows.frames(1):
        assert (frame.index == frame["number"]).all()


def test_row_groups_come_in_random_order_and_blocks_are_shuffled(folder):
    blocks = numbers_of(stream(folder, "y", shuffle_block=100), 1)
    assert [len(block) for block in blocks] == [100] * 9
    assert all(len(set(block // 50)) == 2 for block in blocks)
    assert any(np.ptp(block) > 100 for block in blocks)
    assert all((np.diff(block) < 0).any() for block in blocks)


def test_a_row_group_larger_than_a_block_comes_in_pieces(tmp_path):
    pq.write_table(table(0, 1000), tmp_path / "0.parquet")
    assert [len(block) for block in numbers_of(stream(tmp_path, "y", shuffle_block=300), 1)] == [300, 300, 300, 100]


def test_memory_is_that_of_blocks_and_not_of_row_groups(tmp_path):
    # One row group of 32 MB, in small pages.
    values = {f"x{column}": np.random.default_rng(column).random(400_000) for column in range(10)}
    pq.write_table(
        pa.table(values), tmp_path / "0.parquet", row_group_size=400_000, use_dictionary=False, data_page_size=2**16
    )
    pool = pa.default_memory_pool()
    before, highest = pool.bytes_allocated(), 0
    for frame in stream(tmp_path, "x0", shuffle_block=10_000).frames(1):
        highest = max(highest, pool.bytes_allocated() - before)
        assert len(frame) <= 10_000
    assert 0 < highest < 12_000_000


def test_blocks_are_numbers_and_whole_targets_are_classes(folder):
    rows = stream(sorted(folder.iterdir()), ["y", "b"], columns=["a"])
    x, y = next(rows.blocks(1))
    assert (x.shape, y.shape) == ((ROWS, 1), (ROWS, 2))
    assert torch.allclose(y[:, 0], 2 * x[:, 0])
    assert next(stream(folder, "number").blocks(1))[1].dtype == torch.int64


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
    x, y = next(stream(tmp_path, "y").blocks(1))
    assert sorted(zip(x[:, 0].tolist(), y.tolist(), strict=True)) == [(0, 1), (0.5, 4), (1, 2), (2, 3)]


def test_equal_streams_have_equal_configs(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("copy")
    for path in folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    config = stream(folder, "y").to_config()
    assert stream(other, "y").to_config() == config
    assert stream(folder, "y", seed=1).to_config() != config
    assert stream(folder, "y", shuffle_block=3).to_config() != config
    pq.write_table(table(7, 300), other / "part-1.parquet", row_group_size=50)
    assert stream(other, "y").to_config() != config


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"number": [1], "a": [0.5], "y": [1.0]}, "'b' is missing"),
        ({"number": [1], "a": [0.5], "b": [1.0], "y": [1.0], "c": [1]}, "'c' is added"),
        ({"number": [1], "a": ["text"], "b": [1.0], "y": [1.0]}, ".*Field a has incompatible types: double vs string"),
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
        list(stream(folder, "y").frames())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "z"}, "target names 'z', which is no column of"),
        ({"target": "y", "columns": ["a", "z"]}, "columns names 'z'"),
        ({"target": "y", "columns": ["a", "y"]}, "columns and target both name 'y'"),
        ({"target": "y", "columns": ["a", "a"]}, "columns must name at least one column, each once"),
        ({"target": "y", "columns": []}, "columns must name at least one column, each once"),
        ({"target": "y", "shuffle_block": 0}, "shuffle_block must be at least 1"),
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
        next(stream(tmp_path, "y", columns=["a"]).blocks(1))
    with pytest.raises(ValueError, match="column 't' must hold numbers, got text"):
        next(stream(tmp_path, "y").blocks(1))


def test_text_decimals_and_booleans_are_read_whatever_their_encoding(tmp_path):
    from decimal import Decimal

    text = pa.array(["x", "y", None])
    columns = {"t": text.dictionary_encode(), "d": [Decimal("1.5"), None, Decimal("2.5")], "b": [True, None, False]}
    pq.write_table(pa.table({**columns, "y": [1, 2, 3]}), tmp_path / "0.parquet")
    frame = next(stream(tmp_path, "y").frames())
    assert frame["t"].tolist()[:2] == ["x", "y"]
    assert frame["d"].dtype == np.float64
    assert frame["d"].isna().tolist() == [False, True, False]
    assert frame["y"].dtype == np.int64


def test_dates_are_refused(tmp_path):
    pq.write_table(pa.table({"a": pa.array([0, 1], pa.timestamp("us")), "y": [1.0, 2.0]}), tmp_path / "0.parquet")
    with pytest.raises(ValueError, match="column 'a' must hold numbers or text, got timestamp"):
        stream(tmp_path, "y")
