import copy

import pytest
import torch

import restt
from restt import Topology
from restt.module import ROLES
from restt_paper.table1 import paper_count
from tests.chain.parity import random_module


@pytest.mark.parametrize(
    ("bond", "plain", "residual"), [(10, 39020, 43020), (20, 155640, 163620), (100, 3882200, 3922020)]
)
def test_counts_algorithm_1_tensors(bond, plain, residual):
    assert restt.ResTT(196, 2, bond, 10, "plain").num_parameters() == plain
    assert restt.ResTT(196, 2, bond, 10, runs=2 if bond == 10 else None).num_parameters() == residual
    assert paper_count(bond, "plain").algorithm == plain
    assert paper_count(bond).algorithm == residual


@pytest.mark.parametrize(
    ("bond", "plain", "residual"),
    [(10, 38840, 42740), (20, 155280, 163080), (30, 349320, 361020), (50, 970200, 989700), (100, 3880400, 3919400)],
)
def test_paper_count_is_table_1(bond, plain, residual):
    assert paper_count(bond, "plain").paper == plain
    assert paper_count(bond).paper == residual
    assert "W(N,3)" in str(paper_count(bond))


def test_ragged_padding_is_not_counted_and_ignored():
    module = restt.ResTT(3, [1, 3, 2], 4, 2, dtype=torch.float64)
    expected = 1 * 4 + 3 * 16 + 3 * 4 + 2 * 4 * 2 + 2 * 2 + 4 * 2
    assert module.num_parameters() == expected
    x = torch.randn(5, 3, 3, dtype=torch.float64)
    poisoned = x.clone()
    poisoned[:, 0, 1:] = torch.nan
    poisoned[:, 2, 2:] = torch.inf
    assert torch.equal(module(x), module(poisoned))
    module(x).sum().backward()
    for role in ROLES:
        parameter, used = getattr(module, role), module.used(role)
        unused = ~used.expand(parameter.shape)
        assert (parameter.grad[unused] == 0).all()
        assert (parameter[unused] == 0).all()
        assert (parameter.grad[~unused] != 0).any()


def test_packed_padding_gets_no_gradient():
    module = restt.ResTT(4, [1, 3, 1, 2], 3, 2)
    module(torch.rand(5, 7)).sum().backward()
    for role in ROLES:
        parameter, used = getattr(module, role), module.used(role)
        assert (parameter.grad[~used.expand(parameter.shape)] == 0).all()


