import io
import json
import sys

import pytest
import torch
from rich.console import Console

import restt_bench as bench
from restt_bench.case import QUICK
from restt_bench.implementations import field, implementation_named
from restt_bench.implementations.base import TrainingStep
from restt_bench.memory import peak_memory
from restt_bench.race import breakdown

TINY = {"quick": True, "rounds": 2, "budget": 0.01, "threads": 1}
PROVENANCE = {"commit", "dirty", "date", "command", "seed", "device", "threads", "platform", "versions"}


@pytest.fixture
def quiet():
    return Console(file=io.StringIO(), width=120)


@pytest.fixture
def few(monkeypatch):
    """A small field, for tests that are not about who takes part."""

    def small_field(device, **options):
        names = ["auto", "eager", "textbook", "limit", *(["auto-plain"] if options.get("plain") else [])]
        return [implementation_named(name) for name in names]

    monkeypatch.setattr(bench.runner, "field", small_field)


def test_results_file_holds_everything_needed_to_believe_and_repeat_it(tmp_path, quiet):
    [result] = bench.run(["main"], output=tmp_path, console=quiet, seed=5, command="restt bench main", **TINY)
    saved = json.loads((tmp_path / "main-cpu.json").read_text())
    assert saved == json.loads(json.dumps(result))
    assert set(saved["provenance"]) == PROVENANCE
    assert saved["provenance"]["seed"] == saved["settings"]["seed"] == 5
    assert saved["provenance"]["command"] == "restt bench main"
    assert saved["provenance"]["threads"] == 1
    assert {check["implementation"] for check in saved["parity"]} >= {"auto", "eager", "textbook"}
    timed = {row["implementation"]: row for row in saved["rows"] if "step" in row}
    assert {"auto", "reference", "eager", "textbook", "limit"} <= set(timed)
    for row in timed.values():
        for mode in ("step", "infer"):
            assert 0 < row[mode]["fastest"] <= row[mode]["lower"] <= row[mode]["median"] <= row[mode]["upper"]
            assert row[mode]["rounds"] >= 2
    skipped = {row["implementation"]: row["skipped"] for row in saved["rows"] if "skipped" in row}
    assert all(skipped.values())
    assert set(timed) | set(skipped) == {made.name for made in field("cpu")}
    assert (tmp_path / "main-cpu.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("few")
def test_tables_show_speed_ups_and_limits(quiet):
    bench.run(["main"], console=quiet, plots=False, **TINY)
    printed = quiet.file.getvalue()
    assert "all green" in printed
    assert "× limit" in printed
    assert "speed-up" in printed


@pytest.mark.usefixtures("few")
def test_a_quick_run_writes_nothing_unless_asked(tmp_path, quiet, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bench.run(["small"], console=quiet, **TINY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("few")
def test_runs_race_only_where_there_is_a_runs_axis(quiet):
    [result] = bench.run(["small"], console=quiet, **TINY)
    many = [row for row in result["rows"] if row["case"]["runs"] is not None]
    reasons = {row["implementation"]: row.get("skipped") for row in many}
    assert reasons["textbook"] == "has no runs axis"
    assert reasons["auto"] is None
    assert reasons["limit"] is None


@pytest.mark.usefixtures("few")
def test_sweeps_give_exponents_and_parameter_counts(quiet):
    [result] = bench.run(["scaling-r"], console=quiet, **TINY)
    assert {entry["implementation"] for entry in result["exponents"]} >= {"auto", "auto-plain", "textbook", "limit"}
    assert [entry["model"] for entry in result["parameters"]] == ["TT", "ResTT"]
    assert "paper" in quiet.file.getvalue()


@pytest.mark.usefixtures("few")
def test_slow_implementations_leave_a_sweep(quiet, monkeypatch):
    monkeypatch.setattr(bench.runner, "QUICK", QUICK.__class__(rounds=2, budget=0.01, slow=1e-9, quick=True))
    [result] = bench.run(["scaling-b"], quick=True, threads=1, console=quiet)
    first, *later = sorted({row["case"]["batch"] for row in result["rows"]})
    of_eager = {row["case"]["batch"]: row for row in result["rows"] if row["implementation"] == "eager"}
    assert "step" in of_eager[first]
    assert all("a step at the size before" in of_eager[batch]["skipped"] for batch in later)


@pytest.mark.usefixtures("few")
def test_threads_are_set_recorded_and_given_back(quiet):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        [result] = bench.run(["small"], console=quiet, **TINY)
        assert result["provenance"]["threads"] == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_full_tensor_suite(quiet):
    [result] = bench.run(["full-tensor"], console=quiet, **TINY)
    grown = {entry["implementation"]: entry for entry in result["exponents"]}
    assert grown["full-tensor"]["claimed_factor"] == 2
    assert result["parameters"][-1]["parameters"] == [2**sites * 10 for sites in (4, 6, 8)]


@pytest.mark.usefixtures("few")
def test_a_diverged_implementation_has_no_time(quiet, monkeypatch):
    monkeypatch.setattr(TrainingStep, "is_finite", lambda self: False)
    [result] = bench.run(["small"], console=quiet, **TINY)
    [row] = [row for row in result["rows"] if row["implementation"] == "auto" and row["case"]["runs"] is None]
    assert "diverged" in row["skipped"]
    assert "step" not in row


def test_a_step_trains():
    case = bench.Case(sites=6, bond_dim=3, batch=8)
    work = implementation_named("eager").build(case, seed=0)
    work.step()
    first = work.loss.item()
    for _ in range(200):
        work.step()
    assert work.loss.item() < first


def test_phases_add_up_to_a_step():
    found = breakdown(implementation_named("eager"), bench.Case(sites=5, bond_dim=3, batch=4), QUICK)
    assert set(found["milliseconds"]) == {"forward", "backward", "optimizer"}
    assert sum(entry["share"] for entry in found["operations"]) <= 1.001
    assert any(entry["operation"].startswith("aten::") for entry in found["operations"])


@pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark is Linux's")
def test_peak_memory_sees_the_matrices_of_the_textbook():
    case = bench.Case(sites=80, bond_dim=64, batch=128)  # A(n) of all samples and sites: 160 MiB, our own states 8
    found = peak_memory("textbook", case, seed=0, threads=1)
    assert found["step_mib"] > 120
    assert found["step_mib"] > 3 * peak_memory("auto", case, seed=0, threads=1)["step_mib"]
    assert found["peak_mib"] > found["before_mib"] > 0


def test_peak_memory_of_a_failure_says_why():
    assert "implementation must be one of" in peak_memory("nobody", bench.Case(), seed=0, threads=1)["failed"]


def test_unknown_implementation():
    with pytest.raises(ValueError, match="implementation must be one of"):
        implementation_named("nobody")
