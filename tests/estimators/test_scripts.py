"""The example runs."""

import importlib.util
from pathlib import Path

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
