import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest

from restt_app.workflow import read_table
from restt_app.workflow.columns import Column
from restt_app.workflow.predicting import model_frame


def write(path, **columns):
    pd.DataFrame(columns).to_csv(path, index=False, sep=";")
    return path


def only(path, **options):
    table = read_table(path, **options)
    return table.columns["x"], table.values["x"]


@pytest.mark.parametrize(
    ("texts", "kind", "layout", "values"),
    [
        (["1", "2.5", "-3e2"], "number", "1234.5", [1, 2.5, -300]),
        (["1,5", "2", "-3e2"], "number", "1234,5", [1.5, 2, -300]),
        (["1,5", "2", "1.234,5"], "number", "1.234,5", [1.5, 2, 1234.5]),
        (["(1,234.5)", "2.5", "−3"], "number", "1,234.5", [-1234.5, 2.5, -3]),
        (["($1,234.50)", "$2", "-$3"], "number", "$1,234.5", [-1234.5, 2, -3]),
        (["1,234,567", "2.5", "12"], "number", "1,234.5", [1234567, 2.5, 12]),
        (["1 234,5", "2", "1\u202f234\u202f567"], "number", "1 234,5", [1234.5, 2, 1234567]),
        (["1'234.5", "2", "1’234"], "number", "1'234.5", [1234.5, 2, 1234]),
        (["12", "-7", "1400"], "number", "1234", [12, -7, 1400]),
        (["$37,056", "-$1,234,567.5", "$ 3"], "number", "$1,234.5", [37056, -1234567.5, 3]),
        (["44.0%", "3 %", "-0.5%"], "number", "1234.5%", [44, 3, -0.5]),
        (["1,5 kg", "2kg", "3 kg"], "number", "1234,5 kg", [1.5, 2, 3]),
        (["80 m2", "95 m2", "100 m2"], "number", "1234 m2", [80, 95, 100]),
        (["EUR 5", "EUR 7.25", "EUR 9"], "number", "EUR1234.5", [5, 7.25, 9]),
        (["5 kg", "500 g", "1 kg"], "category", "text", ["5 kg", "500 g", "1 kg"]),
        (["+", "-", "+"], "boolean", "+/-", ["+", "-", "+"]),
        (["1970-01-02", "1970-01-03T12:00:00", "1969-12-31"], "date", "ISO8601", [1, 2.5, -1]),
        (["02.01.1970", "31.01.1970", "01.02.1970"], "date", "%d.%m.%Y", [1, 30, 31]),
        (["01/02/1970", "01/31/1970", "02/01/1970"], "date", "%m/%d/%Y", [1, 30, 31]),
        (["31-01-1970", "02-01-1970", "01-02-1970"], "date", "%d-%m-%Y", [30, 1, 31]),
        (
            ["31/01/1970 12:00:00", "02/01/1970 00:00:00", "01/02/1970 06:00:00"],
            "date",
            "%d/%m/%Y %H:%M:%S",
            [30.5, 1, 31.25],
        ),
        (["02-Jan-1970", "31-Jan-1970", "01-Feb-1970"], "date", "%d-%b-%Y", [1, 30, 31]),
        (["2 January 1970", "31 January 1970", "1 February 1970"], "date", "%d %B %Y", [1, 30, 31]),
        (["5 May 1970", "2 Jan 1970", "31 Jan 1970"], "date", "%d %b %Y", [124, 1, 30]),
        (["True", "false", "TRUE"], "boolean", "true/false", ["true", "false", "true"]),
        (["yes", "No", "no"], "boolean", "yes/no", ["yes", "no", "no"]),
        (["a", "b ", "a"], "category", "text", ["a", "b", "a"]),
        (["01234", "98765", "00001"], "category", "text", ["01234", "98765", "00001"]),
        (["0", "1", "3+"], "category", "text", ["0", "1", "3+"]),
    ],
)
def test_kinds_are_told_by_the_text(texts, kind, layout, values, tmp_path):
    column, read = only(write(tmp_path / "a.csv", x=texts, other=["u", "v", "w"]))
    assert (column.kind, column.layout) == (kind, layout)
    assert list(read) == values


def test_missing_values_are_counted_and_kept(tmp_path):
    column, values = only(write(tmp_path / "a.csv", x=["1", "", "?"], other=["u", "v", "w"]))
    assert column.missing == 2
    assert np.isnan(values).tolist() == [False, True, True]


