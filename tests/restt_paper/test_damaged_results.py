"""Damaged results files and archives: named, left out or refused, and never an error of somebody else's."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

import restt_paper
from restt_paper import report
from restt_paper.experiments import Cell, Store

COMMITTED = Path(__file__).parents[2] / "results" / "paper"
EXPERIMENTS = ("table1", "table3", "table6", "fig-synthetic", "fig-training", "fig-meanfield")
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
@pytest.mark.parametrize("name", ["table3", "fig-synthetic"])
def test_a_file_that_lacks_a_part_costs_its_experiment_alone(name, tmp_path):
    """Which parts the tables read decides whether a mutant is noticed; any error but the report's own is wrong."""
    experiment = restt_paper.experiment(name)
    shutil.copytree(COMMITTED / name, tmp_path / "paper" / name)
    shutil.copytree(COMMITTED / "table1", tmp_path / "paper" / "table1")
    files = sorted((tmp_path / "paper").glob(f"{name}/*.json"))
    generator = random.Random(0)
    noticed = 0
    for number in range(10):
        path = generator.choice(files)
        whole = path.read_text()
        content = json.loads(whole)
        part = ("result", "provenance", "result", "result", None)[number % 5]
        changed = mutate(content, generator) if part is None else {**content, part: mutate(content[part], generator)}
        path.write_text(json.dumps(changed))
        found = report.collect([restt_paper.experiment("table1"), experiment], tmp_path)
        damaged = [line for line in found.missing if line.startswith("Left out: ")]
        noticed += len(damaged)
        assert all(name in line for line in damaged)
        assert found.sections[0].name == "table1"
        assert found.to_markdown(tmp_path)
        path.write_text(whole)
    assert noticed


@needs_results
@pytest.mark.parametrize(
    ("show", "name"),
    [
        (restt_paper.pictures_of, "fig-synthetic"),
        *((restt_paper.tables_of, name) for name in EXPERIMENTS if name != "table6"),  # whose rows may be empty
    ],
)
def test_a_file_that_lacks_all_is_refused_by_its_experiment(show, name, tmp_path):
    for folder in {"rates", *(cell.experiment for cell in restt_paper.experiment(name).cells("paper"))}:
        shutil.copytree(COMMITTED / folder, tmp_path / folder)
    path = sorted(tmp_path.glob(f"{name}/*.json"))[0]
    path.write_text(json.dumps({**json.loads(path.read_text()), "result": {}}))
    with pytest.raises(ValueError, match=f"a results file of {name} under"):
        show(name, "paper", tmp_path)


def test_a_file_cut_short_is_left_out_of_the_report(tmp_path, capsys):
    restt_paper.reproduce("table1", "paper", tmp_path / "paper", "cpu")
    (path,) = (tmp_path / "paper" / "table1").glob("*.json")
    path.write_text(path.read_text()[:500])
    found = report.collect([restt_paper.experiment("table1")], tmp_path)
    assert found.sections == ()
    assert f"{path} is not a whole results file" in found.missing[0]


@pytest.mark.parametrize("missing", ["commit", "device", "versions", "dirty"])
def test_a_provenance_that_lacks_a_part_is_no_whole_file(tmp_path, missing):
    cell = Cell("sums", "ten", {})
    store = Store(tmp_path)
    store.compute(cell, lambda _: {})
    content = json.loads(store.path(cell).read_text())
    content["provenance"][missing] = 5
    store.path(cell).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"not a whole results file \(provenance\.{missing} is missing or"):
        Store(tmp_path).load(cell)
