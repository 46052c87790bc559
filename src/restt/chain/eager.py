"""The sweep in plain torch with a hand-derived backward (paper, Sec. III-C), on any device.

Forming A(n) for every sample would need B·R² memory per site. Instead each step is one product of the (B, I·R) outer
product x ⊗ y with the core, the backward sweep is one product per site, and all weight gradients come from one
batched product over the sites afterwards. README.md beside this file has the derivation.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from restt.chain.reference import ChainWeights
from restt.chain.sweep import contract_with, outer, plain_gradients, plain_sweep, wants_plain_operations
from restt.topology import Topology

# The batched weight product reads x ⊗ y of many sites at once; this bounds what that scratch may hold.
_SCRATCH_ELEMENTS = 16 * 1024 * 1024


def contract(x: Tensor, weights: ChainWeights, topology: Topology) -> Tensor:
    """The output (S,B,O) for x (S or 1, B, N, I)."""
    return contract_with(sweep, x, weights, topology)


def sweep(
    y: Tensor,  # (S, B, R)
    x: Tensor,  # (N-2, S or 1, B, I)
    chain: Tensor | None,  # (S, N-2, I, R, R)
    linear: Tensor | None,  # (S, N-2, I, R)
    topology: Topology,
) -> tuple[Tensor, Tensor | None]:
    """y(N-1) and the sum of the states that leave for the output."""
    if torch.compiler.is_compiling():
        # What is traced of a hand-written backward would take the states for constants in derivatives of derivatives.
        return plain_sweep(y, x, chain, linear, topology)
    last, leaving = _Sweep.apply(y, x.contiguous(), chain, linear, topology)
    return last, leaving


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
