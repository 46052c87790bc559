"""The example and the benchmarks run."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import restt
from restt.data.dataset import PAPER_SPLIT_SEED
from restt_paper.engine.store import Store
from restt_paper.images import table2
from restt_paper.tabular import table6

ROOT = Path(__file__).resolve().parents[2]


def script(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_optuna_stops_hopeless_trials():
    optuna = pytest.importorskip("optuna", reason="pip install restt[tune]")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = script("examples/optuna_pruning.py").search(trials=8, epochs=10, seed=0)
    pruned = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.PRUNED]
    assert pruned
    assert all(len(trial.intermediate_values) < 10 for trial in pruned)
    assert study.best_value < 1


def test_calibration_error_is_the_gap_between_confidence_and_hits():
    error = script("benchmarks/calibration.py").calibration_error
    sure = np.array([[0.95, 0.05]] * 20)
    assert error(sure, np.r_[np.zeros(19, int), 1]) == pytest.approx(0, abs=1e-12)
    assert error(sure, np.r_[np.zeros(10, int), np.ones(10, int)]) == pytest.approx(0.45)


def test_calibration_quick_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert script("benchmarks/calibration.py").main(["--quick"]) == 0
    assert capsys.readouterr().out.count("log-loss") == 4
    assert list(tmp_path.iterdir()) == []


def test_a_tried_out_gpu_training_says_so(tmp_path, monkeypatch):
    x, y = torch.rand(60, 196), torch.arange(60) % 10
    data = SimpleNamespace(x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    monkeypatch.setattr(restt.data, "load", lambda name: data)
    changed = "--device cpu --bond-dim 3 --epochs 1 --runs 2 --rows 50 --seed 4"
    script("benchmarks/gpu_training.py").main(["guard", *changed.split(), "--output", str(tmp_path)])
    found = json.loads((tmp_path / "gpu_guard.json").read_text())
    assert found["provenance"]["command"] == f"python benchmarks/gpu_training.py guard {changed}"
    assert found["result"]["rows"] == 50


def test_rivals_are_held_against_the_papers_row_that_is_theirs(tmp_path):
    store = Store(tmp_path)
    for cell in table2.cells("paper"):
        if cell.settings["dataset"] == "mnist" and cell.settings.get("baseline", "meantt") in ("tt-bn", "meantt"):
            store.compute(cell, lambda _: {"final": [95.0, 93.0, None, 96.0]})
    rows = {
        (row["rival"], row["params"].get("statistics")): row for row in script("benchmarks/rivals.py").images(store)
    }
    shared, site, meantt = rows["tt-bn", "shared"], rows["tt-bn", "site"], rows["meantt", None]
    assert [row["bond_dim"] for row in (shared, site, meantt)] == [100, 100, 100]
    assert [row["paper"] for row in (shared, site, meantt)] == [95.05, None, 98.7]
    # A failed seed has no hits.
    assert [row["mean_final"] for row in (shared, site, meantt)] == [71.0, 71.0, 71.0]
    assert [row["reaches_the_paper_within_a_point"] for row in (shared, site, meantt)] == [False, None, False]


def test_rivals_on_tables_leave_the_papers_split_out_of_the_mean(tmp_path):
    store = Store(tmp_path)
    cells = [cell for cell in table6.cells("paper") if cell.settings["model"] in ("lr", "hgb")]
    for cell in cells:
        store.compute(cell, lambda _: {"splits": [PAPER_SPLIT_SEED, 0, 1], "r2": [0.99, 0.5, 0.7]})
    rows = script("benchmarks/rivals.py").tables(store)
    assert len(rows) == len(cells) > 0
    for row in rows:
        assert row["r2_on_the_papers_split"] == 0.99
        assert row["mean_r2_on_random_splits"] == 0.6
        expected = None if row["rival"] == "hgb" else True
        assert row["reaches_the_paper_within_0.01"] is expected
