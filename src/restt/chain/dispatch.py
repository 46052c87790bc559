"""Choice of the backend that contracts a chain, with the reasons against the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from restt._common.compat_torch import in_forward_mode, is_transforming
from restt._common.errors import check_choice
from restt.chain import eager, reference
from restt.chain.cpu import contraction as fused_cpu
from restt.chain.packed import unpack
from restt.chain.precision import Setting, autocast_dtype
from restt.chain.reference import ChainWeights, has_runs, with_runs
from restt.topology import Topology

BACKENDS = ("reference", "eager", "fused_cpu", "fused_cuda")
_SLOWER = {
    "reference": "the equations as they stand, for testing the others",
    "eager": "works everywhere, but step by step",
    "fused_cpu": "slower here",
    "fused_cuda": "slower here",
}

_forced: Setting[str | None] = Setting("backend", None)


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Force one implementation inside a ``with`` block; ``"auto"`` gives the choice back.

    >>> import restt, torch
    >>> model = restt.ResTT(sites=3, feature_dim=2, bond_dim=4, outputs=1)
    >>> x = torch.rand(5, 3, 2)
    >>> with restt.chain.backend("reference"):
    ...     slow = model(x)
    >>> torch.allclose(slow, model(x), atol=1e-6)
    True
    """
    check_choice("backend", name, ("auto", *BACKENDS))
    with _forced.set_to(None if name == "auto" else name):
        yield


def contract(
    x: Tensor,  # (S or 1, B, N, I); with widths (S or 1, B, ΣI)
    weights: ChainWeights,
    topology: Topology,
    widths: tuple[int, ...] = (),
) -> Tensor:  # (S, B, O)
    """The output of the chain, by the forced backend or the one chosen for these inputs.

    A single model may leave the runs axis out, of x, weights and output alike. With the ``widths`` of the sites x is
    packed (packed.py). A forced backend that cannot take the inputs raises a RuntimeError that says why.
    """
    name = _forced.get()
    if name is None:
        name, _ = choose(x, weights, topology)
    elif (problem := unsupported(name, x, weights, topology)) is not None:
        raise RuntimeError(f'the forced chain backend "{name}" cannot take these inputs: {problem}')
    if name == "fused_cpu":
        return fused_cpu.contract(x, weights, topology, widths)
    if name == "fused_cuda":
        output: Tensor = _fused_cuda().contract(x, weights, topology, widths)
        return output
    # Rounded at every site, states would lose more than one product does: autocast is for the output.
    lowered = autocast_dtype(x.device.type) is not None
    with torch.autocast(x.device.type, enabled=False) if lowered else nullcontext():
        if name == "eager":
            return eager.contract(x, weights, topology, widths)
        x = unpack(x, widths) if widths else x
        if has_runs(weights):
            return reference.contract(x, weights, topology)
        return reference.contract(*with_runs(x, weights), topology)[0]


def choose(x: Tensor, weights: ChainWeights, topology: Topology) -> tuple[str, str]:
    """The backend for these inputs, and why.

    >>> import restt, torch
    >>> model = restt.ResTT(sites=3, feature_dim=2, bond_dim=4, outputs=1)
    >>> with restt.chain.backend("auto"):
    ...     choose(torch.rand(1, 5, 3, 2, dtype=torch.bfloat16), model.weights(), model.topology)[0]
    'eager'
    """
    if is_transforming() or in_forward_mode():
        return "eager", "inside a torch.func transform or forward-mode differentiation only plain operations work"
    if x.is_cpu or x.is_cuda:
        fused = "fused_cpu" if x.is_cpu else "fused_cuda"
        missing = unsupported(fused, x, weights, topology)
        if missing is None:
            return fused, "fused kernels were the fastest at every size measured"
        problem = f"{fused} is not available: {missing}"
    else:
        problem = f"there are no fused kernels for {x.device.type}"
    return "eager", problem


def unsupported(name: str, x: Tensor, weights: ChainWeights, topology: Topology) -> str | None:
    """Why a backend cannot take these inputs, or None."""
    if name in ("reference", "eager"):
        return None
    if name == "fused_cuda" and not x.is_cuda and _forced.get() != name:
        return f"it runs on CUDA devices, x is on {x.device}"  # known without importing what it needs
    problem: str | None = (fused_cpu if name == "fused_cpu" else _fused_cuda()).unsupported(x, weights, topology)
    return problem


def _fused_cuda() -> ModuleType:
    """The GPU backend, imported at first use."""
    from restt.chain.cuda import contraction

    return contraction


def explain(
    module: Any,
    x: Tensor,  # what the module takes
) -> str:
    """Name the backend that contracts a module's chain for an input, and why.

    >>> import restt, torch
    >>> model = restt.ResTT(sites=3, feature_dim=2, bond_dim=4, outputs=1)
    >>> print(restt.chain.explain(model, torch.rand(5, 3, 2)))  # doctest: +ELLIPSIS
    N=3 I=2 r=4 B=5 S=1 torch.float32 on cpu: ...
    >>> print(restt.chain.explain(model.bfloat16(), torch.rand(5, 3, 2).bfloat16()))  # doctest: +ELLIPSIS
    N=3 I=2 r=4 B=5 S=1 torch.bfloat16 on cpu: eager
      taken: fused_cpu is not available: it takes float32 and float64, x is torch.bfloat16
    ...
    """
    weights, topology, x = module.weights(), module.topology, module.padded(x)
    runs, _, bond = weights.first.shape
    name, reason = choose(x, weights, topology)
    _, batch, sites, width = x.shape
    lines = [f"N={sites} I={width} r={bond} B={batch} S={runs} {x.dtype} on {x.device}: {name}", f"  taken: {reason}"]
    for other in BACKENDS:
        if other != name:
            problem = unsupported(other, x, weights, topology)
            lines.append(f"  not {other}: {_SLOWER[other] if problem is None else problem}")
    return "\n".join(lines)
