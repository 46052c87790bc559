"""Choice of the backend that contracts a chain, with the reasons against the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor

from restt._common.compat_torch import in_forward_mode, is_transforming
from restt._common.errors import check_choice, check_int
from restt.chain.packed import contract as contract_sites_apart
from restt.chain.packed import unpack
from restt.chain.precision import autocast_dtype
from restt.chain.reference import ChainWeights, has_runs, with_runs
from restt.chain.setting import Setting
from restt.topology import Topology

Contract = Callable[[Tensor, ChainWeights, Topology], Tensor]

# Each is a module with `contract` and, unless it takes everything, `unsupported`; loaded when first asked for.
BACKENDS = ("reference", "eager", "fused_cpu", "fused_cuda")
_FUSED = ("fused_cpu", "fused_cuda")
_SLOWER = {
    "reference": "the equations as they stand, for testing the others",
    "eager": "works everywhere, but step by step",
    "fused_cpu": "slower here",
    "fused_cuda": "slower here",
}

_forced: Setting[str | None] = Setting("backend", None)
_modules: dict[str, ModuleType] = {}


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
    widths: tuple[int, ...] | None = None,
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
    if name in _FUSED:
        if widths is None:  # at once: a small contraction takes no longer than a few calls
            return implementation(name)(x, weights, topology)
        return _contracted(name, x, weights, topology, widths)
    if autocast_dtype(x.device.type) is not None:
        # Rounded at every site, states would lose more than one product does: autocast is for the output.
        with torch.autocast(x.device.type, enabled=False):
            return _plainly_contracted(name, x, weights, topology, widths)
    return _plainly_contracted(name, x, weights, topology, widths)


def _plainly_contracted(
    name: str, x: Tensor, weights: ChainWeights, topology: Topology, widths: tuple[int, ...] | None
) -> Tensor:
    """Contract by a backend of plain operations, which needs the runs axis."""
    if has_runs(weights):
        return _contracted(name, x, weights, topology, widths)
    return _contracted(name, *with_runs(x, weights), topology, widths)[0]


def _contracted(
    name: str, x: Tensor, weights: ChainWeights, topology: Topology, widths: tuple[int, ...] | None
) -> Tensor:
    if widths is not None:
        contract_packed = _packed_implementation(name)
        if contract_packed is not None:
            return contract_packed(x, weights, topology, widths)
        x = unpack(x, widths)
    return implementation(name)(x, weights, topology)


def choose(x: Tensor, weights: ChainWeights, topology: Topology) -> tuple[str, str]:
    """The backend for these inputs, and why.

    >>> import restt, torch
    >>> model = restt.ResTT(sites=3, feature_dim=2, bond_dim=4, outputs=1)
    >>> with restt.chain.backend("auto"):
    ...     choose(torch.rand(1, 5, 3, 2, dtype=torch.bfloat16), model.weights(), model.topology)[0]
    'eager'
    """
    if is_transforming() or in_forward_mode():
        return "reference", "inside a torch.func transform or forward-mode differentiation only plain operations work"
    if x.is_cpu or x.is_cuda:
        fused = "fused_cpu" if x.is_cpu else "fused_cuda"
        missing = _module(fused).unsupported(x, weights, topology)
        if missing is None:
            return fused, "fused kernels were the fastest at every size measured"
        problem = f"{fused} is not available: {missing}"
    else:
        problem = f"there are no fused kernels for {x.device.type}"
    return "eager", problem


def unsupported(name: str, x: Tensor, weights: ChainWeights, topology: Topology) -> str | None:
    """Why a backend cannot take these inputs, or None."""
    if name == "fused_cuda" and not x.is_cuda and _forced.get() != name:
        return f"it runs on CUDA devices, x is on {x.device}"  # known without importing what it needs
    check = getattr(_module(name), "unsupported", None)
    return None if check is None else check(x, weights, topology)


def implementation(name: str) -> Contract:
    """The ``contract`` function of one backend."""
    found: Contract = _module(name).contract
    return found


def _packed_implementation(name: str) -> Callable[[Tensor, ChainWeights, Topology, tuple[int, ...]], Tensor] | None:
    """The function that contracts packed features; None where the backend needs the padded form."""
    if name == "eager":
        return contract_sites_apart
    return getattr(_module(name), "contract_packed", None)


def _module(name: str) -> ModuleType:
    if torch.compiler.is_compiling():
        return _imported(name)  # what changes from call to call, as a cache does, would be traced anew
    if name not in _modules:
        _modules[name] = _imported(name)
    return _modules[name]


def _imported(name: str) -> ModuleType:
    """Import one backend by a statement, which a compiler can follow."""
    if name == "fused_cpu":
        from restt.chain.cpu import contraction as fused_cpu

        return fused_cpu
    if name == "fused_cuda":
        from restt.chain.cuda import contraction as fused_cuda

        return fused_cuda
    if name == "eager":
        from restt.chain import eager

        return eager
    from restt.chain import reference

    return reference


class Contractible(Protocol):
    """A module that :func:`explain` can read."""

    topology: Topology

    def weights(self) -> ChainWeights:
        """Its tensors, with the runs axis in front."""

    def padded(self, x: Tensor) -> Tensor:
        """``x`` as (S or 1, B, N, I); raises where it does not fit."""


def explain(
    module: Contractible | None = None,
    x: Tensor | None = None,  # what the module takes
    *,
    sites: int = 196,
    feature_dim: int = 2,
    bond_dim: int = 20,
    batch: int = 512,
    runs: int = 1,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> str:
    """Name the backend that contracts a chain, and why: for a module and its input, or for sizes.

    >>> import restt, torch
    >>> model = restt.ResTT(sites=3, feature_dim=2, bond_dim=4, outputs=1)
    >>> print(restt.chain.explain(model, torch.rand(5, 3, 2)))  # doctest: +ELLIPSIS
    N=3 I=2 r=4 B=5 S=1 torch.float32 on cpu: ...
    >>> print(restt.chain.explain(sites=100, bond_dim=8, batch=32, dtype=torch.bfloat16))  # doctest: +ELLIPSIS
    N=100 I=2 r=8 B=32 S=1 torch.bfloat16 on cpu: eager
      taken: fused_cpu is not available: it takes float32 and float64, x is torch.bfloat16
    ...
    """
    if (module is None) != (x is None):
        raise TypeError("explain takes a module together with its input x, or sizes alone")
    if module is not None and x is not None:
        weights, topology = module.weights(), module.topology
        x = module.padded(x)
    else:
        numbers = {"sites": sites, "feature_dim": feature_dim, "bond_dim": bond_dim, "runs": runs}
        for name, value in numbers.items():
            check_int(name, value, minimum=1)
        check_int("batch", batch, minimum=0)
        topology = Topology.residual(sites)
        # One number seen as a whole tensor: the choice looks at sizes, types and places only.
        number = torch.zeros((), dtype=dtype, device=device)
        x = number.expand(1, batch, sites, feature_dim)
        core = number.expand(runs, max(0, sites - 2), feature_dim, bond_dim, bond_dim)
        first = number.expand(runs, feature_dim, bond_dim)
        weights = ChainWeights(first, core, core[..., 0, :], first[..., None], first[..., :1], first[:, 0, :, None], 1)
    return _text(x, weights, topology)


def _text(x: Tensor, weights: ChainWeights, topology: Topology) -> str:
    runs, _, bond = weights.first.shape
    name, reason = choose(x, weights, topology)
    _, batch, sites, width = x.shape
    lines = [f"N={sites} I={width} r={bond} B={batch} S={runs} {x.dtype} on {x.device}: {name}", f"  taken: {reason}"]
    for other in BACKENDS:
        if other != name:
            problem = unsupported(other, x, weights, topology)
            lines.append(f"  not {other}: {_SLOWER[other] if problem is None else problem}")
    return "\n".join(lines)
