from __future__ import annotations

import pytest

from restt.reproduce.tables import Table


def test_rows_must_fit_and_be_text():
    with pytest.raises(ValueError, match="rows of 'T' must have 2 entries, got 1"):
        Table("T", ("a", "b"), (("1",),))
    with pytest.raises(TypeError, match="entries of 'T' must be text, got 1"):
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
    columns = tuple(f"column {k}" for k in range(30))
    Table("wide", columns, (tuple(f"{k:.4f}" for k in range(30)),)).print()
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "29" in printed