def test_a_column_that_changes_its_kind_on_the_way_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr("restt_app.workflow.source.CHUNK_ROWS", 3)
    words = ["1", "2", "3", "4,5", "5", "6", "7", "8"]
    path = write(
        tmp_path / "a.csv", x=words, when=[*["03/04/2020"] * 6, "04/25/2020", "01/01/2020"], other=list("abcdefgh")
    )
    table = read_table(path)
    assert table.values["x"].tolist() == [1, 2, 3, 4.5, 5, 6, 7, 8]
    assert table.columns["when"].layout == "%m/%d/%Y"
    assert table.columns["when"].range == ["2020-01-01", "2020-04-25"]
    assert list(table.values["other"]) == list("abcdefgh")


def test_the_chunks_do_not_change_what_is_read(tree_frame, tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    tree_frame.to_csv(path, index=False)
    whole = read_table(path)
    monkeypatch.setattr("restt_app.workflow.source.CHUNK_ROWS", 7)
    parts = read_table(path)
    assert parts.columns == whole.columns
    pd.testing.assert_frame_equal(
        parts.frame().astype({"kind": str, "watered": str}), whole.frame().astype({"kind": str, "watered": str})
    )


def test_a_date_becomes_days_and_what_varies_with_the_calendar():
    days = pd.Series(pd.date_range("2020-01-01", periods=800, freq="7h"))
    table = read_table(pd.DataFrame({"when": days, "long": days.dt.normalize() + pd.to_timedelta(np.arange(800), "D")}))
    frame = table.frame()
    assert frame.columns.tolist() == [
        *("when", "when weekday", "when hour"),
        *("long", "long month", "long weekday"),
    ]
    assert frame["when weekday"].tolist() == days.dt.day_of_week.tolist()
    np.testing.assert_allclose(frame["when hour"], days.dt.hour, atol=1e-6)
    assert frame["long month"].max() == 12


@pytest.mark.skipif(int(pd.__version__.split(".")[0]) < 3, reason="pandas 2 reads dates from 1677 to 2262")
def test_dates_may_lie_beyond_what_nanoseconds_reach(tmp_path):
    path = write(tmp_path / "a.csv", x=["9999-12-31", "1000-01-01T22:00", "2020-02-09 23:00"])
    column, days = only(path)
    assert column.range == ["1000-01-01 22:00:00", "9999-12-31"]
    assert days[0] == 2_932_896
    assert read_table(path).frame()["x hour"].tolist() == pytest.approx([0, 22, 23])


@pytest.mark.parametrize("argument", ["missing", "category", "drop", "keep"])
def test_a_text_is_no_list_of_texts(argument):
    with pytest.raises(TypeError, match=rf"{argument} must be a list of texts, got the text 'x': pass \['x'\]"):
        read_table(pd.DataFrame({"x": [1.0, 2.0]}), **{argument: "x"})


def test_columns_that_say_nothing_are_left_out_and_why(tmp_path):
    rows = 30
    path = write(
        tmp_path / "a.csv",
        number=range(1, rows + 1),
        customer_id=np.arange(rows) * 17 + 3,
        one=["x"] * rows,
        none=[""] * rows,
        name=[f"name {row}" for row in range(rows)],
        once=["x", *[""] * (rows - 1)],
        years=range(1990, 1990 + rows),
        kept=np.arange(rows) % 4,
    )
    table = read_table(path, drop=["kept"])
    notes = {name: column.note for name, column in table.columns.items() if not column.used}
    assert notes == {
        "number": "left out: numbers the rows",
        "customer_id": "left out: numbers the rows",
        "one": "left out: has one value",
        "none": "left out: holds nothing but missing values",
        "name": "left out: names the rows (30 different texts in 30 rows)",
        "kept": "left out: as asked",
    }
    kept = read_table(path, keep=["number", "name"], category=["years"])
    assert kept.frame().columns.tolist() == ["number", "name", "once", "years", "kept"]
    assert kept.columns["years"].kind == "category"


def test_a_dropped_column_may_hold_anything(tmp_path):
    rows = 30
    mixed = [*map(str, range(rows - 1)), "oops"]
    path = write(tmp_path / "a.csv", x=np.arange(rows) / 7, mixed=mixed, infinite=["inf", *["1"] * (rows - 1)])
    table = read_table(path, drop=["mixed", "infinite"])
    assert list(table.columns) == ["x", "mixed", "infinite"]
    assert table.frame().columns.tolist() == list(table.values) == ["x"]
    assert (table.columns["mixed"].kind, table.columns["mixed"].used) == ("unread", False)
    assert Column.from_json(table.columns["mixed"].to_json()) == table.columns["mixed"]
    frame = pd.DataFrame({"x": np.arange(rows) / 7, "lists": [[1]] * rows})
    assert read_table(frame, drop=["lists"]).frame().columns.tolist() == ["x"]


def test_numbers_with_text_among_them_are_refused_with_the_way_out(tmp_path):
    path = write(tmp_path / "a.csv", x=[*map(str, range(29)), "broken"], other=[*"ab"] * 15)
    with pytest.raises(ValueError, match=r"column 'x' holds numbers and text, such as 'broken' in row 30.*--missing"):
        read_table(path)
    assert read_table(path, missing=["broken"]).columns["x"].missing == 1
    assert read_table(path, category=["x"]).columns["x"].kind == "category"


@pytest.mark.parametrize(
    ("numbers", "words", "refused"), [(19, 1, False), (20, 1, True), (11, 11, True), (10, 12, False), (21, 0, False)]
)
def test_texts_are_mixed_where_half_of_more_than_twenty_are_numbers(numbers, words, refused):
    texts = [*(f"{k}.5" for k in range(1, numbers + 1)), *(f"word {k}" for k in range(words))]
    frame = pd.DataFrame({"x": [None, *texts] * 3})
    if refused:
        with pytest.raises(ValueError, match=f"holds numbers and text, such as 'word 0' in row {numbers + 2}:"):
            read_table(frame)
    else:
        assert read_table(frame).columns["x"].kind == ("category" if words else "number")


def test_labels_are_kept_of_two_hundred_values():
    table = read_table(pd.DataFrame({"x": np.arange(201.0) % 200, "y": np.arange(201.0)}))
    assert list(table.labels) == ["x"]


def test_codes_with_letters_among_them_are_categories(tmp_path):
    codes = [f"{k:04d}" if k % 3 else f"{k:03d}A" for k in range(30)] * 2
    table = read_table(write(tmp_path / "a.csv", code=codes, y=range(60)))
    assert (table.columns["code"].kind, table.columns["code"].distinct) == ("category", 30)


def test_mixed_objects_of_a_data_frame_are_refused():
    frame = pd.DataFrame({"x": pd.Series([1.5, "two", 3.0], dtype=object), "y": [1, 2, 3]})
    with pytest.raises(ValueError, match="holds numbers and text, such as 'two' in row 2"):
        read_table(frame)


def test_infinity_is_refused(tmp_path):
    with pytest.raises(ValueError, match="infinite value in row 2"):
        read_table(write(tmp_path / "a.csv", x=["1", "inf"], y=["a", "b"]))


def test_numbers_whose_squares_are_no_floats_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"column 'x' holds -1e\+300 in row 2, and numbers beyond 1e\+150"):
        read_table(write(tmp_path / "a.csv", x=["1", "-1e300"], y=["a", "b"]))


