from __future__ import annotations

from restt_paper.table import paper_numbers
from restt_paper.table1 import paper_count


def test_every_table_and_figure_is_there():
    assert {
        "table1_parameters",
        "table2_accuracy",
        "table3_seconds",
        "table4_fractions",
        "table5_limited",
        "table6_tabular",
        "figure_synthetic",
        "figure_training",
    } <= set(paper_numbers())


def test_table_one_is_the_paper_s_own_formula():
    table = paper_numbers()["table1_parameters"]
    for number, r in enumerate(table["r"]):
        assert table["TT"][number] == paper_count(r, "plain").paper
        assert table["ResTT"][number] == paper_count(r).paper


def test_series_have_one_entry_per_size():
    numbers = paper_numbers()
    seconds = numbers["table3_seconds"]
    for name in ("inference", "backpropagation", "convergence_to_98_percent"):
        assert len(seconds[name]) == len(seconds["r"])
    for table in ("table4_fractions", "table5_limited"):
        for dataset in ("MNIST", "Fashion-MNIST"):
            for entries in numbers[table][dataset].values():
                assert [len(entry) for entry in entries] == [2] * len(numbers[table]["fractions"])
