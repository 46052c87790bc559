"""scikit-learn's own checks of an estimator, all of them, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Checked:
    """What ``maker`` of ``module`` makes with these parameters, and the checks that must fail, with the reason."""

    module: str
    maker: str
    parameters: dict[str, Any] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)


# The array API check only runs where scipy was imported with SCIPY_ARRAY_API set, hence the process.
_PROGRAM = """
import importlib, json, sys, warnings
import torch
from sklearn.utils.estimator_checks import check_estimator

torch.set_num_threads(1)
warnings.simplefilter("ignore")
found = []
for module, maker, parameters, failing in json.loads(sys.argv[1]):
    model = getattr(importlib.import_module(module), maker)(**parameters)
    results = check_estimator(model, on_fail=None, on_skip=None, expected_failed_checks=failing)
    found.append([[r["check_name"], r["status"], str(r["exception"])[:300]] for r in results])
print(json.dumps(found))
"""


def assert_every_check_passes(models: Sequence[Checked], least: Sequence[int]) -> None:
    """Of each model at least this many checks ran, none was skipped, and those that fail are those that must."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps([astuple(model) for model in models])],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    for model, results, count in zip(models, json.loads(done.stdout.splitlines()[-1]), least, strict=True):
        assert [result for result in results if result[1] not in ("passed", "xfail")] == [], model
        assert {name for name, status, _ in results if status == "xfail"} == set(model.failing), model
        assert len(results) >= count, model
