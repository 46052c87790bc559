"""How text is written, from a file to a fit to predictions: signs, orders, units, missing values, labels."""

import numpy as np
import pandas as pd
import pytest

from restt_app.workflow import Card, Predictions, explain_table, fit_table, load_table, predict_table, read_table
from restt_app.workflow.layouts import (
    day_order,
    decimal_sign,
    given_layouts,
    is_layout,
    is_money,
    joined,
    label_text,
    parsed,
    remedy,
    rival,
    split,
    typed_kind,
)
from restt_app.workflow.target import read_target

pytestmark = pytest.mark.usefixtures("little_scoring")

ROWS = 40
RNG = np.random.default_rng(0)
AMOUNTS = RNG.integers(1000, 30000, ROWS)
HEIGHTS = RNG.normal(size=ROWS).round(3)


def write(path, sep=";", **columns):
    """A file of these texts, beside a target of numbers unless there is one."""
    columns.setdefault("y", [f"{height:.4f}1" for height in HEIGHTS[: len(next(iter(columns.values())))]])
    pd.DataFrame(columns).to_csv(path, index=False, sep=sep)
    return path


def comma(number):
    return f"{number:,}"


def fit(path, target="y", **options):
    return fit_table(path, target, effort="quick", **options)


def read(path, name="x", **options):
    table = read_table(path, **options)
    return table.columns[name], table.values[name]


# The layout of the fit is the model's


def test_a_thousands_comma_is_not_read_as_decimals(tmp_path):
    model = fit(write(tmp_path / "a.csv", x=[str(k) for k in AMOUNTS]))
    new = write(tmp_path / "new.csv", x=[comma(k) for k in AMOUNTS])
    with pytest.raises(ValueError, match=rf"column 'x' must hold numbers .* got '{comma(AMOUNTS[0])}' in row 1"):
        predict_table(model, new)
    expected = predict_table(model, tmp_path / "a.csv")
    for layout in ("1,234.5", ["x=1,234.5"], {"x": "1,234.5"}):
        pd.testing.assert_frame_equal(predict_table(model, new, layout=layout), expected)


def test_a_refused_layout_comes_with_its_remedy(tmp_path):
    model = fit(write(tmp_path / "a.csv", x=[str(k / 8) for k in AMOUNTS], when=["2020-01-31", "2020-02-28"] * 20))
    new = write(tmp_path / "new.csv", x=["1,234"], when=["2020-01-31"])
    with pytest.raises(ValueError, match=r"written as 1234\.5.*--layout x=1234,5\) or .*--layout x=1,234\.5"):
        predict_table(model, new)
    new = write(tmp_path / "new.csv", x=["1.5"], when=["01/31/2020"])
    with pytest.raises(ValueError, match=r"'when' must hold dates .* got '01/31/2020' .*--layout when=m/d/Y\)"):
        predict_table(model, new)


@pytest.mark.parametrize(
    ("texts", "new"),
    [
        (["1400", "12000"], "1.234"),  # nothing says that a point is a decimal sign
        (["1,5", "22,75"], "1.234"),
        (["1,5", "22,75"], "1.5"),
        (["1.5", "22.75"], "1,5"),
        (["1.234,5", "22,75"], "1,234.5"),
        (["44.0%", "7.25%"], "0.44"),
        (["$1.5", "$2.75"], "€1.5"),
        (["5 kg", "7 kg"], "500 g"),
        (["yes", "no"], "true"),
    ],
)
def test_what_contradicts_the_fit_is_refused(texts, new, tmp_path):
    y = HEIGHTS * 1000 // 1  # whole, so that the other column is the only one to show a decimal sign
    columns = {"x": texts * 20, "y": [str(int(value)) for value in y]}
    model = fit(write(tmp_path / "a.csv", **columns))
    with pytest.raises(ValueError, match=rf"column 'x' must hold .* as in the fit, got '{new}' in row 1"):
        predict_table(model, write(tmp_path / "new.csv", x=[new]))


