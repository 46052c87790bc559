"""Tables II, IV and V, the training figure and the improved recipes, on the bundled digits."""

from __future__ import annotations

import pytest

from restt_paper.experiments import Store
from restt_paper.images import accuracy, improved, table2, table4, table5, training_curves
from restt_paper.images import cells as image_cells
from restt_paper.images.accuracy import BEST_TRAIN_LABEL, mean_final
from restt_paper.images.cells import Sizes, paper_cell, rate_cell
from restt_paper.table import NOT_YET

TINY = Sizes((3, 4), (0.2, 1.0), 2, 1, 2, 1, 1, 200)
MEASURED = ("epoch ", "final epoch", "average", "measured", "rate", "ours, ", "one model")
EXPERIMENTS = (table2, table4, table5, training_curves, improved)


@pytest.fixture
def on_digits(monkeypatch):
    """The quick profile on the digits, under MNIST's name, so that the paper's numbers stand beside them."""
    for module in (accuracy, *EXPERIMENTS):
        if hasattr(module, "NAMES"):
            monkeypatch.setattr(module, "NAMES", {"digits": "MNIST"})
    monkeypatch.setitem(image_cells.SIZES, "quick", TINY)
    monkeypatch.setitem(training_curves.BOND_DIMS, "quick", (3, 4))
    monkeypatch.setitem(table2.BOND_DIM, "quick", 4)
    monkeypatch.setitem(table4.FIRST_BOND_DIMS, "quick", (4,))
    monkeypatch.setattr(improved, "TRAININGS", (("products", "digits", 1.0, 2), ("few-labels", "digits", 0.2, 2)))
    monkeypatch.setattr(training_curves, "DATASET", "digits")


def run(module, store):
    module.EXPERIMENT.run(store, "quick")


def ours(table):
    """What stands where a measurement belongs."""
    for row in table.rows:
        if "ours" in row:
            yield from row[row.index("ours") + 1 :]
        for column, entry in zip(table.columns, row, strict=True):
            measured = column.endswith("ours") or column.startswith(MEASURED)
            if measured and entry != "–":
                yield entry


def entries(tables):
    return [entry for table in tables for row in table.rows for entry in row]


@pytest.mark.parametrize("module", EXPERIMENTS, ids=lambda module: module.__name__.rsplit(".", 1)[-1])
def test_without_results_all_of_ours_are_not_yet(module, tmp_path):
    measured = [entry for table in module.EXPERIMENT.show(Store(tmp_path), "paper") for entry in ours(table)]
    assert measured
    assert set(measured) == {NOT_YET}
    assert all(target.read(Store(tmp_path)) is None for target in module.EXPERIMENT.targets)


def test_table4_has_the_papers_rows_beside_ours(tmp_path, on_digits):
    store = Store(tmp_path)
    run(table4, store)
    tables = table4.tables(store, "quick")
    assert NOT_YET not in entries(tables)
    final = tables[0]
    found = store.load(paper_cell("quick", "digits", "restt", 4, 1.0))["result"]
    row = next(row for row in final.rows if row[1:3] == ("ResTT", "4"))
    assert row[-1].startswith(f"{sum(found['final']) / 2:.2f} ± ")
    assert found["lr"] in (0.01, 0.001, 0.0001)
    best_train = [row[2] for row in final.rows if row[1] == BEST_TRAIN_LABEL]
    assert best_train == [str(max(image_cells.sizes("quick").bond_dims))]
    shared = {cell.key for cell in table2.cells("quick")} & {cell.key for cell in table4.cells("quick")}
    assert {key.split("-")[1] for key in shared} == {"tt", "meantt", "restt"}
    assert {path.name.rsplit("-r", 1)[0] for path in (tmp_path / "rates").iterdir()} == {
        "digits-restt",
        "digits-meantt",
    }


def test_the_papers_numbers_stand_in_the_tables(tmp_path):
    store = Store(tmp_path)
    shown = {row for table in table4.tables(store, "paper") for row in table.rows}
    papers = ("89.82 ± 0.28", "95.46 ± 0.08", "96.74 ± 0.07", "97.68 ± 0.07", "98.66 ± 0.03", "98.96 ± 0.03")
    assert ("MNIST", "ResTT", "100", *(f"not yet ({number})" for number in papers)) in shown
    limited = {row for table in table5.tables(store, "paper") for row in table.rows}
    papers = ("84.59 ± 6.78", NOT_YET, "93.61 ± 1.53", NOT_YET, "94.71 ± 1.43", NOT_YET)
    assert ("MNIST", "LeNet-5", *papers) in limited
    assert ("DMTRL-TT", "87.00", NOT_YET, NOT_YET) in limited
    networks = {row for table in table2.tables(store, "paper") for row in table.rows}
    assert ("Snake-SBS", "99.00", NOT_YET, "89.20", NOT_YET) in networks


