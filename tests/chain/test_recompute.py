import json
import subprocess
import sys
from pathlib import Path

import pytest

import restt
from restt import Topology
from restt.chain.recompute import segment_length
from tests.chain.cpu.compiled import needs_compiler
from tests.chain.parity import ChainParity


class Recomputed(ChainParity):
    examples = 15
    segments: int | None = None

    @pytest.fixture(autouse=True)
    def recomputing(self):
        with restt.chain.recompute(self.segments):
            yield

    @pytest.mark.parametrize("own_data", [False, True])
    def test_many_runs_on_a_longer_chain(self, own_data):
        topology = Topology.residual(23).skip_to_output(2, 9, 22).without_chain(6).without_skip(12)
        self.assert_parity(topology, runs=9, own_data=own_data, batch=19, bond=5)


class TestEager(Recomputed):
    backend = "eager"


class TestEagerInThree(Recomputed):
    backend = "eager"
    segments = 3
    examples = 5


@needs_compiler
class TestFusedCpu(Recomputed):
    backend = "fused_cpu"


@needs_compiler
class TestFusedCpuInOne(Recomputed):
    backend = "fused_cpu"
    segments = 1
    examples = 5


@needs_compiler
class TestFusedCpuInThree(Recomputed):
    backend = "fused_cpu"
    segments = 3
    examples = 5


@pytest.mark.parametrize(("sites", "segments", "length"), [(100, None, 10), (101, None, 11), (100, 3, 34), (5, 99, 1)])
def test_length_of_a_segment(sites, segments, length):
    assert segment_length(sites) == 1
    with restt.chain.recompute(segments):
        assert segment_length(sites) == length


def test_segments_must_be_a_positive_integer():
    with pytest.raises(ValueError, match="segments must be at least 1"), restt.chain.recompute(0):
        pass


# Resident memory above what is resident before the first model exists, after each of the measurements.
MEASURE = """
import json, sys, torch, restt
torch.set_num_threads(1)
sites, bond, batch, backend, recomputed = json.loads(sys.argv[1])

def kibibytes(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))

def train(sites, steps, recompute):
    model = restt.ResTT(sites=sites, feature_dim=2, bond_dim=bond, outputs=10)
    x, optimizer = torch.rand(batch, sites, 2), torch.optim.Adam(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        with restt.chain.backend(backend):
            if recompute:
                with restt.chain.recompute():
                    loss = model(x).square().mean()
            else:
                loss = model(x).square().mean()
        loss.backward()
        optimizer.step()

for recompute in recomputed:
    train(5, 1, recompute)
before, peaks = kibibytes("VmRSS"), []
for recompute in recomputed:
    train(sites, 2, recompute)
    peaks.append((kibibytes("VmHWM") - before) / 1024)
print(json.dumps(peaks))
"""


def peak_mebibytes(sites, bond, batch, backend, recomputed):
    """The peak after a training without or with recomputing, then after another one in the same process, and so on."""
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory is read from /proc")
    given = json.dumps([sites, bond, batch, backend, recomputed])
    done = subprocess.run([sys.executable, "-c", MEASURE, given], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_ten_thousand_sites_train_in_under_a_gibibyte():
    assert max(peak_mebibytes(10_000, 20, 64, "auto", [True, False])) < 1024


@pytest.mark.parametrize("backend", ["eager", pytest.param("fused_cpu", marks=needs_compiler)])
def test_recomputing_saves_most_of_the_states(backend):
    sites, bond, batch = 400, 4, 8_192
    states = sites * bond * batch * 4 / 2**20
    recomputed, stored = peak_mebibytes(sites, bond, batch, backend, [True, False])
    assert stored - recomputed > 0.6 * states
