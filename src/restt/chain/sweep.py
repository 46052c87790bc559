"""What every sweep over sites shares: the first site before it, the output site after it.

A *sweep* is the hot loop, the states of sites 2…N-1. Each backend brings its own; the two ends are a handful of
matrix products that autograd handles well.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from restt.chain.reference import disconnected_output
from restt.chain.weights import ChainWeights
from restt.topology import Topology

# (y(1) (S,B,R), x (N-2, S or 1, B, I), chain or None, linear or None, topology of sites 2…N-1)
#   -> y(N-1) (S,B,R), the sum of the states that leave for the output (S,B,R) or None
Sweep = Callable[[Tensor, Tensor, Tensor | None, Tensor | None, Topology], tuple[Tensor, Tensor | None]]


def contract_with(sweep: Sweep, x: Tensor, weights: ChainWeights, topology: Topology) -> Tensor:
    """The output (S,B,O) for x (S or 1, B, N, I), the inner sites by ``sweep``."""
    y = x[:, :, 0] @ weights.first
    if topology.sites == 1:
        return y
    leaving = None
    if topology.sites > 2:
        inner = x[:, :, 1:-1].permute(2, 0, 1, 3)
        y, leaving = sweep(y, inner, weights.chain, weights.linear, topology)
    return _output_site(y, leaving, x[:, :, -1], weights, topology)


def _output_site(
    y: Tensor,  # (S, B, R), y(N-1)
    leaving: Tensor | None,  # (S, B, R)
    x: Tensor,  # (S or 1, B, I)
    weights: ChainWeights,
    topology: Topology,
) -> Tensor:  # (S, B, O)
    terms: list[Tensor] = []
    if topology.chains[-1]:
        assert weights.last_chain is not None
        product = outer(y, x)
        terms.append(product @ weights.last_chain.flatten(1, 2))
    if topology.linears[-1]:
        assert weights.last_linear is not None
        terms.append(x @ weights.last_linear)
    if topology.ends_with_skip:
        leaving = y if leaving is None else leaving + y
    if leaving is not None:
        assert weights.last_skip is not None
        terms.append(leaving @ weights.last_skip)
    if not terms:
        return disconnected_output(y, weights.outputs)
    output = terms[0]
    for term in terms[1:]:
        output = output + term
    return output.expand(y.shape[0], -1, -1)


def outer(
    y: Tensor,  # (S, B, R)
    x: Tensor,  # (S or 1, B, I)
) -> Tensor:  # (S, B, I·R), features slowest, as the cores are stored
    """x ⊗ y per sample: one matrix product with a core flattened to (I·R, R) then does a whole chain step."""
    return (x.unsqueeze(-1) * y.unsqueeze(-2)).flatten(2)