def test_numbers_without_their_unit_are_refused_unless_said(tmp_path):
    model = fit(write(tmp_path / "a.csv", x=["44.0%", "7.25%"] * 20))
    with pytest.raises(ValueError, match=r"got 0\.44 in row 1, where they are written as 1234\.5%"):
        predict_table(model, pd.DataFrame({"x": [0.44]}))
    plain = predict_table(model, pd.DataFrame({"x": [44.0]}), layout="x=1234.5")
    pd.testing.assert_frame_equal(plain, predict_table(model, pd.DataFrame({"x": ["44%"]})))


def test_the_saved_layout_reads_every_chunk_alike(tmp_path, monkeypatch):
    days = pd.date_range("2020-01-01", periods=60, freq="3D").strftime("%m/%d/%Y")
    texts = write(tmp_path / "a.csv", when=days, y=[str(k * 1.5) for k in range(60)])
    model = load_table(fit(texts).save(tmp_path / "model"))
    assert model.columns[0].layout == "%m/%d/%Y"
    early = [day for day in days if int(day[3:5]) <= 12]  # these alone could be read the other way round
    new = write(tmp_path / "new.csv", when=early, y=["1.5"] * len(early))
    truth = [pd.Timestamp(day).strftime("%Y-%m-%d") for day in early]
    expected = predict_table(model, pd.DataFrame({"when": pd.to_datetime(truth)}))
    monkeypatch.setattr("restt_app.workflow.source.CHUNK_ROWS", 2)
    pd.testing.assert_frame_equal(predict_table(model, new), expected, rtol=1e-9)


def test_whole_numbers_follow_the_signs_of_other_columns(tmp_path):
    model = fit(write(tmp_path / "a.csv", x=["7", "950"] * 20, price=["1,234.5", "2.75"] * 20))
    new = write(tmp_path / "new.csv", x=["1,234"], price=["3.5"])
    same = write(tmp_path / "same.csv", x=["1234"], price=["3.5"])
    pd.testing.assert_frame_equal(predict_table(model, new), predict_table(model, same))


def test_the_page_reads_a_target_in_the_layout_that_is_named(tmp_path):
    model = fit(write(tmp_path / "a.csv", x=[str(k) for k in AMOUNTS]))
    new = write(tmp_path / "new.csv", x=["1400", "20000"], y=["1,5", "2,5"])
    with pytest.raises(ValueError, match="column 'y' must hold numbers as in the fit, got '1,5'"):
        explain_table(model, new, tmp_path / "page.html")
    assert explain_table(model, new, tmp_path / "page.html", layout="1234,5").stat().st_size > 1000


# What can be read in two ways is asked for


@pytest.mark.parametrize(
    ("texts", "sep", "layouts", "values"),
    [
        (["1,234", "950", "12,750"], ",", ("1234,5", "1,234.5"), ([1.234, 950, 12.75], [1234, 950, 12750])),
        (["1.234", "950", "12.750"], ";", ("1234.5", "1.234,5"), ([1.234, 950, 12.75], [1234, 950, 12750])),
        (["01/02/1970", "03/01/1970", "02/02/1970"], ",", ("d/m/Y", "m/d/Y"), ([31, 2, 32], [1, 59, 32])),
        (["01-02-1970", "03-01-1970", "02-02-1970"], ",", ("d-m-Y", "m-d-Y"), ([31, 2, 32], [1, 59, 32])),
        (["1,234 kg", "950 kg", "2 kg"], ",", ("1234,5 kg", "1,234.5 kg"), ([1.234, 950, 2], [1234, 950, 2])),
    ],
)
def test_two_meanings_are_asked_for(texts, sep, layouts, values, tmp_path):
    path = write(tmp_path / "a.csv", sep=sep, x=texts, y=["1", "2", "3"])
    with pytest.raises(ValueError, match=rf"'x' can be read in two ways, such as '{texts[0]}' in row 1") as asked:
        fit_table(path, "y")
    for layout, expected in zip(layouts, values, strict=True):
        assert f"x={layout}" in str(asked.value)
        for given in (layout.removesuffix(" kg"), f"x={layout}"):
            np.testing.assert_allclose(read(path, layout=given)[1], expected)


