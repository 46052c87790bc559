"""Which numbers of a table belong together, and what is said of their difference."""

from __future__ import annotations

import pytest

from restt_paper.engine.table import Table
from restt_paper.page.differences import compared, worse


def verdicts(table):
    return [(one.where, one.verdict) for one in compared(table)[1]]


def test_columns_of_one_quantity_are_compared():
    table = Table("Table II", ("model", "MNIST, paper", "MNIST, ours"), (("TT", "98.00", "98.50 ± 0.10"),))
    data, found = compared(table)
    assert [(one.ours, one.paper, one.verdict) for one in found] == [("98.50 ± 0.10", "98.00", "better")]
    assert data.rows[0][2].remark == "▲ +0.5"
    assert data.rows[0][2].value == 98.5
    assert data.rows[0][1].remark == ""


def test_rows_of_the_paper_and_ours_are_compared():
    rows = (("ResTT", "20", "paper", "89.00 ± 0.30", "95.00"), ("ResTT", "20", "ours", "88.00 ± 0.20", "–"))
    table = Table("Table IV", ("model", "r", "", "1 %", "5 %"), (*rows, ("ResTT", "50", "ours", "90.00", "91.00")))
    assert verdicts(table) == [("ResTT, r = 20, 1 %", "worse")]
    assert [one.told for one in worse(compared(table)[1])["Table IV"]] == [
        "ResTT, r = 20, 1 %: 88.00 ± 0.20, the paper has 89.00 ± 0.30"
    ]


@pytest.mark.parametrize(
    ("ours", "paper", "verdict"),
    [
        ("98.90 ± 0.10", "98.95", "same"),  # within our spread
        ("98.90", "98.95 ± 0.06", "same"),  # within the paper's
        ("98.90", "98.91", "same"),  # the last digit
        ("98.90", "98.93", "worse"),
        ("4.614", "4.610", "same"),  # the paper has 4.61
        ("4.624", "4.610", "worse"),  # less is better
        ("4.590", "4.610", "better"),
    ],
)
def test_differences_within_spread_or_rounding_do_not_count(ours, paper, verdict):
    name = "RMSE" if paper == "4.610" else "R²"
    table = Table("Table", ("model", f"{name}, paper", f"{name}, its split"), (("LR", paper, ours),))
    assert verdicts(table) == [(f"LR, {name}", verdict)]


def test_times_are_told_as_factors():
    table = Table("Table III: milliseconds", ("r", "inference, paper", "inference"), (("20", "326", "0.427"),))
    assert compared(table)[0].rows[0][2].remark == "▲ 763 times less"


def test_counted_numbers_are_the_same_or_not():
    columns = ("model", "paper", "the paper's counting")
    table = Table("Table I: number of parameters", columns, (("TT", "38840", "38840"), ("TT", "10", "11")))
    assert [verdict for _, verdict in verdicts(table)] == ["same", "worse"]


def test_what_is_no_number_is_not_compared():
    table = Table("Table", ("model", "paper", "ours"), (("a", "–", "98.0"), ("b", "97.0", "not yet")))
    data, found = compared(table)
    assert found == ()
    assert data.notes == ()
