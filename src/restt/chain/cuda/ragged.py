"""The fused GPU chain on packed features (S or 1, B, ΣI): one step per feature that a site has.

The sweeps read from a table which site a packed column belongs to. Only the used cores are packed for them, so states,
features, operands and products cost the sum of the widths. The gradients have the weights' padded shape; beyond a
site's width they are zeros, written once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from restt.chain.cuda.launch import Layout, head_tile, round_up, sweep_launch, weight_launch
from restt.chain.cuda.parts import (
    block_of,
    device_flags,
    end_features,
    head_weight_gradients,
    operand,
    or_else,
    sweep_constants,
)
from restt.chain.reference import ChainWeights, role_tensors
from restt.chain.sweep import contiguous, plain_contraction_gradients, wants_plain_operations
from restt.topology import Topology


def contract(x: Tensor, weights: ChainWeights, topology: Topology, widths: tuple[int, ...], precision: str) -> Tensor:
    """The output (S,B,O) for a chain of at least two sites whose cores fit on chip."""
    tensors = [tensor for tensor in (x, *role_tensors(weights)) if tensor is not None]
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    output: Tensor = _Chain.apply(x, *role_tensors(weights), weights.outputs, topology, widths, precision, keep)
    return output


@lru_cache(maxsize=256)
def column_table(widths: tuple[int, ...], device: torch.device) -> Tensor:  # (columns of the inner sites,) int32
    """Of every packed column of the inner sites: 2 · (site · max I + feature) + (whether it is its site's last).

    >>> column_table((4, 1, 3, 1), torch.device("cpu")).tolist()
    [1, 8, 10, 13]
    """
    widest = max(widths)
    entries = [
        2 * (site * widest + feature) + (feature == width - 1)
        for site, width in enumerate(widths[1:-1])
        for feature in range(width)
    ]
    return torch.tensor(entries or [0], dtype=torch.int32, device=device)  # a kernel may look at the first entry


class _Ragged:
    """Sizes and launch arguments that both passes share."""

    def __init__(
        self, x: Tensor, roles: list[Tensor | None], outputs: int, topology: Topology, widths: tuple[int, ...]
    ) -> None:
        first, self.chain, self.linear, self.last_chain, self.last_linear, self.last_skip = contiguous(roles)
        assert first is not None
        self.x, self.first, self.outputs, self.topology = x, first, outputs, topology
        self.runs, self.width, self.bond = first.shape
        self.batch, self.inner, self.columns = x.shape[1], topology.sites - 2, round_up(x.shape[1], 16)
        self.first_width, self.last_width, self.steps = widths[0], widths[-1], sum(widths[1:-1])
        self.table = column_table(widths, x.device)
        self.flags = device_flags(topology.connections, x.device)
        self.strides = [x.stride(0) if len(x) > 1 else 0, x.stride(1), 0, x.stride(2)]

    @property
    def head(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """What the last site's features reach of W(N,1) and W(N,2), and W(N,3)."""
        reached = [
            None if role is None else role[:, : self.last_width].contiguous()
            for role in (self.last_chain, self.last_linear)
        ]
        return reached[0], reached[1], self.last_skip

    def constants(self, layout: Layout, *, reads_states: bool = False) -> tuple[dict[str, Any], Any]:
        """What both sweeps are compiled and launched with; steps are single features."""
        launch = sweep_launch(layout, 1, self.runs, self.batch, reads_states=reads_states)
        return {
            "I": self.width, "BOND": self.bond, "R": layout.tile, "LD": layout.ld, "BN": launch.columns,
            "OT": head_tile(self.outputs), "PART": 1, "STAGES": launch.stages, "PRECISION": layout.precision,
            "TMA": launch.tma, "num_warps": launch.warps, "num_stages": 1, **sweep_constants(self.topology, layout),
            "p_table": self.table, "steps": self.steps, "first_width": self.first_width,
            "last_width": self.last_width, "RAGGED": True,
        }, launch  # fmt: skip

    def pack(self, layout: Layout, keep: bool) -> tuple[Tensor | None, Tensor | None]:
        """The used cores (S · columns, R, LD) as the forward and, if ``keep``, the backward sweep read them."""
        from restt.chain.cuda.gradients import pack_cores

        if self.chain is None or self.steps == 0:
            return None, None
        shape = (self.runs * self.steps, self.bond, layout.ld)
        forward = torch.empty(shape, dtype=layout.dtype, device=self.x.device)
        backward = torch.empty_like(forward) if keep else None
        tile = 32
        across = -(-layout.ld // tile)
        pack_cores[(self.runs * self.steps, across, across)](
            forward, or_else(backward, forward), self.chain, forward, BOND=self.bond, LD=layout.ld,
            FORWARD_LD=layout.ld, T=tile, BACKWARD=keep, FOLDED=False, p_table=self.table, steps=self.steps,
            per_run=self.inner * self.width, RAGGED=True, num_warps=4,
        )  # fmt: skip
        return forward, backward


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *given: Any) -> Tensor:
        from restt.chain.cuda.forward import forward_sweep

        *roles, outputs, topology, widths, precision, keep = given
        ragged, layout = _Ragged(x, roles, outputs, topology, widths), Layout(roles[0].shape[-1], precision)
        constants, launch = ragged.constants(layout)
        shape = (ragged.runs, ragged.bond, ragged.columns)
        states = x.new_empty((topology.sites - 1, *shape)) if keep else None
        last = x.new_empty(shape) if states is None else states[-1]
        leaving = x.new_empty(shape) if topology.has_output_skip else last
        output = x.new_empty((ragged.runs, ragged.batch, outputs))
        core, kept_core = ragged.pack(layout, keep)
        forward_sweep[-(-ragged.columns // launch.columns), ragged.runs](
            output, or_else(states, last), last, leaving, x, ragged.first,
            operand(core, block_of(layout, launch), last), or_else(ragged.linear, last), ragged.flags,
            or_else(ragged.last_chain, last), or_else(ragged.last_linear, last), or_else(ragged.last_skip, last),
            ragged.inner, ragged.batch, ragged.columns, ragged.runs, *ragged.strides, outputs,
            SAVE=keep, LAST_LINEAR=ragged.last_linear is not None, **constants,
        )  # fmt: skip
        if keep:
            ctx.save_for_backward(x, *roles, kept_core, states, leaving)
            ctx.settings = outputs, topology, widths, precision
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, core, states, leaving = ctx.saved_tensors
        outputs, topology, widths, precision = ctx.settings
        wanted = ctx.needs_input_grad[: len(inputs)]
        if wants_plain_operations(grad_output):
            again = plain_contraction_gradients(inputs, wanted, grad_output, outputs, topology, widths)
            return *again, None, None, None, None, None
        x, *roles = inputs
        grad_output = grad_output.contiguous()
        ragged, layout = _Ragged(x, roles, outputs, topology, widths), Layout(roles[0].shape[-1], precision)
        grads = torch.empty_like(states)
        grad_x = x.new_empty((ragged.runs, *x.shape[1:])) if wanted[0] else None
        _sweep_back(ragged, layout, core, states, grads, grad_output, grad_x)
        of_inner = _weight_gradients(ragged, layout, states, grads, wanted[1:4])
        of_head = _head_gradients(ragged, layout, states[-1], leaving, grad_output, wanted[4:])
        if grad_x is not None:
            ends = grad_x[:, :, : widths[0]], grad_x[:, :, -widths[-1] :]
            first, (last_chain, last_linear, _) = ragged.first[:, : widths[0]], ragged.head
            end_features(*ends, first, last_chain, last_linear, states[-1], grads[0], grad_output)
            if len(x) != ragged.runs:
                grad_x = grad_x.sum(dim=0, keepdim=True)
        return grad_x, *of_inner, *of_head, None, None, None, None, None


def _sweep_back(
    ragged: _Ragged,
    layout: Layout,
    core: Tensor | None,
    states: Tensor,  # (N-1, S, R, columns)
    grads: Tensor,  # (N-1, S, R, columns), filled
    grad_output: Tensor,  # (S, B, O)
    grad_x: Tensor | None,  # (S, B, ΣI), its inner sites filled
) -> None:
    from restt.chain.cuda.backward import backward_sweep

    constants, launch = ragged.constants(layout, reads_states=grad_x is not None)
    backward_sweep[-(-ragged.columns // launch.columns), ragged.runs](
        grads, or_else(grad_x, grads), grad_output, states, ragged.x, operand(core, block_of(layout, launch), grads),
        or_else(ragged.linear, grads), ragged.flags, or_else(ragged.last_chain, grads),
        or_else(ragged.last_skip, grads), ragged.inner, ragged.batch, ragged.columns, ragged.runs,
        ragged.topology.sites, *ragged.strides, ragged.outputs, WANT_X=grad_x is not None, **constants,
    )  # fmt: skip


def _weight_gradients(
    ragged: _Ragged, layout: Layout, states: Tensor, grads: Tensor, wanted: tuple[bool, ...]
) -> list[Tensor | None]:
    """Those of W(1), W(n,1) and W(n,2)."""
    from restt.chain.cuda.gradients import weight_gradients

    made = [
        torch.zeros_like(role) if role is not None and want else None
        for role, want in zip((ragged.first, ragged.chain, ragged.linear), wanted, strict=True)
    ]
    grad_first, grad_chain, grad_linear = made
    if grad_first is None and grad_chain is None and grad_linear is None:
        return made
    launch = weight_launch(layout)
    across, down = -(-ragged.bond // launch.columns), -(-ragged.bond // launch.rows)
    grid = (ragged.first_width + ragged.steps, ragged.runs, across * (1 if grad_chain is None else down))
    weight_gradients[grid](
        *(or_else(part, states) for part in (grad_chain, grad_linear, grad_first)), states, grads, ragged.x,
        ragged.flags, ragged.inner, ragged.batch, ragged.columns, ragged.runs, *ragged.strides,
        I=ragged.width, BOND=ragged.bond, K=launch.rows, L=launch.columns, BB=launch.batch, STAGES=launch.stages,
        PRECISION=layout.precision, CORE=grad_chain is not None,
        ENTRY=(grad_first is not None) + 2 * (grad_linear is not None), num_warps=launch.warps, num_stages=1,
        p_table=ragged.table, first_width=ragged.first_width, RAGGED=True,
    )  # fmt: skip
    return made


def _head_gradients(
    ragged: _Ragged, layout: Layout, last: Tensor, leaving: Tensor, grad_output: Tensor, wanted: tuple[bool, ...]
) -> list[Tensor | None]:
    """Those of W(N,1), W(N,2) and W(N,3)."""
    x = ragged.x[:, :, -ragged.last_width :]
    found = head_weight_gradients(x, ragged.head, last, leaving, grad_output, layout, wanted)
    roles = (ragged.last_chain, ragged.last_linear, ragged.last_skip)
    return [
        None if gradient is None or role is None else _padded(gradient, role)
        for gradient, role in zip(found, roles, strict=True)
    ]


def _padded(gradient: Tensor, like: Tensor) -> Tensor:
    """The gradient of a role's used part as that of the role."""
    if gradient.shape == like.shape:
        return gradient
    padded = torch.zeros_like(like)
    padded[:, : gradient.shape[1]] = gradient
    return padded
