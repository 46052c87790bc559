"""The chain in plain operations of torch, on any device and type; derivatives of any order by autograd.

Forming A(n) for every sample would need B·R² memory per site. Instead each step is one product of the (B, I·R) outer
product x ⊗ y with the core. README.md beside this file has the derivation.

A backward of the fused backends, written by hand, is not itself differentiable. Where a graph of the gradient is asked
for (``create_graph=True``) theirs comes from here too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from restt._common.compat_torch import is_batched, is_legacy_batched, is_transforming
from restt.chain.reference import ChainWeights, disconnected_output
from restt.topology import Topology


def contract(
    x: Tensor,  # (S or 1, B, N, I), or packed (S or 1, B, ΣI)
    weights: ChainWeights,
    topology: Topology,
    widths: Sequence[int] = (),  # of the sites where x is packed
) -> Tensor:  # (S, B, O)
    """The output of Algorithm 1, of packed features each site with the weights of its own width.

    x, weights and output may all be without the runs axis.
    """
    # Unbound, not sliced: the gradient of one unbind is one stack, that of a slice a full-size tensor of zeros.
    sites = x.split(list(widths), -1) if widths else x.unbind(-2)
    y = sites[0] @ weights.first[..., : sites[0].shape[-1], :]
    if topology.sites == 1:
        return y
    leaving: Tensor | None = None
    cores = None if weights.chain is None else weights.chain.flatten(-3, -2).unbind(-3)
    entries = None if weights.linear is None else weights.linear.unbind(-3)
    bond = y.shape[-1]
    for n, features in enumerate(sites[1:-1]):
        width = features.shape[-1]
        previous, y = y, torch.zeros_like(y)
        if topology.skips[n] == "full":
            y = previous
        elif topology.skips[n] == "output":
            leaving = previous if leaving is None else leaving + previous
        if topology.chains[n]:
            assert cores is not None
            y = y + outer(previous, features) @ cores[n][..., : width * bond, :]
        if topology.linears[n]:
            assert entries is not None
            y = y + features @ entries[n][..., :width, :]
    return _output_site(y, leaving, sites[-1], weights, topology)


def _output_site(
    y: Tensor,  # (S, B, R), y(N-1)
    leaving: Tensor | None,  # (S, B, R)
    x: Tensor,  # (S or 1, B, I)
    weights: ChainWeights,
    topology: Topology,
) -> Tensor:  # (S, B, O)
    terms: list[Tensor] = []
    width = x.shape[-1]
    if topology.chains[-1]:
        assert weights.last_chain is not None
        terms.append(outer(y, x) @ weights.last_chain[..., :width, :, :].flatten(-3, -2))
    if topology.linears[-1]:
        assert weights.last_linear is not None
        terms.append(x @ weights.last_linear[..., :width, :])
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
    return output


def wants_plain_operations(grad: Tensor) -> bool:
    """Whether the backward pass that got ``grad`` must be made of plain operations.

    True with ``create_graph=True``, under the transforms of torch.func, and with ``is_grads_batched``.
    """
    return torch.is_grad_enabled() or is_transforming() or is_batched(grad) or is_legacy_batched(grad)


def gradients(
    inputs: Sequence[Tensor | None],  # x (S or 1, B, N, I) or packed, then the six roles of ChainWeights; or without S
    wanted: Sequence[bool],
    grad: Tensor,  # (S, B, O)
    outputs: int,
    topology: Topology,
    widths: Sequence[int],
) -> list[Tensor | None]:
    """Gradients of the contraction, computed again in plain operations, for use inside a backward.

    With ``create_graph=True`` they are connected to the inputs and to ``grad``, so they can be differentiated in turn.
    """
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # Of aliases: hooks on the caller's own tensors run once, for the gradient that leaves this backward.
        aliases = [None if tensor is None else tensor.view_as(tensor) for tensor in inputs]
        x, *roles = aliases
        assert x is not None
        output = contract(x, ChainWeights._make((*roles, outputs)), topology, widths)
        leaves = [alias for alias, want in zip(aliases, wanted, strict=True) if alias is not None and want]
        if output.requires_grad:
            options = {"create_graph": create_graph, "materialize_grads": True}
            computed = iter(torch.autograd.grad(output, leaves, grad, **options))
        else:  # the topology leads nothing that requires a gradient to an output
            computed = iter([torch.zeros_like(alias) for alias in leaves])
    return [
        next(computed) if tensor is not None and want else None for tensor, want in zip(inputs, wanted, strict=True)
    ]


def outer(
    y: Tensor,  # (S, B, R)
    x: Tensor,  # (S or 1, B, I)
) -> Tensor:  # (S, B, I·R), features slowest, as the cores are stored
    """Outer product x ⊗ y per sample: its product with a core flattened to (I·R, R) is a whole chain step."""
    return (x.unsqueeze(-1) * y.unsqueeze(-2)).flatten(-2)
