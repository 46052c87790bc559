from __future__ import annotations

import pytest

from restt_paper.experiments import Cell


def test_key_depends_on_settings_and_not_on_their_order():
    base = Cell("table4", "mnist", {"r": 20, "seeds": (0, 1)})
    assert base.key.startswith("table4/mnist-")
    assert base.key == Cell("table4", "mnist", {"seeds": [0, 1], "r": 20}).key
    assert base.key != Cell("table4", "mnist", {"r": 21, "seeds": (0, 1)}).key
    assert len({base, Cell("table4", "mnist", {"seeds": [0, 1], "r": 20})}) == 1


def test_later_changes_of_the_given_settings_do_not_reach_the_cell():
    settings = {"seeds": [0]}
    cell = Cell("table4", "mnist", settings)
    key = cell.key
    settings["seeds"].append(1)
    assert cell.key == key


@pytest.mark.parametrize("name", ["", "a b", "../up", "a/b", ".hidden", "-flag"])
def test_names_that_are_no_file_names_are_refused(name):
    with pytest.raises(ValueError, match="name must be made of letters"):
        Cell("table4", name, {})
    with pytest.raises(ValueError, match="experiment must be made of letters"):
        Cell(name, "mnist", {})


@pytest.mark.parametrize("settings", [{"lr": float("nan")}, {"module": object()}, [1, 2]])
def test_settings_that_are_not_json_are_refused(settings):
    with pytest.raises(TypeError, match="settings"):
        Cell("table4", "mnist", settings)
