"""Result objects: tables hold the numbers, every picture can be drawn."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from restt.explain import (
    GlobalExplanation,
    LocalExplanation,
    explain_global,
    explain_local,
    order_spectrum,
    shapley_values,
    sobol_indices,
)
from tests.explain import brute
from tests.explain.conftest import Fitted


@pytest.fixture(scope="module")
def local(regressor: Fitted) -> LocalExplanation:
    return explain_local(regressor.model, regressor.table[:20])


@pytest.fixture(scope="module")
def whole(regressor: Fitted) -> GlobalExplanation:
    return explain_global(regressor.model, regressor.table)


@pytest.fixture
def pyplot() -> Iterator[Any]:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def printed(found: Any) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(found)
    return console.file.getvalue()


def test_a_local_explanation_holds_what_the_functions_return(regressor: Fitted, local: LocalExplanation) -> None:
    rows = regressor.table[:20]
    np.testing.assert_allclose(local.values, shapley_values(regressor.model, rows))
    np.testing.assert_allclose(local.orders, order_spectrum(regressor.model, rows))
    np.testing.assert_allclose(local.predictions[:, 0], regressor.model.predict(rows))
    np.testing.assert_allclose(local.base + local.values.sum(1), local.predictions)
    assert local.std is None
    assert local.data[0].tolist() == rows.iloc[0].tolist()
    assert np.isnan(local.data[3, 0])
    assert len(local) == 20


def test_one_row_can_be_taken_out(local: LocalExplanation) -> None:
    one = local[7]
    assert len(one) == 1
    np.testing.assert_array_equal(one.values[0], local.values[7])
    np.testing.assert_array_equal(local[-1].values[0], local.values[19])
    assert [float(each.predictions[0, 0]) for each in local] == local.predictions[:, 0].tolist()
    with pytest.raises(ValueError, match="row must be at most 19, got 20"):
        local[20]


def test_the_local_frame_has_one_row_per_value(local: LocalExplanation) -> None:
    frame = local.to_frame()
    assert list(frame.columns) == ["row", "output", "column", "value", "shapley"]
    assert frame["shapley"].to_numpy() == pytest.approx(local.values[..., 0].ravel())


def test_tables_are_printed(local: LocalExplanation, whole: GlobalExplanation) -> None:
    text = printed(local[0])
    assert f"= {float(local.predictions[0, 0]):.4g}" in text
    assert "Mean size of the Shapley values of 20 rows" in printed(local)
    text = printed(whole)
    assert "colour × count" in text
    assert "proven complete" in text


def test_a_model_without_a_posterior_says_that_it_has_no_error_bars(local: LocalExplanation, whole: GlobalExplanation):
    for found in (local, local[0], whole):
        assert "no standard deviations: ResTTNetRegressor has no posterior in closed form" in repr(found)
        assert "-0.0 " not in repr(found)


def test_a_global_explanation_holds_what_the_functions_return(regressor: Fitted, whole: GlobalExplanation) -> None:
    expected = sobol_indices(regressor.model, regressor.table)
    torch.testing.assert_close(whole.sobol.total, expected.total)
    assert whole.to_frame().equals(expected.to_frame())
    assert whole.effect("size").names == ("size",)


@pytest.mark.parametrize("kind", ["waterfall", "beeswarm", "dependence", "orders"])
def test_local_pictures(local: LocalExplanation, kind: str, pyplot: Any) -> None:
    axes = local.plot(kind)
    axes.figure.canvas.draw()
    if kind == "waterfall":  # the bars lead from the base to the prediction
        edges = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
        assert edges[0][0] == pytest.approx(float(local.base[0]))
        assert edges[-1][1] == pytest.approx(float(local.predictions[0, 0]))
    if kind == "beeswarm":
        assert sum(len(dots.get_offsets()) for dots in axes.collections) == 80
    if kind == "orders":
        assert [bar.get_height() for bar in axes.patches] == pytest.approx(
            np.abs(local.orders[:, 1:, 0]).mean(0).tolist()
        )


@pytest.mark.parametrize("kind", ["columns", "orders", "network"])
def test_global_pictures(whole: GlobalExplanation, kind: str, pyplot: Any) -> None:
    axes = whole.plot(kind)
    axes.figure.canvas.draw()
    if kind == "network":
        assert {text.get_text() for text in axes.texts} == set(whole.names)
        interactions = [term for term in whole.interactions.terms if len(term.columns) > 1]
        assert 0 < len(interactions) < len(whole.interactions.terms)
        assert len(axes.lines) == sum(len(term.columns) for term in interactions if float(term.share) > 0)
    if kind in ("columns", "orders"):
        assert len(axes.patches) in (8, 4)


@pytest.mark.parametrize("columns", ["size", "colour", ["size", "colour"], ["size", "count"], ["colour", "new"]])
def test_effect_pictures(whole: GlobalExplanation, columns: Any, pyplot: Any) -> None:
    axes = whole.plot("effect", columns=columns)
    axes.figure.canvas.draw()
    first = columns if isinstance(columns, str) else columns[0]
    assert axes.get_xlabel() == first


def test_pictures_are_drawn_on_axes_that_are_given(local: LocalExplanation, pyplot: Any) -> None:
    _, axes = pyplot.subplots()
    assert local.plot("beeswarm", axes=axes) is axes


def test_a_module_is_explained_without_data(pyplot: Any) -> None:
    module = brute.random_module(sites=9, runs=2)
    x = brute.random_rows(module, 6)
    local = explain_local(module, x, x)
    assert local.data is None
    assert "value" not in local.to_frame()
    for kind in ("waterfall", "beeswarm"):
        local.plot(kind, output=1).figure.canvas.draw()
    assert explain_global(module, x, k=3).interactions.terms[0].names[0].startswith("site ")


def test_wrong_use_is_refused(local: LocalExplanation, whole: GlobalExplanation, pyplot: Any) -> None:
    with pytest.raises(ValueError, match="kind must be one of"):
        local.plot("pie")
    with pytest.raises(ValueError, match="output must be at most 0, got 1"):
        whole.plot("columns", output=1)
    with pytest.raises(ValueError, match='columns must be given with kind "effect"'):
        whole.plot("effect")
    with pytest.raises(ValueError, match="row must be at most 19, got 99"):
        local.plot("waterfall", row=99)
