from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import restt
import restt_paper
from restt_baselines import available
from restt_paper import report
from restt_paper.experiments import QUICK_MEANS, Cell, Experiment, Store, with_needs
from restt_paper.images import table3
from restt_paper.meanfield import study
from restt_paper.report import write_report

COMMITTED = Path(__file__).parents[2] / "results"


def collect(root):
    return report.collect(map(restt_paper.experiment, restt_paper.EXPERIMENTS), root)


def measured(seconds: float | None) -> dict[str, object]:
    reached = {"epochs": 9, "seconds": seconds, "test_accuracy": 98.1}
    calls = ("inference", "inference_of_images", "forward", "forward_and_backward", "backward")
    return {
        "milliseconds": {name: {"median": 1.5} for name in calls},
        "convergence": [{"seed": 0, "by_validation": reached, "by_test": reached}],
    }


def fill_table3(folder: Path, profile: str, seconds: float | None, device: str = "NVIDIA H200") -> None:
    store = Store(folder)
    for cell in table3.cells(profile):
        store.compute(cell, lambda cell: measured(seconds))
        content = json.loads(store.path(cell).read_text())
        content["provenance"]["device"] = device
        store.path(cell).write_text(json.dumps(content))


def test_an_empty_folder_gives_one_line_on_what_is_missing(tmp_path, capsys):
    (tmp_path / "nothing").mkdir()
    found = write_report(tmp_path / "nothing", tmp_path / "page.md")
    assert found.sections == found.targets.rows == found.provenance.rows == ()
    text = (tmp_path / "page.md").read_text()
    assert "not yet" not in text.replace("Not measured yet", "")
    assert f"Not measured yet: {', '.join(restt_paper.EXPERIMENTS)}; 39 targets wait for them." in text
    found.print()
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_after_one_table_only_that_table_is_shown(tmp_path, capsys):
    restt_paper.reproduce("table1", "paper", tmp_path / "paper", "cpu")
    capsys.readouterr()
    found = collect(tmp_path)
    assert [section.name for section in found.sections] == ["table1"]
    found.print()
    shown = capsys.readouterr().out
    assert "not yet" not in shown
    assert len(shown.splitlines()) < 40
    assert "Not measured yet: table2, table3" in shown.splitlines()[-1]


def test_the_page_depends_on_the_results_alone(tmp_path):
    fill_table3(tmp_path / "paper", "paper", 2.0)
    write_report(tmp_path, tmp_path / "docs" / "one.md")
    shutil.copytree(tmp_path / "paper", tmp_path / "elsewhere" / "paper")
    write_report(tmp_path / "elsewhere", tmp_path / "docs" / "two.md")
    text = (tmp_path / "docs" / "one.md").read_text()
    assert (tmp_path / "docs" / "two.md").read_text() == text
    assert "| 30 | 333 | 1.500 | 266 | 1.500 | 1.500 | 256 | 2.00 | 9 | 98.10 | 2.00 |" in text
    assert str(tmp_path) not in text


def test_quick_results_are_shown_only_where_nothing_better_is_there_and_marked(tmp_path):
    fill_table3(tmp_path / "quick", "quick", 2.0)
    section = next(section for section in collect(tmp_path).sections if section.name == "table3")
    assert section.profile == "quick"
    assert all(table.title.endswith("(quick profile)") for table in section.tables)
    assert QUICK_MEANS in collect(tmp_path).to_markdown()
    fill_table3(tmp_path / "paper", "paper", 2.0)
    section = next(section for section in collect(tmp_path).sections if section.name == "table3")
    assert section.profile == "paper"
    assert not any("quick" in table.title for table in section.tables)


