"""Where the charts draw their values: places worked out by hand from the frame and the extent of each drawing."""

import re

import numpy as np
import pytest

from restt_app.pages.charts import (
    Chart,
    Line,
    curves,
    cut,
    padded,
    predicted_observed,
    reliability,
    round_ticks,
    surface,
)
from restt_app.pages.numbers import short

PLACE = ("x", "y", "width", "height")


def drawn(markup, class_, *names):
    """The named attributes of all elements of a class, in the order of the drawing; ``text`` is what they hold."""
    found = []
    for attributes, text in re.findall(rf'<\w+ class="{class_}"([^>]*)>([^<]*)<', markup):
        known = {"text": text, **dict(re.findall(r'([\w-]+)="([^"]*)"', attributes))}
        found.append(" ".join(known[name] for name in names))
    return found


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [
        ((0, 10, 3), [0, 5, 10]),
        ((0, 7), [0, 1, 2, 3, 4, 5, 6, 7]),
        ((0, 100), [0, 20, 40, 60, 80, 100]),
        ((-0.03, 0.05, 4), [-0.02, 0, 0.02, 0.04]),
        ((0, 69, 1), [0, 50]),
        ((0, 1, 0), [0, 1]),
        ((0, 40), [0, 10, 20, 30, 40]),
        ((2, 2), [2]),
    ],
)
def test_ticks_are_round(ends, ticks):
    assert round_ticks(*ends) == ticks


def test_the_extent_has_room_and_names_are_cut_to_their_length():
    assert [padded([4.0, -6.0]), padded([0.0, 10.0], 0.1)] == [(-6.5, 4.5), (-1.0, 11.0)]
    assert [padded([-3.0, -3.0]), padded([0.0])] == [(-4.5, -1.5), (-1.0, 1.0)]
    assert [cut("twelve signs", 12), cut("twelve signs", 11)] == ["twelve signs", "twelve sig…"]


def test_axes_leave_out_ticks_whose_texts_would_touch():
    chart = Chart((100, 100), (10.0, 110.0, 20.0, 80.0), "", (0.0, 10.0), (0.0, 4.0))
    chart.axes("across", "up", lambda tick: f"{10 * tick:.0f}")  # "100" needs 27 of the 20 between two ticks
    assert drawn(chart.markup(), "tick", "text", "x", "y", "text-anchor") == [
        *("0 10.0 96.0 middle", "40 50.0 96.0 middle", "80 90.0 96.0 middle"),
        *("0 3.0 84.0 end", "1 3.0 69.0 end", "2 3.0 54.0 end", "3 3.0 39.0 end", "4 3.0 24.0 end"),
    ]
    assert drawn(chart.markup(), "grid", "x1", "y1", "x2", "y2")[::3] == [
        *("10.0 20.0 10.0 80.0", "10.0 80.0 110.0 80.0", "10.0 35.0 110.0 35.0"),
    ]
    assert drawn(chart.markup(), "label", "text", "x", "y") == ["across 60.0 114.0", "up 2 12"]
    one = Chart((100, 100), (10.0, 110.0, 20.0, 80.0), "", (2.0, 2.0))
    one.axes("", "", floor=9.0)
    assert drawn(one.markup(), "tick", "text", "y")[0] == "2 105.0"
    assert drawn(one.markup(), "grid", "y1", "y2")[0] == "20.0 89.0"


