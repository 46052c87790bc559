"""What is said of a whole column, and which inputs a model gets of it."""

import numpy as np
import pandas as pd
import pytest

from restt_app.workflow.columns import PARTS, Column, described


def number(values, name="x", **options):
    return described(name, "number", "1234.5", np.asarray(values, dtype=float), **options)


def test_numbers_beyond_the_largest_are_refused_by_row():
    assert number([1e150, -1e150, np.nan]) == Column("x", "number", "1234.5", 1, 2, range=[-1e150, 1e150], inputs=["x"])
    with pytest.raises(ValueError, match=r"column 'x' holds -1e\+151 in row 2, and numbers beyond 1e\+150"):
        number([1e150, -1e151, 1e152])
    with pytest.raises(ValueError, match="column 'x' holds an infinite value in row 2: correct it"):
        number([1e151, -np.inf, np.inf])


@pytest.mark.parametrize(
    ("values", "name", "counts"),
    [
        (np.arange(20.0), "x", True),
        (np.arange(20.0)[::-1] + 1, "x", True),
        (np.arange(20.0) + 2, "x", False),
        (np.r_[np.arange(19.0), 20], "x", False),
        (np.arange(20.0) + 0.5, "x_id", False),
        (np.arange(20.0) * 3, "x_id", True),
        (np.arange(20.0) * 3, "idx", False),
        (np.r_[np.arange(19.0), 18], "x", False),
        (np.r_[np.arange(19.0), np.nan], "x", False),
        (np.arange(19.0), "x", False),
    ],
)
def test_numbers_that_count_the_rows_are_left_out(values, name, counts):
    assert number(values, name).note == ("left out: numbers the rows" if counts else "")
    assert number(values, name, keep=True).used


def test_texts_that_name_the_rows_are_left_out():
    def column(distinct, rows, missing=0, **options):
        texts = [f"t{min(row, distinct - 1)}" for row in range(rows)] + [None] * missing
        return described("x", "category", "text", pd.Series(texts), **options)

    assert column(11, 20, 9).note == "left out: names the rows (11 different texts in 20 rows)"
    assert [column(10, 20).used, column(19, 19).used, column(20, 20, keep=True).used] == [True] * 3
    assert column(1, 30).note == "left out: has one value"
    assert column(1, 30, 1).used
    assert column(1, 0, 3).note == "left out: holds nothing but missing values"
    assert column(2, 5).levels == ["t1", "t0"]  # the most frequent first


@pytest.mark.parametrize(
    ("days", "parts"),
    [
        ([0, 1, 13], []),
        ([0, 13, 14], ["weekday"]),
        ([365, 20, 0], ["weekday"]),
        ([366, 20, 0], ["month", "weekday"]),
        ([1.5, 1, 2], ["hour"]),
    ],
)
def test_a_date_has_the_parts_that_its_values_tell_apart(days, parts):
    values = np.array(days, dtype=float)
    column = described("d", "date", "ISO8601", values)
    assert column.inputs == ["d", *(f"d {part}" for part in parts)]
    assert column.note == "days since 1970" + "".join(f", {part} ({PARTS[part]})" for part in parts)
    times = pd.Timestamp("1970-01-01") + pd.to_timedelta(values, unit="D")
    known = {"month": times.month, "weekday": times.day_of_week, "hour": times.hour}
    found = column.expanded(values)
    assert list(found) == column.inputs
    for part in parts:
        np.testing.assert_array_equal(found[f"d {part}"], known[part])