@pytest.mark.parametrize(
    ("seconds", "device", "verdict"),
    [
        (2.0, "NVIDIA H200", "met"),
        (5.5, "NVIDIA H200", "missed"),
        (None, "NVIDIA H200", "missed"),
        (2.0, "some CPU", "not yet"),
    ],
)
def test_the_convergence_target_is_judged_on_its_device(tmp_path, seconds, device, verdict):
    fill_table3(tmp_path / "paper", "paper", seconds, device)
    found = [row[-1] for row in collect(tmp_path).targets.rows if row[0].startswith("MNIST, training until")]
    assert found == ([] if verdict == "not yet" else [verdict])  # what was not measured is not shown


def test_where_numbers_come_from_names_commits_devices_and_versions(tmp_path):
    fill_table3(tmp_path / "paper", "paper", 2.0)
    found = collect(tmp_path).provenance
    row = next(row for row in found.rows if row[0] == "table3")
    cells = len(table3.cells("paper"))
    assert row[1:3] == ("paper", f"{cells} of {cells}")
    assert row[4] == "NVIDIA H200"
    assert row[5].startswith(f"{restt.__version__}, ")


def own_files(found: report.Report, name: str) -> list[str]:
    section = next(section for section in found.sections if section.name == name)
    return sorted(f"{file['cell']} {file['settings'].get('number', '')}".strip() for file in section.own)


@pytest.mark.parametrize(
    ("origin", "shown"),
    [
        ({"dirty": False}, "0123456789"),
        ({"dirty": True}, "0123456789 with changes"),
        ({"dirty": None}, "0123456789, changes unknown"),
        ({"dirty": None, "commit_entered_by_hand": True}, "0123456789 entered by hand, changes unknown"),
    ],
)
def test_only_a_clean_commit_stands_alone(tmp_path, origin, shown):
    fill_table3(tmp_path / "paper", "paper", 2.0)
    for path in (tmp_path / "paper" / "table3").glob("*.json"):
        content = json.loads(path.read_text())
        content["provenance"] |= {"commit": "0123456789abcdef", **origin}
        path.write_text(json.dumps(content))
    found = collect(tmp_path).provenance
    assert next(row for row in found.rows if row[0] == "table3")[-1] == shown


@pytest.fixture(scope="module")
def committed():
    if not COMMITTED.exists():
        pytest.skip("the results are in the source checkout only")
    return collect(COMMITTED)


def test_committed_results_are_whole_and_say_what_was_missed(committed):
    assert not any(line.startswith("Left out") for line in committed.missing)
    commits = {row[0]: row[-1] for row in committed.provenance.rows}
    assert "entered by hand" in commits["table5"]
    assert "1 % of Fashion-MNIST (limited): 79.299 %, wanted ≥ 79.30 %" in committed.missed_targets
    page = committed.missed_markdown()
    assert "- Table V. ResTT is better than LR and MLP: in 10 of 12" in page
    assert "chosen-few-labels" in page


def test_committed_pages_are_short_and_as_the_results_have_them(committed):
    if "ebm" not in available("regression"):
        pytest.skip("without interpret the pages count fewer results")
    docs = COMMITTED.parent / "docs"
    for name, text in (("results.md", committed.to_markdown(docs)), ("missed.md", committed.missed_markdown())):
        assert (docs / name).read_text(encoding="utf-8") == text, f"run `restt report`: docs/{name} is stale"
        assert len(text.splitlines()) <= 200


def test_every_committed_paper_result_belongs_to_a_cell():
    if not COMMITTED.exists():
        pytest.skip("the results are in the source checkout only")
    cells = [cell for name in restt_paper.EXPERIMENTS for cell in restt_paper.experiment(name).cells("paper")]
    known = {f"{cell.key}.json" for cell in with_needs(cells)}
    files = {path.relative_to(COMMITTED / "paper").as_posix() for path in (COMMITTED / "paper").glob("*/*.json")}
    assert files <= known


BEFORE = {"rate": Cell("rates", "sgd", {"profile": "paper"}), "search": Cell("squares", "search", {})}
OWN = [Cell("squares", f"by-{name}", {}, {name: cell}) for name, cell in BEFORE.items()]
SQUARES = Experiment(
    "squares",
    "Squares",
    # It shows a cell of another experiment, and its own cells need a rate or a search first.
    cells=lambda profile: [*OWN, Cell("squares", "plain", {"number": 2, "rate": 0.1}), Cell("cubes", "shown", {})],
    compute=lambda settings, context: {},
    tables=lambda store, profile: [],
)


