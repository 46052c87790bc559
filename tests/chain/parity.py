"""The one parity suite: every chain backend against the reference, outputs and every gradient.

A backend's test file subclasses :class:`ChainParity` and names the backend; see test_eager.py.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import restt
from restt import Topology
from restt.chain.packed import pack
from restt.module import ROLES
from tests.strategies import topologies

PRESETS = ("residual", "plain", "linear", "volterra")


def random_module(topology: Topology, widths: list[int], *, runs: int | None, bond: int, outputs: int, **options):
    """A module whose every weight is large enough that no connection hides in rounding."""
    module = restt.ResTT(topology.sites, widths, bond, outputs, topology, runs=runs, **options)
    module.reset_parameters(seed=7)
    with torch.no_grad():
        for role in ROLES:
            parameter, used = getattr(module, role), module.used(role)
            if parameter is not None:
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(role)))
                parameter.copy_((0.5 * noise / bond**0.5).to(parameter).where(used.to(parameter.device), 0))
    return module


class ChainParity:
    """Subclass per backend: set ``backend`` and, where it needs them, ``dtype``, ``device`` and the tolerances."""

    backend: str
    dtype = torch.float64
    device = "cpu"
    tolerance = 1e-10  # relative to the largest entry of what is compared
    examples = 30

    def tolerance_at(self, sites: int) -> float:
        """The tolerance for a chain of this length; only low precisions need more for longer ones."""
        return self.tolerance

    def outputs_and_gradients(self, backend: str, module: restt.ResTT, x: torch.Tensor, cotangent: torch.Tensor):
        """The output and the gradients of features and weights, under one backend."""
        x = x.detach().clone().requires_grad_()
        module.zero_grad(set_to_none=True)
        with restt.chain.backend(backend):
            output = module(x)
        if output.requires_grad:  # a dead topology's reference output is a constant
            output.backward(cotangent.to(output))
        found = {"output": output.detach(), "x": torch.zeros_like(x) if x.grad is None else x.grad}
        for name, parameter in module.named_parameters():
            found[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        return found

    def assert_parity(
        self,
        topology: Topology,
        *,
        widths: list[int] | None = None,
        runs: int | None = None,
        own_data: bool = False,
        batch: int = 5,
        bond: int = 4,
        outputs: int = 3,
        packed: bool = False,
        sparse: bool = False,
    ):
        """``packed``: the backend gets (B, ΣI), the reference always the padded form. ``sparse``: most of x is zero."""
        widths = [2] * topology.sites if widths is None else widths
        module = random_module(
            topology, widths, runs=runs, bond=bond, outputs=outputs, dtype=self.dtype, device=self.device
        )
        generator = torch.Generator().manual_seed(11)
        leading = (runs,) if own_data and runs is not None else ()
        x = torch.randn(*leading, batch, topology.sites, max(widths), generator=generator, dtype=torch.float64)
        if sparse:
            x = x.where(torch.rand(x.shape, generator=generator) < 0.1, 0)
        shape = (batch, outputs) if runs is None else (runs, batch, outputs)
        cotangent = torch.randn(shape, generator=generator, dtype=torch.float64)
        given = pack(x, widths) if packed else x
        found = self.outputs_and_gradients(self.backend, module, given.to(self.device, self.dtype), cotangent)
        exact = module.to("cpu", torch.float64)
        expected = self.outputs_and_gradients("reference", exact, x.to(self.dtype).double(), cotangent)
        if packed:
            expected["x"] = pack(expected["x"], widths)
        for name, want in expected.items():
            got = found[name].double().cpu()
            assert got.shape == want.shape, f"{name}: {tuple(got.shape)} against {tuple(want.shape)}"
            assert got.isfinite().all(), f"{name} is not finite"
            scale = max(1.0, want.abs().max().item()) if want.numel() else 1.0
            worst = (got - want).abs().max().item() if want.numel() else 0.0
            allowed = self.tolerance_at(topology.sites) * scale
            assert worst <= allowed, f"{name}: off by {worst:.2e} (scale {scale:.2e}) for\n{topology}"

    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("sites", [1, 2, 3, 7])
    def test_presets(self, preset, sites):
        self.assert_parity(Topology.preset(preset, sites))

    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("own_data", [False, True])
    def test_runs(self, preset, own_data):
        self.assert_parity(Topology.preset(preset, 5), runs=3, own_data=own_data)

    def test_one_run_keeps_its_axis(self):
        self.assert_parity(Topology.residual(4), runs=1)

    @pytest.mark.parametrize("widths", [[1, 3, 2, 5, 1], [3, 1, 1, 1, 2], [1, 1, 1, 1, 1]])
    def test_ragged_widths(self, widths):
        self.assert_parity(Topology.residual(5), widths=widths)
        self.assert_parity(Topology.residual(5).skip_to_output(3).without_chain(4), widths=widths, runs=2)

    @pytest.mark.parametrize("widths", [[1, 3, 2, 5, 1], [1, 9, 1, 1, 2], [7, 1, 1, 1, 1], [1, 1, 8], [2, 2, 2], [3]])
    def test_packed(self, widths):
        self.assert_packed_parity(widths)

    def assert_packed_parity(self, widths):
        sites = len(widths)
        self.assert_parity(Topology.residual(sites), widths=widths, packed=True)
        if sites == 5:
            mixed = Topology.residual(5).skip_to_output(3).without_chain(4).without_linear(2)
            self.assert_parity(mixed, widths=widths, runs=2, packed=True)
            self.assert_parity(mixed, widths=widths, runs=2, own_data=True, packed=True)

    def test_packed_empty_batch(self):
        self.assert_parity(Topology.residual(4), widths=[1, 6, 2, 1], batch=0, packed=True)

    @pytest.mark.parametrize(
        ("batch", "bond", "outputs"), [(1, 1, 1), (1, 7, 2), (33, 17, 10), (130, 3, 1), (9, 33, 4)]
    )
    def test_sizes(self, batch, bond, outputs):
        self.assert_parity(Topology.residual(4), batch=batch, bond=bond, outputs=outputs)

    def test_empty_batch(self):
        self.assert_parity(Topology.residual(4), batch=0)

    def test_long_chain(self):
        topology = Topology.residual(60).skip_to_output(20, 41).without_chain(7).without_linear(30).without_skip(33)
        self.assert_parity(topology, batch=3)

    def test_random_topologies(self):
        @settings(max_examples=self.examples, deadline=None, derandomize=True, database=None)
        @given(topologies(1, 6), st.sampled_from([None, 1, 2]), st.booleans(), st.data())
        def check(topology, runs, own_data, data):
            widths = data.draw(st.lists(st.integers(1, 3), min_size=topology.sites, max_size=topology.sites))
            self.assert_parity(topology, widths=widths, runs=runs, own_data=own_data)

        check()

    def test_random_packed_widths(self):
        @settings(max_examples=self.examples, deadline=None, derandomize=True, database=None)
        @given(topologies(1, 5), st.sampled_from([None, 2]), st.booleans(), st.data())
        def check(topology, runs, own_data, data):
            widths = data.draw(st.lists(st.sampled_from([1, 2, 9]), min_size=topology.sites, max_size=topology.sites))
            self.assert_parity(topology, widths=widths, runs=runs, own_data=own_data, packed=True)

        check()
