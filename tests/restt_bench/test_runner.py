import io
import json

import pytest
import torch
from rich.console import Console

import restt_bench as bench
from restt_bench import implementation, suites
from restt_bench.baselines import PlainTorch, TensorKrowch
from restt_bench.case import QUICK
from restt_bench.implementation import TrainingStep
from restt_bench.ours import Ours
from restt_bench.suites import field

TINY = {"quick": True, "rounds": 2, "budget": 0.01, "threads": 1}
PROVENANCE = {"commit", "dirty", "date", "command", "seed", "device", "threads", "platform", "versions"}


@pytest.fixture
def quiet():
    return Console(file=io.StringIO(), width=120)


def time_only(monkeypatch, *names):
    """A small field, for tests that are not about who takes part."""
    chosen = [candidate for candidate in field("cpu") if candidate.name in names]
    monkeypatch.setattr(suites, "field", lambda device: chosen)


@pytest.fixture
def few(monkeypatch):
    time_only(monkeypatch, "auto", "eager", "textbook", "limit")


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
    assert set(timed) | set(skipped) == {candidate.name for candidate in field("cpu")}


@pytest.mark.usefixtures("few")
def test_tables_show_speed_ups_and_limits(quiet):
    bench.run(["main"], console=quiet, **TINY)
    printed = quiet.file.getvalue()
    assert "all green" in printed
    assert "× limit" in printed
    assert "speed-up" in printed


@pytest.mark.usefixtures("few")
def test_a_quick_run_writes_nothing_unless_asked(tmp_path, quiet, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bench.run(["main"], console=quiet, **TINY)
    assert list(tmp_path.iterdir()) == []


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
        [result] = bench.run(["main"], console=quiet, **TINY)
        assert result["provenance"]["threads"] == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("few")
def test_a_diverged_implementation_has_no_time(quiet, monkeypatch):
    monkeypatch.setattr(TrainingStep, "is_finite", lambda self: False)
    [result] = bench.run(["main"], console=quiet, **TINY)
    rows = [row for row in result["rows"] if row["implementation"] == "auto"]
    assert rows
    assert all("diverged" in row["skipped"] and "step" not in row for row in rows)


def test_a_step_trains():
    case = bench.Case(sites=6, bond_dim=3, batch=8)
    work = Ours("eager").build(case, seed=0)
    work.step()
    first = work.loss.item()
    for _ in range(200):
        work.step()
    assert work.loss.item() < first


def test_rows_say_what_was_set(quiet):
    [result] = bench.run(["main"], console=quiet, **TINY)
    flags = {row["implementation"]: row["flags"] for row in result["rows"] if "step" in row}
    assert all(set(found) >= {"cuda_graph", "products"} for found in flags.values())
    assert flags["torch"]["optimizer"] == "torch.optim.Adam(fused=True)"
    if "tensorkrowch" in flags:
        assert flags["tensorkrowch"]["package"].startswith("tensorkrowch ")
        assert flags["tensorkrowch-inline"]["inline_input"] is True


def test_an_implementation_that_cannot_be_captured_is_one_row(quiet, monkeypatch):
    def build(self, case, seed):
        raise RuntimeError("operation not permitted when stream is capturing\nand so on")

    monkeypatch.setattr(PlainTorch, "build", build)
    time_only(monkeypatch, "auto", "torch")
    [result] = bench.run(["main"], console=quiet, **TINY)
    reasons = {row["implementation"]: row.get("skipped") for row in result["rows"]}
    assert reasons["torch"] == "RuntimeError: operation not permitted when stream is capturing"
    assert reasons["auto"] is None


def test_reasons_with_brackets_are_shown_whole(quiet, monkeypatch):
    monkeypatch.setattr(TensorKrowch, "refusal", lambda self, case: "not installed (pip install 'restt[bench]')")
    time_only(monkeypatch, "auto", "tensorkrowch")
    bench.run(["main"], console=quiet, **TINY)
    assert "TensorKrowch: not installed (pip install 'restt[bench]')" in quiet.file.getvalue()


def test_a_gpu_times_everything_both_ways():
    names = [candidate.name for candidate in field("cuda")]
    assert {"auto-graph", "eager-graph", "torch-graph", "textbook-graph", "auto", "torch", "tensorkrowch"} < set(names)
    assert len(names) == len(set(names))
    graphs = [candidate for candidate in field("cuda") if candidate.graph]
    assert {candidate.refusal(bench.Case(sites=5)) for candidate in graphs} == {"CUDA graphs need a GPU"}


def test_a_captured_step_copies_the_batch_and_trains(monkeypatch):
    """With a stand-in for the capture, which needs a GPU: what it replays is the step itself."""
    adam = torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda *given, capturable, **options: adam(*given, **options))
    monkeypatch.setattr(implementation, "captured", lambda call: call)
    case = bench.Case(sites=4, bond_dim=3, batch=5)
    modules = case.module(0), case.module(0)
    plain = TrainingStep(modules[0], modules[0].parameters(), case, 0)
    graphed = TrainingStep(modules[1], modules[1].parameters(), case, 0, graph=True)
    graphed.x.zero_()
    for work in (plain, graphed):
        work.step()
    assert torch.equal(plain.loss, graphed.loss)
    graphed.x.zero_()
    graphed.infer()
    assert torch.equal(graphed.x, plain.x)
