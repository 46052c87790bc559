import numpy as np
import pandas as pd
import pytest

from restt_app.workflow import fit_table, read_table
from restt_app.workflow.columns import Column
from restt_app.workflow.target import _estimated, _score_alone, _score_classes_alone, class_labels, dependence, leaks
from restt_app.workflow.target import read_target as read

pytestmark = pytest.mark.usefixtures("little_scoring")


def named(notes):
    return [note.split("'")[1] for note in notes]


def test_a_leak_is_found_whatever_its_form_and_nothing_else_is():
    rng = np.random.default_rng(0)
    y = rng.normal(size=300)
    frame = pd.DataFrame(
        {
            "exponential": np.exp(-y),
            "scaled": 3 * y + 1,
            "rounded": y.round(3),
            "close": y + 0.1 * rng.normal(size=300),
            "noise": rng.normal(size=300),
            "level": pd.Categorical(rng.choice(list("abc"), 300)),
        }
    )
    found = leaks(frame, y, None, "y")
    assert named(found) == ["exponential", "scaled", "rounded"]
    assert "nearly perfectly (R² 1.0000): if it is not known when predicting, leave it out (--drop scaled)" in found[1]


@pytest.mark.parametrize("kinds", [2, 3])
def test_a_leak_of_classes(kinds):
    rng = np.random.default_rng(0)
    y = rng.choice(list("abc")[:kinds], 200).astype(object)
    codes = np.searchsorted(list("abc"), y.astype(str))
    frame = pd.DataFrame(
        {
            "code": pd.Categorical(codes.astype(str)),
            "number": codes + 0.2 * rng.random(200),
            "folded": np.abs(codes - 1.0) + 0.01 * rng.random(200),
            "missing": np.where(codes == 0, np.nan, rng.random(200)),
            "noise": rng.random(200),
        }
    )
    expected = ["code", "number", "folded", "missing"] if kinds == 2 else ["code", "number"]
    found = leaks(frame, y, np.unique(y), "y")
    assert named(found) == expected
    assert "(ROC AUC 1.0000)" in found[0]


def test_what_is_noticed_is_said_before_the_fit():
    rng = np.random.default_rng(0)
    y = rng.normal(size=60)
    data = pd.DataFrame(
        {
            "when": pd.date_range("2024-01-01", periods=60),
            "customer_id": np.repeat(np.arange(1000, 1020), 3),
            "a": rng.normal(size=60),
            "paid": 2 * y,
            "y": y,
        }
    )
    told = []

    def progress(*_):
        told.append("fitting")

    card = fit_table(data, "y", effort="quick", notice=told.append, progress=progress).card
    before = told[: told.index("fitting")]
    for words in ("column 'paid' alone predicts 'y'", "rows are sorted by 'when'", "share a value of 'customer_id'"):
        assert sum(words in note for note in before) == 1
        assert sum(words in note for note in card.notes) == 1


def test_few_positives_are_called_imbalanced():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.normal(size=140), "y": [*["yes"] * 5, *["no"] * 135]})
    notes = fit_table(data, "y", effort="quick").card.notes
    assert any("imbalanced: 'no' is in 96.4 % of the rows, 'yes' in 3.6 %" in note for note in notes)
    even = fit_table(data.assign(y=["yes", "no"] * 70), "y", effort="quick").card.notes
    assert not any("imbalanced" in note for note in even)


def read_target(values, task="auto"):
    notes = []
    table = read_table(pd.DataFrame({"a": np.arange(len(values)), "y": values}), keep=["y"])
    return *read(table, "y", task, notes), notes


@pytest.mark.parametrize(
    ("values", "task", "counted"),
    [
        (list(range(10)), "classification", "10 different numbers"),
        (list(range(11)), "regression", "11 different numbers"),
        ([0.5, *range(9)], "regression", "10 different numbers"),
        ([0.5, 1.5] * 5, "classification", "2 different numbers"),
        ([0.5, 1.5, 2.0] * 5, "regression", "3 different numbers"),
        (["u", "v"] * 5, "classification", "2 different labels"),
    ],
)
def test_ten_whole_numbers_or_two_of_any_kind_are_classes(values, task, counted):
    values = values if len(values) == 11 else [*values, values[0]] if task == "regression" else [*values, *values]
    found, y, rows, notes = read_target(values)
    assert (found, len(y), rows.tolist()) == (task, len(values), list(range(len(values))))
    assert notes == [f"{task}, since 'y' has {counted}; the task can be named instead"]


def test_ten_rows_and_a_hundred_classes_are_the_bounds():
    assert read_target([*np.arange(10) / 4, None])[-1][0] == "1 rows without a value in 'y' were left out"
    with pytest.raises(ValueError, match=r"^9 rows have a value in the target 'y': at least 10 are needed"):
        read_target([*np.arange(9) / 4, None])
    codes = [f"t{row}" for row in range(101)] * 2
    assert len(np.unique(read_target([text for text in codes if text != "t100"])[1])) == 100
    with pytest.raises(ValueError, match="'y' has 101 different values, and at most 100 classes"):
        read_target(codes)
    with pytest.raises(ValueError, match="has one value, 'u', in all rows"):
        read_target([None, *"u" * 10])
    with pytest.raises(ValueError, match=r"got 'u' in row 2$"):
        read_target([None, *"uv" * 5], "regression")


