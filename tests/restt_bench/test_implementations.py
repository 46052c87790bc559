import pytest
import torch

import restt
from restt_bench.baselines import FORMS, PlainTorch, TensorKrowch, TorchResTT
from restt_bench.case import Case
from restt_bench.ours import GraphedStep, LibraryStep
from restt_bench.parity import averaged_gradients, relative_error


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sites", [3, 8])
def test_plain_torch_equals_the_reference(form, sites):
    case = Case(sites=sites, feature_dim=3, bond_dim=4, outputs=2, batch=5, dtype="float64")
    pairs = PlainTorch(form).compared(case, seed=3)
    named = dict(case.module(3).named_parameters())
    assert set(pairs) == {"output", "x", *named}
    for name, (computed, expected) in pairs.items():
        assert expected.abs().max() > 0, name
        assert relative_error(computed, expected) < 1e-12, name


def test_textbook_has_one_parameter_per_tensor_of_the_paper():
    module = restt.ResTT(sites=7, feature_dim=2, bond_dim=3, outputs=2)
    book = TorchResTT(module)
    assert sum(p.numel() for p in book.parameters()) == module.num_parameters()
    assert len(list(book.parameters())) == 1 + 5 + 5 + 3


def test_textbook_refuses_what_it_cannot_compute():
    assert PlainTorch().refusal(Case(runs=2)) == "has no runs axis"
    with pytest.raises(ValueError, match="expected a residual module"):
        TorchResTT(restt.ResTT(4, 2, 3, 1, topology="volterra"))


@pytest.mark.parametrize("inline", [False, True])
def test_tensorkrowch_computes_a_plain_chain(inline):
    pytest.importorskip("tensorkrowch", reason="pip install restt[bench]")
    case = Case(sites=6, feature_dim=2, bond_dim=3, outputs=2, batch=4, dtype="float64")
    for name, (computed, expected) in TensorKrowch(inline=inline).compared(case, seed=1).items():
        assert relative_error(computed, expected) < 1e-10, name


def test_absent_tensorkrowch_is_a_row_that_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert TensorKrowch().refusal(Case()) == "not installed (pip install 'restt[bench]')"


def test_data_prevents_denormal_numbers_in_a_long_plain_chain():
    case = Case(sites=400, bond_dim=4, batch=3)
    plain = restt.ResTT(400, 2, 4, 1, topology="plain", second_moment=4 / 3)
    plain.reset_parameters(seed=0)
    assert plain(case.data(0)[0]).abs().max() > torch.finfo(torch.float32).tiny * 1e6


def test_a_step_that_forgets_the_update_fails_its_check():
    case = Case(sites=5, bond_dim=3, outputs=2, batch=4)
    work = LibraryStep().build(case, seed=3)
    averages = {name: average[0] for name, average in work.adam.first.items()}
    pairs = averaged_gradients(work.module, averages, lambda: None, case, seed=3)
    assert relative_error(*pairs["chain"]) > 0.01


def test_a_users_graph_needs_a_gpu():
    assert GraphedStep().refusal(Case()) == "CUDA graphs need a GPU"
    on_gpu = {"device": "cuda", "precision": "tf32"}
    assert GraphedStep().refusal(Case(**on_gpu)) is None
    assert GraphedStep().refusal(Case(runs=2, **on_gpu)) == "timed for one run in tf32"


def test_a_users_graph_takes_the_step_it_is_timed_for(monkeypatch):
    """With stand-ins for capture and compiler, which need a GPU: what is replayed is the step itself."""
    adam = torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda weights, lr, **_: adam(weights, lr=float(lr)))
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", lambda call, samples: call)
    monkeypatch.setattr(torch, "compile", lambda call: call)
    pairs = GraphedStep().compared(Case(sites=5, bond_dim=3, outputs=2, batch=4), seed=3)
    for name, (computed, expected) in pairs.items():
        assert expected.abs().max() > 0, name
        assert relative_error(computed, expected) < 1e-5, name


def test_the_library_s_own_step_is_one_of_adam():
    case = Case(sites=5, bond_dim=3, outputs=2, batch=4)
    pairs = LibraryStep().compared(case, seed=3)
    assert set(pairs) == {name for name, _ in case.module(3).named_parameters()}
    for name, (computed, expected) in pairs.items():
        assert relative_error(computed, expected) < 1e-5, name
    assert LibraryStep().build(case, 3).is_finite()
    assert LibraryStep().refusal(Case(runs=3)) == "timed for one run"