def test_own_results_are_those_asked_for_and_the_choices_before_them(tmp_path):
    store = Store(tmp_path / "paper")
    asked = [*BEFORE.values(), *SQUARES.cells("paper")]
    for cell in [*asked, Cell("squares", "plain", {"number": 1}), Cell("rates", "sgd", {"profile": "old"})]:
        store.compute(cell, lambda cell: {})
    expected = ["rates/sgd", "squares/by-rate", "squares/by-search", "squares/plain 2", "squares/search"]
    assert own_files(report.collect([SQUARES], tmp_path), "squares") == expected


def test_a_choice_counts_before_the_cells_that_wait_for_it(tmp_path):
    Store(tmp_path / "paper").compute(BEFORE["search"], lambda cell: {})
    assert own_files(report.collect([SQUARES], tmp_path), "squares") == ["squares/search"]


def test_choices_before_the_committed_results_are_counted_with_them(committed):
    section = next(section for section in committed.sections if section.name == "table4")
    assert "rates/mnist-restt-r100" in {file["cell"] for file in section.own}


def test_files_of_other_kinds_in_a_folder_of_results_are_left_alone(tmp_path):
    fill_table3(tmp_path / "paper", "paper", 2.0)
    before = collect(tmp_path).to_markdown()
    (tmp_path / "paper" / "table3" / "notes.json").write_text("[]")
    (tmp_path / "paper" / "table3" / "dir.json").mkdir()
    (tmp_path / "paper" / "table3" / "dir-01234567.json").mkdir()
    assert collect(tmp_path).to_markdown() == before


def test_links_are_markdown_whatever_the_folders_are_called(tmp_path):
    root = tmp_path / "my results (new)]"
    (root / "paper" / "pictures").mkdir(parents=True)
    (root / "paper" / "pictures" / "table3-a [b.png").write_bytes(b"png")
    fill_table3(root / "paper", "paper", 2.0)
    (line,) = [line for line in collect(root).to_markdown(tmp_path).splitlines() if line.startswith("![")]
    assert line == r"![table3-a \[b](my%20results%20%28new%29%5D/paper/pictures/table3-a%20%5Bb.png)"


def test_a_misspelt_folder_does_not_replace_the_page(tmp_path):
    page = tmp_path / "results.md"
    page.write_text("a page of results")
    with pytest.raises(FileNotFoundError, match=r"results must be a folder of results, got '.*resutls'"):
        write_report(tmp_path / "resutls", page)
    assert page.read_text() == "a page of results"


def test_paths_of_the_wrong_kind_are_named_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("afile").touch()
    with pytest.raises(ValueError, match="results must be a folder, got the file 'afile'"):
        collect("afile")
    for output in (".", "afile/page.md"):
        with pytest.raises(ValueError, match="output must be a file, got"):
            write_report("afile", output)


def test_pictures_are_linked_from_where_the_page_lies(tmp_path):
    fill_table3(tmp_path / "results" / "paper", "paper", 2.0)
    picture = tmp_path / "results" / "paper" / "pictures" / "table3-times.png"
    picture.parent.mkdir()
    picture.write_bytes(b"png")
    write_report(tmp_path / "results", tmp_path / "docs" / "results.md")
    assert "](../results/paper/pictures/table3-times.png)" in (tmp_path / "docs" / "results.md").read_text()


def test_committed_mean_field_results_have_tables(committed):
    theory = next(section for section in committed.sections if section.name == "fig-meanfield")
    assert {row[-1] for row in theory.tables[0].rows} == {"yes"}
    assert {path.stem for path in theory.pictures} == {f"fig-meanfield-{name}" for name in study.DRAWN}
