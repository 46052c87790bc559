"""The fused GPU backend: for real where there is a GPU, elsewhere its kernels under Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tests.chain.cuda.interpreter import mend_interpreter
from tests.chain.parity import ChainParity, random_module

pytest.importorskip(
    "triton", "3.6", reason="the fused GPU kernels need triton 3.6, which comes with torch 2.11 for CUDA"
)

import restt
from restt import Topology
from restt.chain import eager
from restt.chain.cuda import contraction, launch, plans
from restt.chain.cuda.launch import Gpu, Layout, SweepLaunch, fetches_tiles, head_launch, sweep_launch, weight_launch
from restt.chain.cuda.plans import is_folded

H200 = Gpu()
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"

pytestmark = pytest.mark.skipif(
    not ON_GPU and os.environ["TRITON_INTERPRET"] != "1", reason="neither a GPU nor Triton's interpreter"
)

if not ON_GPU:
    mend_interpreter()


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Fresh memory holds NaN, so an output that no kernel wrote cannot pass for a zero."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]


@pytest.fixture(autouse=True)
def no_plans_of_other_tests():
    """Tests change the tables that launches are worked out from."""
    for plan in (plans.forward_plan, plans.backward_plan):
        plan.cache_clear()
    yield
    for plan in (plans.forward_plan, plans.backward_plan):
        plan.cache_clear()


@pytest.fixture
def changed_tables(monkeypatch):
    """Have kernels launched with other constants."""
    return lambda **tables: monkeypatch.setattr(launch, "TABLES", replace(launch.TABLES, **tables))


class TestFusedCuda(ChainParity):
    backend = "fused_cuda"
    dtype = torch.float32
    device = DEVICE
    tolerance = 1e-4
    examples = 30 if ON_GPU else 5

    @pytest.mark.parametrize("outputs", [17, 70])
    def test_more_outputs_than_one_tile(self, outputs):
        self.assert_parity(Topology.residual(3), outputs=outputs)

    def test_a_bond_too_wide_for_the_chip_is_left_to_plain_products(self):
        module, x = restt.ResTT(3, 2, 129, 1, device=DEVICE), torch.rand(1, 4, 3, 2, device=DEVICE)
        assert "bond 129 do not fit" in contraction.unsupported(x, module.weights(), module.topology)
        narrower = restt.ResTT(3, 2, 128, 1, device=DEVICE)
        assert contraction.unsupported(x, narrower.weights(), narrower.topology) is None

    @pytest.mark.parametrize("runs", [None, 2])
    @pytest.mark.parametrize("skip", ["full", "none", "output"])
    def test_linear_entries_in_the_cores(self, skip, runs):
        inner = range(2, 5)
        topology = Topology.residual(5)
        if skip != "full":
            topology = topology.without_skip(*inner) if skip == "none" else topology.skip_to_output(*inner)
        assert is_folded(topology, Layout(4, "tf32"))
        assert not is_folded(topology, Layout(4, "float32"))
        self.tolerance = 1e-2 if ON_GPU else self.tolerance  # the interpreter does not round
        with restt.chain.precision("tf32"):
            self.assert_parity(topology, batch=3, runs=runs)

    def test_no_room_for_linear_entries_in_the_cores(self):
        assert not is_folded(Topology.residual(4), Layout(16, "tf32"))
        self.tolerance = 1e-2 if ON_GPU else self.tolerance
        with restt.chain.precision("tf32"):
            self.assert_parity(Topology.residual(4), batch=3, bond=16)

    def test_long_chain(self):
        if ON_GPU:
            super().test_long_chain()
        topology = Topology.residual(20).skip_to_output(8, 14).without_chain(7).without_linear(12).without_skip(16)
        self.assert_parity(topology, batch=3)

    @pytest.mark.parametrize("width", [3, 8])
    def test_site_in_several_parts(self, width, changed_tables):
        changed_tables(one_wave={(32, "float32"): SweepLaunch(columns=8, part=1, warps=2, stages=2)})
        mixed = Topology.residual(5).skip_to_output(3).without_chain(4).without_skip(2)
        for topology in (Topology.residual(3), mixed):
            self.assert_parity(topology, widths=[width] * topology.sites, bond=17)

    @pytest.mark.parametrize("width", [6, 8])
    def test_parts_of_two_and_four_features(self, width):
        assert sweep_launch(Layout(4, "float32"), width, 1, 5, H200).part == (2 if width == 6 else 4)
        self.assert_parity(Topology.residual(4).skip_to_output(2).without_chain(3), widths=[width] * 4)

    def test_launches_of_many_runs(self, changed_tables):
        layout = Layout(10, "float32")
        assert sweep_launch(layout, 3, 120, 405, H200) != sweep_launch(layout, 3, 2, 405, H200)
        assert head_launch(layout, 9 * 120, H200) != head_launch(layout, 9, H200)
        assert head_launch(Layout(20, "float32"), 9 * 120, H200) == head_launch(layout, 9, H200)
        changed_tables(many_programs=0)
        for topology in (Topology.residual(3), Topology.residual(5).skip_to_output(3).without_chain(4)):
            self.assert_parity(topology, widths=[3] * topology.sites, bond=10, batch=37, runs=2)

    def test_narrow_batch_tiles(self):
        assert sweep_launch(Layout(20, "tf32"), 2, 2, 21, H200).columns == 8
        assert sweep_launch(Layout(20, "tf32"), 2, 20, 512, H200).columns > 8
        self.tolerance = 1e-2 if ON_GPU else self.tolerance  # the interpreter does not round
        with restt.chain.precision("tf32"):
            self.assert_parity(Topology.residual(4).skip_to_output(2), bond=20, batch=21, runs=2)

    def test_cores_by_copy_engine(self, changed_tables):
        changed_tables(fetched={"tf32": 32})
        self.assert_parity(Topology.residual(5), bond=17, runs=2)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter multiplies in float32 whatever the precision")
class TestTf32(ChainParity):
    backend = "fused_cuda"
    dtype = torch.float32
    device = DEVICE
    tolerance = 1e-2
    examples = 5

    @pytest.fixture(autouse=True)
    def rounded_products(self):
        with restt.chain.precision("tf32"):
            yield

    def tolerance_at(self, sites: int) -> float:
        # Every site rounds its operands to 11 bits, and relative errors at most add up along the chain.
        return max(self.tolerance, sites * 2.0**-11)


@pytest.mark.parametrize(("precision", "bound"), [("float32", 1e-5), ("tf32", 3e-3), ("fp16", 3e-3), ("bf16", 2e-2)])
def test_error_of_each_precision(precision, bound):
    module = random_module(Topology.residual(6), [2] * 6, runs=1, bond=33, outputs=10, device=DEVICE)
    x = torch.rand(20, 6, 2, generator=torch.Generator().manual_seed(3)) / 2
    with restt.chain.precision(precision), restt.chain.backend("fused_cuda"):
        module(x.to(DEVICE)).square().sum().backward()
    found = {name: parameter.grad.double().cpu() for name, parameter in module.named_parameters()}
    exact = module.to("cpu", torch.float64)
    exact.zero_grad(set_to_none=True)
    with restt.chain.backend("reference"):
        exact(x.double()).square().sum().backward()
    for name, parameter in exact.named_parameters():
        error = (found[name] - parameter.grad).norm() / parameter.grad.norm()
        assert error < bound, f"{name}: relative error {error:.2e} with {precision}"


def launched_precisions(monkeypatch) -> list[str]:
    """The precision of every sweep that is launched from now on."""
    seen = []
    monkeypatch.setattr(
        plans,
        "sweep_launch",
        lambda layout, *rest, **more: seen.append(layout.precision) or sweep_launch(layout, *rest, **more),
    )
    return seen


@pytest.mark.parametrize(("setting", "expected"), [("highest", "float32"), ("high", "tf32")])
def test_products_follow_torch(monkeypatch, setting, expected):
    seen, before = launched_precisions(monkeypatch), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        with restt.chain.backend("fused_cuda"):
            restt.ResTT(4, 2, 3, 1, device=DEVICE)(torch.rand(6, 4, 2, device=DEVICE)).sum().backward()
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == [expected, expected]


@pytest.mark.parametrize("bond", [20, 100])
def test_a_float32_module_is_as_exact_as_float32(bond):
    """By default, at the length of the paper's images; without a GPU at a length that can be interpreted."""
    sites, batch = (196, 512) if ON_GPU else (24, 16)
    module = restt.ResTT(sites, 2, bond, 10, device=DEVICE)
    x = torch.rand(batch, sites, generator=torch.Generator().manual_seed(3))
    x = restt.features.Trigonometric()(x)
    with restt.chain.backend("fused_cuda"), torch.no_grad():
        found = module(x.to(DEVICE)).double().cpu()
    with torch.no_grad():
        exact = module.to("cpu", torch.float64)(x.double())
    assert (found - exact).abs().max() <= 1e-5 * exact.abs().max()


