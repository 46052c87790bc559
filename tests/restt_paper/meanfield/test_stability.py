from __future__ import annotations

import pytest

import restt_paper
from restt import data
from restt_paper.engine.store import Store
from restt_paper.engine.table import NOT_YET
from restt_paper.meanfield import stability


def test_both_topologies_are_trained_over_sigma2_and_seeds(tmp_path):
    # Quick, on real images: needs MNIST, and skips with the loader's message where it is missing.
    try:
        data.load("mnist", download=False)
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    restt_paper.reproduce("claims-stability", "quick", tmp_path, device="cpu")
    setting = stability.SIZES["quick"]
    found = {cell.settings["topology"]: Store(tmp_path).load(cell)["result"] for cell in stability.cells("quick")}
    assert set(found) == {"plain", "residual"}
    for result in found.values():
        assert result["sites"] == 196
        assert [row["sigma2"] for row in result["over_sigma2"]] == list(setting.sigma2)
        assert len(result["over_seeds"]["final_test_accuracy"]) == setting.seeds
    assert found["residual"]["over_seeds"]["mean"] > 30  # chance is 10
    shown = restt_paper.tables_of("claims-stability", "quick", tmp_path)
    assert NOT_YET not in {entry for table in shown for row in table.rows for entry in row}


def test_no_claim_is_judged_while_a_cell_is_missing(tmp_path):
    store = Store(tmp_path)
    cell = stability.cells("quick")[0]
    store.compute(cell, lambda _: {"sites": 196, "over_sigma2": [], "over_seeds": {}})
    claims = stability.tables(store, "quick")[-1]
    assert {row[-1] for row in claims.rows} == {NOT_YET}
