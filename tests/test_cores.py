import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import restt
from restt import Topology
from tests.chain.parity import random_module
from tests.strategies import topologies


def contract_cores(cores, x):
    """A plain tensor train over [1, x(n)], core by core; x (B, N, I)."""
    state = torch.ones(len(x), 1, dtype=x.dtype)
    for n, core in enumerate(cores):
        features = torch.cat([torch.ones(len(x), 1, dtype=x.dtype), x[:, n, : core.shape[1] - 1]], dim=1)
        state = torch.einsum("bk,bi,kil->bl", state, features, core)
    return state


@settings(max_examples=60, deadline=None)
@given(topologies(1, 6), st.sampled_from([None, 1, 2]), st.booleans(), st.data())
def test_view_and_round_trip_are_exact(topology, runs, bias, data):
    widths = data.draw(st.lists(st.integers(1, 3), min_size=topology.sites, max_size=topology.sites))
    module = random_module(topology, widths, runs=runs, bond=3, outputs=2, bias=bias, dtype=torch.float64)
    if bias:
        torch.nn.init.constant_(module.bias, 0.7)
    x = torch.randn(4, topology.sites, max(widths), dtype=torch.float64)
    cores = module.cores()
    output = module(x).detach()
    for run in range(runs or 1):
        of_run = [core if runs is None else core[run] for core in cores]
        inner = 3 * (2 if topology.has_output_skip else 1) + 1
        assert [tuple(core.shape) for core in of_run] == [
            (1 if n == 0 else inner, 1 + width, 2 if n == topology.sites - 1 else inner)
            for n, width in enumerate(widths)
        ]
        expected = output if runs is None else output[run]
        torch.testing.assert_close(contract_cores(of_run, x), expected, rtol=0, atol=1e-12)
    same = restt.ResTT.from_cores(cores, topology=topology)
    assert same.topology == topology
    assert same.runs == runs
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter, getattr(same, name)), name


def test_arbitrary_tensor_train_loads_as_plain():
    cores = [torch.rand(1, 2, 3), torch.rand(3, 4, 5), torch.rand(5, 2, 2), torch.rand(2, 3, 6)]
    module = restt.ResTT.from_cores(cores, topology="plain")
    x = torch.rand(7, 4, 4)
    expected = torch.einsum("bi,bj,bk,bl,wix,xjy,ykz,zlo->bo", x[:, 0, :2], x[:, 1], x[:, 2, :2], x[:, 3, :3], *cores)
    torch.testing.assert_close(module(x), expected)
    assert module.feature_dims == (2, 4, 2, 3)
    assert module.bond_dim == 5


@pytest.mark.parametrize(
    ("cores", "error", "words"),
    [
        ([], TypeError, ["cores", "non-empty"]),
        ([torch.rand(1, 2)], ValueError, ["3 axes", "(1, 2)"]),
        ([torch.rand(2, 2, 3), torch.rand(3, 2, 1)], ValueError, ["left bond 1", "(2, 2, 3)"]),
        ([torch.rand(1, 2, 3), torch.rand(4, 2, 1)], ValueError, ["do not fit", "site 2"]),
        ([torch.ones(1, 2, 3, dtype=torch.int64)], TypeError, ["floating point"]),
        ([torch.rand(1, 2, 3), torch.rand(3, 2, 3), torch.rand(3, 2, 1)], ValueError, ["plain", "site 1"]),
        ([torch.rand(1, 1, 3), torch.rand(3, 1, 1)], ValueError, ["no features", "site 1"]),
        ([torch.rand(1, 2, 1), torch.rand(1, 2, 1)], ValueError, ["inner bond 1"]),
    ],
)
def test_bad_cores(cores, error, words):
    with pytest.raises(error) as raised:
        restt.ResTT.from_cores(cores)
    for word in words:
        assert word in str(raised.value)


def test_cores_of_another_topology_are_refused():
    cores = restt.ResTT(4, 2, 3, 1).cores()
    with pytest.raises(ValueError, match="site 2 has entries"):
        restt.ResTT.from_cores(cores, topology=Topology.residual(4).without_skip(2))
    with pytest.raises(ValueError, match="4"):
        restt.ResTT.from_cores(cores, topology=Topology.residual(5))