def test_rare_and_uneven_classes_are_noted():
    for labels, got in (
        ("aaaaaaabcd", "'b' 1 times, 'c' 1 times, 'd' 1 times: name"),
        ("aaaaaabcde", "'d' 1 times, …"),
    ):
        with pytest.raises(ValueError, match=f"got 'a' {labels.count('a')} times, .*{got}"):
            read_target(list(labels))
    assert len(read_target(list("uuuuuuuuvv"))[-1]) == 1  # four of five are not yet imbalanced
    assert "'u' is in 91.7 % of the rows, 'v' in 8.3 %" in read_target(list("u" * 22 + "vv"))[-1][1]
    assert read_target(list("u" * 17 + "vvvw"))[-1][1:] == [
        "the class 'w' of 'y' is in one row only: little is learned about it",
        "the classes of 'y' are imbalanced: 'u' is in 81 % of the rows, 'w' in 4.8 %; always saying 'u' has an "
        "accuracy of 0.81, so read average precision and the confusion matrix instead",
    ]


@pytest.mark.parametrize(
    ("spelled", "labels"),
    [
        ([True, False], [True, False]),
        (["-1", "0", "20"], [-1, 0, 20]),
        (["01", "2"], ["01", "2"]),
        (["-0", "2"], ["-0", "2"]),
        ([str(2**63 - 1), "2"], [2**63 - 1, 2]),
        ([str(2**63), "2"], [str(2**63), "2"]),
        (["1" + "0" * 19, "2"], ["1" + "0" * 19, "2"]),
        (["²", "2"], ["²", "2"]),
    ],
)
def test_labels_are_whole_numbers_only_where_they_are_written_so(spelled, labels):
    assert class_labels(pd.Categorical(spelled)).tolist() == labels


def test_a_row_is_estimated_from_its_neighbours_or_its_like():
    # 0 and 10 are ends and take their neighbour; 4 lies three quarters of the way from 1 to 5.
    x, y = pd.Series([0.0, 4.0, 1.0, 10.0, 5.0]), np.array([1.0, 9.0, 2.0, 7.0, 6.0])
    assert _estimated(x, y).tolist() == pytest.approx([2.0, 5.0, 1 + 8 * 0.25, 6.0, 9 - 2 / 6])
    assert _estimated(x[:3], y[:3]).tolist() == pytest.approx([2.0, 2.0, 1 + 8 * 0.25])
    alike = pd.Series([1.0, 1.0, 1.0, 2.0, 2.0])
    assert _estimated(alike, y).tolist() == pytest.approx([5.5, 1.5, 5.0, 6.0, 7.0])
    levels = pd.Series(pd.Categorical(["u", "u", "v", None, None]))
    assert _estimated(levels, y).tolist() == pytest.approx([9.0, 1.0, 5.0, 6.0, 7.0])  # alone: the mean of all
    gaps = pd.Series([0.0, 1.0, 2.0, np.nan, np.nan])  # missing values are the last, as far as the one before
    assert _estimated(gaps, y).tolist() == pytest.approx([9.0, 1.5, 9 - 2.5 / 2, 6.0, 7.0])


def test_a_line_and_an_order_count_where_neighbours_say_less():
    falling = np.array([0.0, 0.1, 0.2, 50.0])
    assert _score_alone(pd.Series([3.0, 2.0, 1.0, 0.0]), falling) == pytest.approx(1.0)  # the order
    bent = np.array([0.1, 0.0, 9.0, 20.0])
    line = np.corrcoef([0.0, -1.0, -10.0, -19.0], bent)[0, 1] ** 2
    assert _score_alone(pd.Series([0.0, -1.0, -10.0, -19.0]), bent) == pytest.approx(line)
    assert line > 0.99
    three = pd.Series([0.0, 0.0, 1.0, 1.0, 2.0, 2.0])
    y = np.array([0.0, 3.0, 2.0, 5.0, 4.0, 7.0])
    assert _score_alone(three, y) == pytest.approx(np.corrcoef(three, y)[0, 1] ** 2)
    two = pd.Series([0.0, 0.0, 1.0, 1.0])  # no line through two values: each row is estimated by the other of its value
    assert _score_alone(two, np.array([0.0, 1.0, 4.0, 5.0])) == pytest.approx(1 - 4 / 17)


def test_the_least_plain_class_is_the_score_and_rare_ones_are_left_out():
    def score(x, y):
        return _score_classes_alone(pd.Series(x), np.array([*y], dtype=object))

    assert score([0.0, 0.1, 0.5, 1.0, 1.1, 1.2], "aacbbb") == 1.0
    # The b lie between: their neighbours give 0, 0.1 and 1 for the others, 0.9, 1 and 0.97 for them.
    assert score([0.0, 0.1, 1.0, 1.1, 1.2, 5.0], "aabbbc") == pytest.approx(6.5 / 9)
    assert score([0.0, 1.0], "ab") == score([1.0, 0.0], "ab") == 1.0


def test_ids_that_repeat_and_sorted_dates_are_lines():
    def lines(column, values=None):
        return len(dependence({column.name: column}, {column.name: values}, 20))

    def number(name, distinct, missing=0, kind="number"):
        return Column(name, kind, "1234.5", missing, distinct)

    names = ("id", "customer_id", "customerId", "Key", "zip code", "idea", "amount_paid", "monkey")
    assert [lines(number(name, 10)) for name in names] == [1, 1, 1, 0, 1, 0, 0, 0]
    bounds = (number("id", 1), number("id", 2), number("id", 19), number("id", 20), number("id", 15, 5))
    assert [lines(column) for column in bounds] == [0, 1, 1, 0, 0]
    assert lines(number("id", 14, 5, "category")) == 1
    assert dependence({"id": number("id", 2)}, {}, 20) == []
    up = np.arange(10.0)
    days = [(up, 10, 0), (up[::-1], 10, 0), (np.roll(up, 1), 10, 0), (up, 9, 0), (up, 10, 1), (np.repeat(up, 2), 10, 0)]
    found = [lines(Column("day", "date", "ISO8601", missing, distinct), values) for values, distinct, missing in days]
    assert found == [1, 1, 0, 0, 0, 1]
