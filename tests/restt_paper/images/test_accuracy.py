from __future__ import annotations

import pytest

from restt_paper.experiments import Cell, Store
from restt_paper.images.accuracy import Duel, more_accurate, steadier


@pytest.fixture
def measured(tmp_path):
    """A store with results of named models, and their cells; a model without accuracies has no results."""
    store = Store(tmp_path)

    def cells(**accuracies):
        found = {name: Cell("table2", name, {}) for name in accuracies}
        for name, values in accuracies.items():
            if values is not None:
                store.compute(found[name], lambda _, values=values: {"final": values})
        return store, found

    return cells


def test_a_claim_holds_where_every_lead_is_clear(measured):
    store, cells = measured(good=[98.0, 98.1, 98.2], bad=[90.0, 91.0, 92.0])
    claim = more_accurate(store, "good leads", [Duel("here", cells["good"], cells["bad"])])
    assert claim.row() == ("good leads", "in 1 of 1", "holds")


def test_ties_and_losses_refute_it_and_are_named(measured):
    store, cells = measured(a=[98.0, 98.1, 98.2], same=[98.0, 98.1, 98.3], better=[99.0, 99.1, 99.2], missing=None)
    duels = [Duel("x", cells["a"], cells["same"]), Duel("y", cells["a"], cells["better"])]
    claim = more_accurate(store, "a leads", [*duels, Duel("z", cells["a"], cells["missing"])])
    expected = "in 0 of 2; tie: x (98.10 against 98.13); not: y (98.10 against 99.10); 1 not yet compared"
    assert claim.row() == ("a leads", expected, "does not hold")


def test_missing_results_leave_it_open(measured):
    store, cells = measured(good=[98.0, 98.1], bad=[90.0, 90.1], missing=None)
    duels = [Duel("x", cells["good"], cells["bad"]), Duel("y", cells["good"], cells["missing"])]
    assert more_accurate(store, "text", duels).row()[2] == "not yet"


def test_steadier_compares_the_spread_of_seeds(measured):
    store, cells = measured(calm=[90.0, 90.1, 90.2, 90.3, 90.4], wild=[80.0, None, 70.0, 60.0, 90.0])
    assert steadier(store, "calm", [Duel("x", cells["calm"], cells["wild"])]).holds is True
    assert steadier(store, "wild", [Duel("x", cells["wild"], cells["calm"])]).holds is False


def test_few_seeds_need_a_larger_lead(measured):
    # 2.04 standard errors: clear with many seeds, chance in one of twelve with these.
    few = {"a": [90.0, 90.3, 90.6, 90.9, 91.2], "b": [89.4, 89.7, 90.0, 90.3, 90.6]}
    store, cells = measured(**few, many=few["a"] * 4, rest=few["b"] * 4)
    assert more_accurate(store, "few", [Duel("x", cells["a"], cells["b"])]).row()[1].startswith("in 0 of 1; tie")
    assert more_accurate(store, "many", [Duel("x", cells["many"], cells["rest"])]).holds is True
