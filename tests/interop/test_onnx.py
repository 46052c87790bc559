import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import restt
from restt import Topology, features, interop
from restt.interop.onnx_graph import GraphPart
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
    @settings(max_examples=40, deadline=None, derandomize=True, database=None)
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


def test_size_does_not_grow_with_sites(tmp_path):
    sizes, bytes_beyond_weights = [], []
    for sites in (10, 196):
        topology = Topology.residual(sites).skip_to_output(4).without_chain(5)
        module = restt.ResTT(sites, 2, 20, 10, topology, bias=True)
        path = interop.export(module, tmp_path / "model.onnx", feature_map=features.Trigonometric())
        graph = onnx.load(path).graph
        sizes.append((len(list(all_nodes(graph))), len(graph.initializer)))
        weights = sum(parameter.nbytes for parameter in module.parameters())
        bytes_beyond_weights.append(path.stat().st_size - weights)
    assert sizes[0] == sizes[1]
    # what remains is the switches of each site: a few numbers
    assert bytes_beyond_weights[1] - bytes_beyond_weights[0] <= 20 * (196 - 10)


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


class Reversed(torch.nn.Module):
    """A table (B, 1+N) to site features, first column dropped, the rest back to front."""

    def forward(self, table):
        sites = table[:, 1:].flip(1)
        return torch.stack([torch.ones_like(sites), sites], dim=-1)


class MeanProbability(torch.nn.Module):
    """A head with weights of its own, a layer that behaves differently in training, and its own mean of runs."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
        self.dropout = torch.nn.Dropout(0.9)

    def forward(self, y):
        return self.dropout(y * self.scale + 1).softmax(-1).mean(0)


def test_torch_modules_as_map_and_head(tmp_path):
    module = random_module(Topology.residual(3), [2] * 3, runs=3, bond=3, outputs=2)
    table, head = torch.rand(5, 4), MeanProbability()
    path = interop.export(module, tmp_path / "model.onnx", feature_map=Reversed(), row_shape=(4,), head=head)
    assert head.training
    assert head.scale.requires_grad
    assert_same(run_onnx(path, table), head.eval()(module(Reversed()(table))))
    output = onnx.load(path).graph.output[0].type.tensor_type.shape.dim
    assert [size.dim_param or size.dim_value for size in output] == ["batch", 2]


class Decision(GraphPart):
    """A head in the graph's own terms, which needs no conversion."""

    def forward(self, x):
        return x > 0.0


def test_head_in_the_graphs_own_terms(tmp_path):
    module = random_module(Topology.residual(3), [2] * 3, runs=3, bond=3, outputs=2)
    x = features_for(module)
    path = interop.export(module, tmp_path / "model.onnx", average=True, head=Decision())
    assert torch.equal(run_onnx(path, x), module(x).mean(0) > 0)


def test_export_leaves_the_module_alone(tmp_path):
    module = restt.ResTT(4, 2, 3, 2, Topology.residual(4).without_chain(2))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    interop.export(module, tmp_path / "model.onnx")
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.requires_grad for parameter in module.parameters())
