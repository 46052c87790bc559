"""Says which implementation of the contraction is taken, and why not the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from restt._common.errors import check_int
from restt.chain.dispatch import BACKENDS, choose, unsupported
from restt.chain.weights import ChainWeights
from restt.topology import Topology

if TYPE_CHECKING:
    from restt.module import ResTT

_SLOWER = {
    "reference": "the equations as they stand, for testing the others",
    "eager": "works everywhere, but step by step",
    "tree": "pays only for few samples of a long chain where nothing compiled is available",
    "fused_cpu": "slower here",
    "fused_cuda": "slower here",
}


def explain(
    module: ResTT | None = None,
    x: Tensor | None = None,  # (B, N, I) or (S, B, N, I)
    *,
    sites: int = 196,
    feature_dim: int = 2,
    bond_dim: int = 20,
    batch: int = 512,
    runs: int = 1,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> str:
    """Which backend contracts the chain, and why: for a module and its input, or for sizes.

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
        module._check_input(x)
        weights, topology = module.weights(), module.topology
        x = x.unsqueeze(0) if x.dim() == 3 else x
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
