"""The chain in plain torch with a hand-derived backward (paper, Sec. III-C), on any device; derivatives of any order.

Forming A(n) for every sample would need B·R² memory per site. Instead each step is one product of the (B, I·R) outer
product x ⊗ y with the core, the backward sweep is one product per site, and all weight gradients come from one
batched product over the sites afterwards. README.md beside this file has the derivation.

A hand-written backward, here or in a kernel, is not itself differentiable. Where a graph of the gradient is asked for
(``create_graph=True``) the gradient comes from :func:`plain_contraction` instead, through autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from restt._common.compat_torch import is_batched, is_legacy_batched, is_transforming
from restt.chain.reference import ChainWeights, disconnected_output, has_runs, with_runs
from restt.topology import Topology

# The batched weight product reads x ⊗ y of many sites at once; this bounds the size of that scratch.
_SCRATCH_ELEMENTS = 16 * 1024 * 1024


def contract(
    x: Tensor,  # (S or 1, B, N, I), or packed (S or 1, B, ΣI)
    weights: ChainWeights,
    topology: Topology,
    widths: Sequence[int] = (),  # of the sites where x is packed
) -> Tensor:  # (S, B, O)
    """The output of Algorithm 1."""
    if widths or torch.compiler.is_compiling():
        # What is traced of a hand-written backward would take the states for constants in derivatives of derivatives.
        return plain_contraction(x, weights, topology, widths)
    y, leaving = x[:, :, 0] @ weights.first, None
    if topology.sites == 1:
        return y
    if topology.sites > 2:
        inner = x[:, :, 1:-1].permute(2, 0, 1, 3).contiguous()
        y, leaving = _Sweep.apply(y, inner, weights.chain, weights.linear, topology)
    return _output_site(y, leaving, x[:, :, -1], weights, topology)


def plain_contraction(x: Tensor, weights: ChainWeights, topology: Topology, widths: Sequence[int] = ()) -> Tensor:
    """:func:`contract` in operations that autograd and torch.func know, each site with the weights of its own width."""
    sites = x.split(list(widths), -1) if widths else x.unbind(-2)
    y = sites[0] @ weights.first[:, : sites[0].shape[-1]]
    if topology.sites == 1:
        return y
    y, leaving = plain_sweep(y, sites[1:-1], weights.chain, weights.linear, topology)
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
        terms.append(outer(y, x) @ weights.last_chain[:, :width].flatten(1, 2))
    if topology.linears[-1]:
        assert weights.last_linear is not None
        terms.append(x @ weights.last_linear[:, :width])
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
    """y(N-1), and the sum of the states that leave for the output, in operations that autograd and torch.func know."""
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


class _Sweep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, x: Tensor, chain: Tensor | None, linear: Tensor | None, topology: Topology
    ) -> tuple[Tensor, Tensor | None]:
        states = y.new_empty(len(x) + 1, *y.shape)
        states[0] = y
        if linear is None:
            states[1:].zero_()
        else:
            torch.matmul(x, _only_used(linear, topology.linears[:-1]).transpose(0, 1), out=states[1:])
        leaving = torch.zeros_like(y) if topology.has_output_skip else None
        for n in range(len(x)):
            previous, state = states[n], states[n + 1]
            if topology.skips[n] == "full":
                state += previous
            elif topology.skips[n] == "output":
                assert leaving is not None
                leaving += previous
            if topology.chains[n]:
                assert chain is not None
                state.baddbmm_(outer(previous, x[n]), chain[:, n].flatten(1, 2))
        ctx.save_for_backward(y, x, chain, linear, states)
        ctx.topology = topology
        return states[-1].clone(), leaving

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_leaving: Tensor | None) -> tuple[Tensor | None, ...]:
        y, x, chain, linear, states = ctx.saved_tensors
        topology: Topology = ctx.topology
        if wants_plain_operations(grad):
            sweep_again = partial(plain_sweep, topology=topology)
            wanted, grads_of_outputs = ctx.needs_input_grad[:4], (grad, grad_leaving)
            return *plain_gradients(sweep_again, (y, x, chain, linear), wanted, grads_of_outputs), None
        sites, _, batch, width = x.shape
        runs, bond = grad.shape[0], grad.shape[-1]
        grads = torch.empty_like(states[1:])  # (N-2, S, B, R): dL/dy(n) of the sites' outputs
        grad_x = x.new_zeros(sites, runs, batch, width) if ctx.needs_input_grad[1] else None
        for n in reversed(range(sites)):
            grads[n] = grad
            before = grad if topology.skips[n] == "full" else torch.zeros_like(grad)
            if topology.skips[n] == "output" and grad_leaving is not None:
                before = grad_leaving
            if topology.chains[n]:
                back = (grads[n] @ chain[:, n].flatten(1, 2).transpose(1, 2)).view(runs, batch, width, bond)
                before = before + torch.einsum("sbik,sbi->sbk", back, x[n].expand(runs, -1, -1))
                if grad_x is not None:
                    grad_x[n] = torch.einsum("sbik,sbk->sbi", back, states[n])
            grad = before
        grad_chain = grad_linear = None
        if chain is not None and ctx.needs_input_grad[2]:
            grad_chain = _chain_gradient(x, states[:-1], grads)
            _clear_unused(grad_chain, topology.chains[:-1])
        if linear is not None:
            if ctx.needs_input_grad[3]:
                grad_linear = torch.matmul(x.transpose(-1, -2), grads).transpose(0, 1)
                _clear_unused(grad_linear, topology.linears[:-1])
            if grad_x is not None:
                used = _only_used(linear, topology.linears[:-1])
                grad_x += torch.matmul(grads, used.transpose(0, 1).transpose(-1, -2))
        if grad_x is not None and x.shape[1] != runs:
            grad_x = grad_x.sum(dim=1, keepdim=True)
        return grad, grad_x, grad_chain, grad_linear, None


def _chain_gradient(
    x: Tensor,  # (N-2, S or 1, B, I)
    states: Tensor,  # (N-2, S, B, R), y(n-1)
    grads: Tensor,  # (N-2, S, B, R), dL/dy(n)
) -> Tensor:  # (S, N-2, I, R, R)
    sites, runs, batch, bond = states.shape
    width = x.shape[-1]
    gradient = states.new_empty(runs, sites, width, bond, bond)
    at_once = max(1, _SCRATCH_ELEMENTS // max(1, runs * batch * bond))
    for start in range(0, sites, at_once):
        chunk = slice(start, start + at_once)
        for i in range(width):
            scaled = states[chunk] * x[chunk, ..., i : i + 1]
            gradient[:, chunk, i] = torch.matmul(scaled.transpose(-1, -2), grads[chunk]).transpose(0, 1)
    return gradient


def _only_used(weights: Tensor, used: tuple[bool, ...]) -> Tensor:
    """The stacked weights (S, N-2, …) with the unused sites' slices zeroed."""
    if all(used):
        return weights
    keep = torch.tensor(used, device=weights.device).view(1, -1, *[1] * (weights.dim() - 2))
    return weights.where(keep, 0)