@pytest.mark.parametrize(("first", "kind"), [(10**18, "category"), (10**15, "number")])
def test_whole_numbers_that_floats_merge_are_codes(first, kind, tmp_path):
    codes = [first + 7 * (row % 5) for row in range(20)]
    file, frame = write(tmp_path / "a.csv", x=list(map(str, codes))), pd.DataFrame({"x": codes})
    for data in (file, frame, frame.astype("Int64")):
        column, _ = only(data)
        assert (column.kind, column.distinct) == (kind, 5)
    assert model_frame([column], pd.DataFrame({"x": [first + 7]})).x[0] in (str(first + 7), first + 7)


def test_large_whole_numbers_with_a_gap_stay_numbers(tmp_path):
    numbers = [str(10**18 + 10**6 * row) for row in range(5)]
    assert only(write(tmp_path / "a.csv", x=[*numbers, "-"], y=list("abcdef")))[0].kind == "number"


def test_types_of_data_frames_and_parquet_are_known(tree_frame, tmp_path):
    frame = tree_frame.assign(
        day=[datetime.date(2020, 1, 1 + row % 28) for row in range(60)],
        cost=[decimal.Decimal("1.25") * row for row in range(60)],
        count=pd.array([None, *range(59)], dtype="Int64"),
        code=pd.Categorical([f"c{row % 3}" for row in range(60)]),
        text=[str(row % 5) for row in range(60)],
    )
    frame.to_parquet(tmp_path / "a.parquet")
    kinds = {
        **{"girth": "number", "kind": "category", "planted": "date", "watered": "boolean", "height": "number"},
        **{"day": "date", "cost": "number", "count": "number", "code": "category", "text": "number"},
    }
    for data in (frame, tmp_path / "a.parquet"):
        table = read_table(data)
        assert {name: column.kind for name, column in table.columns.items()} == kinds
        assert table.columns["count"].missing == 1
        assert table.values["cost"][2] == 2.5
        assert sorted(table.columns["code"].levels) == ["c0", "c1", "c2"]
    assert read_table(pl.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]})).columns["b"].kind == "category"
    arrow = read_table(frame.convert_dtypes(dtype_backend="pyarrow").assign(girth=frame.girth.astype("float16")))
    assert {name: column.kind for name, column in arrow.columns.items()} == kinds
    assert arrow.columns["kind"].levels == table.columns["kind"].levels


