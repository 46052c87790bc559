"""Tables as they are printed, in text and HTML, and the table of a local and of a global explanation."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from restt.explain.global_explanation import GlobalExplanation
from restt.explain.local_explanation import LocalExplanation
from restt.explain.shares import SETTINGS, ShareErrors
from restt.explain.subject import Subject
from restt.explain.tables import Printed, Table
from tests.explain import brute


class Numbers(Printed):
    """Some records."""

    def __init__(self, count: int, note: str = "") -> None:
        self.count, self.note = count, note

    def _records(self) -> list[dict[str, Any]]:
        return [{"name": f"n{place}", "share": place / 3} for place in range(self.count)]

    def _title(self) -> tuple[str, str]:
        return "Numbers", self.note


def test_a_printed_table_says_how_many_rows_it_leaves_out() -> None:
    lines = repr(Numbers(31, "of thirds")).splitlines()
    assert (len(lines), lines[2], lines[-1]) == (33, "  n0         0", "and 1 more; of thirds")
    assert lines[31] == "  n29    9.667"
    assert len(repr(Numbers(30)).splitlines()) == 32


def test_html_has_a_heading_in_each_row_and_escapes_names() -> None:
    assert Table("A & B", ["<i>", "share"], [["x<y", "1"]], "5 > 3").html() == (
        "<table><caption>A &amp; B</caption><thead><tr><th>&lt;i&gt;</th><th>share</th></tr></thead>"
        "<tbody><tr><th>x&lt;y</th><td>1</td></tr></tbody></table><p>5 &gt; 3</p>"
    )
    assert Table("", ["a"], []).html().endswith("</tbody></table>")


def subject(**changes: Any) -> Any:
    return SimpleNamespace(notes=[], posterior=None, **changes)


def local(values: Any, data: Any = None) -> LocalExplanation:  # (B, N)
    found = np.array(values, dtype=float)[..., None]
    names = tuple("abcdefghijklmn"[: found.shape[1]])
    base, nothing = np.array([2.0]), torch.zeros(len(found), 1, 1)
    predictions, orders = base + found.sum(axis=1), np.zeros((len(found), 2, 1))
    parts = names, ("y",), found, base, predictions, orders, data, subject(), nothing, nothing[0], None
    return LocalExplanation(*parts)


def test_the_table_of_a_row_has_its_largest_values_and_their_sum() -> None:
    many = local([[float(place) * (-1) ** place for place in range(1, 15)]])
    lines = repr(many).splitlines()
    assert (lines[0], lines[2].split(), lines[13].split()) == ("Shapley values", ["n", "14"], ["c", "-3"])
    assert lines[14:] == ["  2 others    1", "y: 2 + these = 9"]
    with_data = local([[1.0, -3.0]], np.array([[0.25, "red"]], dtype=object))
    assert [line.split() for line in repr(with_data).splitlines()[1:4]] == [
        *(["column", "value", "y"], ["b", "red", "-3"], ["a", "0.25", "1"])
    ]
    with_data.__dict__["std"] = np.array([[[0.125], [0.5]]])
    assert "-3 ± 0.5" in repr(with_data)
    assert "1 ± 0.12" in repr(with_data)
    several = repr(local([[1.0, -3.0], [-2.0, 1.0]])).splitlines()
    assert several == ["Mean size of the Shapley values of 2 rows", "  column    y", "  b         2", "  a       1.5"]


def test_the_table_of_a_model_has_its_terms_all_others_and_the_sum() -> None:
    listed = [("a", 0.5, 0.6), ("b", 0.25, 0.2)]
    terms = [SimpleNamespace(label=name, share=torch.tensor([share])) for name, _, share in listed]
    interactions, sobol = SimpleNamespace(terms=terms, complete=True), SimpleNamespace(variance=torch.tensor([2.0]))
    whole = GlobalExplanation(("a", "b"), ("y", "z"), sobol, interactions, None, None, subject(), None)  # type: ignore[arg-type]
    lines = [line.split() for line in repr(whole).splitlines()]
    assert lines[0] == ["Shares", "of", "the", "variance", "of", "y;", "1", "more", "outputs"]
    assert lines[2:6] == [
        ["a", "60.0", "%"],
        ["b", "20.0", "%"],
        [*["all", "other", "terms", "20.0", "%"]],
        ["all", "100.0", "%"],
    ]
    errors = ShareErrors(np.array([[0.01], [0.02]]), np.array([[1.0], [0.876]]))
    of_terms, rest = np.array([[share] for _, share, _ in listed]), np.array([0.25])
    shares = SimpleNamespace(of_terms=of_terms, rest=rest, rows=40, term_errors=errors, settings=SETTINGS)
    whole.__dict__["shares"] = shares
    lines = repr(whole).splitlines()
    assert [line.split("  ")[-1].strip() for line in lines[2:6]] == ["60.0 %", "20.0 %", "20.0 %", "100.0 %"]
    assert " ".join(lines[3].split()) == "b 25.0 % 2.0 % 0.88 20.0 %"
    assert " ".join(lines[4].split()) == "all other terms 25.0 % 20.0 %"
    assert lines[6] == (
        "over 40 rows as they are; ± and P by 1000 draws from the posterior, seed 0; "
        "terms of largest variance under independent columns, proven complete"
    )


def test_notes_are_of_estimators_without_error_bars_and_of_distilled_models() -> None:
    plain = Subject.of(brute.random_module(sites=3))
    assert plain.notes == []
    assert replace(plain, error=torch.tensor([0.0123, 1.0])).notes == [
        "distilled: off by 0.012, 1 standard deviations on fresh points"
    ]


@pytest.mark.parametrize(("share", "notes"), [(0.995, 0), (0.99, 1)])
def test_a_posterior_of_a_part_says_of_which(share: float, notes: int) -> None:
    def fit() -> None:
        pass

    class Part(Subject):
        posterior = SimpleNamespace(share=share)  # type: ignore[assignment]

    module = brute.random_module(sites=3)
    found = Part(module, (0, 1, 2), (), ("y",), torch.eye(1), torch.zeros(1), SimpleNamespace(fit=fit)).notes
    assert found == ["standard deviations: of its 99% Gaussian processes, not of its trains"] * notes