def test_backward_keeps_the_precision_of_its_forward():
    def gradient(inside: bool) -> torch.Tensor:
        module = random_module(Topology.residual(6), [2] * 6, runs=None, bond=20, outputs=3, device=DEVICE)
        x = torch.rand(9, 6, 2, generator=torch.Generator().manual_seed(3)).to(DEVICE)
        with restt.chain.backend("fused_cuda"), restt.chain.precision("bf16"):
            loss = module(x).square().sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        return module.chain.grad

    assert torch.equal(gradient(inside=True), gradient(inside=False))


def test_same_bits_twice():
    # On a GPU at a size whose weight gradients multiply on warp groups: a race shows as bits that differ.
    bond, repeats = (128, 10) if ON_GPU else (20, 1)
    module = random_module(Topology.residual(5), [2] * 5, runs=2, bond=bond, outputs=3, device=DEVICE)
    x = torch.rand(33, 5, 2, generator=torch.Generator().manual_seed(3)).to(DEVICE)

    def gradients() -> list[torch.Tensor]:
        module.zero_grad(set_to_none=True)
        with restt.chain.backend("fused_cuda"):
            module(x).square().sum().backward()
        return [parameter.grad for parameter in module.parameters()]

    first = gradients()
    for _ in range(repeats):
        assert all(torch.equal(a, b) for a, b in zip(first, gradients(), strict=True))


