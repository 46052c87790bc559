import subprocess
import sys

import pytest
import torch

import restt
from restt import Topology, features, interop
from tests.chain.parity import random_module
from tests.interop.helpers import assert_same

EDITED = Topology.residual(6).skip_to_output(3).without_chain(4).without_linear(2).without_skip(5)


def load(path):
    return torch.export.load(path).module()


@pytest.mark.parametrize(
    ("topology", "runs", "dtype"),
    [(EDITED, 2, torch.float64), (Topology.linear(5), None, torch.float32), (Topology.plain(2), 1, torch.float32)],
)
def test_agrees_with_the_module(tmp_path, topology, runs, dtype):
    widths = [1, 3, 2, 1, 3, 2][: topology.sites]
    module = random_module(topology, widths, runs=runs, bond=3, outputs=2, bias=True, dtype=dtype)
    program = load(interop.export(module, tmp_path / "model.pt2"))
    for batch in (1, 2, 7):
        x = torch.randn(batch, topology.sites, module.feature_dim, dtype=dtype)
        assert_same(program(x), module(x), tolerance=1e-5 if dtype == torch.float32 else 1e-12)


def test_whole_pipeline_without_restt(tmp_path):
    """Feature map and mean of runs are in the program, which another process runs with torch alone."""
    table = torch.rand(20, 5, generator=torch.Generator().manual_seed(1))
    hat = features.Hat(4).fit(table)
    module = restt.ResTT(5, hat.widths, 3, 2, runs=3)
    interop.export(module, tmp_path / "m.pt2", feature_map=hat, average=True)
    torch.save(table, tmp_path / "table.pt")
    code = (
        "import sys, torch; folder = sys.argv[1]; program = torch.export.load(folder + '/m.pt2').module();"
        "torch.save(program(torch.load(folder + '/table.pt')), folder + '/found.pt'); assert 'restt' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True)
    assert_same(torch.load(tmp_path / "found.pt"), module(hat(table)).mean(0))


def test_size_does_not_grow_with_sites(tmp_path):
    sizes = []
    for sites in (10, 40):
        program = torch.export.load(interop.export(restt.ResTT(sites, 2, 4, 2), tmp_path / "model.pt2"))
        sizes.append(sum(len(part.graph.nodes) for part in program.graph_module.modules() if hasattr(part, "graph")))
    assert sizes[0] == sizes[1]
