"""Shares of the variance of rows as they are, and their posterior."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from restt import ResTTClassifier, ResTTRegressor
from restt.explain import GlobalExplanation, explain_global, variance_shares
from tests.explain import brute
from tests.explain.conftest import Fitted


@pytest.mark.parametrize("products", [0, 5])
def test_shares_are_covariances_of_all_terms(products: int) -> None:
    module = brute.random_module(sites=5, products=products)
    rows = brute.random_rows(module, 40, seed=1)
    rows[:, 1] = rows[:, 0] + 0.1 * rows[:, 1]  # dependent sites
    found = variance_shares(module, rows, terms=[0, (1, 3), (0, 2, 4)])
    value = brute.predictions(module, rows)
    centred = (value - value.mean(0)).numpy()
    terms = torch.stack([brute.moebius(brute.game(module, row, rows.mean(0))) for row in rows]).numpy()
    shares = np.einsum("btd,bd->td", terms, centred) / (centred**2).sum(0)  # (2^N, O)
    assert shares.min() < 0  # dependent columns: a term may take back what others say
    close = {"rtol": 1e-9, "atol": 1e-10}
    np.testing.assert_allclose(found.of_terms, shares[[1, 2 + 8, 1 + 4 + 16]], **close)
    np.testing.assert_allclose(found.of_terms.sum(0) + found.rest, 1, **close)
    bits = brute.coalitions(5).numpy()
    sizes = bits.sum(1)
    for n in range(5):
        inside = bits[:, n]
        np.testing.assert_allclose(found.of_columns[n], (shares[inside] / sizes[inside, None]).sum(0), **close)
        np.testing.assert_allclose(found.total[n], shares[inside].sum(0), **close)
        np.testing.assert_allclose(found.alone[n], shares[2**n], **close)
    for order in range(1, 6):
        np.testing.assert_allclose(found.of_orders[order], shares[sizes == order].sum(0), **close)
    for part in (found.of_columns, found.of_orders):
        np.testing.assert_allclose(part.sum(0), 1, **close)
    assert found.term_errors is None
    assert found.rows == 40


@pytest.fixture(scope="module")
def model() -> ResTTRegressor:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((160, 4)), columns=["alone", "first", "second", "noise"])
    y = frame["alone"] + frame["first"] * frame["second"] + 0.3 * rng.standard_normal(160)
    return ResTTRegressor(random_state=0).fit(frame, y)


@pytest.fixture(scope="module")
def whole(model: ResTTRegressor) -> GlobalExplanation:
    return explain_global(model)


def test_real_interactions_are_told_from_nothing(model):
    found = variance_shares(model, terms=["alone", ("first", "second"), "noise", ("first", "noise")])
    probability = found.term_errors.probability[:, 0]
    assert (probability[:2] > 0.99).all()
    assert (probability[2:] < 0.05).all()
    assert found.column_errors.probability[3, 0] < 0.05
    assert (found.column_errors.probability[:3, 0] > 0.99).all()
    assert (found.term_errors.std > 0).all()
    frame = found.to_frame()
    assert frame["term"].tolist() == ["alone", "first × second", "noise", "first × noise"]
    assert frame["probability"].tolist() == probability.tolist()
    assert repr(found).endswith(f"over {found.rows} rows as they are, on the {found.scale} scale")
    assert found.to_frame("columns")["share"].sum() == pytest.approx(1.0)
    again = variance_shares(model, terms=["alone"])
    assert again.term_errors.std[0, 0] == found.term_errors.std[0, 0]  # the seed is fixed


def test_errors_do_not_depend_on_the_unit_of_y():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 3))
    y = x[:, 0] + x[:, 1] * x[:, 2] + 0.3 * rng.standard_normal(40)
    one, other = (
        variance_shares(ResTTRegressor(effort="quick", random_state=0).fit(x, unit * y + zero), terms=[0, (1, 2), 1])
        for unit, zero in ((1.0, 0.0), (1e-3, 1.0))
    )
    for ours, theirs in ((one.term_errors, other.term_errors), (one.column_errors, other.column_errors)):
        np.testing.assert_allclose(ours.std, theirs.std, rtol=0.01)
        np.testing.assert_allclose(ours.probability, theirs.probability, atol=0.01)


def test_an_output_of_one_value_has_no_share_and_leaves_those_of_the_others():
    x = np.random.default_rng(0).standard_normal((40, 2))
    model = ResTTRegressor(effort="quick", random_state=0).fit(x, np.column_stack([x[:, 0], np.full(40, 7.0)]))
    found = variance_shares(model, terms=[0])
    assert found.of_terms[0] == pytest.approx([1.0, 0.0], abs=0.05)
    assert found.rest[1] == 0
    assert found.term_errors.probability.tolist() == [[1.0, 0.0]]
    assert found.term_errors.std[0, 0] > 0
    assert found.term_errors.std[0, 1] == 0


def test_each_class_has_errors_of_its_own_shares():
    x = np.random.default_rng(0).standard_normal((60, 2))
    model = ResTTClassifier(effort="quick", random_state=0).fit(x, np.digitize(x[:, 0], [-0.5, 0.5]))
    found = variance_shares(model, terms=[0]).term_errors
    assert (found.probability > 0.99).all()
    assert (found.std > 0).all()
    assert len(set(found.std[0].tolist())) == 3


def test_a_term_that_is_the_same_in_all_rows_has_no_share_of_its_own():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.standard_normal(40), *[np.tile([-1.0, 1.0], 20)] * 2])  # of which the product is 1
    model = ResTTRegressor(effort="quick", random_state=0).fit(x, x[:, 0] + rng.standard_normal(40))
    assert variance_shares(model, terms=[(1, 2)]).term_errors.probability.tolist() == [[0.0]]


def test_a_global_explanation_is_one_table_that_fits_a_screen(model, whole):
    text = repr(whole)
    lines = text.splitlines()
    assert lines[0].strip() == "Shares of the variance of transformed y (latent scale)"
    assert len(lines) == 1 + (10 + 3) + 3  # title, terms beside their head and sums, notes
    assert "first × second" in text
    assert "P(> 1 %)" in lines[1]
    assert "1000 draws from the posterior, seed 0" in text
    assert "independent columns" in lines[1]
    assert f"over {len(model.spread_.numbers)} rows as they are" in text
    html = whole._repr_html_()
    assert html.startswith("<table>")
    assert html.count("<tr>") == 10 + 3
    assert "&gt; 1 %" in html


def test_one_row_has_no_variance_to_share(model, whole):
    row = pd.DataFrame(np.zeros((1, 4)), columns=whole.names)
    assert variance_shares(model, row, terms=[0]).column_errors is None
    assert not any(digit in repr(explain_global(model, row)) for digit in ("100.0 %", "-0.0 %", "nan"))


def test_without_rows_the_table_says_independent_columns(regressor: Fitted) -> None:
    found = explain_global(regressor.model)
    assert found.shares is None
    assert "independent columns" in repr(found)
    assert "of the rows" not in repr(found)
    given = explain_global(regressor.model, regressor.table)
    assert given.shares.rows == len(regressor.table)
    assert given.shares.scale == "y"
    assert "of the rows" in repr(given)
    with pytest.raises(ValueError, match="background must be given: this model keeps no rows"):
        variance_shares(regressor.model)
    with pytest.raises(ValueError, match="terms must name one or more terms, got none"):
        variance_shares(regressor.model, regressor.table, terms=[])


def test_what_may_be_nothing_is_grey(model, whole):
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot
    from matplotlib.colors import to_hex

    from restt.explain.plots import NOTHING

    axes = whole.plot("columns")
    labels = [label.get_text() for label in axes.get_yticklabels()]
    bars = axes.patches[len(labels) :]
    grey = {label for label, bar in zip(labels, bars, strict=True) if to_hex(bar.get_facecolor()) == NOTHING}
    assert grey == {"noise"}
    assert f"({whole.shares.rows} rows)" in axes.get_xlabel()
    lines = {to_hex(line.get_color()) for line in whole.plot("network").lines}
    assert NOTHING in lines
    assert len(lines) > 1
    local = model.explain_local(pd.DataFrame(np.full((1, 4), 0.01), columns=whole.names))
    colours = {to_hex(bar.get_facecolor()) for bar in local.plot("waterfall").patches}
    assert NOTHING in colours
    pyplot.close("all")


def test_wrong_use_is_refused(model):
    with pytest.raises(ValueError, match=r"terms has 'length', which is not one of"):
        variance_shares(model, terms=["length"])
    with pytest.raises(ValueError, match='of must be "terms" or "columns", got \'rows\''):
        variance_shares(model, terms=["alone"]).to_frame("rows")
