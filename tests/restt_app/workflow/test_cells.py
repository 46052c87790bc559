"""Carried columns and results as they leave: exact numbers, valid JSON, no formulas."""

import datetime
import decimal
import io
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restt_app.workflow import Predictions, fit_table, predict_table, write_predictions
from restt_app.workflow.predicting import write_csv, write_lines

pytestmark = pytest.mark.usefixtures("little_scoring")

LARGE = 2**53 + 1  # a whole number that no float is


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": [*rng.normal(size=28), None, None], "y": rng.normal(size=30)})
    return fit_table(frame, "y", effort="quick")


def no_constant(text):
    raise ValueError(f"{text} is no JSON")


def lines(predictions, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    write_predictions(predictions, None, lines=True)
    return [json.loads(line, parse_constant=no_constant) for line in out.getvalue().splitlines()]


def written(frame):
    out = io.StringIO()
    write_csv(frame, out, header=True)
    return out.getvalue()


def test_text_of_a_file_is_carried_as_it_is_written(model, tmp_path, monkeypatch):
    path = tmp_path / "new.csv"
    path.write_text(f'id,code,a\nNA,007,1\n,None,?\n"?",1e5,0.5\n{LARGE},"x, y",NA\n')
    monkeypatch.setattr("restt_app.workflow.source.CHUNK_ROWS", 3)
    found = pd.read_csv(
        write_predictions(Predictions(model, path, carry=["id", "code", "a"]), tmp_path / "p.csv"),
        dtype=str,
        keep_default_na=False,
    )
    assert found["id"].tolist() == ["NA", "", "?", str(LARGE)]
    assert found["code"].tolist() == ["007", "None", "1e5", "x, y"]
    assert found["a"].tolist() == ["1", "?", "0.5", "NA"]
    assert found["prediction"].tolist() == [str(value) for value in predict_table(model, path).prediction]


def test_a_marker_of_missing_values_stays_one_in_a_carried_input(model, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("a\n1\n-999\n-999.0\n")
    options = {"missing": ["-999"]}
    pd.testing.assert_series_equal(
        predict_table(model, path, carry=["a"], **options).prediction, predict_table(model, path, **options).prediction
    )


@pytest.mark.parametrize("notes_of_pandas", [True, False])
def test_whole_numbers_beside_missing_ones_are_carried_exactly(notes_of_pandas, model, tmp_path, monkeypatch):
    frame = pd.DataFrame({"id": pd.array([LARGE, None], dtype="Int64"), "a": [0.5, 1.5]})
    table = pa.Table.from_pandas(frame.set_index("id") if notes_of_pandas else frame)
    path = tmp_path / "new.parquet"
    pq.write_table(table if notes_of_pandas else table.replace_schema_metadata(None), path)
    for data in (frame, path):
        assert predict_table(model, data, carry=["id"])["id"].iloc[0] == LARGE
        target = write_predictions(Predictions(model, data, carry=["id"]), tmp_path / "p.csv", force=True)
        assert [line.split(",")[0] for line in target.read_text().splitlines()] == ["id", str(LARGE), ""]
        assert [record["id"] for record in lines(Predictions(model, data, carry=["id"]), monkeypatch)] == [LARGE, None]


def test_json_is_valid_whatever_is_carried(model, tmp_path, monkeypatch):
    values = {
        "date": [datetime.date(2024, 2, 1), None],
        "time": [datetime.datetime(2024, 2, 1, 3, tzinfo=datetime.UTC), None],
        "decimal": [decimal.Decimal("1.50"), None],
        "bytes": [b"\xff\x00", None],
        "number": [math.inf, math.nan],
        "list": [[1.0, math.nan], None],
        "truth": [True, None],
    }
    path = tmp_path / "new.parquet"
    pq.write_table(pa.table({**values, "a": [0.5, 1.5]}), path)
    expected = {
        "date": "2024-02-01",
        "time": "2024-02-01T03:00:00+00:00",
        "decimal": "1.50",
        "bytes": "ff00",
        "number": None,
        "list": [1.0, None],
        "truth": True,
    }
    first, second = lines(Predictions(model, path, carry=list(values)), monkeypatch)
    assert {name: first[name] for name in values} == expected
    assert {name: second[name] for name in values} == dict.fromkeys(values)
    assert math.isfinite(first["prediction"])
    target = write_predictions(Predictions(model, path, carry=list(values)), tmp_path / "p.csv")
    found = pd.read_csv(target, keep_default_na=False).astype(str)
    assert found.loc[0, list(values)].tolist() == [
        *("2024-02-01", "2024-02-01T03:00:00+00:00", "1.50", "ff00", "inf", "[1.0, null]", "True")
    ]
    assert found.loc[1, list(values)].tolist() == [""] * 7


def test_text_of_frames_and_parquet_is_carried_as_it_is(model, tmp_path):
    frame = pd.DataFrame({"code": ["NA", "None", "-"], "a": [0.5, 1.5, 2.5]})
    frame.to_parquet(tmp_path / "new.parquet")
    for data in (frame, tmp_path / "new.parquet"):
        assert predict_table(model, data, carry=["code"]).code.tolist() == ["NA", "None", "-"]
        assert predict_table(model, data, carry=["code"], missing=["NA"]).code.tolist() == ["NA", "None", "-"]


@pytest.mark.parametrize("name", ["prediction", "low"])
def test_a_carried_column_with_the_name_of_a_result_is_refused(name, fitted, labelled, tree_frame):
    data = tree_frame.assign(**{name: "mine"})
    with pytest.raises(ValueError, match=f"carry names the column '{name}', and a result has that name"):
        predict_table(fitted, data, carry=[name])
    if name == "low":  # classes have no interval
        assert predict_table(labelled, data, carry=[name, name])[name].tolist() == ["mine"] * len(data)


def test_predictions_far_from_zero_keep_their_differences(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(-1, 1, 60)})
    fitted = fit_table(frame.assign(y=1e12 + frame.a), "y", effort="quick")
    path = write_predictions(Predictions(fitted, frame), tmp_path / "p.csv")
    expected = fitted.estimator.predict(frame[["a"]])
    assert len(np.unique(expected)) > 30
    np.testing.assert_array_equal([float(line.split(",")[0]) for line in path.read_text().splitlines()[1:]], expected)


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_numbers_survive_csv(values):
    assert [float(line) for line in written(pd.DataFrame({"x": values})).splitlines()[1:]] == values


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1)
)  # pandas 2 ends cells there
def test_text_survives_csv_and_is_never_a_formula(texts):
    frame = pd.DataFrame({"x": texts, "end": "|"}, dtype=object)
    found = pd.read_csv(io.StringIO(written(frame), newline=""), dtype=str, keep_default_na=False)
    assert found.end.tolist() == ["|"] * len(texts)
    for cell, text in zip(found.x, texts, strict=True):
        assert cell.removeprefix("'" if not text.startswith("'") else "") == text
        assert not cell.startswith(("=", "@", "\t", "\r"))


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1+2", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-", "+49 30 1"])
def test_formulas_get_an_apostrophe_in_cells_and_names(text):
    found = pd.read_csv(io.StringIO(written(pd.DataFrame({text: [text, "x\r=1"]})), newline=""), dtype=str)
    assert found.columns.tolist() == [f"'{text}"]
    assert found[f"'{text}"].tolist() == [f"'{text}", "x\r=1"]


@pytest.mark.parametrize("text", ["-5", "+1.5", "-1,5", "-1e-5", "-.5", "-1.234,5", "a=b", "2024-02-01"])
def test_numbers_written_as_text_are_no_formulas(text):
    assert written(pd.DataFrame({"x": [text, -1.5]}, dtype=object)).splitlines()[1].strip('"') == text


def test_formulas_are_plain_text_in_json():
    out = io.StringIO()
    write_lines(pd.DataFrame({"=x": ["=1"]}), out)
    assert json.loads(out.getvalue()) == {"=x": "=1"}


def test_labels_that_are_formulas_are_escaped_and_the_frame_has_them_as_they_are(tree_frame, tmp_path):
    frame = tree_frame.assign(height=np.where(tree_frame.height > 9, "=tall", "small"))
    fitted = fit_table(frame, "height", effort="quick")
    assert set(predict_table(fitted, frame).prediction) == {"=tall", "small"}
    path = write_predictions(Predictions(fitted, frame), tmp_path / "p.csv")
    assert set(pd.read_csv(path).prediction) == {"'=tall", "small"}
