"""scikit-learn's own checks of an estimator, all of them; those of array API input in a process of their own."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import sklearn
from packaging.version import Version
from sklearn.utils.estimator_checks import check_estimator

VERSION = Version(sklearn.__version__)
# It only runs where scipy was imported with SCIPY_ARRAY_API set, hence the process.
APART = "check_array_api_input"


@dataclass(frozen=True)
class Checked:
    """What ``maker`` of ``module`` makes with these parameters, and the checks that must fail, with the reason."""

    module: str
    maker: str
    parameters: dict[str, Any] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)


def assert_every_check_passes(models: Sequence[Checked], least: Sequence[int]) -> None:
    """Of each model at least this many checks ran, none but the one apart was skipped, those fail that must."""
    for model, count in zip(models, least, strict=True):
        made = getattr(importlib.import_module(model.module), model.maker)(**model.parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = check_estimator(made, on_fail=None, on_skip=None, expected_failed_checks=model.failing)
        found = [(one["check_name"], one["status"], str(one["exception"])[:300]) for one in results]
        apart = [one for one in found if one[0] == APART]
        wrong = [one for one in found if one[1] not in ("passed", "xfail") and one not in apart]
        assert not wrong, (model, wrong)
        assert {name for name, status, _ in found if status == "xfail"} == set(model.failing), model
        assert {status for _, status, _ in apart} <= {"passed", "skipped"}, (model, apart)
        assert len(found) >= count, model


_PROGRAM = """
import importlib, json, sys, warnings
import torch
from sklearn.utils.estimator_checks import estimator_checks_generator
from tests.hasty import hasty_solvers

torch.set_num_threads(1)
warnings.simplefilter("ignore")
found = []
for module, maker, parameters, _ in json.loads(sys.argv[1]):
    model = getattr(importlib.import_module(module), maker)(**parameters)
    checks = [(each, check) for each, check in estimator_checks_generator(model) if sys.argv[2] in str(check)]
    with hasty_solvers():
        for each, check in checks:
            check(each)
    found.append(len(checks))
print(json.dumps(found))
"""


def assert_arrays_of_every_kind_pass(models: Sequence[Checked], least: int) -> None:
    """The check apart, of which each model has at least this many kinds."""
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps([astuple(model) for model in models]), APART],
        cwd=root,
        env={**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert min(json.loads(done.stdout.splitlines()[-1])) >= least
