"""scikit-learn's own checks, all of them: none may fail, and none may be skipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# The array API check only runs where scipy was imported with this set, hence the process of its own.
PROGRAM = """
import json, sys, warnings
import torch
from sklearn.utils.estimator_checks import check_estimator
from restt import estimators

torch.set_num_threads(1)
warnings.simplefilter("ignore")
model = getattr(estimators, sys.argv[1])(**json.loads(sys.argv[2]))
results = check_estimator(model, on_fail=None, on_skip=None)
print(json.dumps([[r["check_name"], r["status"], str(r["exception"])[:300]] for r in results]))
"""


def run_checks(name: str, parameters: dict[str, object]) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, json.dumps(parameters)],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("name", "parameters", "least"),
    [
        ("ResTTRegressor", {}, 60),
        ("ResTTClassifier", {}, 63),
        ("ResTTRegressor", {"handle_missing": "error", "epochs": 20}, 61),
        ("ResTTClassifier", {"handle_missing": "error", "loss": "mse", "epochs": 60}, 64),
    ],
)
def test_check_estimator_passes_every_check(name, parameters, least):
    results = run_checks(name, parameters)
    assert [result for result in results if result[1] != "passed"] == []
    assert len(results) >= least
