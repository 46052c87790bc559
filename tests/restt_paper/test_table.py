from __future__ import annotations

import pytest

from restt_paper.table import Table, fixed, mean_std


def test_rows_must_fit_and_be_text():
    with pytest.raises(ValueError, match="rows of 'T' must have 2 texts, got"):
        Table("T", ("a", "b"), (("1",),))
    with pytest.raises(ValueError, match="rows of 'T' must have 1 texts, got"):
        Table("T", ("a",), ((1,),))


def test_markdown_stays_one_table_whatever_the_entries():
    lines = Table("T", ("a|b",), (("x\ny|z",),)).to_markdown().splitlines()
    assert lines == ["### T", "", "| a\\|b |", "| --- |", "| x y\\|z |"]


def test_terminal_shows_brackets_as_they_are(capsys):
    Table("T [bold]", ("a",), (("[red]x",),), ("[note]",)).print()
    shown = capsys.readouterr().out
    for text in ("T [bold]", "[red]x", "[note]"):
        assert text in shown


def test_nothing_is_cut_off_in_the_terminal(capsys):
    columns = tuple(f"column {k}" for k in range(12))
    Table("wide", columns, (tuple(f"{k:.4f} and more words" for k in range(12)),)).print()
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "11.0000" in printed


def test_halves_are_rounded_one_way_whatever_binary_fraction_they_become():
    for thousandths in range(90_005, 100_000, 10):
        expected = f"{(thousandths + 5) // 1000}.{(thousandths + 5) // 10 % 100:02d}"
        assert fixed(thousandths / 1000, 2) == expected
        assert mean_std([thousandths / 1000 - 0.5, thousandths / 1000 + 0.5]).split()[0] == expected
    assert fixed(-0.125, 2) == "-0.13"
    assert fixed(float("nan"), 2) == "nan"
