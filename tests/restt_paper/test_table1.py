from __future__ import annotations

import restt_paper


def test_both_countings_beside_the_paper_s_and_the_module_s_own(tmp_path, capsys):
    restt_paper.reproduce("table1", "paper", tmp_path)
    (table,) = restt_paper.tables_of("table1", "paper", tmp_path)
    assert len(table.rows) == 6
    for row in table.rows:
        for paper, paper_counting, algorithm, module in (row[1:5], row[5:]):
            assert paper == paper_counting
            assert algorithm == module
            assert algorithm != paper


def test_nothing_counted_yet(tmp_path):
    (table,) = restt_paper.tables_of("table1", "quick", tmp_path)
    assert {entry for row in table.rows for entry in (*row[2:5], *row[6:])} == {"not yet"}
    assert table.rows[0][:2] == ("10", "38840")
