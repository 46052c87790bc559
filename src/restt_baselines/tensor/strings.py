"""Several plain tensor trains over the same sites, each in an order of its own, on the chain backends.

An input that several trains read is a copy tensor in the language of Glasser, Pancotti and Cirac: classical data can be
copied, so a train over permuted sites is all that is needed. The trains of all runs go through
:func:`restt.chain.contract` as if each were a run, so they cost little more than one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from restt import chain
from restt._common.errors import check_int, check_positive
from restt._common.seeds import run_generator
from restt.chain.reference import ChainWeights
from restt.topology import Topology
from restt_baselines.inputs import with_runs


class Strings(nn.Module):
    """K plain trains over N site vectors, for each of S runs: (B, M, I) or (S, B, M, I) -> (S, K, B, O).

    ``orders`` (K, N) says which of the M sites train k sees, first to last.

    Near the identity: core i is ``share``_i · 1 plus a parameter that starts as noise, so that a step multiplies the
    state by Σ_i share_i x_i and a little more. Site vectors [1 − p, p] with equal shares, or [1, …] with the first
    share alone, make that 1, and however long the train its state starts near (1, 0, …, 0), which ``head`` turns into
    outputs: by default 1 for each. Weight decay draws towards the identity, not towards a train that gives 0.

    >>> trains = Strings(torch.tensor([[0, 1, 2], [2, 1, 0]]), feature_dim=2, bond_dim=3, outputs=4, runs=5, seed=0)
    >>> trains(torch.rand(7, 3, 2)).shape
    torch.Size([5, 2, 7, 4])
    """

    orders: Tensor
    first_start: Tensor
    inner_start: Tensor
    last_start: Tensor

    def __init__(
        self,
        orders: Tensor,  # (K, N)
        feature_dim: int,
        bond_dim: int,
        outputs: int,
        runs: int,
        seed: int,
        *,
        noise: float = 1e-2,
        share: Tensor | None = None,  # (I,)
        head: Tensor | None = None,  # (R, O)
        stream: int = 0,
    ) -> None:
        super().__init__()
        self.runs = check_int("runs", runs, minimum=1)
        bond, outputs = check_int("bond_dim", bond_dim, minimum=1), check_int("outputs", outputs, minimum=1)
        strings, sites = orders.shape
        if sites < 2:
            raise ValueError(f"orders must name at least 2 sites for each train, got {sites}")
        self.topology = Topology.plain(sites)
        self.register_buffer("orders", orders, persistent=False)
        self.first = nn.Parameter(torch.empty(runs, strings, feature_dim, bond))
        self.inner = nn.Parameter(torch.empty(runs, strings, sites - 2, feature_dim, bond, bond))
        self.last = nn.Parameter(torch.empty(runs, strings, feature_dim, bond, outputs))
        identity = torch.eye(bond)
        head = identity[:, :1].expand(bond, outputs) if head is None else head
        by_feature = (torch.ones(feature_dim) if share is None else share).view(-1, 1, 1)
        self.register_buffer("first_start", by_feature[:, 0] * identity[0], persistent=False)
        self.register_buffer("inner_start", by_feature * identity, persistent=False)
        self.register_buffer("last_start", by_feature * head, persistent=False)
        self._draw(seed, check_positive("noise", noise, allow_zero=True), stream)

    @torch.no_grad()
    def _draw(self, seed: int, noise: float, stream: int) -> None:
        """Run k from child k of the seed sequence."""
        for run in range(self.runs):
            generator = run_generator(seed, run, stream)
            for parameter in (self.first, self.inner, self.last):
                parameter[run] = noise * torch.randn(parameter.shape[1:], generator=generator)

    def cores(self) -> tuple[Tensor, Tensor, Tensor]:
        """First (S, K, I, R), inner (S, K, N-2, I, R, R) and last (S, K, I, R, O) cores of all trains."""
        return self.first + self.first_start, self.inner + self.inner_start, self.last + self.last_start

    def forward(self, x: Tensor) -> Tensor:  # (B, M, I) or (S, B, M, I) -> (S, K, B, O)
        features = with_runs(x, self.runs, tuple(x.shape[-2:]))
        walked = features[:, :, self.orders].transpose(1, 2)  # (S or 1, K, B, N, I)
        walked = walked.expand(self.runs, *walked.shape[1:]).flatten(0, 1).contiguous()
        first, inner, last = (core.flatten(0, 1) for core in self.cores())
        weights = ChainWeights(first, inner, None, last, None, None, outputs=last.shape[-1])
        return chain.contract(walked, weights, self.topology).unflatten(0, (self.runs, -1))


def shares(values: Tensor) -> Tensor:  # (…, N) -> (…, N, 2)
    """[1 − p, p] of each column in [0, 1]: site vectors that sum to one.

    >>> shares(torch.tensor([0.25]))
    tensor([[0.7500, 0.2500]])
    """
    return torch.stack([1 - values, values], dim=-1)
