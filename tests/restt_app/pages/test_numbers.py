"""Numbers as people read them, on either side of every bound."""

import datetime

import numpy as np
import pandas as pd
import pytest

from restt_app.pages.numbers import Texts, percent, plain, seconds, short, signed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0"), (1234.5, "1,234"), (1235.5, "1,236"), (999.96, "1,000"), (0.5, "0.5"), (-12.346, "−12.35")),
        *(
            (9_999_999, "9,999,999"),
            (1e7, "1·10⁷"),
            (-12345678.0, "−1.235·10⁷"),
            (1e-4, "0.0001"),
            (-9.99e-5, "−9.99·10⁻⁵"),
        ),
        *((float("inf"), "∞"), (float("-inf"), "−∞"), (None, "missing"), (np.float32("nan"), "missing")),
        *((True, "yes"), (np.bool_(False), "no"), ("-5", "-5"), (datetime.date(2024, 2, 1), "2024-02-01")),
        *((np.int64(40), "40"), (100.0, "100"), (0.001, "0.001")),
    ],
)
def test_numbers_have_four_digits(value, text):
    assert short(value) == text


def test_digits_can_be_named():
    assert [short(1 / 3, digits) for digits in (1, 2, 3)] == ["0.3", "0.33", "0.333"]
    assert [short(2 / 3 * 1e-9, digits) for digits in (1, 3)] == ["7·10⁻¹⁰", "6.67·10⁻¹⁰"]
    assert [signed(value) for value in (1 / 3, -1 / 3, 0.0, -1e9)] == ["+0.333", "−0.333", "±0", "−1·10⁹"]
    assert signed(1 / 3, 1) == "+0.3"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.5, "50 %"), (0.01, "1 %"), (0.00994, "0.99 %"), (0.0001, "0.01 %"), (0.00009, "< 0.01 %"), (-0.0346, "−3.5 %")],
)
def test_shares_have_a_digit_and_small_ones_two(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (59.94, "59.9 s"),
        (60, "1 min 0 s"),
        (119.6, "2 min 0 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (5459, "1 h 30 min"),
    ],
)
def test_durations_change_their_unit_at_sixty(value, text):
    assert seconds(value) == text


def test_dates_have_their_time_where_it_is_not_midnight_and_weekdays_a_name():
    texts = Texts(("day", "day weekday", "day hour", "x"), [{"name": "day", "kind": "date"}, {"name": "x"}])
    assert [texts(0)(days) for days in (0.0, -1.0, 1.5, np.nan, None)] == [
        *("1970-01-01", "1969-12-31", "1970-01-02 12:00", "missing", "missing")
    ]
    assert [texts(1)(day) for day in (0, 6.0, 2.5, np.nan, None)] == ["Mon", "Sun", "", "missing", "missing"]
    assert [texts(column)(1.5) for column in (2, 3)] == ["1.5", "1.5"]


def test_json_has_no_type_of_its_own():
    assert plain({1: (np.float64(0.5), {2}), "t": pd.Timestamp("2024-02-01 03:00")}) == {
        **{"1": [0.5, [2]], "t": "2024-02-01T03:00:00"}
    }
    assert plain([pd.NaT, float("-inf"), np.bool_(True), memoryview(b"\x0f"), 1 + 2j]) == [
        None,
        None,
        True,
        "0f",
        "(1+2j)",
    ]
