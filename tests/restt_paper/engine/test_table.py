from __future__ import annotations

from collections import Counter

import pytest

from restt_paper.engine.table import Table, fixed, mean_std


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


ENTRIES = ("Fashion-MNIST, r = 100", "98.96 ± 0.03", "–", "", "測定されていない", "12dc041cb0;2ec0750db7;3156b2e8c3")


@pytest.mark.parametrize("width", [20, 40, 60])
@pytest.mark.parametrize("columns", [1, 2, 8, 14])
def test_every_character_is_there_however_narrow_the_terminal(capsys, monkeypatch, width, columns):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    # A dumb terminal has no signs for bold text, and rich asks for its size only where one of these is missing.
    for name, value in {"TERM": "dumb", "COLUMNS": str(width), "LINES": "40"}.items():
        monkeypatch.setenv(name, value)
    names = tuple(f"column{k}" if k % 3 else "r" for k in range(columns))
    rows = tuple(tuple(ENTRIES[(row + k) % len(ENTRIES)] for k in range(columns)) for row in range(len(ENTRIES)))
    Table("T", names, rows, ("a note " * 20,)).print()
    printed = "".join(capsys.readouterr().out.replace("─", "").split())
    wanted = "".join(["T", "a note " * 20, *names, *(entry for row in rows for entry in row)]).replace(" ", "")
    assert Counter(printed) == Counter(wanted)


def test_halves_are_rounded_one_way_whatever_binary_fraction_they_become():
    for thousandths in range(90_005, 100_000, 10):
        expected = f"{(thousandths + 5) // 1000}.{(thousandths + 5) // 10 % 100:02d}"
        assert fixed(thousandths / 1000, 2) == expected
        assert mean_std([thousandths / 1000 - 0.5, thousandths / 1000 + 0.5]).split()[0] == expected
    assert fixed(-0.125, 2) == "-0.13"
    assert fixed(float("nan"), 2) == "nan"
