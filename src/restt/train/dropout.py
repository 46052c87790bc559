"""Site dropout: a dropped site is an identity step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from restt._common.seeds import uniform
from restt.topology import Topology


def droppable_sites(topology: Topology) -> tuple[bool, ...]:  # N
    """Sites that may vanish without breaking the chain: those with a full skip. At site N, output is the same as full.

    >>> droppable_sites(Topology.residual(4).without_skip(3))
    (False, True, False, True)
    """
    inner = tuple(skip == "full" for skip in topology.skips[:-1])
    return (False, *inner, topology.ends_with_skip)[: topology.sites]


class SiteDropout:
    """Sets x(n) to 0 with the run's probability p and scales the kept ones by 1/(1-p).

    The output is multilinear in the site vectors and sites drop independently, so its expectation is the output without
    dropout, exactly.
    """

    def __init__(self, topology: Topology, probabilities: Sequence[float], like: Tensor) -> None:
        """``probabilities`` holds one per run; dtype and device are those of ``like``."""
        p = torch.tensor(probabilities, dtype=torch.float64)[:, None]  # (S, 1)
        p = p * torch.tensor(droppable_sites(topology), dtype=torch.float64)  # (S, N)
        self.p = p[:, None].to(like.device, torch.float32)  # (S, 1, N)
        self.scale = (1 / (1 - p))[:, None].to(like)  # (S, 1, N)

    def __call__(
        self,
        x: Tensor,  # (S or 1, B, N, I)
        keys: Tensor,  # (S,)
        offset: int,
    ) -> Tensor:  # (S, B, N, I)
        """``x`` with sites dropped; ``offset`` is the position in the runs' streams."""
        kept = uniform(keys, tuple(x.shape[1:3]), offset) >= self.p
        return x * (kept * self.scale).unsqueeze(-1)