def test_the_tiles_of_a_surface_fill_its_frame_and_its_shades_the_width():
    values = np.arange(6.0).reshape(2, 3) - 2
    chart = surface(("across", "up"), (("a", "b"), ("c", "d", "e")), values, 4.0, "both", "y")
    tiles = {shade: drawn(chart, shade, *PLACE)[0] for shade in ("d-3", "d-1", "d0", "d1", "d3", "d4")}
    assert tiles == {
        **{"d-3": "76.0 163.3 176.3 69.0", "d-1": "76.0 94.7 176.3 69.0", "d0": "76.0 26.0 176.3 69.0"},
        **{"d1": "252.0 163.3 176.3 69.0", "d3": "252.0 94.7 176.3 69.0", "d4": "252.0 26.0 176.3 69.0"},
    }
    legend = [drawn(chart, f"d{step}", *PLACE)[-1] for step in range(-5, 6)]
    assert legend == [f"{76 + 32 * place}.0 282.0 32.3 8" for place in range(11)]
    assert "across = a, up = c: −2" in chart
    assert "across = b, up = e: +3" in chart
    assert drawn(chart, "tick", "text", "x", "y") == [
        *("a 164.0 248.0", "b 340.0 248.0", "c 69.0 201.7", "d 69.0 133.0", "e 69.0 64.3"),
        *("−4 76.0 304.0", "added to y 252.0 304.0", "+4 428.0 304.0"),
    ]
    assert drawn(chart, "label", "text", "x", "y") == ["across 252.0 266.0", "up 2 14"]
    assert 'viewBox="0 0 440 306"' in chart


def test_long_names_are_cut_where_their_room_ends():
    long = surface(("x" * 50, "y" * 50), (["u" * 11], ["v" * 11]), np.zeros((1, 1)), 1.0, "label", "o" * 50)
    assert [text for text in drawn(long, "(?:tick|label)", "text") if "…" in text] == [
        *("u" * 9 + "…", "v" * 9 + "…", "x" * 39 + "…", "y" * 43 + "…", "added to " + "o" * 26 + "…")
    ]
    chart = Chart((100, 100), (10.0, 110.0, 20.0, 80.0), "", (0.0, 10.0), (0.0, 4.0))
    chart.axes("x" * 45, "y" * 45)
    assert drawn(chart.markup(), "label", "text") == ["x" * 43 + "…", "y" * 43 + "…"]


def test_names_of_a_fine_surface_are_as_far_apart_as_they_are_wide():
    grids = tuple([f"{letter}{place}" for place in range(21)] for letter in "xy")
    chart = surface(("across", "up"), grids, np.zeros((21, 21)), 1.0, "both", "y")
    named = [text for text in drawn(chart, "tick", "text") if text[0] in "xy"]
    assert named == ["x0", "x5", "x10", "x15", "x20", "y0", "y4", "y8", "y12", "y16", "y20"]


def test_curves_lie_over_the_rows_and_missing_values_are_a_line():
    lines = [
        Line("u", np.array([0.0, 1, 2, -1]), np.zeros(4)),
        Line("v", np.array([0.0, -1, 1, 1]), np.array([0.0, 0.5, 0.5, 0.0])),
    ]
    places = {"counts": [2, 0, 4], "missing": -1.5, "texts": short}
    chart = curves(np.array([0.0, 1, 2, 4]), lines, "label", "y", **places)
    # 282 across for 0 to 4, 134 upwards for −1.675 to 2.175: the ends with a twentieth of room.
    assert drawn(chart, "line s0", "d") == ["M48.0 99.7L118.5 64.9L189.0 30.1L330.0 134.5"]
    assert drawn(chart, "line s1", "d") == ["M48.0 99.7L118.5 134.5L189.0 64.9L330.0 64.9"]
    band = "M48.0 99.7L118.5 117.1L189.0 47.5L330.0 64.9L330.0 64.9L189.0 82.3L118.5 151.9L48.0 99.7Z"
    assert [drawn(chart, "band s0", "d"), drawn(chart, "band s1", "d")] == [[], [band]]
    assert drawn(chart, "axis", "y1", "y2") == ["99.7 99.7"]
    assert drawn(chart, "dashed", "x1", "y1", "x2", "y2") == ["48.0 151.9 330.0 151.9"]
    assert drawn(chart, "tick", "text", "x", "y")[-1] == "missing 330.0 147.9"
    assert drawn(chart, "rows", *PLACE) == ["48.0 173.0 93.4 11.0", "142.0 184.0 93.4 0.0", "236.0 162.0 93.4 22.0"]
    assert drawn(chart, "hover", "data-tip", *PLACE) == [
        "0: u ±0, v ±0 48.0 24.0 35.2 134.0",
        "1: u +1, v −1 83.2 24.0 70.5 134.0",
        "2: u +2, v +1 153.8 24.0 105.8 134.0",
        "4: u −1, v +1 259.5 24.0 70.5 134.0",
    ]
    alone = curves(np.arange(100.0), [Line("u", np.ones(100), np.zeros(100))], "", "", **{**places, "missing": None})
    assert drawn(alone, "hover", "data-tip")[:2] == ["0: +1", "2: +1"]  # a strip for every second value
    assert len(drawn(alone, "hover", "x")) == 50
    assert drawn(alone, "dashed", "x1") == []
    assert drawn(alone, "axis", "y1") == ["151.9"]  # 0 is drawn though no effect is 0