def _clear_unused(gradient: Tensor, used: tuple[bool, ...]) -> None:
    for n, keep in enumerate(used):
        if not keep:
            gradient[:, n] = 0


def wants_plain_operations(grad: Tensor) -> bool:
    """Whether the backward pass that got ``grad`` must be made of plain operations.

    True with ``create_graph=True``, under the transforms of torch.func, and with ``is_grads_batched``.
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
        leaves = [alias for alias, want in zip(aliases, wanted, strict=True) if alias is not None and want]
        outputs, cotangents = [output for output, _ in pairs], [grad for _, grad in pairs]
        if pairs:
            options = {"create_graph": create_graph, "materialize_grads": True}
            gradients = iter(torch.autograd.grad(outputs, leaves, cotangents, **options))
        else:  # the topology leads nothing that requires a gradient to an output
            gradients = iter([torch.zeros_like(alias) for alias in leaves])
    return [
        next(gradients) if tensor is not None and want else None for tensor, want in zip(inputs, wanted, strict=True)
    ]


def plain_contraction_gradients(
    inputs: Sequence[Tensor | None],  # x (S or 1, B, N, I) or packed, then the six roles of ChainWeights; or without S
    wanted: Sequence[bool],
    grad: Tensor,  # (S, B, O)
    outputs: int,
    topology: Topology,
    widths: Sequence[int],
) -> list[Tensor | None]:
    """:func:`plain_gradients` of the whole contraction, for backends whose one function does all of it."""

    def contract_again(x: Tensor, *roles: Tensor | None) -> tuple[Tensor]:
        weights = ChainWeights._make((*roles, outputs))
        if not has_runs(weights):
            return (plain_contraction(*with_runs(x, weights), topology, widths)[0],)
        return (plain_contraction(x, weights, topology, widths),)

    return plain_gradients(contract_again, inputs, wanted, (grad,))


def outer(
    y: Tensor,  # (S, B, R)
    x: Tensor,  # (S or 1, B, I)
) -> Tensor:  # (S, B, I·R), features slowest, as the cores are stored
    """Outer product x ⊗ y per sample: its product with a core flattened to (I·R, R) is a whole chain step."""
    return (x.unsqueeze(-1) * y.unsqueeze(-2)).flatten(2)