def test_inference_equals_training_bits():
    module = random_module(Topology.residual(6).skip_to_output(3), [2] * 6, runs=2, bond=20, outputs=3, device=DEVICE)
    x = torch.rand(21, 6, 2, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    with restt.chain.backend("fused_cuda"):
        trained = module(x)
        with torch.no_grad():
            assert torch.equal(module(x), trained)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_diverged_run_stays_alone():
    module = random_module(Topology.residual(5), [2] * 5, runs=3, bond=20, outputs=3, device=DEVICE)
    x = torch.rand(21, 5, 2, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    with restt.chain.backend("fused_cuda"):
        healthy = module(x).detach()
        with torch.no_grad():
            module.chain[1] = torch.inf
        found = module(x)
        found.nan_to_num(0).square().sum().backward()
    assert torch.equal(found[[0, 2]], healthy[[0, 2]])
    assert not found[1].isfinite().any()
    assert module.chain.grad[[0, 2]].isfinite().all()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize(
    "bond", [5, pytest.param(100, marks=pytest.mark.skipif(not ON_GPU, reason="minutes of interpreting"))]
)
def test_slices_of_absent_connections_are_ignored(bond):
    topology = Topology.residual(5).without_chain(3).without_linear(4)
    module = random_module(topology, [2] * 5, runs=None, bond=bond, outputs=3, device=DEVICE)
    x = torch.rand(4, 5, 2, generator=torch.Generator().manual_seed(3)).to(DEVICE).requires_grad_()

    def found() -> list[torch.Tensor]:
        module.zero_grad(set_to_none=True)
        x.grad = None
        with restt.chain.backend("fused_cuda"):
            output = module(x)
        output.square().sum().backward()
        return [output, x.grad, *(parameter.grad for parameter in module.parameters())]

    clean = found()
    with torch.no_grad():
        module.chain[1] = torch.nan
        module.linear[2] = torch.nan
    assert all(torch.equal(a, b) for a, b in zip(found(), clean, strict=True))


def test_features_may_be_any_view():
    module = random_module(Topology.residual(5), [2] * 5, runs=None, bond=6, outputs=3, device=DEVICE)
    stored = torch.rand(2, 5, 21, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    view = stored.permute(2, 1, 0)
    with restt.chain.backend("fused_cuda"), torch.no_grad():
        assert torch.equal(module(view), module(view.contiguous()))


def test_no_gradient_is_computed_that_nobody_wants():
    module = restt.ResTT(4, 2, 3, 1, device=DEVICE)
    module.chain.requires_grad_(False)
    module.last_chain.requires_grad_(False)
    with restt.chain.backend("fused_cuda"):
        module(torch.rand(6, 4, 2, device=DEVICE)).sum().backward()
    assert module.chain.grad is None
    assert module.last_chain.grad is None
    assert module.linear.grad.isfinite().all()
    assert module.last_skip.grad.isfinite().all()


def test_float64_is_refused_with_the_reason():
    module = restt.ResTT(4, 2, 3, 1, dtype=torch.float64, device=DEVICE)
    x = torch.rand(6, 4, 2, dtype=torch.float64, device=DEVICE)
    with pytest.raises(ValueError, match=r"stores float32, got torch\.float64"):
        contraction.contract(x[None], module.weights(), module.topology)
    assert eager.contract(x[None], module.weights(), module.topology).dtype == torch.float64


def test_kernels_compile_for_hopper():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.chain.cuda.compile_kernels"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("in_place", "stages"), [(True, 4), (False, 3)])
def test_a_pipeline_of_narrow_products_holds_three_cores_of_64_kib_in_227(in_place, stages):
    device = replace(H200, copies_in_place=in_place)
    back = sweep_launch(Layout(100, "tf32"), 2, 1, 512, device)
    assert (back.columns, back.part, back.stages) == (8, 1, stages)
    assert sweep_launch(Layout(100, "tf32"), 2, 1, 5000, device).stages == 3


# Properties of other cards: processors, shared memory of a program, whether there is an engine that copies tiles.
CARDS = {
    "a100": Gpu(108, 163 * 1024, False),
    "l40s": Gpu(142, 99 * 1024, False),
    "h100-pcie": Gpu(114, 227 * 1024, True),
    "b200": Gpu(148, 227 * 1024, True),
    "t4": Gpu(40, 64 * 1024, False),
}


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_launches_fit_on_other_cards(card, precision):
    for bond in (10, 20, 50, 100, 128):
        layout = Layout(bond, precision)
        for width, reads_states in [(2, False), (6, True)]:
            found = sweep_launch(layout, width, 1, 512, card, reads_states=reads_states)
            cores = found.stages - (found.columns == 8 and found.stages > 1)
            assert found.part * cores * layout.tile**2 * layout.dtype.itemsize <= card.shared_bytes
            assert width % found.part == 0
            assert 16 * found.warps <= layout.tile  # one thread has all features of a row
            assert card.copies_tiles or not fetches_tiles(layout, card)
        weights = weight_launch(layout, card)
        assert weights.stages * weights.batch * (weights.rows + weights.columns) * 4 <= card.shared_bytes


def test_the_batch_is_cut_for_the_processors_of_a_card():
    layout = Layout(20, "tf32")
    assert sweep_launch(layout, 2, 1, 1000, CARDS["b200"]).columns == 8  # 125 programs in one wave
    assert sweep_launch(layout, 2, 1, 1000, CARDS["a100"]).columns == 16
    assert sweep_launch(layout, 2, 1, 1000, CARDS["t4"]).columns == 32
