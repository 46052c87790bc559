import contextlib
import io
import json
import re

import pytest
import torch
from rich.console import Console

import restt_bench as bench
from restt_bench.case import QUICK
from restt_bench.runner import STUDIES

# shap makes colour maps when it is imported, in a way that matplotlib is about to deprecate.
SHAP_COLOURS = "ignore:The set_(bad|over|under) function will be deprecated:PendingDeprecationWarning"


@pytest.fixture
def quiet():
    return Console(file=io.StringIO(), width=120)


def run_and_saved(name, quiet, folder):
    """What a quick run of a study leaves in the folder."""
    [result] = bench.run([name], quick=True, threads=1, rounds=1, output=folder, console=quiet)
    saved = json.loads((folder / f"{name}-cpu.json").read_text())
    assert saved == json.loads(json.dumps(result))
    assert saved["title"]
    assert saved["title"] in quiet.file.getvalue()
    assert saved["provenance"]["command"] == f"restt bench {name}"
    return saved


@pytest.mark.parametrize(
    "name",
    [
        *sorted(set(STUDIES) - {"explain", "explain-trees", "check"}),  # the last is run below
        pytest.param("explain", marks=pytest.mark.filterwarnings(SHAP_COLOURS)),
        pytest.param("explain-trees", marks=pytest.mark.filterwarnings(SHAP_COLOURS)),
    ],
)
def test_every_study_runs_quickly_and_can_be_saved(name, quiet, tmp_path, hasty, monkeypatch):
    if name in ("explain", "explain-trees"):
        # What shap has numba compile takes seconds to compile and none to run.
        with contextlib.suppress(ImportError):
            monkeypatch.setattr("numba.config.DISABLE_JIT", True)
    saved = run_and_saved(name, quiet, tmp_path)
    assert (saved["suite"], saved["device"]) == (name, "cpu")


def test_the_loops_of_a_user_are_timed(quiet, tmp_path):
    saved = run_and_saved("loops", quiet, tmp_path)
    rows = {row["implementation"]: row for row in saved["rows"]}
    assert {"auto", "auto-train"} <= {name for name, row in rows.items() if "step" in row}
    assert rows["auto-graphed"]["skipped"] == rows["auto-graph"]["skipped"] == "CUDA graphs need a GPU"


def test_the_help_of_the_command_names_every_suite_and_study():
    from typer.main import get_command

    from restt_app.cli import app

    (argument,) = [one for one in get_command(app).commands["bench"].params if one.name == "names"]
    named = re.findall(r"[a-z]+(?:-[a-z]+)*", argument.help)
    assert set(named) >= set(bench.NAMES)


def test_a_kernel_that_is_wrong_fails_its_check(quiet, monkeypatch, tmp_path):
    pytest.importorskip("triton", "3.6")
    from restt_bench import kernel_checks
    from tests.chain.cuda.interpreter import mend_interpreter

    mend_interpreter()
    right, interpreted = kernel_checks._outputs_and_gradients, []

    def remembered(backend, *arguments):
        interpreted.append(right(backend, *arguments))
        return interpreted[-1]

    monkeypatch.setattr(kernel_checks, "_outputs_and_gradients", remembered)
    saved = run_and_saved("check", quiet, tmp_path)
    assert all(row["passed"] for row in saved["checks"])
    assert saved["failed"] == 0
    for factor, rounded_passes in ((1.001, True), (1.1, False)):
        again = iter(interpreted)

        def off(backend, *_, factor=factor, again=again):
            found = next(again)
            return {**found, "output": found["output"] * factor} if backend == "fused_cuda" else found

        monkeypatch.setattr(kernel_checks, "_outputs_and_gradients", off)
        again_checked = kernel_checks.check_kernels("cpu", QUICK, quiet)
        passed = [row["passed"] for row in again_checked["checks"]]
        assert passed == ["autocast" in row and rounded_passes for row in again_checked["checks"]]
        assert again_checked["failed"] == passed.count(False)
    assert not torch.are_deterministic_algorithms_enabled()
