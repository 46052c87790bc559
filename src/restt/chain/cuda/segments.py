"""The fused GPU chain with few states kept: what is between them is computed again, by the same kernels.

The forward pass keeps the state before every segment. The backward pass goes through *stretches* of a few segments from
the end: it replays a stretch's segments side by side, each from its own state, then sweeps back over the whole stretch
and takes the weight gradients of its sites. A sweep is bound by its steps one after the other, so that k segments
replayed at once cost a k-th of another forward pass where the batch alone does not fill the GPU. Cores are packed
stretch by stretch too: beside the weights and their gradients nothing grows with N but the kept states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from restt.chain.cuda.calls import ALIGNMENT
from restt.chain.cuda.launch import PROCESSORS, Layout, head_tile, round_up, sweep_launch, weight_launch
from restt.chain.cuda.parts import (
    block_of,
    device_flags,
    end_features,
    head_weight_gradients,
    is_folded,
    operand,
    or_else,
    sweep_constants,
)
from restt.chain.reference import ChainWeights, role_tensors
from restt.chain.sweep import contiguous, plain_contraction_gradients, wants_plain_operations
from restt.topology import Topology

# More segments at once save ever less time, and each takes memory like the kept states.
_SEGMENTS_AT_ONCE = 4


def contract(x: Tensor, weights: ChainWeights, topology: Topology, precision: str, length: int) -> Tensor:
    """The output (S,B,O) for x (S or 1, B, N, I), keeping one in ``length`` states for the backward pass."""
    output: Tensor = _Chain.apply(x, *role_tensors(weights), weights.outputs, topology, precision, length)
    return output


@dataclass(frozen=True)
class _Stretch:
    """Inner sites start…stop-1, counted from 0, the paper's site 2."""

    start: int
    stop: int
    inner: int

    @property
    def count(self) -> int:
        return self.stop - self.start

    @property
    def is_first(self) -> bool:
        return self.start == 0

    @property
    def is_last(self) -> bool:
        return self.stop == self.inner

    def of(self, stacked: Tensor | None) -> Tensor | None:
        """Its slice of weights (S, N-2, …)."""
        return None if stacked is None else stacked[:, self.start : self.stop].contiguous()