def test_a_column_that_is_left_out_is_not_asked_for(tmp_path):
    path = write(tmp_path / "a.csv", x=["1,234", "2,345"], one=["03/04/2020"] * 2, other=["u", "v"], y=["1", "2"])
    with pytest.raises(ValueError, match="'x' can be read in two ways"):
        read_table(path)
    assert not any(read_table(path, drop=["x"]).columns[name].used for name in ("x", "one"))


@pytest.mark.parametrize(
    ("other", "texts", "values"),
    [
        (["1.5", "2"], ["1,234", "950"], [1234, 950]),
        (["1,5", "2"], ["1,234", "950"], [1.234, 950]),
        (["1,5", "2"], ["1.234", "950"], [1234, 950]),
        (["31/01/2020", "01/02/2020"], ["01/02/1970", "03/01/1970"], [31, 2]),
        (["01/31/2020", "01/02/2020"], ["01/02/1970", "03/01/1970"], [1, 59]),
    ],
)
def test_other_columns_tell_and_it_is_noted(other, texts, values, tmp_path):
    path = write(tmp_path / "a.csv", x=texts, other=other, y=["1", "2"])
    table = read_table(path)
    assert table.values["x"].tolist() == values
    assert [note for note in table.notes if f"'x', such as '{texts[0]}', is read as" in note]


@pytest.mark.parametrize(("sep", "y"), [(",", ["1", "2"]), (";", ["1.5", "2"])])
def test_points_are_decimals_unless_the_file_says_otherwise(sep, y, tmp_path):
    table = read_table(write(tmp_path / "a.csv", sep=sep, x=["1.234", "5.678"], y=y))
    assert (table.columns["x"].layout, table.values["x"].tolist(), table.notes) == ("1234.5", [1.234, 5.678], [])


def test_money_has_no_three_decimals(tmp_path):
    table = read_table(write(tmp_path / "a.csv", x=["$37,056", "$950"], y=["1", "2"]))
    assert table.values["x"].tolist() == [37056, 950]
    assert "column 'x', such as '$37,056', is read as $1,234.5, since money has at most two decimals" in table.notes


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("1;234", "layout must say how numbers are written"),
        ("x=d/m/Q", "or dates, such as d/m/Y"),
        ("z=1,234.5", "layout names the column 'z', which is not there"),
        ("x=1234,5", r"layout says that column 'x' holds numbers written as 1234,5, got '1\.25' in row 1"),
        ("other=1234.5", "layout says that column 'other' holds numbers written as 1234.5, got 'u' in row 1"),
    ],
)
def test_layouts_that_do_not_fit_are_named(layout, expected, tmp_path):
    path = write(tmp_path / "a.csv", x=["1.25", "2"], other=["u", "v"])
    with pytest.raises(ValueError, match=expected):
        fit_table(path, "y", layout=layout)


def test_a_layout_of_another_kind_than_the_models_is_refused(tmp_path):
    model = fit(write(tmp_path / "a.csv", x=["1.25", "2"] * 20))
    with pytest.raises(ValueError, match="layout says that column 'x' holds dates, the model has a number"):
        Predictions(model, tmp_path / "a.csv", layout="x=d/m/Y")


# Nothing is dropped in silence


def test_missing_values_among_decimal_commas_do_not_make_text_of_numbers(tmp_path):
    words = ["k.A.", "n/a", "-", "null", "NULL", "–", "k. A.", ".", "N/A"]
    texts = [*words, *(f"{k / 8:.3f}".replace(".", ",") for k in range(1, 32))]
    column, values = read(write(tmp_path / "a.csv", x=texts, y=[str(k) for k in range(40)]))
    assert (column.kind, column.missing, column.used) == ("number", len(words), True)
    assert values[-1] == 31 / 8


