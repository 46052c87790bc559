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


# Of each of the cases, in a copy of this process: resident memory above what is resident before the first model exists,
# after each of the measurements; null where there is no such backend.
MEASURE = """
import json, os, sys, torch, restt
torch.set_num_threads(1)

def kibibytes(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))

def train(sites, bond, batch, backend, recompute, steps):
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

def peaks(sites, bond, batch, backend, recomputed):
    for recompute in recomputed:
        train(5, bond, batch, backend, recompute, 1)
    before = kibibytes("VmRSS")
    for recompute in recomputed:
        train(sites, bond, batch, backend, recompute, 2)
        yield (kibibytes("VmHWM") - before) / 1024

for case in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        print(json.dumps(list(peaks(*case))), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("null", flush=True)
"""
# (sites, bond, batch, backend, recomputed): a training with recomputing, then one without in the same process.
CASES = {
    "long": (10_000, 20, 64, "auto", [True, False]),
    "eager": (400, 4, 8_192, "eager", [True, False]),
    "fused_cpu": (400, 4, 8_192, "fused_cpu", [True, False]),
}


@pytest.fixture(scope="module")
def peak_mebibytes():
    """Of each case the peak after its first training, then after its second."""
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory is read from /proc")
    words = [sys.executable, "-c", MEASURE, json.dumps(list(CASES.values()))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return dict(zip(CASES, map(json.loads, done.stdout.splitlines()), strict=True))


def test_ten_thousand_sites_train_in_under_a_gibibyte(peak_mebibytes):
    assert max(peak_mebibytes["long"]) < 1024


@pytest.mark.parametrize("backend", ["eager", pytest.param("fused_cpu", marks=needs_compiler)])
def test_recomputing_saves_most_of_the_states(peak_mebibytes, backend):
    sites, bond, batch, *_ = CASES[backend]
    states = sites * bond * batch * 4 / 2**20
    recomputed, stored = peak_mebibytes[backend]
    assert stored - recomputed > 0.6 * states
