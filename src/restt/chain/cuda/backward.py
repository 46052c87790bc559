"""Triton kernels of the backward sweep: dL/dy(n) of every state and, where wanted, dL/dx of the inner sites."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
from __future__ import annotations

import triton
import triton.language as tl

from restt.chain.cuda.forward import (
    CHAIN,
    LINEAR,
    SKIP_FULL,
    SKIP_OUTPUT,
    UNSPECIALISED,
    load_cores,
    product,
)


@triton.jit
def head_backward(
    p_grad_out, p_x, p_last_chain, p_last_skip, run, batch, stride_xb, stride_xi, features, width, O, bond, b,
    k, K: tl.constexpr, BN: tl.constexpr, OT: tl.constexpr,
    LAST_CHAIN: tl.constexpr, LAST_SKIP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Rows k of dL/dy(N-1) through W(N,1), and of the gradient W(N,3) hands to every state that leaves."""
    inside = b < batch
    b_grad = tl.zeros((K, BN), tl.float32)
    b_left = tl.zeros((K, BN), tl.float32)
    for o_start in range(0, O, OT):
        o = o_start + tl.arange(0, OT)
        real = (k < bond)[:, None] & (o < O)[None, :]
        p_tile = p_grad_out + (run * batch + b[None, :]) * O + o[:, None]
        b_out = tl.load(p_tile, mask=(o < O)[:, None] & inside[None, :], other=0.0)
        if LAST_CHAIN:
            for i in range(features):
                p_core = p_last_chain + (run * width + i) * bond * O
                b_core = tl.load(p_core + k[:, None] * O + o[None, :], mask=real, other=0.0)
                b_x = tl.load(p_x + b * stride_xb + i * stride_xi, mask=inside, other=0.0)
                b_grad += product(b_core, b_out, PRECISION) * b_x[None, :]
        if LAST_SKIP:
            b_core = tl.load(p_last_skip + run * bond * O + k[:, None] * O + o[None, :], mask=real, other=0.0)
            b_left += product(b_core, b_out, PRECISION)
    return b_grad, b_left


@triton.jit(do_not_specialize=UNSPECIALISED)
def backward_sweep(
    p_grads, p_grad_x, p_grad_out, p_states, p_x, p_core, p_linear, p_flags, p_table, p_last_chain, p_last_skip,
    inner, batch, columns, runs, stride_xs, stride_xb, stride_xn, stride_xi, O, bond, width,
    first_width, steps, last_width,
    R: tl.constexpr, BN: tl.constexpr, OT: tl.constexpr, PART: tl.constexpr, WHOLE: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr, TMA: tl.constexpr, WANT_X: tl.constexpr,
    MIXED: tl.constexpr, SKIP: tl.constexpr, HAS_CHAIN: tl.constexpr, HAS_LINEAR: tl.constexpr,
    HAS_OUTPUT_SKIP: tl.constexpr, ENDS_WITH_SKIP: tl.constexpr, LAST_CHAIN: tl.constexpr, LAST_SKIP: tl.constexpr,
    RAGGED: tl.constexpr,
):  # fmt: skip
    """dL/dy(N-1) from the output site, then site by site down to dL/dy(1), for BN samples of one run.

    WHOLE and RAGGED are those of the forward sweep.
    """
    run = tl.program_id(1).to(tl.int64)
    b = (tl.program_id(0) * BN + tl.arange(0, BN)).to(tl.int64)
    rows, features = tl.arange(0, R), tl.arange(0, PART)
    real = (rows < bond)[:, None] & (b < columns)[None, :]
    inside = b < batch
    p_x += run * stride_xs
    tile = rows[:, None] * columns + b[None, :]
    size = bond * tl.cast(columns, tl.int64)

    if RAGGED:
        p_last_x = p_x + (first_width + steps) * stride_xi
    else:
        p_last_x = p_x + (inner + 1) * stride_xn
    b_g, b_left = head_backward(
        p_grad_out, p_last_x, p_last_chain, p_last_skip, run, batch, stride_xb, stride_xi, last_width, width, O,
        bond, b, rows, R, BN, OT, LAST_CHAIN, LAST_SKIP, PRECISION,
    )  # fmt: skip
    if ENDS_WITH_SKIP:
        b_g += b_left
    tl.store(p_grads + (inner * tl.cast(runs, tl.int64) + run) * size + tile, b_g, mask=real)
    b_sum = tl.zeros((R, BN), tl.float32)
    stride = runs * size
    p_here = p_grads + run * size + tile

    for step in tl.range(0, steps // PART, num_stages=STAGES):
        # Parts come from the chain's end, the features within a part in their usual order.
        part = steps // PART - 1 - step
        if RAGGED:
            entry = tl.load(p_table + part)
            n = tl.cast((entry >> 1) // width, tl.int64)
            begin = (entry >> 1) % width
            done = begin == 0
        elif WHOLE:
            n = tl.cast(part, tl.int64)
            begin = 0
            done = True
        else:
            n = tl.cast(part * PART // width, tl.int64)
            begin = part * PART % width
            done = begin == 0
        if MIXED:
            flags = tl.load(p_flags + n)
        column = part * PART
        if RAGGED:
            p_features = p_x + b[None, :] * stride_xb + (first_width + column + features[:, None]) * stride_xi
        else:
            p_features = p_x + b[None, :] * stride_xb + (n + 1) * stride_xn + (begin + features[:, None]) * stride_xi
        b_x = tl.load(p_features, mask=inside[None, :], other=0.0)
        b_share = tl.zeros((PART, R, BN), tl.float32)
        if HAS_CHAIN:
            b_cores = load_cores(p_core, run * steps + column, rows, R, PART, TMA)
            b_back = product(b_cores, b_g, PRECISION).reshape(PART, R, BN)
            if MIXED:
                b_back = tl.where((flags & CHAIN) != 0, b_back, 0.0)
            b_sum += tl.sum(b_back * b_x[:, None, :], axis=0)
            if WANT_X:
                b_y = tl.load(p_states + (n * runs + run) * size + tile, mask=real, other=0.0)
                b_share += b_back * b_y[None, :, :]
        if WANT_X:
            if HAS_LINEAR:
                p_entries = p_linear + ((run * inner + n) * width + begin + features[:, None]) * bond + rows[None, :]
                b_entries = tl.load(p_entries, mask=(rows < bond)[None, :], other=0.0)
                if MIXED:
                    b_entries = tl.where((flags & LINEAR) != 0, b_entries, 0.0)
                b_share += b_entries[:, :, None] * b_g[None, :, :]
            p_shares = p_grad_x + (run * batch + b)[None, :] * (first_width + steps + last_width) + first_width
            tl.store(p_shares + column + features[:, None], tl.sum(b_share, axis=1), mask=inside[None, :])
        b_next = b_sum
        if MIXED:
            b_next += tl.where((flags & SKIP_FULL) != 0, b_g, 0.0)
            if HAS_OUTPUT_SKIP:
                b_next += tl.where((flags & SKIP_OUTPUT) != 0, b_left, 0.0)
        elif SKIP == "full":
            b_next += b_g
        elif SKIP == "output":
            b_next += b_left
        p_tile = p_here + n * stride
        if WHOLE:
            b_g = b_next
            b_sum = tl.zeros((R, BN), tl.float32)
            tl.store(p_tile, b_g, mask=real)
        else:
            b_g = tl.where(done, b_next, b_g)
            b_sum = tl.where(done, 0.0, b_sum)
            if done:
                tl.store(p_tile, b_g, mask=real)
