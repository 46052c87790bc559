"""The example and the benchmark run."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

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
