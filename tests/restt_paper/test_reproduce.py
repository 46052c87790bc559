from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

import restt_paper as reproduce
from restt._common.drawing import require_matplotlib
from restt_paper import command, targets
from restt_paper.cells import Cell
from restt_paper.store import Store
from restt_paper.tables import NOT_YET, Table


@pytest.fixture
def squares(monkeypatch):
    """An experiment of three cells with a picture, in the registry in place of all others."""

    def tables(store, profile):
        files = [store.load(cell) for cell in cells(profile)]
        return [Table("Squares", ("square",), tuple((_entry(file),) for file in files))]

    def _entry(file):
        return NOT_YET if file is None else str(file["result"]["square"])

    def cells(profile):
        return [Cell("squares", f"n{k}", {"number": k, "profile": profile}) for k in range(3)]

    def pictures(store, profile, folder):
        folder.mkdir()
        (folder / "squares.png").write_bytes(b"png")
        return [folder / "squares.png"]

    module = types.SimpleNamespace(
        TITLE="Squares",
        cells=cells,
        compute=lambda cell, store: {"square": cell.settings["number"] ** 2, "device": store.device},
        tables=tables,
        pictures=pictures,
    )
    monkeypatch.setattr(reproduce, "EXPERIMENTS", {"squares": "squares"})
    monkeypatch.setattr(reproduce, "experiment", lambda name: module)
    return module


def test_every_experiment_has_what_the_registry_promises():
    for name in reproduce.EXPERIMENTS:
        module = reproduce.experiment(name)
        assert isinstance(module.TITLE, str)
        assert callable(module.tables)
        assert callable(module.compute)
        for target in getattr(module, "TARGETS", ()):
            assert isinstance(target, targets.Target)


def test_a_quick_result_can_never_stand_in_for_a_paper_one():
    for name in reproduce.EXPERIMENTS:
        module = reproduce.experiment(name)
        quick, paper = ([cell.key for cell in module.cells(profile)] for profile in reproduce.PROFILES)
        assert len({*quick, *paper}) == len(quick) + len(paper)


def test_running_computes_shows_and_draws(tmp_path, squares, capsys):
    command.reproduce("all", "quick", tmp_path, "cpu")
    shown = capsys.readouterr().out
    assert "[3/3," in shown
    assert "Squares (quick profile)" in shown
    assert str(tmp_path / "pictures" / "squares.png") in shown.replace("\n", "")
    assert reproduce.QUICK_MEANS in shown
    saved = json.loads(next(tmp_path.glob("squares/n2-*.json")).read_text())
    assert saved["result"] == {"square": 4, "device": "cpu"}
    assert saved["provenance"]["command"] == "restt reproduce squares --profile quick"


def test_without_matplotlib_everything_but_the_pictures_is_there(tmp_path, squares, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setattr(reproduce, "EXPERIMENTS", {"squares": "squares", "again": "squares"})
    squares.pictures = lambda store, profile, folder: require_matplotlib()
    command.reproduce("all", "quick", tmp_path, "cpu")
    shown = capsys.readouterr().out
    assert shown.count("no pictures: drawing needs matplotlib: pip install restt[plot]\n") == 2
    assert shown.count("Squares (quick profile)") == 2
    assert f"again: results in {tmp_path}" in shown


def test_an_experiment_that_needs_a_missing_package_does_not_stop_the_others(tmp_path, squares, monkeypatch, capsys):
    def lacking(cell, store):
        raise ImportError("drawing needs matplotlib")

    needy = types.SimpleNamespace(
        **{**vars(squares), "compute": lacking, "cells": lambda profile: [Cell("needy", "n", {})]}
    )
    monkeypatch.setattr(reproduce, "EXPERIMENTS", {"needy": "needy", "squares": "squares"})
    monkeypatch.setattr(reproduce, "experiment", {"needy": needy, "squares": squares}.__getitem__)
    with pytest.raises(ImportError, match="needy was left out: drawing needs matplotlib"):
        command.reproduce("all", "quick", tmp_path, "cpu")
    assert len(list(tmp_path.glob("squares/*.json"))) == 3


def test_tables_and_results_before_and_after(tmp_path, squares):
    assert reproduce.tables_of("squares", "paper", tmp_path)[0].rows == ((NOT_YET,),) * 3
    assert reproduce.results_of("squares", "paper", tmp_path) == [None] * 3
    paths = reproduce.run("squares", "paper", tmp_path, "cpu")
    assert [path.exists() for path in paths] == [True] * 3
    assert reproduce.tables_of("squares", "paper", tmp_path)[0].rows == (("0",), ("1",), ("4",))
    assert reproduce.tables_of("squares", "paper", tmp_path)[0].title == "Squares"


def test_default_folders(squares):
    assert reproduce.open_store("squares", "paper").folder == Path("results/paper")


@pytest.mark.parametrize(("name", "profile"), [("table99", "quick"), ("table1", "full")])
def test_unknown_names_and_profiles_are_named(tmp_path, name, profile):
    with pytest.raises(ValueError, match=r"(name|profile) must be one of .*, got '(table99|full)'"):
        reproduce.run(name, profile, tmp_path)


def test_a_device_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert reproduce.read_device("auto") == "cpu"
    with pytest.raises(ValueError, match="torch finds no CUDA device"):
        reproduce.read_device("cuda")


def test_total_time_is_known_once_all_cells_are_there(tmp_path):
    cells = [Cell("t", name, {}) for name in ("one", "two")]
    store = Store(tmp_path)
    store.compute(cells[0], lambda cell: {})
    assert targets.total_wall_seconds(store, cells) is None
    second = store.compute(cells[1], lambda cell: {})
    first = store.load(cells[0])
    assert targets.total_wall_seconds(store, cells) == first["wall_seconds"] + second["wall_seconds"]


def test_ways_to_one_target_stand_together_and_keep_their_verdicts(tmp_path):
    asked = [
        targets.Target(name, "–", "at least", 90.0, lambda store, value=value: value, recipe=recipe)
        for name, recipe, value in (("a", "first", 89.0), ("b", "only", None), ("a", "second", 91.0))
    ]
    rows = targets.targets_table(asked, Store(tmp_path)).rows
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("a", "first", "missed"),
        ("a", "second", "met"),
        ("b", "only", "not yet"),
    ]
