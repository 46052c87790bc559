"""Fits to streams of Parquet files: few rows as the table itself, many by a sample and then all of them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from restt.data import stream
from restt.estimators import (
    ResTTClassifier,
    ResTTNetClassifier,
    ResTTNetRegressor,
    ResTTRegressor,
    streams,
)
from restt.estimators.streams import read_stream

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 3000


def made(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Numbers, some of them missing, a category, and what follows from them; the last row is unlike all others."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.random((3, rows))
    kind = rng.choice(["red", "green", "blue"], rows).astype(object)
    b[rng.random(rows) < 0.1] = np.nan
    a[-1], kind[-1] = 7.0, "violet"
    y = np.sin(3 * a) * np.nan_to_num(b, nan=0.5) + (kind == "red") * c + 0.05 * rng.standard_normal(rows)
    return pd.DataFrame({"a": a, "b": b, "c": c, "kind": kind, "y": y, "label": np.where(y > 0.5, "high", "low")})


def written(frame: pd.DataFrame, folder, parts: int = 3):
    for part, rows in enumerate(np.array_split(np.arange(len(frame)), parts)):
        table = pa.Table.from_pandas(frame.iloc[rows], preserve_index=False)
        pq.write_table(table, folder / f"{part}.parquet", row_group_size=200)
    return folder


@pytest.fixture
def frame():
    return made()


@pytest.fixture
def folder(frame, tmp_path):
    return written(frame, tmp_path)


@pytest.fixture
def small_samples(monkeypatch):
    """Samples of 800 rows."""
    monkeypatch.setattr(streams, "SAMPLE_ROWS", 800)


COLUMNS = ["a", "b", "c", "kind"]


@pytest.mark.parametrize(
    ("model", "target"),
    [
        (ResTTNetRegressor(epochs=3, random_state=0), "y"),
        (ResTTNetClassifier(epochs=3, random_state=0), "label"),
    ],
)
def test_a_stream_of_few_rows_is_the_table(frame, folder, model, target):
    model.fit(stream(folder, target, columns=COLUMNS))
    found = model.predict(frame[COLUMNS])
    assert model.feature_names_in_.tolist() == COLUMNS
    assert (found == model.fit(frame[COLUMNS], frame[target]).predict(frame[COLUMNS])).all()


def test_a_sample_holds_ends_missing_values_and_every_level(folder, frame, small_samples):
    rows, y, weights, sample = read_stream(ResTTNetRegressor(), stream(folder, "y", columns=COLUMNS), None, None)
    assert 800 < len(rows) < 820
    assert sample is not None
    assert (np.diff(sample.numbers) > 0).all()
    pd.testing.assert_frame_equal(rows, frame.iloc[sample.numbers][COLUMNS].reset_index(drop=True), check_dtype=False)
    assert (y == frame["y"].to_numpy()[sample.numbers]).all()
    assert set(rows["kind"]) == {"red", "green", "blue", "violet"}
    assert rows["a"].max() == 7.0
    assert rows["c"].min() == frame["c"].min()
    assert ROWS - 1 in sample.numbers
    assert sorted(set(weights)) == [800 / ROWS, 1.0]


def test_all_classes_are_in_a_sample(folder, tmp_path_factory, small_samples):
    other = made(seed=1)
    other.loc[1234, "label"] = "unique"
    rows = stream(written(other, tmp_path_factory.mktemp("rare")), "label", columns=["a"])
    assert set(read_stream(ResTTNetClassifier(), rows, None, None)[1]) == {"high", "low", "unique"}


@pytest.mark.parametrize("early_stopping", [False, True])
def test_gradients_train_on_all_rows(folder, small_samples, early_stopping):
    rows = stream(folder, "y", columns=COLUMNS, shuffle_block=500)
    model = ResTTNetRegressor(epochs=12, batch_size=128, random_state=0, early_stopping=early_stopping).fit(rows)
    fresh = made(seed=9)
    assert model.history_[0].validation.keys() == ({"loss", "rmse", "r2"} if early_stopping else set())
    assert model.score(fresh[COLUMNS][:-1], fresh["y"][:-1]) > 0.9


def test_a_classifier_weighs_classes_and_goes_on_from_a_checkpoint(folder, small_samples, tmp_path_factory):
    saved = tmp_path_factory.mktemp("saved")
    rows = stream(folder, "label", columns=COLUMNS, shuffle_block=500)
    options = {"batch_size": 128, "random_state": 0, "class_weight": "balanced", "schedule": "constant"}
    whole = ResTTNetClassifier(epochs=6, **options).fit(rows)
    ResTTNetClassifier(epochs=3, checkpoint_dir=saved, **options).fit(rows)
    longer = ResTTNetClassifier(epochs=6, checkpoint_dir=saved, **options).fit(rows)
    fresh = made(seed=9)
    assert [record.replayed for record in longer.history_] == [True] * 3 + [False] * 3
    assert (longer.predict_proba(fresh[COLUMNS]) == whole.predict_proba(fresh[COLUMNS])).all()
    assert whole.score(fresh[COLUMNS], fresh["label"]) > 0.85


@pytest.mark.parametrize("columns", [["a", "b", "c"], COLUMNS])
def test_blocks_are_encoded_as_the_table_is(frame, folder, columns):
    rows = stream(folder, "y", columns=columns, shuffle_block=500)
    model = ResTTNetRegressor(epochs=1).fit(frame[columns], frame["y"])
    encoded = streams.EncodedStream(rows, model.encoding_, model.target_, np.array([7, 5]), 1.0)
    order = np.concatenate([block.index for block in rows.frames(1)])
    x, y, weights = (np.concatenate(parts) for parts in zip(*encoded.blocks(1), strict=True))
    assert np.array_equal(x, model.numbers(frame[columns])[order], equal_nan=True)
    assert (y == model.target_.encode(frame["y"].to_numpy()[order]).numpy()).all()
    assert sorted(order[weights == 0]) == [5, 7]
    assert weights.mean() == pytest.approx(1.0)
    # Checkpoints of earlier versions have 16 digits; other held-out rows are other data.
    digits, other = (
        one.to_config()["encoding and held-out rows"] for one in (encoded, replace(encoded, left_out=np.array([7])))
    )
    assert len(digits) == 16
    assert digits != other


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": [1.0, np.inf]}, "column 'a' must be finite, got an infinite value in row 1"),
        ({"y": [1.0, None]}, "target 'y' must be there in every row, got a missing value in row 1"),
        ({"a": pd.to_datetime(["2020-01-01", "2020-01-02"])}, "column 'a' must hold numbers or text, got timestamp"),
    ],
)
def test_what_no_fit_takes_is_refused(tmp_path, values, message):
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": [1.0, 2.0]} | values), tmp_path / "0.parquet")
    with pytest.raises(ValueError, match=message):
        ResTTNetRegressor().fit(stream(tmp_path, "y"))


def test_a_stream_has_its_own_y(folder, small_samples):
    rows = stream(folder, "y", columns=COLUMNS)
    with pytest.raises(ValueError, match="y must be None where X is a stream"):
        ResTTNetRegressor().fit(rows, np.zeros(ROWS))
    with pytest.raises(ValueError, match="sample_weight must be None where X is a stream"):
        ResTTNetRegressor().fit(rows, sample_weight=np.ones(ROWS))
    with pytest.raises(TypeError, match="partial_fit passes over a table, got a stream"):
        ResTTNetRegressor().partial_fit(rows, None)
    for kind in (ResTTRegressor, ResTTClassifier):
        with pytest.raises(TypeError, match=f"X must be a table, got a stream: {kind._trained} trains on rows"):
            kind().fit(rows)
    with pytest.raises(ValueError, match="requires y to be passed"):
        ResTTNetRegressor().fit(np.zeros((3, 2)))


def rows_in_memory(frame: pd.DataFrame, target: tuple[str, ...] = ("y",)) -> SimpleNamespace:
    """What is read of a stream, in blocks of seven rows."""
    columns = tuple(name for name in frame.columns if name not in target)
    schema = [
        SimpleNamespace(name=name, type="double" if pd.api.types.is_numeric_dtype(frame[name]) else "string")
        for name in frame
    ]
    blocks = [frame[start : start + 7] for start in range(0, len(frame), 7)]
    named = {
        "columns": columns,
        "rows": len(frame),
        "seed": 0,
        "schema": schema,
        "target": target,
        "flat": len(target) == 1,
    }
    return SimpleNamespace(**named, frames=lambda: iter(blocks))


def test_a_sample_has_fewer_rows_the_more_columns_there_are(monkeypatch):
    """At most 20 rows, and 60 numbers, but at least 9 rows; the first is added as an end of every column."""
    monkeypatch.setattr(streams, "SAMPLE_ROWS", 20)
    monkeypatch.setattr(streams, "SAMPLE_NUMBERS", 60)
    monkeypatch.setattr(streams, "FEWEST_SAMPLED", 9)
    for columns, count in ((2, 20), (4, 15), (30, 9)):
        for rows in (count, count + 20):
            frame = pd.DataFrame(np.zeros((rows, columns)), columns=[f"c{n}" for n in range(columns)]).assign(y=1.0)
            table, y, weights, sample = read_stream(ResTTNetRegressor(), rows_in_memory(frame), None, None)
            assert y.shape == weights.shape == (len(table),)
            if rows == count:
                assert sample is None
                assert weights.tolist() == [1.0] * rows
            else:
                assert sorted(weights, reverse=True) in ([1.0] * count, [1.0] * count + [count / rows])
                assert len(table) == len(sample.numbers)
                assert list(table.columns) == [f"c{n}" for n in range(columns)]


def test_levels_of_a_sample_are_as_many_as_are_remembered(monkeypatch):
    """One more than that, so that it is known that there are more; all of them where others are an error."""
    monkeypatch.setattr(streams, "FEWEST_SAMPLED", 1)
    monkeypatch.setattr(streams, "SAMPLE_ROWS", 1)
    monkeypatch.setattr(streams, "MOST_REMEMBERED", 3)
    frame = pd.DataFrame({"kind": [f"k{n}" for n in range(30)], "number": 1.0, "y": 1.0})
    for options, levels in (({}, 4), ({"handle_unknown": "error"}, 30), ({"feature_map": "onehot"}, 4)):
        table, *_ = read_stream(ResTTNetRegressor(**options), rows_in_memory(frame), None, None)
        assert levels <= table["kind"].nunique() <= levels + 1  # the row that was drawn
    frame["kind"] = np.arange(30.0)
    table, *_ = read_stream(ResTTNetRegressor(categorical_features=["kind"]), rows_in_memory(frame), None, None)
    assert 4 <= table["kind"].nunique() <= 5
    assert len(read_stream(ResTTNetRegressor(), rows_in_memory(frame), None, None)[0]) <= 3  # both ends


def test_special_rows_are_ends_missing_values_and_levels():
    frame = pd.DataFrame(
        {"a": [2.0, np.nan, 1.0, 3.0, np.nan, 0.5], "none": np.nan, "k": list("xxyxzz")}, index=range(10, 16)
    )
    assert streams._special_rows(frame[["a"]], set(), None).index.tolist() == [11, 13, 15]
    assert streams._special_rows(frame[["none"]], set(), None).index.tolist() == [10]
    assert streams._special_rows(frame[["k"]], {"k"}, None).index.tolist() == [10, 12, 14]
    assert streams._special_rows(frame, {"k"}, 2).index.tolist() == [10, 11, 12, 13, 15]


def test_blocks_of_several_outputs_weigh_as_their_sample(frame, folder):
    rows = stream(folder, ["y", "c"], columns=["a", "b"])
    model = ResTTNetRegressor(epochs=5).fit(frame[["a", "b"]], frame[["y", "c"]])
    encoded = streams.EncodedStream(rows, model.encoding_, model.target_, np.arange(100), 0.5)
    assert (len(encoded), encoded.rows) == (ROWS - 100, ROWS)
    x, y, weights = (np.concatenate(parts) for parts in zip(*encoded.blocks(0), strict=True))
    assert y.shape == (ROWS, 2)
    assert sorted(set(weights)) == [0.0, pytest.approx(ROWS / (0.5 * (ROWS - 100)))]
    assert encoded.features(torch.from_numpy(x[:3])).shape[:2] == (3, 2)