class _Sweeper:
    """Launches the kernels over stretches of one chain."""

    def __init__(
        self, x: Tensor, roles: list[Tensor | None], outputs: int, topology: Topology, precision: str, length: int
    ) -> None:
        first, self.chain, self.linear, self.last_chain, self.last_linear, self.last_skip = contiguous(roles)
        assert first is not None
        self.x, self.first, self.outputs, self.topology, self.length = x, first, outputs, topology, length
        self.runs, self.width, self.bond = first.shape
        self.batch, self.sites = x.shape[1:3]
        self.inner, self.columns = self.sites - 2, round_up(self.batch, 16)
        self.layout = Layout(self.bond, precision)
        self.folded = is_folded(topology, self.layout)
        self.flags = device_flags(topology.connections, x.device)
        self.strides = [x.stride(0) if len(x) > 1 else 0, *x.stride()[1:]]
        self.shared = {
            "I": self.width, "BOND": self.bond, "LD": self.layout.ld, "OT": head_tile(outputs),
            "PRECISION": precision, "num_stages": 1, **sweep_constants(topology, self.layout),
        }  # fmt: skip

    @cached_property
    def stretch_length(self) -> int:
        """How many sites are replayed at once: whole segments."""
        launch = sweep_launch(self.layout, self.width, self.runs, self.batch)
        programs = self.runs * -(-self.columns // launch.columns)
        at_once = 1 if self.layout.is_wide else max(1, min(_SEGMENTS_AT_ONCE, PROCESSORS // programs))
        return min(at_once * self.length, self.inner)

    def stretches(self) -> Iterator[_Stretch]:
        """All of them, from the first."""
        for start in range(0, self.inner, self.stretch_length):
            yield _Stretch(start, min(start + self.stretch_length, self.inner), self.inner)

    def states(self, count: int) -> Tensor:
        """Room for some states."""
        return self.first.new_empty((count, self.runs, self.bond, self.columns))

    def packed(self, stretch: _Stretch, keep: bool) -> tuple[Tensor | None, Tensor | None]:
        """The stretch's cores as the forward and, if ``keep``, the backward sweep read them."""
        from restt.chain.cuda.gradients import pack_cores

        chain = stretch.of(self.chain)
        if chain is None:
            return None, None
        matrices, layout = self.runs * stretch.count * self.width, self.layout
        ld = layout.forward_ld(self.folded)
        forward = torch.empty((matrices, layout.bond, ld), dtype=layout.dtype, device=chain.device)
        packs_backward = keep and not (layout.is_plain and chain.data_ptr() % ALIGNMENT == 0)
        backward = forward.new_empty(matrices, layout.bond, layout.ld) if packs_backward else None
        tile = 32
        across = -(-ld // tile)
        pack_cores[matrices, across, across](
            forward, or_else(backward, forward), chain, or_else(stretch.of(self.linear), forward), BOND=layout.bond,
            LD=layout.ld, FORWARD_LD=ld, T=tile, BACKWARD=packs_backward, FOLDED=self.folded, num_warps=4,
        )  # fmt: skip
        return forward, chain.view(-1, layout.bond, layout.bond) if keep and backward is None else backward

    def forward(
        self,
        stretch: _Stretch,
        core: Tensor | None,
        states: Tensor,
        last: Tensor,
        leaving: Tensor,
        output: Tensor,
        *,
        replay_from: Tensor | None = None,
    ) -> None:
        """One stretch onward: from ``last``, keeping one in ``length`` states, or from kept ones, keeping all."""
        from restt.chain.cuda.forward import forward_sweep, forward_sweep_wide

        launch = sweep_launch(self.layout, self.width, self.runs, self.batch)
        replay = replay_from is not None
        pointers = [
            output, states, last, leaving, self.x[:, :, stretch.start :], self.first,
            operand(core, block_of(self.layout, launch), last), or_else(stretch.of(self.linear), last),
            self.flags[stretch.start :], or_else(self.last_chain, last),
            or_else(self.last_linear, last), or_else(self.last_skip, last),
        ]  # fmt: skip
        numbers = [stretch.count, self.batch, self.columns, self.runs, *self.strides, self.outputs]
        options = {
            **self.shared, "BN": launch.columns, "STAGES": launch.stages, "num_warps": launch.warps,
            "LAST_LINEAR": self.last_linear is not None, "p_start": last if replay_from is None else replay_from,
            "START": stretch.is_first and not replay, "HEAD": stretch.is_last and not replay,
        }  # fmt: skip
        if replay:  # what leaves was summed by the first pass
            options["HAS_OUTPUT_SKIP"] = False
        grid = (-(-self.columns // launch.columns), self.runs)
        if self.layout.is_wide:
            forward_sweep_wide[grid](*pointers, *numbers, len(states), T=self.layout.tile, **options)
            return
        segments = -(-stretch.count // self.length) if replay else 1
        forward_sweep[(*grid, segments)](
            *pointers, *numbers, R=self.layout.tile, PART=launch.part, TMA=launch.tma, SAVE=True, REPLAY=replay,
            length=self.length, every=1 if replay else self.length, FOLDED=self.folded,
            **{**options, "LD": self.layout.forward_ld(self.folded)},
        )  # fmt: skip

    def backward(
        self,
        stretch: _Stretch,
        core: Tensor | None,
        states: Tensor,
        grads: Tensor,
        grad_left: Tensor,
        grad_output: Tensor,
        grad_x: Tensor | None,
    ) -> None:
        """One stretch back: the gradients of its states, the last one from the output site or already there."""
        from restt.chain.cuda.backward import backward_sweep, backward_sweep_wide

        launch = sweep_launch(self.layout, self.width, self.runs, self.batch, reads_states=grad_x is not None)
        pointers = [
            grads, grads if grad_x is None else grad_x[:, :, stretch.start :], grad_output, states,
            self.x[:, :, stretch.start :], operand(core, block_of(self.layout, launch), grads),
            or_else(stretch.of(self.linear), grads), self.flags[stretch.start :],
            or_else(self.last_chain, grads), or_else(self.last_skip, grads),
        ]  # fmt: skip
        numbers = [stretch.count, self.batch, self.columns, self.runs, self.sites, *self.strides, self.outputs]
        options = {
            **self.shared, "BN": launch.columns, "STAGES": launch.stages, "num_warps": launch.warps,
            "WANT_X": grad_x is not None, "HEAD": stretch.is_last,
        }  # fmt: skip
        grid = (-(-self.columns // launch.columns), self.runs)
        if self.layout.is_wide:
            backward_sweep_wide[grid](*pointers, grad_left, *numbers, T=self.layout.tile, **options)
        else:
            backward_sweep[grid](
                *pointers, *numbers, R=self.layout.tile, PART=launch.part, TMA=launch.tma, p_left=grad_left, **options
            )

    def weight_gradients(self, stretch: _Stretch, states: Tensor, grads: Tensor, made: list[Tensor | None]) -> None:
        """Those of W(n,1) and W(n,2) of the stretch's sites, and of W(1) with the first one."""
        from restt.chain.cuda.gradients import weight_gradients

        grad_first, grad_chain, grad_linear = made
        if not stretch.is_first:
            grad_first = None
        if grad_first is None and grad_chain is None and grad_linear is None:
            return
        launch = weight_launch(self.layout)
        across, down = -(-self.bond // launch.columns), -(-self.bond // launch.rows)
        here = [None if stacked is None else stacked[:, stretch.start :] for stacked in (grad_chain, grad_linear)]
        grid = ((stretch.count + 1) * self.width, self.runs, across * (1 if grad_chain is None else down))
        weight_gradients[grid](
            *(or_else(part, states) for part in (*here, grad_first)), states, grads,
            self.x[:, :, stretch.start :], self.flags[stretch.start :], self.inner, self.batch, self.columns, self.runs,
            *self.strides, I=self.width, BOND=self.bond, K=launch.rows, L=launch.columns, BB=launch.batch,
            STAGES=launch.stages, PRECISION=self.layout.precision, CORE=grad_chain is not None,
            ENTRY=(grad_first is not None) + 2 * (grad_linear is not None), num_warps=launch.warps, num_stages=1,
        )  # fmt: skip


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *given: Any) -> Tensor:
        *roles, outputs, topology, precision, length = given
        sweeper = _Sweeper(x, roles, outputs, topology, precision, length)
        kept = sweeper.states(sweeper.inner // length + 1)
        last = sweeper.states(1)[0]
        leaving = torch.empty_like(last) if topology.has_output_skip else last
        output = x.new_empty((sweeper.runs, sweeper.batch, outputs))
        for stretch in sweeper.stretches():
            core, _ = sweeper.packed(stretch, keep=False)
            states = sweeper.states(stretch.count + 1) if sweeper.layout.is_wide else kept[stretch.start // length :]
            sweeper.forward(stretch, core, states, last, leaving, output)
            if sweeper.layout.is_wide:
                kept[stretch.start // length] = states[0]
        ctx.save_for_backward(x, *roles, kept, last, leaving)
        ctx.settings = outputs, topology, precision, length
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, kept, last, leaving = ctx.saved_tensors
        outputs, topology, precision, length = ctx.settings
        wanted = ctx.needs_input_grad[: len(inputs)]
        if wants_plain_operations(grad_output):
            again = plain_contraction_gradients(inputs, wanted, grad_output, outputs, topology)
            return *again, None, None, None, None
        x, *roles = inputs
        grad_output = grad_output.contiguous()
        sweeper = _Sweeper(x, roles, outputs, topology, precision, length)
        grad_x = x.new_empty((sweeper.runs, *x.shape[1:])) if wanted[0] else None
        made = [
            torch.empty_like(role) if role is not None and want else None
            for role, want in zip((sweeper.first, sweeper.chain, sweeper.linear), wanted[1:4], strict=True)
        ]
        states, grads = sweeper.states(sweeper.stretch_length + 1), sweeper.states(sweeper.stretch_length + 1)
        grad_left, unused = torch.empty_like(last), torch.empty_like(last)
        for stretch in reversed(list(sweeper.stretches())):
            forward_core, core = sweeper.packed(stretch, keep=True)
            here, there = states[: stretch.count + 1], grads[: stretch.count + 1]
            start = kept[stretch.start // length :]
            sweeper.forward(stretch, forward_core, here, unused, unused, unused, replay_from=start)
            if not stretch.is_last:
                there[-1] = grads[0]
            sweeper.backward(stretch, core, here, there, grad_left, grad_output, grad_x)
            sweeper.weight_gradients(stretch, here, there, made)
        head = (sweeper.last_chain, sweeper.last_linear, sweeper.last_skip)
        of_head = head_weight_gradients(x[:, :, -1], head, last, leaving, grad_output, sweeper.layout, wanted[4:])
        if grad_x is not None:
            first, last_chain, last_linear = sweeper.first, sweeper.last_chain, sweeper.last_linear
            ends = grad_x[:, :, 0], grad_x[:, :, -1]
            end_features(*ends, first, last_chain, last_linear, last, grads[0], grad_output)
            if len(x) != sweeper.runs:
                grad_x = grad_x.sum(dim=0, keepdim=True)
        return grad_x, *made, *of_head, None, None, None, None