def test_predicted_and_observed_have_one_scale_and_rows_outside_a_rim():
    rows = [
        {"predicted": 1.0, "observed": 2.0, "low": 0.0, "high": 1.5},
        {"predicted": 10.0, "observed": 1.0, "low": 1.0, "high": 10.0},
        {"predicted": 3.0, "observed": 4.0},
        {"predicted": 4.0, "observed": 4.0, "low": 3.0, "high": 4.0},
    ]
    chart = predicted_observed(rows, "y")
    # 370 across and 274 upwards for 0.64 to 10.36: from 1 to 10 with a twenty-fifth of room.
    assert drawn(chart, "point out", "cx", "cy", "data-tip") == [
        "71.7 261.7 predicted 1, observed 2, interval 0 to 1.5: outside"
    ]
    assert drawn(chart, "point", "cx", "cy", "data-tip") == [
        "414.3 289.9 predicted 10, observed 1, interval 1 to 10",
        "147.8 205.3 predicted 3, observed 4",
        "185.9 205.3 predicted 4, observed 4, interval 3 to 4",
    ]
    assert drawn(chart, "whisker faint", "x1", "y1", "x2", "y2") == [
        *("71.7 300.0 71.7 275.8", "414.3 289.9 414.3 36.1", "185.9 233.5 185.9 205.3"),
    ]
    assert drawn(chart, "dashed", "x1", "y1", "x2", "y2") == ["58.0 300.0 428.0 26.0"]
    assert 'viewBox="0 0 440 342"' in chart
    assert 'aria-label="Predicted and observed y of 4 held-out rows"' in chart


@pytest.mark.parametrize(
    ("largest", "places"),
    # Up to a half the scale ends at 1.1 of the largest, else at 1: of 374 across and 274 upwards from (50, 300).
    [(0.4, ["135.0 113.2 7.5", "220.0 50.9 11.0"]), (0.5, ["87.4 217.8 7.5", "124.8 163.0 11.0"])],
)
def test_dots_of_probabilities_have_the_area_of_their_rows(largest, places):
    bins = [{"predicted": 0.1, "observed": 0.3, "rows": 25}, {"predicted": 0.2, "observed": largest, "rows": 100}]
    chart = reliability(bins, "label")
    assert drawn(chart, "point", "cx", "cy", "r") == places
    assert drawn(chart, "point", "data-tip")[0] == "predicted 10 %, observed 30 % (25 rows)"
    first, last = (place.rsplit(" ", 1)[0] for place in places)
    assert drawn(chart, "line s0", "d") == [f"M{first}L{last}"]
    assert drawn(chart, "dashed", "x1", "y1", "x2", "y2") == ["50.0 300.0 424.0 26.0"]
    nothing = reliability([{"predicted": 0.0, "observed": 0.0, "rows": 1}], "label")
    assert drawn(nothing, "tick", "text")[:6] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


@pytest.mark.parametrize("step", [1000.0, 1.0])
def test_far_from_zero_ticks_differ_and_lie_between_the_ends(step):
    low, high = 1e17, 1e17 + 40 * step
    ticks = round_ticks(low, high)
    assert sorted(set(ticks)) == ticks
    assert low <= ticks[0] < ticks[-1] <= high
    rows = [{"predicted": low + place * step, "observed": low + place * step} for place in range(0, 41, 8)]
    assert predicted_observed(rows, "y").count("<circle") == 6
