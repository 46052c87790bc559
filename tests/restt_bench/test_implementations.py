import pytest
import torch

import restt
from restt_bench.case import Case, Settings
from restt_bench.implementations.baselines import FORMS, PlainTorch, TensorKrowch, TorchResTT
from restt_bench.implementations.ours import LibraryStep
from restt_bench.implementations.own_loops import LOOPS, OwnLoop, tracing_backward
from restt_bench.parity import relative_error
from restt_bench.race import race


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("topology", ["residual", "plain"])
@pytest.mark.parametrize("sites", [3, 8])
def test_plain_torch_equals_the_reference(form, topology, sites):
    case = Case(sites=sites, feature_dim=3, bond_dim=4, outputs=2, batch=5, topology=topology, dtype="float64")
    pairs = PlainTorch(form).found_and_expected(case, seed=3)
    named = dict(case.module(3).named_parameters())
    assert set(pairs) == {"output", "x", *named}
    for name, (found, expected) in pairs.items():
        assert expected.abs().max() > 0, name
        assert relative_error(found, expected) < 1e-12, name


def test_textbook_keeps_one_parameter_per_tensor_of_the_paper():
    module = restt.ResTT(sites=7, feature_dim=2, bond_dim=3, outputs=2)
    book = TorchResTT(module)
    assert sum(p.numel() for p in book.parameters()) == module.num_parameters()
    assert len(list(book.parameters())) == 1 + 5 + 5 + 3


def test_textbook_refuses_what_it_cannot_compute():
    assert PlainTorch().refusal(Case(runs=2)) == "has no runs axis"
    assert "volterra" in PlainTorch().refusal(Case(topology="volterra"))
    with pytest.raises(ValueError, match="residual or plain"):
        TorchResTT(restt.ResTT(4, 2, 3, 1, topology="volterra"))


@pytest.mark.parametrize("inline", [False, True])
def test_tensorkrowch_computes_a_plain_chain(inline):
    pytest.importorskip("tensorkrowch", reason="pip install restt[bench]")
    case = Case(sites=6, feature_dim=2, bond_dim=3, outputs=2, batch=4, dtype="float64")
    for name, (found, expected) in TensorKrowch(inline=inline).found_and_expected(case, seed=1).items():
        assert relative_error(found, expected) < 1e-10, name


def test_absent_tensorkrowch_is_a_row_that_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert TensorKrowch().refusal(Case()) == "not installed (pip install 'restt[bench]')"


def test_data_keeps_a_long_plain_chain_away_from_denormals():
    case = Case(sites=400, bond_dim=4, batch=3, topology="plain")
    output = case.module(0)(case.data(0)[0])
    assert output.abs().max() > torch.finfo(torch.float32).tiny * 1e6


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's own, while it compiles
@pytest.mark.parametrize("loop", ["plain", "compiled-step", "compiled-whole"])
def test_loops_of_ones_own_take_the_step_they_are_timed_for(loop):
    case = Case(sites=5, bond_dim=3, outputs=2, batch=4)
    if refusal := OwnLoop(loop).refusal(case):
        pytest.skip(refusal)
    with tracing_backward():
        pairs = OwnLoop(loop).found_and_expected(case, seed=3)
    names = dict(case.module(3).named_parameters())
    kept = () if loop == "compiled-whole" else names
    assert set(pairs) == {*kept, *(f"{name}, averaged" for name in names)}
    for name, (found, expected) in pairs.items():
        assert expected.abs().max() > 0, name
        assert relative_error(found, expected) < 1e-5, name


def test_a_torch_that_cannot_compile_the_backward_pass_leaves_the_compiled_step_out(monkeypatch):
    from torch._dynamo import config

    monkeypatch.delitem(config._config, "trace_autograd_ops", raising=False)
    case = Case(sites=5, bond_dim=3, outputs=2, batch=4)
    with tracing_backward():
        compiled, plain = race(case, [OwnLoop("compiled-step"), OwnLoop("plain")], Settings(rounds=1), modes=("step",))
    assert "from torch 2.11 on" in compiled["skipped"]
    assert "skipped" not in plain


def test_a_loop_that_forgets_the_update_is_seen(monkeypatch):
    from restt_bench.implementations import own_loops

    step = own_loops.TrainingStep
    monkeypatch.setattr(step, "update", lambda self: self.optimizer.step() if not self.done else None)
    monkeypatch.setattr(step, "done", property(lambda self: bool(self.optimizer.state)), raising=False)
    pairs = OwnLoop("plain").found_and_expected(Case(sites=5, bond_dim=3, outputs=2, batch=4), seed=3)
    assert relative_error(*pairs["chain, averaged"]) > 0.01


def test_graphs_need_a_gpu_and_the_stack_has_nothing_to_compare():
    for loop in ("graphed-step", "graphed-whole"):
        assert OwnLoop(loop).refusal(Case()) == "CUDA graphs need a GPU"
    usual = OwnLoop("graphed-step", only_usual=True)
    assert usual.refusal(Case(precision="tf32")) == "CUDA graphs need a GPU"
    assert {usual.refusal(Case(runs=2, precision="tf32")), usual.refusal(Case(precision="bf16"))} == {
        "timed for one run of narrow sites in tf32"
    }
    stack = OwnLoop("plain", stack=True)
    assert stack.found_and_expected(Case(), seed=0) == {}
    work = stack.build(Case(sites=5, batch=4), seed=0)
    work.step()
    assert work.is_finite()
    assert {OwnLoop(loop).name for loop in LOOPS} == {f"auto-{loop}" for loop in LOOPS}


def test_the_librarys_own_step_is_one_of_adam():
    case = Case(sites=5, bond_dim=3, outputs=2, batch=4)
    pairs = LibraryStep().found_and_expected(case, seed=3)
    assert set(pairs) == {name for name, _ in case.module(3).named_parameters()}
    for name, (found, expected) in pairs.items():
        assert relative_error(found, expected) < 1e-5, name
    assert LibraryStep().build(case, 3).is_finite()
    assert LibraryStep().refusal(Case(runs=3)) == "timed for one run"
