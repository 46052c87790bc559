"""Damaged results files and archives: named, left out or refused, and never an error of somebody else's."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import pytest

import restt_paper
from restt_paper.engine import report
from restt_paper.engine.cell import Cell
from restt_paper.engine.store import Store

COMMITTED = Path(__file__).parents[3] / "results" / "paper"
EXPERIMENTS = ("table1", "table3", "table4", "table6", "fig-synthetic", "fig-training", "fig-meanfield")
MUTANTS = {"table4": 4}
# Their results are counts that stand in for each other, or curves of which few values are shown.
SELDOM = ("table1", "table4")
needs_results = pytest.mark.skipif(not COMMITTED.exists(), reason="the results are in the source checkout only")


def mutate(value, generator):
    """The same with one part gone, or of another kind, somewhere inside."""
    if isinstance(value, dict) and value:
        key = generator.choice(sorted(value))
        if generator.random() < 0.4:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: mutate(value[key], generator)}
    if isinstance(value, list) and value:
        place = generator.randrange(len(value))
        if generator.random() < 0.3:
            return value[:place]
        return [*value[:place], mutate(value[place], generator), *value[place + 1 :]]
    return generator.choice([None, "text", {}, [], [None], -1e300, True])


@needs_results
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_file_that_lacks_a_part_is_named_and_the_report_goes_on(name, tmp_path):
    """Which parts the tables read decides whether a mutant is noticed; what may not happen is an error."""
    experiment = restt_paper.experiment(name)
    for folder in {"rates", *(cell.experiment for cell in experiment.cells("paper"))}:
        shutil.copytree(COMMITTED / folder, tmp_path / "paper" / folder)
    files = sorted((tmp_path / "paper").glob(f"{name}/*.json"))
    generator = random.Random(0)
    noticed = 0
    for number in range(MUTANTS.get(name, 12)):
        path = generator.choice(files)
        whole = path.read_text()
        content = json.loads(whole)
        part = ("result", "provenance", "result", "result", None)[number % 5]
        changed = mutate(content, generator) if part is None else {**content, part: mutate(content[part], generator)}
        path.write_text(json.dumps(changed))
        found = report.collect([experiment], tmp_path)
        noticed += len(found.damaged)
        assert all(line.startswith("Left out: ") and path.stem in line for line in found.damaged)
        assert found.to_markdown(tmp_path)
        path.write_text(whole)
    assert noticed or name in SELDOM


@needs_results
@pytest.mark.parametrize(
    ("show", "name"),
    [
        (restt_paper.pictures_of, "fig-synthetic"),
        *((restt_paper.tables_of, name) for name in EXPERIMENTS if name != "table6"),  # which shows what there is
    ],
)
def test_a_file_that_lacks_all_is_refused_by_its_name(show, name, tmp_path):
    for folder in {"rates", *(cell.experiment for cell in restt_paper.experiment(name).cells("paper"))}:
        shutil.copytree(COMMITTED / folder, tmp_path / folder)
    path = sorted(tmp_path.glob(f"{name}/*.json"))[0]
    path.write_text(json.dumps({**json.loads(path.read_text()), "result": {}}))
    with pytest.raises(ValueError, match=re.escape(path.name)):
        show(name, "paper", tmp_path)


@needs_results
def test_what_is_left_out_stands_on_the_page_and_the_rest_beside_it(tmp_path, capsys):
    shutil.copytree(COMMITTED / "table3", tmp_path / "paper" / "table3")
    path = next((tmp_path / "paper" / "table3").glob("mnist-restt-r50-*.json"))
    content = json.loads(path.read_text())
    del content["result"]["milliseconds"]["backward"]
    path.write_text(json.dumps(content))
    found = report.collect([restt_paper.experiment("table3")], tmp_path)
    (line,) = found.damaged
    assert line == (
        f"Left out: {path} lacks a part that its tables show (KeyError: 'backward'); move it away or bring back a copy"
    )
    rows = {row[0]: row for row in found.sections[0].tables[0].rows}
    assert rows["50"][2] == "not yet"
    assert rows["100"][2] == "0.667"
    assert line in found.to_markdown()
    found.print()
    assert str(path) in capsys.readouterr().out.replace("\n", "")


def test_a_file_cut_short_is_left_out_of_the_report(tmp_path, capsys):
    restt_paper.reproduce("table1", "paper", tmp_path / "paper", "cpu")
    (path,) = (tmp_path / "paper" / "table1").glob("*.json")
    path.write_text(path.read_text()[:500])
    found = report.collect([restt_paper.experiment("table1")], tmp_path)
    assert found.sections == ()
    assert f"{path} is not a whole results file" in found.damaged[0]


@pytest.mark.parametrize("missing", ["commit", "device", "versions", "dirty"])
def test_a_provenance_that_lacks_a_part_is_no_whole_file(tmp_path, missing):
    cell = Cell("sums", "ten", {})
    store = Store(tmp_path)
    store.compute(cell, lambda _: {})
    content = json.loads(store.path(cell).read_text())
    content["provenance"][missing] = 5
    store.path(cell).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"not a whole results file \(provenance\.{missing} is not"):
        store.load(cell)