@pytest.mark.parametrize("kind", ["csv", "frame", "parquet"])
def test_missing_values_are_no_levels(kind, tmp_path):
    frame = pd.DataFrame({"x": ["red", "-", "n/a", "blue", "unknown"] * 8, "y": HEIGHTS})
    data = {"csv": tmp_path / "a.csv", "frame": frame, "parquet": tmp_path / "a.parquet"}[kind]
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    column, _ = read(data, missing=["unknown"])
    assert (sorted(column.levels), column.missing) == (["blue", "red"], 24)


def test_money_and_percent_are_used(tmp_path):
    path = write(
        tmp_path / "a.csv",
        sep=",",
        price=[f"${comma(k)}" for k in AMOUNTS],
        share=[f"{k / 700:.1f}%" for k in AMOUNTS],
        weight=[f"{k / 7:.2f} kg" for k in AMOUNTS],
    )
    model = fit(path)
    assert model.estimator.feature_names_in_.tolist() == ["price", "share", "weight"]
    assert model.columns[0].range == [AMOUNTS.min(), AMOUNTS.max()]
    assert [column.layout for column in model.columns] == ["$1,234.5", "1,234.5%", "1,234.5 kg"]


def test_what_is_left_out_is_a_note_of_the_card(tmp_path):
    path = write(
        tmp_path / "a.csv",
        x=[str(k / 8) for k in AMOUNTS],
        name=[f"name {k}" for k in range(ROWS)],
        one=["u"] * ROWS,
        asked=["u", "v"] * 20,
    )
    notes = Card.from_json(fit(path, drop=["asked"]).card.to_json()).notes
    assert notes[:3] == [
        "column 'name' is left out: names the rows (40 different texts in 40 rows)",
        "column 'one' is left out: has one value",
        "column 'asked' is left out: as asked",
    ]


@pytest.mark.parametrize("odd", ["unbekannt", "1.5.2"])
@pytest.mark.parametrize("written", ["{},5", "${}.25", "{},5 kg"])
def test_numbers_however_written_with_text_among_them_are_refused(written, odd, tmp_path):
    texts = [written.format(k) for k in range(1, 30)]
    path = write(tmp_path / "a.csv", x=[*texts[:4], odd, *texts[4:]])
    with pytest.raises(ValueError, match=rf"column 'x' holds numbers and text, such as '{odd}' in row 5"):
        fit_table(path, "y")


def test_numbers_of_which_some_have_a_unit_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", x=[*(f"{k}.5" for k in range(28)), "3.5 kg", "4.5 kg"])
    with pytest.raises(ValueError, match=r"column 'x' holds numbers and text, such as '3\.5 kg' in row 29"):
        fit_table(path, "y")


# Labels are what the file says


@pytest.mark.parametrize(
    ("texts", "classes"),
    [
        (["Yes", "No"], ["No", "Yes"]),
        (["TRUE", "FALSE"], ["FALSE", "TRUE"]),
        (["1.0", "0.0"], ["0.0", "1.0"]),
        (["1", "0"], [0, 1]),
        (["01", "00"], ["00", "01"]),
        (["+", "-"], ["+", "-"]),
        (["5 doors", "3 doors"], ["3 doors", "5 doors"]),
        (["1,5", "2,5"], ["1,5", "2,5"]),
        (["9007199254740993", "9007199254740992"], [9007199254740992, 9007199254740993]),
        (["99007199254740993000", "99007199254740992000"], ["99007199254740992000", "99007199254740993000"]),
    ],
)
def test_labels_are_the_files_to_the_letter(texts, classes, tmp_path):
    path = write(tmp_path / "a.csv", x=[str(k / 8) for k in AMOUNTS], y=texts * 20)
    task, labels, _ = read_target(read_table(path), "y", "auto", [])
    assert (task, np.unique(labels).tolist()) == ("classification", classes)