@pytest.mark.parametrize(
    ("data", "error", "expected"),
    [
        (3, TypeError, "data must be a path"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "has 2 columns named 'a'"),
        (pd.DataFrame({"a": [[1], [2]]}), ValueError, "column 'a' holds values of type object"),
        (pd.DataFrame({"a": []}), ValueError, "no rows"),
    ],
)
def test_what_is_no_table_is_refused(data, error, expected):
    with pytest.raises(error, match=expected):
        read_table(data)


def test_no_rows(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match=r"a\.csv has column names but no rows"):
        read_table(tmp_path / "a.csv")


@pytest.mark.parametrize("argument", ["category", "drop", "keep"])
def test_unknown_columns_are_named(argument, tmp_path):
    path = write(tmp_path / "a.csv", x=["1", "2"], y=["a", "b"])
    with pytest.raises(
        ValueError, match=rf"{argument} names the column 'X', which is not there \(did you mean 'x'\?\)"
    ):
        read_table(path, **{argument: ["X"]})


def test_a_new_table_is_read_by_the_old_ones_columns(tmp_path):
    columns = list(
        read_table(write(tmp_path / "a.csv", x=["1.5", "2"], b=["yes", "no"], c=["u", "v"])).columns.values()
    )
    columns = [Column.from_json(column.to_json()) for column in columns]
    new = pd.DataFrame({"c": ["v", None], "extra": [1, 2], "x": ["1.5", "7"], "b": ["No", "YES"]})
    frame = model_frame(columns, new)
    assert frame["x"].tolist() == [1.5, 7.0]
    assert model_frame(columns, new.assign(x=["05", "1"]))["x"].tolist() == [5.0, 1.0]
    assert frame["b"].tolist() == ["no", "yes"]
    assert model_frame(columns, new.assign(b=[False, True]))["b"].tolist() == ["no", "yes"]
    assert frame["c"].isna().tolist() == [False, True]
    with pytest.raises(ValueError, match="column 'x' must hold numbers as in the fit, got 'seven' in row 12"):
        model_frame(columns, new.assign(x=["1", "seven"]), first_row=11)
    with pytest.raises(ValueError, match=r"lacks the column\(s\) 'x', 'b'"):
        model_frame(columns, new[["c"]])


def test_a_column_named_like_a_part_of_a_date_is_refused():
    dates = pd.date_range("2020-01-01", periods=20, freq="3D")
    with pytest.raises(ValueError, match="column 'when weekday' has the name that a part of the date 'when' gets"):
        read_table(pd.DataFrame({"when": dates, "when weekday": range(20, 40)}))


def test_words_that_pandas_takes_for_dates_are_categories(tmp_path):
    rows = "\n".join(f"{k},{'today' if k % 3 else 'now'}" for k in range(12))
    (tmp_path / "a.csv").write_text(f"x,when\n{rows}\n")
    assert read_table(tmp_path / "a.csv").columns["when"].kind == "category"


@pytest.mark.parametrize(
    ("rows", "distinct", "used"), [(19, 19, True), (20, 20, False), (20, 11, False), (20, 10, True)]
)
def test_texts_name_the_rows_where_more_than_half_of_twenty_differ(rows, distinct, used):
    texts = [f"t{row % distinct}" for row in range(rows)]
    assert read_table(pd.DataFrame({"x": texts})).columns["x"].used == used


@pytest.mark.parametrize(
    ("numbers", "used"),
    [
        (range(20), False),
        (range(1, 21), False),
        (range(2, 22), True),
        (range(19), True),
        ([*range(19), 20], True),
        ([row + 0.5 for row in range(20)], True),
    ],
)
def test_numbers_that_count_the_rows_are_left_out(numbers, used):
    assert read_table(pd.DataFrame({"x": list(numbers)})).columns["x"].used == used


@pytest.mark.parametrize(
    ("span", "parts"), [(13, []), (14, ["weekday"]), (365, ["weekday"]), (366, ["month", "weekday"])]
)
def test_parts_of_a_date_need_a_span(span, parts):
    dates = pd.Timestamp("2020-01-01") + pd.to_timedelta([0, 1, 3, span], unit="D")
    column = read_table(pd.DataFrame({"x": dates})).columns["x"]
    assert column.inputs == ["x", *(f"x {part}" for part in parts)]


def test_a_hundred_levels_are_listed_the_most_frequent_first():
    texts = [f"t{row:03d}" for row in range(120)] * 3 + ["t119"]
    column = read_table(pd.DataFrame({"x": texts})).columns["x"]
    assert (len(column.levels), column.levels[0], column.distinct) == (100, "t119", 120)
