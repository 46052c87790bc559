"""The examples run."""

import importlib.util
import multiprocessing
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV

from restt.estimators import ResTTNetRegressor

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


def test_a_search_on_a_cluster_finds_what_a_local_one_does(monkeypatch):
    distributed = pytest.importorskip("distributed", reason='pip install "dask[distributed]"')
    # Workers are copies of a process that has loaded everything.
    dask = pytest.importorskip("dask")
    monkeypatch.setattr(distributed.utils, "_forkserver_preload_set", True, raising=False)
    multiprocessing.get_context("forkserver").set_forkserver_preload(["distributed", "restt.estimators"])
    example = script("examples/dask_search.py")
    grid = {"bond_dim": [2, 3]}
    local = GridSearchCV(ResTTNetRegressor(epochs=20, random_state=0), grid, cv=3).fit(
        *load_diabetes(return_X_y=True, as_frame=True)
    )
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = example.search(client, epochs=20, grid=grid)
    for name in ("mean_test_score", "std_test_score"):
        np.testing.assert_allclose(found.cv_results_[name], local.cv_results_[name], rtol=1e-9)
    assert found.best_params_ == local.best_params_


def test_a_model_is_served_without_restt():
    pytest.importorskip("onnxruntime", reason="pip install restt[export]")
    assert script("examples/serve_onnx.py").compare(rows=120, seed=0) < 1e-5


def test_the_server_needs_neither_restt_nor_torch(tmp_path):
    pytest.importorskip("onnxruntime", reason="pip install restt[export]")
    example = script("examples/serve_onnx.py")
    example.export_model(tmp_path / "flats.onnx", rows=120, seed=0)
    program = (
        "import runpy, sys\n"
        "Server = runpy.run_path(sys.argv[1], run_name='served')['Server']\n"
        "[answer] = Server(sys.argv[2]).predict([{'district': 'hill', 'area': 90.0}])\n"
        "assert not {'restt', 'torch', 'pandas'} & set(sys.modules)\n"
        "print(answer['label'])\n"
    )
    command = [sys.executable, "-c", program, str(ROOT / "examples/serve_onnx.py"), str(tmp_path / "flats.onnx")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() in ("cheap", "dear")