@pytest.mark.parametrize(
    ("texts", "classes"),
    [(["Yes", "No"], ["No", "Yes"]), (["9007199254740993", "9007199254740992"], [9007199254740992, 9007199254740993])],
)
def test_predictions_have_the_files_labels(texts, classes, tmp_path):
    path = write(tmp_path / "a.csv", x=[str(k / 8) for k in AMOUNTS], y=texts * 20)
    model = load_table(fit(path).save(tmp_path / "model"))
    assert model.card.classes == classes
    found = predict_table(model, path)
    assert found.columns.tolist() == ["prediction", *(f"probability {label}" for label in classes)]
    assert set(found.prediction) <= set(classes)


def test_integers_of_parquet_and_data_frames_stay_apart(tmp_path):
    large = [9007199254740992, 9007199254740993, None, 9007199254740993] * 10
    frame = pd.DataFrame({"x": HEIGHTS, "y": pd.array(large, dtype="Int64")})
    frame.to_parquet(tmp_path / "a.parquet")
    for data in (frame, tmp_path / "a.parquet"):
        labels = read_target(read_table(data), "y", "auto", [])[1]
        assert np.unique(labels).tolist() == [9007199254740992, 9007199254740993]


def test_booleans_with_gaps_stay_booleans(tmp_path):
    frame = pd.DataFrame({"x": HEIGHTS, "y": pd.Series([True, False, None, True] * 10, dtype=object)})
    frame.to_parquet(tmp_path / "a.parquet")
    for data in (frame, tmp_path / "a.parquet"):
        assert np.unique(read_target(read_table(data), "y", "auto", [])[1]).tolist() == [False, True]
    assert predict_table(fit(frame), frame).prediction.dtype == bool


# Columns that are left out


def test_the_card_has_no_value_or_unit_of_a_column_that_is_left_out(tmp_path):
    path = write(
        tmp_path / "a.csv",
        **{
            "customer id": [comma(770_001 + 13 * k) for k in range(ROWS)],
            "flat": ["42 Miller"] * ROWS,
            "x": [comma(k) for k in AMOUNTS],
        },
    )
    fitted = fit(path)
    assert [column.used for column in fitted.columns] == [False, False, True]
    assert "column 'customer id' is read as 1,234.5, as in other columns" in fitted.card.notes
    assert any(note.startswith(f"column 'x', such as '{comma(AMOUNTS[0])}', is read as") for note in fitted.card.notes)
    folder = fitted.save(tmp_path / "model")
    for name in ("card.json", "README.md"):
        text = (folder / name).read_text()
        assert not [value for value in ("770,001", "770001", "Miller") if value in text]
    pd.testing.assert_frame_equal(predict_table(load_table(folder), path), predict_table(fitted, path))


def test_the_layout_of_a_dropped_column_is_not_looked_at(tmp_path):
    path = write(tmp_path / "a.csv", x=[str(k / 8) for k in AMOUNTS], asked=["u", "v"] * 20)
    options = {"layout": ["asked=1,234.5"]}
    model = load_table(fit(path, drop=["asked"], **options).save(tmp_path / "model"))
    pd.testing.assert_frame_equal(predict_table(model, path, **options), predict_table(model, path))


def test_a_table_of_dropped_columns_alone_has_rows(tmp_path):
    table = read_table(write(tmp_path / "a.csv", x=["1", "2"]), drop=["x", "y"])
    assert (table.rows, table.values) == (2, {})
    assert [(column.kind, column.used) for column in table.columns.values()] == [("unread", False)] * 2


# The parts of a layout


def test_a_layout_is_a_number_between_units():
    for parts in (
        ("", "1234", "kg"),
        ("$", "1,234.5", ""),
        ("", "1234.5", "%"),
        ("EUR", "1.234,5", ""),
        ("", "1 234,5", "m2"),
    ):
        assert split(joined(*parts)) == parts
    assert (joined("", "1234", "kg"), joined("", "1234.5", "%")) == ("1234 kg", "1234.5%")
    layouts = ("1234.5", "1234,5", "1'234.5", "1234", "$1.234,5")
    assert [decimal_sign(layout) for layout in layouts] == [".", ",", ".", "", ","]
    assert [is_money(layout) for layout in ("$1234.5", "1234 EUR", "1234 kg", "1234%")] == [True, True, False, False]
    with pytest.raises(ValueError, match="no layout of numbers: 'wide'"):
        split("wide")


