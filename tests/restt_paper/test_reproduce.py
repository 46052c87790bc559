from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import restt_paper
from restt._common.drawing import require_matplotlib
from restt_paper import reproduce_and_show
from restt_paper import verdict as targets
from restt_paper.experiments import QUICK_MEANS, Cell, Experiment, Store
from restt_paper.table import NOT_YET, Table


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

    module = Experiment(
        "squares",
        "Squares",
        cells=cells,
        compute=lambda settings, context: {"square": settings["number"] ** 2, "device": context.device},
        tables=tables,
        pictures=pictures,
    )
    monkeypatch.setattr(restt_paper, "EXPERIMENTS", {"squares": "squares"})
    monkeypatch.setattr(restt_paper, "experiment", lambda name: module)
    return module


def test_every_experiment_is_known_by_its_own_name():
    for name in restt_paper.EXPERIMENTS:
        found = restt_paper.experiment(name)
        assert isinstance(found, Experiment)
        assert found.name == name


def test_a_quick_result_can_never_stand_in_for_a_paper_one():
    for name in restt_paper.EXPERIMENTS:
        found = restt_paper.experiment(name)
        quick, paper = ([cell.key for cell in found.cells(profile)] for profile in restt_paper.PROFILES)
        assert len({*quick, *paper}) == len(quick) + len(paper)


def test_running_computes_shows_and_draws(tmp_path, squares, capsys):
    reproduce_and_show("all", "quick", tmp_path, "cpu")
    shown = capsys.readouterr().out
    assert "[3/3," in shown
    assert "Squares (quick profile)" in shown
    assert str(tmp_path / "pictures" / "squares.png") in shown.replace("\n", "")
    assert QUICK_MEANS in shown
    saved = json.loads(next(tmp_path.glob("squares/n2-*.json")).read_text())
    assert saved["result"] == {"square": 4, "device": "cpu"}
    assert saved["provenance"]["command"] == "restt reproduce squares --profile quick"


def test_without_matplotlib_everything_but_the_pictures_is_there(tmp_path, squares, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setattr(restt_paper, "EXPERIMENTS", {"squares": "squares", "again": "squares"})
    drawing = replace(squares, pictures=lambda store, profile, folder: require_matplotlib())
    monkeypatch.setattr(restt_paper, "experiment", lambda name: drawing)
    reproduce_and_show("all", "quick", tmp_path, "cpu")
    shown = capsys.readouterr().out
    assert shown.count("no pictures: drawing needs matplotlib: pip install 'restt[plot]'\n") == 2
    assert shown.count("Squares (quick profile)") == 2
    assert f"again: results in {tmp_path}" in shown


def test_an_experiment_that_needs_a_missing_package_does_not_stop_the_others(tmp_path, squares, monkeypatch, capsys):
    def lacking(settings, context):
        raise ImportError("drawing needs matplotlib")

    needy = replace(squares, compute=lacking, cells=lambda profile: [Cell("needy", "n", {})])
    monkeypatch.setattr(restt_paper, "EXPERIMENTS", {"needy": "needy", "squares": "squares"})
    monkeypatch.setattr(restt_paper, "experiment", {"needy": needy, "squares": squares}.__getitem__)
    with pytest.raises(ImportError, match="needy was left out: drawing needs matplotlib"):
        reproduce_and_show("all", "quick", tmp_path, "cpu")
    assert len(list(tmp_path.glob("squares/*.json"))) == 3


def test_tables_and_results_before_and_after(tmp_path, squares):
    assert restt_paper.tables_of("squares", "paper", tmp_path)[0].rows == ((NOT_YET,),) * 3
    paths = restt_paper.reproduce("squares", "paper", tmp_path, "cpu")
    assert [path.exists() for path in paths] == [True] * 3
    assert restt_paper.tables_of("squares", "paper", tmp_path)[0].rows == (("0",), ("1",), ("4",))
    assert restt_paper.tables_of("squares", "paper", tmp_path)[0].title == "Squares"


def test_default_folders(squares):
    assert restt_paper.open_store("squares", "paper").folder == Path("results/paper")


@pytest.mark.parametrize(("name", "profile"), [("table99", "quick"), ("table1", "full")])
def test_unknown_names_and_profiles_are_named(tmp_path, name, profile):
    with pytest.raises(ValueError, match=r"(name|profile) must be one of .*, got '(table99|full)'"):
        restt_paper.reproduce(name, profile, tmp_path)


def test_a_device_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert restt_paper.read_device("auto") == "cpu"
    with pytest.raises(ValueError, match="torch finds no CUDA device"):
        restt_paper.read_device("cuda")


def test_ways_to_one_target_stand_together_and_keep_their_verdicts(tmp_path):
    asked = [
        targets.Target(name, "–", "at least", 90.0, lambda store, value=value: value, recipe=recipe)
        for name, recipe, value in (("a", "first", 89.0), ("b", "only", None), ("a", "second", 91.0))
    ]
    rows = targets.targets_table(target.row(Store(tmp_path)) for target in asked).rows
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("a", "first", "missed"),
        ("a", "second", "met"),
        ("b", "only", "not yet"),
    ]
