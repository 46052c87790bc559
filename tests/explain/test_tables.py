"""Tables as they are printed, in text and HTML, and the table of a local and of a global explanation."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from restt.explain import effect, explain_local, interaction, order_spectrum, shapley_values
from restt.explain.global_explanation import GlobalExplanation
from restt.explain.links import Link, SoftmaxLink
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


def test_values_are_called_after_their_scale() -> None:
    found = local([[1.0]])
    for scale, link, curved in (("latent", SoftmaxLink(), False), ("y", SoftmaxLink(), True), ("y", Link(), False)):
        assert replace(found, scale=scale, link=link).method == f"{'Aumann–' * curved}Shapley value"
    assert replace(found, scale="y").method == "Shapley value"


def test_terms_and_parts_of_rows_are_those_of_the_functions() -> None:
    module = brute.random_module(3, runs=2)
    x = brute.random_rows(module, 4)
    found = explain_local(module, x, x, max_order=2)
    assert found.orders.shape == (4, 3, 2)
    np.testing.assert_allclose(found.orders, order_spectrum(module, x, x, 2))
    np.testing.assert_allclose(found.values, shapley_values(module, x, x))
    term, std = found.interaction([0, 2])
    np.testing.assert_allclose(term, interaction(module, x, [0, 2], x))
    assert std is None
    with pytest.raises(ValueError, match="columns must be one or more, got none"):
        found.interaction([])
    assert [len(part) for part in found] == [1] * 4
    second = found[-3]
    np.testing.assert_array_equal(second.predictions[0], found.predictions[1])
    np.testing.assert_array_equal(second.orders[0], found.orders[1])
    np.testing.assert_array_equal(second.vectors[0], x[1])


def test_other_libraries_get_values_bases_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(*values: Any, **named: Any) -> Any:
        return SimpleNamespace(values=values, **named)

    monkeypatch.setitem(sys.modules, "shap", SimpleNamespace(Explanation=given))
    monkeypatch.setitem(sys.modules, "shapiq", SimpleNamespace(InteractionValues=given))
    for outputs in (1, 2):
        module = brute.random_module(3, outputs=outputs)
        x = brute.random_rows(module, 4)
        found = explain_local(module, x, x)
        shap = found.to_shap()
        one = (..., 0) if outputs == 1 else ...
        np.testing.assert_array_equal(shap.values[0], found.values[one])
        np.testing.assert_array_equal(shap.base_values, np.stack([found.base] * 4)[one])
        assert shap.feature_names == ["site 0", "site 1", "site 2"]
        assert shap.output_names == ("output 0" if outputs == 1 else ["output 0", "output 1"])
        shapiq, last = found.to_shapiq(row=2, output=outputs - 1), outputs - 1
        values = found.values[2, :, last].tolist()
        assert shapiq.values == ({(): found.base[last], **{(n,): value for n, value in enumerate(values)}},)
        assert (shapiq.index, shapiq.estimated, shapiq.baseline_value) == ("SV", False, found.base[last])
        assert (shapiq.min_order, shapiq.max_order, shapiq.n_players) == (0, 1, 3)
        with pytest.raises(ValueError, match=f"output must be at most {last}, got {outputs}"):
            found.to_shapiq(output=outputs)


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
    assert lines[6:] == [
        "over 40 rows as they are",
        "± and P by 1000 draws from the posterior, seed 0",
        "terms of largest variance under independent columns, proven complete",
    ]


def test_shares_of_rows_are_covariances_with_their_predictions() -> None:
    found = local([[1.0, 0.0], [2.0, 3.0], [0.0, 3.0]])
    found.orders[:, 1] = found.values.sum(axis=1)
    columns, orders = found.variance_shares()
    values, predicted = found.values[..., 0], found.predictions[:, 0]
    covariances = [np.cov(value, predicted, ddof=0)[0, 1] / predicted.var() for value in values.T]
    np.testing.assert_allclose(columns[:, 0], covariances)
    np.testing.assert_allclose(orders[:, 0], [0, 1])
    alike = local([[1.0, 2.0], [2.0, 1.0]])
    assert not alike.variance_shares()[0].any()  # predictions that do not vary have no shares


def test_an_effects_frame_has_a_row_for_each_point_and_output() -> None:
    module = brute.random_module(3, 1)
    rows = brute.random_rows(module, 4)
    surface = effect(module, [2, 0], rows, grid=[[0.5, 1.5], [2.0, 3.0, 4.0]])
    frame = surface.to_frame()
    assert frame["site 2"].tolist() == [0.5] * 3 + [1.5] * 3 + [0.5] * 3 + [1.5] * 3
    assert frame["site 0"].tolist() == [2.0, 3.0, 4.0] * 4
    assert frame["output"].tolist() == ["output 0"] * 6 + ["output 1"] * 6
    assert frame["effect"].tolist() == surface.values.flatten(0, 1).T.flatten().tolist()
    assert frame.attrs == {"scale": "y"}
    assert repr(surface) == "Effect of site 2 × site 0 on output 0, output 1, scale='latent', at (2, 3) points"
    points = torch.zeros(2, 3, 3, 1).double()
    points[..., 2, 0], points[..., 0, 0] = torch.tensor([[0.5], [1.5]]), torch.tensor([2.0, 3, 4])
    wanted = interaction(module, points.flatten(0, 1), [0, 2], rows).reshape(2, 3, 2)
    torch.testing.assert_close(surface.values, wanted)
    curve = effect(module, 1, rows, grid=[7.0])
    points = torch.full((1, 3, 1), 7.0).double()
    torch.testing.assert_close(curve.values, interaction(module, points, [1], rows))
    torch.testing.assert_close(curve.base, module(rows.mean(0, keepdim=True))[0])
    assert (curve.spread.tolist(), curve.spread_over) == ([[0.0, 0.0]], "members")
    for columns, grid, message in (([0, 1, 2], None, "one or two, got 3"), ([0, 1], [[1.0]], "pair of columns, got 1")):
        with pytest.raises(ValueError, match=message):
            effect(module, columns, rows, grid)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (3, ValueError, r"columns must be in 0…2, got 3"),
        (-1, ValueError, r"columns must be in 0…2, got -1"),
        ("site 9", ValueError, r"columns has 'site 9', which is not one of"),
        ([0, 0], ValueError, r"columns must be distinct, got \[0, 0\]"),
        (1.0, TypeError, "columns must be columns by name or number, got 1.0"),
        (True, TypeError, "columns must be columns by name or number, got True"),
        ([None], TypeError, "columns must be columns by name or number, got None"),
    ],
)
def test_columns_that_are_none_are_named(columns: Any, error: type[Exception], message: str) -> None:
    plain = Subject.of(brute.random_module(sites=3))
    with pytest.raises(error, match=message):
        plain.sites_of(columns)
    assert plain.sites_of(["site 2", 0]) == (2, 0)
    assert plain.sites_of(np.int64(1)) == (1,)


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


@pytest.mark.parametrize(("sites", "nodes"), [(2, 1), (3, 2), (4, 2), (5, 3)])
def test_half_as_many_nodes_as_sites_are_exact(sites: int, nodes: int) -> None:
    for products in (0, 3):
        plain = Subject.of(brute.random_module(sites, products=products))
        assert plain.nodes == nodes
        highest = [plain.highest(None), plain.highest(None, 2), plain.highest(9), plain.highest(1)]
        assert highest == [sites, 2, sites, 1]
