import pytest
import torch

import restt
from restt_bench.case import Case
from restt_bench.implementations.plain_torch import FORMS, PlainTorch, TorchResTT
from restt_bench.implementations.tensorkrowch import TensorKrowch
from restt_bench.implementations.train_step import LibraryStep
from restt_bench.parity import relative_error


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


def test_the_librarys_own_step_is_one_of_adam():
    case = Case(sites=5, bond_dim=3, outputs=2, batch=4)
    pairs = LibraryStep().found_and_expected(case, seed=3)
    assert set(pairs) == {name for name, _ in case.module(3).named_parameters()}
    for name, (found, expected) in pairs.items():
        assert relative_error(found, expected) < 1e-5, name
    assert LibraryStep().build(case, 3).is_finite()
    assert LibraryStep().refusal(Case(runs=3)) == "timed for one run"
