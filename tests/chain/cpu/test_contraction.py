import ctypes
import gc
import subprocess
import sys

import pytest
import torch

import restt
from restt import Topology
from restt.chain.cpu import build, contraction
from restt.chain.operators import topology_of
from tests.chain.cpu.compiled import needs_compiler
from tests.chain.parity import ChainParity, random_module

pytestmark = needs_compiler

MIXED = Topology.residual(6).skip_to_output(3, 5).without_chain(4).without_linear(2).without_skip(4)


@pytest.fixture
def two_threads(monkeypatch):
    """Two threads even for the smallest problem."""
    monkeypatch.setattr(contraction, "_SERIAL_OPERATIONS", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Sizes(ChainParity):
    """What the compiled path adds to the suite: sizes around its tiles and blocks, and both ways to share the work."""

    backend = "fused_cpu"

    @pytest.mark.parametrize("bond", [1, 5, 6, 7, 16, 17, 33, 100])
    @pytest.mark.parametrize(("batch", "width"), [(1, 8), (7, 3), (64, 1), (130, 2)])
    def test_tile_tails(self, bond, batch, width):
        self.assert_parity(MIXED, batch=batch, bond=bond, widths=[width] * 6, outputs=bond % 8 + 1)

    def test_more_samples_than_one_block_of_sums(self):
        self.assert_parity(Topology.residual(4), batch=1100, bond=3)

    @pytest.mark.parametrize("own_data", [False, True])
    @pytest.mark.parametrize("runs", [3, 9])
    def test_many_runs(self, runs, own_data):
        self.assert_parity(MIXED, runs=runs, own_data=own_data, batch=37, bond=7)

    @pytest.mark.parametrize("sparse", [False, True])
    @pytest.mark.parametrize("widths", [[2, 40, 1, 3, 17, 2], [33, 1, 1, 16, 2, 20]])
    def test_more_features_than_are_held_at_once(self, widths, sparse):
        self.assert_parity(MIXED, widths=widths, packed=True, sparse=sparse, batch=70)
        self.assert_parity(MIXED, widths=widths, sparse=sparse, batch=37, runs=3, own_data=True)
        self.assert_parity(MIXED, widths=[40] * 6, sparse=sparse, batch=21, runs=9)

    def test_nothing_is_left_unwritten(self, monkeypatch):
        real = torch.empty

        def poisoned(*size, **options):
            return real(*size, **options).fill_(255 if options.get("dtype") is torch.uint8 else float("nan"))

        monkeypatch.setattr(torch, "empty", poisoned)
        self.assert_parity(MIXED, batch=21, bond=5, runs=2)
        self.assert_parity(MIXED, batch=21, bond=5, runs=9, own_data=True)
        self.assert_parity(MIXED, batch=70, bond=5, widths=[2, 40, 1, 3, 17, 2], packed=True, sparse=True)


class TestFusedCpu(Sizes):
    pass


class TestFusedCpuFloat32(Sizes):
    dtype = torch.float32
    tolerance = 1e-4
    examples = 5


@pytest.mark.usefixtures("two_threads")
class TestTwoThreads(Sizes):
    examples = 5


@pytest.mark.usefixtures("two_threads")
class TestOwnThreads(Sizes):
    """Where torch brings no OpenMP the compiled code starts threads itself."""

    examples = 5

    @pytest.fixture(autouse=True)
    def without_team(self, monkeypatch):
        monkeypatch.setattr(build, "thread_team", lambda: 0)


@pytest.fixture
def problem():
    module = random_module(MIXED, [2] * 6, runs=5, bond=7, outputs=2, dtype=torch.float32)
    return module, torch.randn(40, 6, 2, generator=torch.Generator().manual_seed(3))


def gradients(module, x, backend="fused_cpu"):
    module.zero_grad(set_to_none=True)
    with restt.chain.backend(backend):
        module(x).square().sum().backward()
    return [parameter.grad for parameter in module.parameters()]


def test_shared_features_without_their_gradient(problem):
    module, x = problem
    expected = gradients(module.double(), x.double(), "reference")
    for got, want in zip(gradients(module, x.double()), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def test_same_bits_every_time_and_for_any_number_of_threads(problem, monkeypatch):
    module, x = problem
    first = gradients(module, x)
    monkeypatch.setattr(contraction, "_SERIAL_OPERATIONS", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    for again in (gradients(module, x), gradients(module, x)):
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_inference_gives_the_training_output_without_keeping_states(problem):
    module, x = problem
    with restt.chain.backend("fused_cpu"):
        output = module(x)
        with torch.no_grad():
            assert torch.equal(module(x), output)
            assert module(x).grad_fn is None


def test_any_strides(problem):
    module, x = problem
    wide = torch.randn(2, 6, 80, generator=torch.Generator().manual_seed(4)).permute(2, 1, 0)[::2]
    assert not wide.is_contiguous()
    expected = gradients(module, wide.contiguous())
    assert all(torch.equal(a, b) for a, b in zip(gradients(module, wide), expected, strict=True))
    weights = module.weights()
    strided = weights._replace(chain=weights.chain.transpose(-1, -2).contiguous().transpose(-1, -2))
    with restt.chain.backend("fused_cpu"):
        outputs = [restt.chain.contract(x[None], given, module.topology) for given in (weights, strided)]
    assert torch.equal(*outputs)


def test_packed_features_may_be_any_view():
    module = random_module(MIXED, [2, 5, 1, 1, 30, 3], runs=None, bond=7, outputs=2, dtype=torch.float32)
    wide = torch.randn(42, 80, generator=torch.Generator().manual_seed(4)).T[::2]
    expected = gradients(module, wide.contiguous())
    assert all(torch.equal(a, b) for a, b in zip(gradients(module, wide), expected, strict=True))


def test_another_default_device_is_none_of_its_business():
    """Memory from there would be an address that C cannot write to."""
    module = restt.ResTT(sites=6, feature_dim=2, bond_dim=3, outputs=2)
    x = torch.rand(4, 6, 2, requires_grad=True)
    expected = torch.autograd.grad(module(x).sum(), (x, *module.parameters()))
    with torch.device("meta"):
        found = torch.autograd.grad(module(x).sum(), (x, *module.parameters()))
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_a_graph_can_be_walked_twice(problem):
    module, x = problem
    with restt.chain.backend("fused_cpu"):
        output = module(x).sum()
    output.backward(retain_graph=True)
    once = module.chain.grad.clone()
    output.backward()
    torch.testing.assert_close(module.chain.grad, 2 * once)


def test_saved_tensors_may_move(problem):
    module, x = problem
    expected = gradients(module, x)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        moved = gradients(module, x)
    assert all(torch.equal(a, b) for a, b in zip(expected, moved, strict=True))


def test_weights_changed_in_place_are_noticed(problem):
    module, x = problem
    with restt.chain.backend("fused_cpu"):
        output = module(x).sum()
    with torch.no_grad():
        module.chain.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.backward()


def test_no_gradient_is_computed_that_nobody_wants(problem):
    module, x = problem
    module.chain.requires_grad_(False)
    module.first.requires_grad_(False)
    found = dict(zip([name for name, _ in module.named_parameters()], gradients(module, x), strict=True))
    assert found["chain"] is None
    assert found["first"] is None
    assert found["linear"] is not None


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (torch.zeros(1, 3, 4, 2, dtype=torch.float16), "float32 and float64"),
        (torch.zeros(1, 3, 4, 2, device="meta"), "on the CPU"),
    ],
)
def test_says_what_it_cannot_take(x, reason):
    module = restt.ResTT(4, 2, 3, 1)
    assert reason in contraction.unsupported(x, module.weights(), module.topology)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_compiles_wherever_there_is_a_compiler(dtype):
    assert build.problem(dtype) is None


# Threads that meet a topology nobody has seen yet, over and over: what C was given must not be freed under it.
THREADS = """
import threading, torch, restt
torch.set_num_threads(1)
sites, rounds = 20_000, 8
module = restt.ResTT(sites, 1, 1, 1)
x = torch.rand(1, sites, 1)
with restt.chain.backend("fused_cpu"), torch.no_grad():
    expected = module(x)
wrong = []

def call(start, topology):
    start.wait()
    with restt.chain.backend("fused_cpu"), torch.no_grad():
        if not torch.equal(restt.chain.contract(x[None], module.weights(), topology)[0], expected):
            wrong.append(1)

for _ in range(rounds):
    topology = restt.Topology.residual(sites)
    start = threading.Barrier(8)
    threads = [threading.Thread(target=call, args=(start, topology)) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print(len(wrong))
"""


def test_threads_may_share_a_module():
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr[-500:]


def test_the_flags_that_c_reads_outlive_every_other_use_of_them(monkeypatch):
    """The address given to C is that of bytes somebody holds, even if everything kept is forgotten in between."""
    topology = Topology.residual(300)
    module = restt.ResTT(300, 2, 2, 1, topology)
    library, held = contraction._library(torch.float32), []

    def forward(chain):
        topology.__dict__.pop("connection_flags")  # as if other threads had filled the caches
        contraction._planned.cache_clear()
        topology_of.cache_clear()
        gc.collect()
        held.append(ctypes.string_at(ctypes.cast(chain, ctypes.POINTER(contraction._Chain)).contents.flags, 299))
        library.forward(chain)

    monkeypatch.setitem(contraction._libraries, torch.float32, library._replace(forward=forward))
    with restt.chain.backend("fused_cpu"):
        module(torch.rand(3, 300, 2))
    assert held == [topology.connection_flags]
