"""A constant that fixes a result is part of its cell, though the committed results do not name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from restt.baselines.tensor import normalised_train
from restt_paper import fig_meanfield, fig_trainability, image_views, improved, table2, tabular_search
from restt_paper.store import Store
from restt_paper.tabular_restt import search_cell

RESULTS = Path(__file__).parents[2] / "results" / "paper"


def of_views():
    return [cell for cell in improved.cells("paper") if cell.settings["recipe_settings"].get("views")]


def of_batch_norm():
    return [cell for cell in table2.cells("paper") if cell.settings.get("rival") == "tt-bn"]


def of_meanfield():
    return fig_meanfield.cells("paper")


def of_search():
    return [search_cell("boston", "paper", (0, 1))]


CONSTANTS = [
    (tabular_search, "FOLDS", 10, of_search),
    (image_views, "MOVES", ((0, 0),), of_views),
    (normalised_train, "REFERENCE_ROWS", 256, of_batch_norm),
    (normalised_train, "LAST_SCALE", 0.2, of_batch_norm),
    (fig_meanfield, "OUTPUTS", 2, of_meanfield),
    (fig_meanfield, "TT_SLOPES", (0.8, 1.0, 1.2), of_meanfield),
    (fig_meanfield, "RESTT_SLOPES", (0.001, 0.01), of_meanfield),
    (fig_meanfield, "MIXED_SEEDS", (4, 5, 6), of_meanfield),
    (fig_trainability, "PANELS", fig_trainability.PANELS[:2], of_meanfield),
]


@pytest.mark.parametrize(("module", "name", "other", "cells"), CONSTANTS, ids=[name for _, name, *_ in CONSTANTS])
def test_another_constant_is_another_cell(module, name, other, cells, monkeypatch):
    before = {cell.key for cell in cells()}
    monkeypatch.setattr(module, name, other)
    after = {cell.key for cell in cells()}
    assert before
    assert not before & after


@pytest.mark.skipif(not RESULTS.exists(), reason="the results are in the source checkout only")
@pytest.mark.parametrize("cells", [of_views, of_batch_norm, of_meanfield])
def test_committed_results_are_found_under_the_constants_they_were_made_with(cells):
    assert all(Store(RESULTS).load(cell) is not None for cell in cells())


def test_cells_without_views_or_batch_norm_do_not_depend_on_their_constants(monkeypatch):
    def others():
        concerned = {cell.key for cell in (*of_views(), *of_batch_norm())}
        return [cell.key for cell in (*improved.cells("paper"), *table2.cells("paper")) if cell.key not in concerned]

    before = others()
    monkeypatch.setattr(image_views, "MOVES", ((0, 0),))
    monkeypatch.setattr(normalised_train, "LAST_SCALE", 0.2)
    assert others() == before