def test_table5_and_the_training_figure_use_table4s_cells(tmp_path, on_digits, monkeypatch):
    monkeypatch.setattr(table5, "BASELINES", {"lr": "LR"})
    monkeypatch.setattr(table5, "MULTITASK", {})  # ten convolutional networks each, on MNIST itself
    store = Store(tmp_path)
    run(table5, store)
    run(training_curves, store)
    assert NOT_YET not in entries(table5.tables(store, "quick")[:1])
    assert {path.name for path in tmp_path.iterdir()} >= {"table4", "table5"}
    own = [path.name for path in (tmp_path / "fig-training").iterdir()]
    assert len(own) == 1
    assert own[0].startswith("digits-meantt-paper-r3-f1-")
    assert NOT_YET not in entries(training_curves.tables(store, "quick"))
    (picture,) = training_curves.pictures(store, "quick", tmp_path / "pictures")
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_the_authors_own_images_stand_beside_the_papers_numbers(tmp_path, on_digits):
    store = Store(tmp_path)
    first = [cell for cell in table4.cells("quick") if cell.settings.get("subset") == "first"]
    assert [cell.name for cell in first] == ["digits-restt-r4-first0.2"]
    table4.EXPERIMENT.compute_cell(first[0], store)
    (table,) = [table for table in table4.tables(store, "quick") if "authors' own images" in table.title]
    (row,) = table.rows
    assert row[:3] == ("20 % of MNIST", "4", "–")
    assert NOT_YET not in row[3:6]
    assert row[6] == NOT_YET


def test_like_is_compared_with_like_at_both_r_of_the_paper(tmp_path):
    first = [cell for cell in table4.cells("paper") if cell.settings.get("subset") == "first"]
    assert {(cell.settings["bond_dim"], cell.settings["fraction"]) for cell in first} == {
        (r, fraction) for r in (20, 100) for fraction in (0.01, 0.05, 0.1)
    }
    assert len(first) == 12
    (table,) = [table for table in table4.tables(Store(tmp_path), "paper") if "authors' own images" in table.title]
    assert table.rows[0][:3] == ("1 % of MNIST", "20", "89.52 ± 0.29")


def test_the_networks_of_other_authors_train_their_cells(tmp_path, on_digits, monkeypatch):
    monkeypatch.setattr(table2, "QUICK_SEEDS", 1)
    store = Store(tmp_path)
    cells = [cell for cell in table2.cells("quick") if "baseline" in cell.settings]
    assert [cell.settings["baseline"] for cell in cells] == [row.baseline for row in table2.NETWORKS.values()]
    for cell in cells:
        result = table2.EXPERIMENT.compute_cell(cell, store)["result"]
        assert len(result["final"]) == 1
        if cell.settings["baseline"] in ("mps-dmrg", "ttn"):
            assert min(result["final"]) > 40
            assert [len(curve) for curve in result["curves"]] == [cell.settings["params"]["sweeps"]]
            assert result["final"] == [curve[-1] for curve in result["curves"]]
            assert result["selected"] is None
        elif cell.settings["held_out"]:
            assert result["held_out_curve"]
    by_name = {row[0]: row[1:] for row in table2.tables(store, "quick")[0].rows}
    for label in table2.NETWORKS:
        assert NOT_YET not in by_name[label]


def test_the_papers_numbers_at_another_r_do_not_stand_beside_a_quick_one(tmp_path):
    rows = {row[0]: row for row in table2.tables(Store(tmp_path), "quick")[0].rows}
    assert rows["ResTT"][1] == rows["TT-BN"][1] == "–"


def test_improved_recipes_average_their_seeds(tmp_path, on_digits):
    store = Store(tmp_path)
    run(improved, store)
    tables = improved.tables(store, "quick")
    assert NOT_YET not in entries(tables)
    cell = improved.cells("quick")[0]
    result = store.load(cell)["result"]
    assert result["selected"] is None
    assert mean_final(store, cell) == pytest.approx(sum(result["final"]) / 2)


@pytest.mark.parametrize(
    ("final", "verdict"), [([90.0, 80.0], "holds"), ([12.0, 12.1], "holds"), ([97.0, 97.1], "does not hold")]
)
def test_unstable_means_seeds_that_differ_or_do_not_train(final, verdict, tmp_path):
    store = Store(tmp_path)
    for cell in training_curves.cells("paper")[-2:]:
        store.compute(cell, lambda _: {"curves": [[11.0] * 99 + [value] for value in final]})
    claims = training_curves.claims(store)
    assert [row[-1] for row in claims.rows] == [NOT_YET, NOT_YET, NOT_YET, verdict, verdict]


def test_constant_rates_are_tried_for_as_long_as_they_train():
    epochs = {recipe: rate_cell("paper", "mnist", recipe, 20).settings["epochs"] for recipe in ("restt", "meantt")}
    assert epochs == {"restt": image_cells.sizes("paper").epochs, "meantt": image_cells.sizes("paper").short_epochs}
