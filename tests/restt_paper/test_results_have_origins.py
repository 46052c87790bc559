"""Every committed results file says where it comes from; the tool that counts gaps finds them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("check_results", ROOT / "tools" / "check_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_committed_file_lacks_its_origin(tool):
    if not (ROOT / "results").exists():
        pytest.skip("the results are in the source checkout only")
    assert tool.counts(ROOT / "results")["without_provenance"] == 0


def test_gaps_are_counted(tool, tmp_path):
    versions = {"restt": "1.0.0"}
    whole = {"commit": "abc", "seed": 0, "dirty": False, "versions": versions}
    contents = {
        "whole": {"provenance": whole},
        "seedless": {"provenance": {**whole, "seed": None}},
        "elsewhere": {"provenance": {**whole, "dirty": None, "commit_entered_by_hand": True}},
        "none": {"rows": []},
        "list": [1],
        "matrix": {"cells": [{"versions": versions, "runs": [{"commit": "abc", "seed": 1, "dirty": False}]}]},
        "old": {"provenance": {"commit": "abc", "seed": 0, "dirty": False}},
    }
    for name, content in contents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    assert tool.counts(tmp_path) == {
        "files": 7,
        "without_provenance": 2,
        "without_versions": 1,
        "without_seed": 1,
        "changes_unknown": 1,
        "entered_by_hand": 1,
    }
