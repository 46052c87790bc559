"""Outputs and every gradient of the fused chain against float64, with fresh memory poisoned, and bit for bit again."""

from __future__ import annotations

import torch

import restt
from gpu.measure import BATCH, DEVICE, OUTPUTS, SITES, Record, features
from restt import Topology

BOUNDS = {"float32": 1e-5, "tf32": 1e-2, "bf16": 6e-2}  # ‖found − exact‖ / ‖exact‖
# A race shows as bits that differ now and then; the interpreter has none.
REPEATS = 6 if DEVICE == "cuda" else 1


def check_cases(tiny: bool) -> list[Record]:
    """Presets, odd topologies, ragged widths, runs, every tile size, one very long chain."""
    mixed = Topology.residual(9).skip_to_output(2, 5, 6).without_chain(4).without_linear(3, 7).without_skip(8)
    dead = Topology.residual(6).without_chain(6).without_linear(6).without_skip(6)
    cases: list[Record] = [
        {"topology": Topology.preset(name, 7), "bond": 20} for name in ("residual", "plain", "linear", "volterra")
    ]
    cases += [{"topology": topology, "bond": bond} for topology in (mixed, dead) for bond in (5, 50)]
    cases += [{"topology": mixed, "bond": 20, "widths": [1, 3, 2, 5, 1, 4, 2, 2, 3], "runs": 2}]
    cases += [{"topology": Topology.residual(2), "bond": 5, "batch": 1}, {"topology": Topology.plain(1), "bond": 5}]
    cases += [{"topology": Topology.residual(6), "bond": 20, "runs": 3, "own_data": True, "outputs": 70}]
    bonds = (1, 16, 33) if tiny else (1, 5, 16, 20, 33, 50, 100, 128, 200, 256)
    cases += [{"topology": Topology.residual(12), "bond": bond, "runs": 2, "batch": 70} for bond in bonds]
    if not tiny:
        cases += [{"topology": mixed, "bond": 200, "runs": 2}]
        for bond in (20, 50, 100, 128):
            cases += [{"topology": Topology.residual(SITES), "bond": bond, "batch": BATCH, "outputs": OUTPUTS}]
        for bond in (20, 50, 100):
            many = {"bond": bond, "batch": BATCH, "runs": 10, "features": False}
            cases += [{"topology": Topology.residual(SITES), **many}]
        cases += [{"topology": Topology.residual(20), "bond": 100, "widths": [8] * 20, "batch": BATCH}]
        cases += [{"topology": Topology.residual(10_000), "bond": 16, "batch": 40}]
    names = ("float32",) if tiny else ("float32", "tf32", "bf16")
    return [{**case, "precision": precision} for case in cases for precision in names]


def check(case: Record) -> Record:
    """Relative error of the output and of every gradient, and whether repeated runs have the same bits."""
    topology, bond, precision = case["topology"], case["bond"], case["precision"]
    runs, batch, outputs = case.get("runs"), case.get("batch", 33), case.get("outputs", 3)
    widths = case.get("widths", [2] * topology.sites)
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills every torch.empty with NaN
    module = restt.ResTT(topology.sites, widths, bond, outputs, topology, runs=runs, device=DEVICE)
    module.reset_parameters(seed=1)
    _poison_absent(module)
    x = features(batch, topology.sites, max(widths), runs if case.get("own_data") else None)
    x.requires_grad_(case.get("features", True))
    shape = (batch, outputs) if runs is None else (runs, batch, outputs)
    cotangent = torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    found = _outputs_and_gradients("fused_cuda", module, x, cotangent, precision)
    same_bits = True
    for _ in range(REPEATS):
        again = _outputs_and_gradients("fused_cuda", module, x, cotangent, precision)
        same_bits &= all(torch.equal(found[name], again[name]) for name in found)
    exact = module.double()
    wide = x.detach().double().requires_grad_(x.requires_grad)
    backend = "reference" if topology.sites <= 12 else "eager"
    expected = _outputs_and_gradients(backend, exact, wide, cotangent.double(), precision)
    errors = {}
    for name, want in expected.items():
        size = want.norm().item()
        errors[name] = (found[name].double() - want).norm().item() / (size if size > 0 else 1.0)
    worst = max((value if value == value else float("inf")) for value in errors.values())
    passed = same_bits and worst <= BOUNDS[precision]
    return {"errors": errors, "worst": worst, "same_bits": same_bits, "passed": passed}


@torch.no_grad()
def _poison_absent(module: restt.ResTT) -> None:
    """Slices of connections the topology leaves out must be ignored whatever they hold."""
    for role, kept in (("chain", module.topology.chains[:-1]), ("linear", module.topology.linears[:-1])):
        parameter = getattr(module, role)
        if parameter is not None:
            stacked = parameter if module.runs is not None else parameter[None]
            stacked[:, [n for n, keep in enumerate(kept) if not keep]] = torch.nan


def _outputs_and_gradients(
    backend: str, module: restt.ResTT, x: torch.Tensor, cotangent: torch.Tensor, precision: str
) -> dict[str, torch.Tensor]:
    """Of the features too where x wants one."""
    module.zero_grad(set_to_none=True)
    x.grad = None
    with restt.chain.backend(backend), restt.chain.precision(precision):
        output = module(x)
    if output.requires_grad:
        output.backward(cotangent)
    found = {"output": output.detach()}
    if x.requires_grad:
        found["x"] = torch.zeros_like(x) if x.grad is None else x.grad
    for name, parameter in module.named_parameters():
        found[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return found