def test_packed_and_padded_shapes_are_told_apart():
    module = restt.ResTT(2, 3, 4, 1, runs=2, dtype=torch.float64)
    own = torch.rand(2, 5, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(module(own.flatten(2)), module(own))
    torch.testing.assert_close(module(own[0].flatten(1)), module(own[0]))
    one = restt.ResTT(1, 3, 4, 1, runs=2)  # (2, 1, 3) may be two samples of one site, or one packed sample of each run
    assert one(torch.rand(2, 1, 3)).shape == (2, 2, 1)


@pytest.mark.parametrize("runs", [None, 2])
def test_padded_is_what_the_chain_reads(runs):
    module = restt.ResTT(3, [1, 3, 2], 4, 2, runs=runs)
    x = torch.rand(5, 6)
    padded = module.padded(x)
    assert padded.shape == (1, 5, 3, 3)
    assert torch.equal(padded[0, :, 2], torch.cat([x[:, 4:], torch.zeros(5, 1)], dim=1))
    torch.testing.assert_close(module(padded[0]), module(x))


def test_switched_off_connections_get_no_gradient():
    topology = Topology.residual(5).without_chain(3).without_linear(2)
    module = restt.ResTT(5, 2, 3, 1, topology)
    module(torch.rand(4, 5, 2)).sum().backward()
    assert (module.chain.grad[1] == 0).all()
    assert (module.chain[1] == 0).all()
    assert (module.linear.grad[0] == 0).all()
    assert module.num_parameters() == restt.ResTT(5, 2, 3, 1).num_parameters() - 2 * 9 - 2 * 3


@pytest.mark.parametrize("runs", [None, 2])
def test_state_dict_round_trip(runs):
    module = restt.ResTT(4, [2, 1, 3, 2], 3, 2, "residual", bias=True, runs=runs)
    other = restt.ResTT(4, [2, 1, 3, 2], 3, 2, "residual", bias=True, runs=runs)
    x = torch.rand(5, 4, 3)
    assert not torch.equal(module(x), other(x))
    other.load_state_dict(module.state_dict())
    assert torch.equal(module(x), other(x))
    assert torch.equal(copy.deepcopy(module)(x), module(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_float_dtype(dtype):
    module = restt.ResTT(5, 2, 4, 3, dtype=dtype)
    x = torch.rand(6, 5, 2, dtype=dtype)
    output = module(x)
    output.float().square().sum().backward()
    assert output.dtype == dtype
    assert module.chain.grad.dtype == dtype
    exact = copy.deepcopy(module).double()(x.double())
    torch.testing.assert_close(output.double(), exact, rtol=0.05, atol=0.05)


def test_run_k_alone_is_run_k_among_many():
    many = restt.ResTT(6, 2, 3, 2, runs=4)
    many.reset_parameters(seed=5)
    alone = restt.ResTT(6, 2, 3, 2)
    for run in range(4):
        alone.reset_parameters(seed=5, run_ids=[run])
        for role in ROLES:
            assert torch.equal(getattr(alone, role), getattr(many, role)[run])
    assert not torch.equal(many.chain[0], many.chain[1])


def test_global_seed_governs_the_weights():
    weights = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights.append(restt.ResTT(4, 2, 3, 1, runs=2).chain.detach())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    torch.manual_seed(0)
    assert torch.equal(restt.ResTT(4, 2, 3, 1).chain, weights[0][0])


def test_runs_axis():
    x = torch.rand(5, 4, 2)
    module = restt.ResTT(4, 2, 3, 2, runs=3)
    assert module(x).shape == (3, 5, 2)
    assert restt.ResTT(4, 2, 3, 2, runs=1)(x).shape == (1, 5, 2)
    own = torch.rand(3, 5, 4, 2)
    single = restt.ResTT(4, 2, 3, 2)
    for run in range(3):
        with torch.no_grad():
            for role in ROLES:
                getattr(single, role).copy_(getattr(module, role)[run])
        torch.testing.assert_close(module(own)[run], single(own[run]))


def test_module_is_multilinear():
    for name in ("residual", "plain", "linear", "volterra"):
        restt.testing.assert_multilinear(restt.ResTT(5, 2, 3, 2, name, dtype=torch.float64), tolerance=1e-12)
    topology = Topology.residual(4).skip_to_output(2).without_chain(3)
    restt.testing.assert_multilinear(random_module(topology, [2, 1, 3, 2], runs=2, bond=3, outputs=1))


def test_assert_multilinear_finds_a_nonlinearity():
    module = restt.ResTT(4, 2, 3, 2)
    bent = lambda x: module(x) + 1e-2 * x[:, 2, :1] ** 2  # noqa: E731
    with pytest.raises(AssertionError, match="site 2"):
        restt.testing.assert_multilinear(bent, torch.rand(3, 4, 2))
    with pytest.raises(TypeError, match="x is needed"):
        restt.testing.assert_multilinear(bent)


def residual(**changed):
    options = {"sites": 4, "feature_dim": 2, "bond_dim": 3, "outputs": 2, **changed}
    return restt.ResTT(**options)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: residual(bond_dim=0), ValueError, ["bond_dim", "0", "1"]),
        (lambda: residual(sites=0), ValueError, ["sites", "0"]),
        (lambda: residual(outputs=0), ValueError, ["outputs", "0"]),
        (lambda: residual(feature_dim=0), ValueError, ["feature_dim", "0"]),
        (lambda: residual(feature_dim=[1, 2]), ValueError, ["feature_dim", "4", "2"]),
        (lambda: residual(feature_dim="2"), TypeError, ["feature_dim", "2"]),
        (lambda: residual(bond_dim=2.0), TypeError, ["bond_dim", "2.0"]),
        (lambda: residual(topology="ring"), ValueError, ["topology", "ring", "residual"]),
        (lambda: residual(topology=None), TypeError, ["topology", "None"]),
        (lambda: residual(topology=Topology.plain(3)), ValueError, ["topology", "3", "4"]),
        (lambda: residual(sigma2=-1.0), ValueError, ["sigma2", "-1.0"]),
        (lambda: residual(sigma2="big"), ValueError, ["sigma2", "big", "auto"]),
        (lambda: residual(sigma2=[1.0, 2.0]), ValueError, ["sigma2", "4", "2"]),
        (lambda: residual(second_moment=0.0), ValueError, ["second_moment", "0"]),
        (lambda: residual(second_moment=[1.0, 1.0, -1.0, 1.0]), ValueError, ["second_moment", "site 3"]),
        (lambda: residual(init="zeros"), ValueError, ["init", "zeros", "balanced"]),
        (lambda: residual(runs=0), ValueError, ["runs", "0"]),
        (lambda: residual(dtype=torch.int64), TypeError, ["dtype", "int64"]),
        (lambda: residual().reset_parameters(seed=1.5), TypeError, ["seed", "1.5"]),
        (lambda: residual(runs=2).reset_parameters(run_ids=[0]), ValueError, ["run_ids", "2", "1"]),
        (lambda: residual()(torch.rand(5, 3, 2)), ValueError, ["3 sites", "4"]),
        (lambda: residual()(torch.rand(5, 4, 3)), ValueError, ["width 3", "2"]),
        (lambda: residual()(torch.rand(4, 2)), ValueError, ["(B, N, I)", "(4, 2)"]),
        (lambda: residual()(torch.rand(5, 7)), ValueError, ["x has 7 packed features", "8, the sum of feature_dim"]),
        (
            lambda: residual(feature_dim=[1, 2, 3, 1], runs=3)(torch.rand(5, 6)),
            ValueError,
            ["x has 6", "7", "(S, B, ΣI)"],
        ),
        (lambda: residual(runs=3)(torch.rand(2, 5, 8)), ValueError, ["2 runs", "3"]),
        (lambda: residual()(torch.rand(1, 5, 4, 2)), ValueError, ["(B, N, I)", "(1, 5, 4, 2)"]),
        (lambda: residual(runs=3)(torch.rand(2, 5, 4, 2)), ValueError, ["2 runs", "3"]),
        (lambda: residual()(torch.ones(5, 4, 2, dtype=torch.int64)), TypeError, ["int64", "floating point"]),
        (lambda: residual()(torch.rand(5, 4, 2, dtype=torch.float64)), TypeError, ["float64", "float32"]),
        (lambda: residual()([[1.0]]), TypeError, ["torch.Tensor", "list"]),
        (lambda: residual()(torch.rand(5, 4, 2, device="meta")), ValueError, ["meta", "cpu"]),
    ],
)
def test_bad_input(make, error, words):
    with pytest.raises(error) as raised:
        make()
    for word in words:
        assert word in str(raised.value)


def test_nan_passes_through_forward_unchecked():
    x = torch.rand(3, 4, 2)
    x[0, 1, 0] = torch.nan
    output = residual()(x)
    assert output[0].isnan().all()
    assert output[1:].isfinite().all()


def test_an_unstable_sigma2_is_told_with_the_remedy():
    with pytest.warns(restt.meanfield.StabilityWarning, match='vanish.*sigma2="auto" would take 1') as caught:
        restt.ResTT(196, 2, 3, 1, "plain", sigma2=0.9)
    assert caught[0].filename == __file__
    restt.ResTT(196, 2, 3, 1, sigma2=0.01)  # the paper's setting is fine


def test_ten_thousand_sites_start_well_with_the_defaults():
    module = restt.ResTT(10_000, 2, 20, 10)
    module.reset_parameters(seed=0)
    angle = torch.rand(8, 10_000, generator=torch.Generator().manual_seed(0)) * torch.pi / 2
    output = module(torch.stack([angle.cos(), angle.sin()], dim=-1))
    output.square().sum().backward()
    assert 0.2 < output.std().item() < 5
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
    size = module.chain.grad.flatten(1).norm(dim=1)
    assert size.max() / size.min() < 10
