"""Parts shared by all sweeps: the first site before, the output site after, and higher derivatives.

A *sweep* is the hot loop, the states of sites 2…N-1. Each backend brings its own; the two ends are a handful of
matrix products that autograd handles well. A hand-written backward is not itself differentiable, so where a graph of
the gradient is asked for (``create_graph=True``) the gradient comes from :func:`plain_sweep` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from restt._common.compat_torch import is_batched, is_legacy_batched, is_transforming
from restt.chain.reference import ChainWeights, disconnected_output, has_runs, with_runs
from restt.topology import Topology

# (y(1) (S,B,R), x (N-2, S or 1, B, I), chain or None, linear or None, topology of sites 2…N-1)
#   -> y(N-1) (S,B,R), the sum of the states that leave for the output (S,B,R) or None
Sweep = Callable[[Tensor, Tensor, Tensor | None, Tensor | None, Topology], tuple[Tensor, Tensor | None]]


def contract_with(sweep: Sweep, x: Tensor, weights: ChainWeights, topology: Topology) -> Tensor:
    """The output (S,B,O) for x (S or 1, B, N, I), the inner sites by ``sweep``."""
    # An ellipsis for the batch: torch 2.7 exports a full slice of it as a condition on its size.
    y = x[..., 0, :] @ weights.first
    if topology.sites == 1:
        return y
    leaving = None
    if topology.sites > 2:
        inner = x[..., 1:-1, :].permute(2, 0, 1, 3)
        y, leaving = sweep(y, inner, weights.chain, weights.linear, topology)
    return _output_site(y, leaving, x[..., -1, :], weights, topology)


def contract_sites(
    x: Sequence[Tensor],  # N of (S or 1, B, I), each of its own width
    weights: ChainWeights,
    topology: Topology,
) -> Tensor:  # (S, B, O)
    """The output in plain operations, each site with the weights of its own width."""
    first, last = x[0].shape[-1], x[-1].shape[-1]
    y = x[0] @ weights.first[:, :first]
    if topology.sites == 1:
        return y
    y, leaving = plain_sweep(y, x[1:-1], weights.chain, weights.linear, topology)
    reached = ChainWeights(
        weights.first,
        weights.chain,
        weights.linear,
        None if weights.last_chain is None else weights.last_chain[:, :last],
        None if weights.last_linear is None else weights.last_linear[:, :last],
        weights.last_skip,
        weights.outputs,
    )
    return _output_site(y, leaving, x[-1], reached, topology)


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


def plain_sweep(
    y: Tensor,  # (S, B, R)
    x: Tensor | Sequence[Tensor],  # (N-2, S or 1, B, I), or the sites one by one, each of its own width
    chain: Tensor | None,  # (S, N-2, I, R, R)
    linear: Tensor | None,  # (S, N-2, I, R)
    topology: Topology,
) -> tuple[Tensor, Tensor | None]:
    """The sweep in operations that autograd and torch.func know, to any order of derivative."""
    leaving: Tensor | None = None
    # Unbound, not sliced: the gradient of one unbind is one stack, that of a slice a full-size tensor of zeros.
    sites = x.unbind(0) if isinstance(x, Tensor) else x
    cores = [None] * len(sites) if chain is None else chain.flatten(2, 3).unbind(1)
    entries = [None] * len(sites) if linear is None else linear.unbind(1)
    bond = y.shape[-1]
    for n, (features, core, entry) in enumerate(zip(sites, cores, entries, strict=True)):
        width = features.shape[-1]
        previous, y = y, torch.zeros_like(y)
        if topology.skips[n] == "full":
            y = previous
        elif topology.skips[n] == "output":
            leaving = previous if leaving is None else leaving + previous
        if topology.chains[n]:
            assert core is not None
            y = y + outer(previous, features) @ core[:, : width * bond]
        if topology.linears[n]:
            assert entry is not None
            y = y + features @ entry[:, :width]
    return y, leaving


def wants_plain_operations(grad: Tensor) -> bool:
    """Whether the backward pass that got ``grad`` must be made of plain operations.

    So where a graph of the gradient is asked for, and under the transforms of torch.func and ``is_grads_batched``.
    """
    return torch.is_grad_enabled() or is_transforming() or is_batched(grad) or is_legacy_batched(grad)


def plain_gradients(
    compute: Callable[..., Sequence[Tensor | None]],
    inputs: Sequence[Tensor | None],
    wanted: Sequence[bool],
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The gradients of ``compute(*inputs)`` for the outputs' gradients ``grads``, for use inside a backward.

    ``compute`` runs again in plain operations. With ``create_graph=True`` the results are connected to the inputs and
    to ``grads``, so they can be differentiated in turn.
    """
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # Of aliases: hooks on the caller's own tensors run once, for the gradient that leaves this backward.
        aliases = [None if tensor is None else tensor.view_as(tensor) for tensor in inputs]
        pairs = [
            (output, grad)
            for output, grad in zip(compute(*aliases), grads, strict=True)
            if output is not None and grad is not None and output.requires_grad
        ]
        asked = [alias for alias, want in zip(aliases, wanted, strict=True) if alias is not None and want]
        outputs, cotangents = [output for output, _ in pairs], [grad for _, grad in pairs]
        if pairs:
            options = {"create_graph": create_graph, "materialize_grads": True}
            found = iter(torch.autograd.grad(outputs, asked, cotangents, **options))
        else:  # the topology leads nothing that requires a gradient to an output
            found = iter([torch.zeros_like(alias) for alias in asked])
    return [next(found) if tensor is not None and want else None for tensor, want in zip(inputs, wanted, strict=True)]


def plain_contraction_gradients(
    inputs: Sequence[Tensor | None],  # x (S or 1, B, N, I) or packed, then the six roles of ChainWeights; or without S
    wanted: Sequence[bool],
    grad: Tensor,  # (S, B, O)
    outputs: int,
    topology: Topology,
    widths: Sequence[int] = (),
) -> list[Tensor | None]:
    """:func:`plain_gradients` of the whole contraction, for backends whose one function does all of it.

    With the ``widths`` of the sites x is packed.
    """

    def contract_again(x: Tensor, *roles: Tensor | None) -> tuple[Tensor]:
        weights = ChainWeights._make((*roles, outputs))
        if not has_runs(weights):
            return (output_of(*with_runs(x, weights))[0],)
        return (output_of(x, weights),)

    def output_of(x: Tensor, weights: ChainWeights) -> Tensor:
        if widths:
            return contract_sites(x.split(list(widths), -1), weights, topology)
        return contract_with(plain_sweep, x, weights, topology)

    return plain_gradients(contract_again, inputs, wanted, (grad,))


def needs_gradient(tensors: Sequence[Tensor | None]) -> bool:
    """Whether there will be a backward pass to these tensors."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def contiguous(roles: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The weights as kernels read them."""
    return [None if role is None else role.contiguous() for role in roles]


def outer(
    y: Tensor,  # (S, B, R)
    x: Tensor,  # (S or 1, B, I)
) -> Tensor:  # (S, B, I·R), features slowest, as the cores are stored
    """Outer product x ⊗ y per sample: its product with a core flattened to (I·R, R) is a whole chain step."""
    return (x.unsqueeze(-1) * y.unsqueeze(-2)).flatten(2)