@pytest.mark.parametrize(
    ("kind", "layout", "other"),
    [
        ("number", "1234.5 kg", "1.234,5 kg"),
        ("number", "1234,5", "1,234.5"),
        ("number", "1 234.5", "1 234,5"),
        ("number", "1,234.5", None),
        ("date", "%d/%m/%Y", "%m/%d/%Y"),
        ("date", "%m-%d-%Y %H:%M", "%d-%m-%Y %H:%M"),
        ("date", "%d.%m.%Y", None),
        ("category", "text", None),
    ],
)
def test_some_layouts_have_a_rival(kind, layout, other):
    assert rival(kind, layout) == other
    assert day_order(layout) == (layout[1] if kind == "date" and other else "")


def test_layouts_belong_to_kinds():
    known = [("date", "ISO8601"), ("date", "%d %B %Y"), ("number", "1234 kg"), ("boolean", "+/-"), ("category", "text")]
    assert all(is_layout(*pair) for pair in known)
    wrong = [("date", "%d/%m"), ("date", "1234"), ("number", "kg"), ("boolean", "text"), ("category", "1234")]
    assert not any(is_layout(*pair) for pair in wrong)
    given = given_layouts({"a": "m/d/Y", "b=c": "1234,5 kg"})
    assert given.columns == {"a": ("date", "%m/%d/%Y"), "b=c": ("number", "1234,5 kg")}
    assert given_layouts(["1234", "ISO8601"]).table == {"number": "1234", "date": "ISO8601"}
    assert remedy("a b", ["%m/%d/%Y", "1,234.5"]) == (
        "layout=['a b=m/d/Y'] (--layout 'a b=m/d/Y') or layout=['a b=1,234.5'] (--layout 'a b=1,234.5')"
    )


@pytest.mark.parametrize(
    ("layout", "texts", "values"),
    [
        ("1,234.5", ["1,234", "12,345,678.5", "1234", "-1,234"], [1234, 12345678.5, 1234, -1234]),
        ("1,234.5", ["12,34", "1,2345", "0,123", "1234,567", "1,234,5"], [None] * 5),
        ("1.234,5", ["1.234,5", "1,5", "1.5"], [1234.5, 1.5, None]),
        ("1234,5", ["1,5", "1.5", "1", "1e3"], [1.5, None, 1, 1000]),
        ("1234", ["12", "1.234", "1.234,5", "1.23"], [12, None, None, 1.23]),
        ("1'234.5", ["1'234", "1’234.5", "1'23"], [1234, 1234.5, None]),
        ("1234.5 kg", ["5 kg", "5kg", "-5.5\u00a0kg", "5", "5 g"], [5, 5, -5.5, None, None]),
        ("$1234.5", ["$5", "-$5", "$-5", "5", "- $ 5"], [5, -5, -5, None, -5]),
    ],
)
def test_numbers_fit_their_layout_or_not(layout, texts, values):
    found, wrong = parsed(pd.Series(texts), "number", layout)
    assert [None if np.isnan(number) else number for number in found] == values
    assert wrong.tolist() == [value is None for value in values]


def test_kinds_of_types_and_texts_of_labels():
    kinds = {
        "number": ([1, 2.5], [1, None]),
        "boolean": ([True, False], [True, None]),
        "date": (pd.to_datetime(["2020-01-01"]), [pd.Timestamp("2020-01-01").date(), None]),
        "category": (pd.Categorical(["a"]),),
    }
    for kind, columns in kinds.items():
        assert {typed_kind(pd.Series(column)) for column in columns} == {kind}
    assert [label_text(value) for value in (False, 2.0, 2.5, 10**20, "2.0", np.bool_(True))] == [
        *("false", "2", "2.5", "1" + "0" * 20, "2.0", "true")
    ]
