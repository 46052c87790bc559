"""Adam in one Triton launch over all tensors of a group of runs, with the norms of their gradients.

torch's fused kernel gives 65,536 numbers to a processor, so that a model of a million weights keeps a handful of them
busy; here it is a thousand numbers. Rate and step number are read on the device: a CUDA graph replays the launch.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from restt.chain.cuda.calls import KernelCall

BLOCK = 1024
WARPS = 4
# The number of tensors is filled up to a multiple of it with empty ones: few kernels to compile.
SLOTS = 8


@triton.jit
def update_block(
    p_weight, p_gradient, p_first, p_second, left, step_size, root, rate, decay,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPS: tl.constexpr, DECOUPLED: tl.constexpr,
    SIZE: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Move the first ``left`` numbers of a tensor, at most SIZE and all of these if WHOLE; the norm of their gradient.

    Only what is known to be whole is read and written four by four.
    """
    at = tl.arange(0, SIZE)
    inside = tl.full((SIZE,), True, tl.int1) if WHOLE else at < left
    b_weight = tl.load(p_weight + at, mask=inside, other=0.0)
    b_gradient = tl.load(p_gradient + at, mask=inside, other=0.0)
    b_first = tl.load(p_first + at, mask=inside, other=0.0)
    b_second = tl.load(p_second + at, mask=inside, other=0.0)
    squares = tl.sum(b_gradient * b_gradient, axis=0)
    if DECOUPLED:
        b_weight -= (rate * decay).to(b_weight.dtype) * b_weight
    else:
        b_gradient += decay.to(b_weight.dtype) * b_weight
    b_first = BETA1 * b_first + (1 - BETA1) * b_gradient
    b_second = BETA2 * b_second + (1 - BETA2) * (b_gradient * b_gradient)
    b_scale = tl.sqrt(b_second) / root.to(b_weight.dtype) + EPS
    b_weight -= step_size.to(b_weight.dtype) * b_first / b_scale
    tl.store(p_weight + at, b_weight, mask=inside)
    tl.store(p_first + at, b_first, mask=inside)
    tl.store(p_second + at, b_second, mask=inside)
    return tl.sqrt(squares.to(tl.float64))


@triton.jit(do_not_specialize=["sizes", "start"])
def update_tensors(
    p_weights, p_gradients, p_first, p_second, p_norms, p_number, p_rate, p_decay, sizes, start,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr, EPS: tl.constexpr,
    DECOUPLED: tl.constexpr, TENSORS: tl.constexpr, SIZE: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Program axis 0: blocks of all tensors, one tensor after the other; 1: run, of those from ``start`` on.

    The first four arguments are tuples of pointers, ``sizes`` the numbers of one run in each of these tensors; ALIGNED
    says that all are multiples of four. Into ``p_norms`` (S, blocks) each program writes the one of its block.
    """
    # In float64: of 1 - beta^number little is left at the beginning. Logarithms are to base 2.
    number = tl.load(p_number).to(tl.float64)
    rate, decay = tl.load(p_rate).to(tl.float64), tl.load(p_decay)
    step_size = rate / (1 - tl.exp2(number * LOG_BETA1))
    root = tl.sqrt(1 - tl.exp2(number * LOG_BETA2))
    # One body for all tensors: each would else be compiled for itself.
    block = tl.program_id(0)
    p_weight, p_gradient, p_one, p_two, size, before = (
        p_weights[0],
        p_gradients[0],
        p_first[0],
        p_second[0],
        sizes[0],
        0,
    )
    blocks = tl.cdiv(size, SIZE)
    for t in tl.static_range(1, TENSORS):
        here = block >= blocks
        p_weight = tl.where(here, p_weights[t], p_weight)
        p_gradient = tl.where(here, p_gradients[t], p_gradient)
        p_one, p_two = tl.where(here, p_first[t], p_one), tl.where(here, p_second[t], p_two)
        size, before = tl.where(here, sizes[t], size), tl.where(here, blocks, before)
        blocks += tl.cdiv(sizes[t], SIZE)
    begin = (block - before).to(tl.int64) * SIZE
    left = size - begin
    begin += (start + tl.program_id(1).to(tl.int64)) * size
    if ALIGNED:
        begin = tl.multiple_of(begin, 4)
    if left >= SIZE:
        norm = update_block(
            p_weight + begin, p_gradient + begin, p_one + begin, p_two + begin, left,
            step_size, root, rate, decay, BETA1, BETA2, EPS, DECOUPLED, SIZE, True,
        )  # fmt: skip
    else:
        norm = update_block(
            p_weight + begin, p_gradient + begin, p_one + begin, p_two + begin, left,
            step_size, root, rate, decay, BETA1, BETA2, EPS, DECOUPLED, SIZE, False,
        )  # fmt: skip
    tl.store(p_norms + tl.program_id(1) * tl.num_programs(0) + block, norm)


class Update:
    """The launches of one optimizer, by runs and sizes of tensors."""

    def __init__(self, betas: tuple[float, float], eps: float, decoupled: bool) -> None:
        self.constants = {
            "BETA1": betas[0], "BETA2": betas[1], "LOG_BETA1": _log2(betas[0]), "LOG_BETA2": _log2(betas[1]),
            "EPS": eps, "DECOUPLED": decoupled, "SIZE": BLOCK, "num_warps": WARPS,
        }  # fmt: skip
        self._calls: dict[tuple[object, ...], tuple[KernelCall, int]] = {}

    def __call__(
        self,
        weights: Sequence[Tensor],  # (S, …) each, contiguous and of one type, as are the next three
        gradients: Sequence[Tensor],
        first: Sequence[Tensor],
        second: Sequence[Tensor],
        runs: range,  # which of them to move
        number: Tensor,  # (), as the next: of the step, counted from 1
        rate: Tensor,
        decay: Tensor,  # () float64
    ) -> Tensor:  # (len(runs),)
        """Move weights and moments; the norm of each run's whole gradient."""
        sizes = tuple(weight.numel() // weight.shape[0] for weight in weights)
        if (runs, sizes) not in self._calls:
            self._calls[runs, sizes] = self._call(runs, sizes)
        call, blocks = self._calls[runs, sizes]
        norms = torch.empty(len(runs), blocks, dtype=torch.float64, device=number.device)
        empty = -len(weights) % SLOTS
        tensors = ((*given, *[given[0]] * empty) for given in (weights, gradients, first, second))
        call(*tensors, norms, number, rate, decay)
        return torch.linalg.vector_norm(norms, dim=1)

    def _call(self, runs: range, sizes: tuple[int, ...]) -> tuple[KernelCall, int]:
        """The launch and how many blocks a run has."""
        blocks = sum(triton.cdiv(size, BLOCK) for size in sizes)
        # A single run begins where its tensors do.
        aligned = runs == range(1) or all(size % 4 == 0 for size in sizes)
        sizes += (0,) * (-len(sizes) % SLOTS)
        constants = {**self.constants, "TENSORS": len(sizes), "ALIGNED": aligned}
        return KernelCall(update_tensors, (blocks, len(runs)), (sizes, runs.start), constants), blocks


def _log2(beta: float) -> float:
    """Base-2 logarithm; for 0, which forgets at once, a value far below all others."""
    return math.log2(beta) if beta > 0 else -1e4
