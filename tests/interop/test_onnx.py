import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import restt
from restt import Topology, features, interop
from tests.chain.parity import random_module
from tests.interop.helpers import all_nodes, assert_onnx_agrees, assert_same, run_onnx
from tests.strategies import every_topology, topologies


def features_for(module, batch=5):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(batch, module.sites, module.feature_dim, generator=generator, dtype=torch.float64)
    return x.to(module.first.dtype)


@pytest.mark.parametrize("sites", [1, 2, 3])
def test_every_topology(tmp_path, sites):
    for topology in every_topology(sites):
        module = random_module(topology, [2] * sites, runs=None, bond=3, outputs=2)
        assert_onnx_agrees(tmp_path, module, features_for(module))


def test_random_modules(tmp_path):
    @settings(max_examples=20, deadline=None, derandomize=True, database=None)
    @given(topologies(1, 7), st.sampled_from([None, 1, 3]), st.booleans(), st.booleans(), st.data())
    def check(topology, runs, bias, double, data):
        widths = data.draw(st.lists(st.integers(1, 3), min_size=topology.sites, max_size=topology.sites))
        dtype = torch.float64 if double else torch.float32
        module = random_module(topology, widths, runs=runs, bond=3, outputs=2, bias=bias, dtype=dtype)
        if bias:
            torch.nn.init.normal_(module.bias)
        tolerance = 1e-12 if double else 1e-5
        assert_onnx_agrees(tmp_path, module, features_for(module), tolerance=tolerance)

    check()


@pytest.mark.parametrize("batch", [0, 1, 2, 129])
def test_batch_is_dynamic(tmp_path, batch):
    module = random_module(Topology.residual(6).skip_to_output(3), [2] * 6, runs=None, bond=4, outputs=3)
    for feature_map in (features.Affine(), features.OneHot(levels=2)):
        x = features_for(module, batch)[..., 0] if feature_map.name == "affine" else torch.ones(batch, 6)
        assert_onnx_agrees(tmp_path, module, x, feature_map)


def test_padding_is_ignored(tmp_path):
    module = random_module(Topology.residual(4), [1, 3, 2, 1], runs=2, bond=3, outputs=2)
    x = features_for(module).masked_fill(module.padding, float("nan"))
    assert_onnx_agrees(tmp_path, module, x)


def test_switched_off_sites_ignore_their_weights(tmp_path):
    module = restt.ResTT(5, 2, 3, 2, Topology.residual(5).without_chain(3).without_linear(4))
    with torch.no_grad():
        module.chain[1], module.linear[2] = 100.0, 100.0
    assert_onnx_agrees(tmp_path, module, features_for(module))


def test_nodes_do_not_grow_with_sites(tmp_path):
    sizes = []
    for sites in (10, 60):
        topology = Topology.residual(sites).skip_to_output(4).without_chain(5)
        module = restt.ResTT(sites, 2, 5, 3, topology, bias=True)
        path = interop.export(module, tmp_path / "model.onnx", feature_map=features.Trigonometric())
        graph = onnx.load(path).graph
        sizes.append((len(list(all_nodes(graph))), len(graph.initializer)))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("batch", [1, 64])
def test_long_chain(tmp_path, batch):
    module = restt.ResTT(196, 2, 20, 10)
    module.reset_parameters(seed=5)
    table = torch.rand(batch, 196, generator=torch.Generator().manual_seed(2))
    assert_onnx_agrees(tmp_path, module, table, features.Trigonometric())


def test_runs_are_kept_or_averaged(tmp_path):
    module = random_module(Topology.residual(4), [2] * 4, runs=3, bond=3, outputs=2, bias=True)
    x = features_for(module)
    kept = interop.export(module, tmp_path / "kept.onnx")
    assert_same(run_onnx(kept, x), module(x))
    averaged = interop.export(module, tmp_path / "averaged.onnx", average=True)
    assert_same(run_onnx(averaged, x), module(x).mean(0))


def test_export_leaves_the_module_alone(tmp_path):
    module = restt.ResTT(4, 2, 3, 2, Topology.residual(4).without_chain(2))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    interop.export(module, tmp_path / "model.onnx")
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.requires_grad for parameter in module.parameters())
