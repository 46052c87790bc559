"""Triton kernels around the sweeps: the packed cores before them, the weights' gradients after them."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
from __future__ import annotations

import triton
import triton.language as tl

from restt.chain.cuda.forward import CHAIN, LINEAR, UNSPECIALISED, product


@triton.jit(do_not_specialize=UNSPECIALISED)
def pack_cores(
    p_forward, p_backward, p_core, p_linear, p_table,
    bond, height, ld, forward_ld, steps, per_run,
    T: tl.constexpr, BACKWARD: tl.constexpr, FOLDED: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """Cores in the operands' type with aligned rows: transposed for the forward sweep, as they are for the backward.

    FOLDED puts the linear entry behind a forward core's last column, for a state that has a 1 there.
    A packed core has ``height`` rows; ``ld`` and ``forward_ld`` count the 16 bytes from row to row. With RAGGED only
    the cores that ``p_table`` names, of ``per_run`` in each run.
    """
    matrix = tl.program_id(0).to(tl.int64)
    source = matrix
    ld = ld * (128 // p_backward.dtype.element_ty.primitive_bitwidth)
    forward_ld = forward_ld * (128 // p_forward.dtype.element_ty.primitive_bitwidth)
    if RAGGED:
        source = matrix // steps * per_run + (tl.load(p_table + matrix % steps) >> 1)
    k = tl.program_id(1) * T + tl.arange(0, T)
    l = tl.program_id(2) * T + tl.arange(0, T)
    b_core = tl.load(
        p_core + source * bond * bond + k[:, None] * bond + l[None, :],
        mask=(k < bond)[:, None] & (l < bond)[None, :],
        other=0.0,
    )
    if BACKWARD:
        p_tile = p_backward + matrix * height * ld + k[:, None] * ld + l[None, :]
        tl.store(p_tile, b_core.to(p_backward.dtype.element_ty), mask=(k < height)[:, None] & (l < ld)[None, :])
    if FOLDED:
        b_entry = tl.load(p_linear + source * bond + l, mask=l < bond, other=0.0)
        b_core = tl.where((k == bond)[:, None], b_entry[None, :], b_core)
    p_tile = p_forward + matrix * height * forward_ld + l[:, None] * forward_ld + k[None, :]
    b_turned = tl.trans(b_core).to(p_forward.dtype.element_ty)
    tl.store(p_tile, b_turned, mask=(l < height)[:, None] & (k < forward_ld)[None, :])


@triton.jit(do_not_specialize=UNSPECIALISED)
def weight_gradients(
    p_grad_core, p_grad_linear, p_grad_first, p_states, p_grads, p_x, p_flags, p_table,
    inner, batch, columns, runs, stride_xs, stride_xb, stride_xn, stride_xi, bond, width, first_width,
    K: tl.constexpr, L: tl.constexpr, BB: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
    CORE: tl.constexpr, ENTRY: tl.constexpr, RAGGED: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """dL/dW(n,1), dL/dW(n,2) and dL/dW(1) of one feature: sums over the batch in a fixed order, so the same bits.

    Site 1 is the linear entry before the others, so the sites of this grid are 0…N-2 and their states those they lead
    to; program axis 0 is site · I + feature, or with RAGGED the column of the packed x, axis 1 the run, axis 2 the tile
    of the core. ``inner`` is how many sites lie between the gradients of two runs. ALIGNED says that the bond is a
    multiple of four, whose gradients are written four by four.
    """
    if RAGGED:
        column = tl.program_id(0)
        entry = tl.load(p_table + tl.maximum(column - first_width, 0)) >> 1
        site = tl.where(column < first_width, 0, entry // width + 1).to(tl.int64)
        i = tl.where(column < first_width, column, entry % width)
        p_x += column * stride_xi
    else:
        site = (tl.program_id(0) // width).to(tl.int64)
        i = tl.program_id(0) % width
        p_x += site * stride_xn + i * stride_xi
    run = tl.program_id(1).to(tl.int64)
    tiles = tl.cdiv(bond, L)
    k_tile = tl.program_id(2) // tiles
    k = k_tile * K + tl.arange(0, K)
    l = (tl.program_id(2) % tiles) * L + tl.arange(0, L)
    n = tl.maximum(site - 1, 0)
    flags = tl.load(p_flags + n)
    size = bond * tl.cast(columns, tl.int64)
    p_y = p_states + (n * runs + run) * size
    p_g = p_grads + (site * runs + run) * size
    b_core = tl.zeros((K, L), tl.float32)
    b_entry = tl.zeros((L,), tl.float32)
    for start in tl.range(0, columns, BB, num_stages=STAGES):
        b = start + tl.arange(0, BB)
        b_x = tl.load(p_x + run * stride_xs + b.to(tl.int64) * stride_xb, mask=b < batch, other=0.0)
        b_g = tl.load(p_g + l[:, None] * columns + b[None, :], mask=(l < bond)[:, None] & (b < columns)[None, :],
                      other=0.0)  # fmt: skip
        # On g and not on y, so that no product is in flight when the next step's copies arrive: see README.md.
        b_share = b_g * b_x[None, :]
        if CORE:
            b_y = tl.load(p_y + k[:, None] * columns + b[None, :], mask=(k < bond)[:, None] & (b < columns)[None, :],
                          other=0.0)  # fmt: skip
            b_core += product(b_y, tl.trans(b_share), PRECISION)
        if ENTRY:
            b_entry += tl.sum(b_share, axis=1)
    if ALIGNED:
        bond = bond // 4 * 4
    if CORE:
        b_core = tl.where((flags & CHAIN) != 0, b_core, 0.0)
        p_tile = p_grad_core + (((run * inner + n) * width + i) * bond + k[:, None]) * bond + l[None, :]
        tl.store(p_tile, b_core, mask=(k < bond)[:, None] & (l < bond)[None, :] & (site > 0))
    if ENTRY:
        here = (l < bond) & (k_tile == 0)
        if ENTRY & 1:
            tl.store(p_grad_first + (run * width + i) * bond + l, b_entry, mask=here & (site == 0))
        if ENTRY & 2:
            b_entry = tl.where((flags & LINEAR) != 0, b_entry, 0.0)
            tl.store(p_grad_linear + ((run * inner + n) * width + i) * bond + l, b_entry, mask=here & (site > 0))


@triton.jit(do_not_specialize=UNSPECIALISED)
def head_gradients(
    p_grad_chain, p_grad_linear, p_grad_skip, p_last, p_leaving, p_grad_out, p_x,
    batch, columns, stride_xs, stride_xb, stride_xi, O, bond, width,
    K: tl.constexpr, OT: tl.constexpr, BB: tl.constexpr,
    PRECISION: tl.constexpr, CHAIN_HEAD: tl.constexpr, LINEAR_HEAD: tl.constexpr, SKIP_HEAD: tl.constexpr,
):  # fmt: skip
    """dL/dW(N,1), dL/dW(N,2), dL/dW(N,3). Program axis 0: the features, then the skip; 1: run; 2: the core's tile."""
    i = tl.program_id(0)
    features = tl.num_programs(0) - 1
    run = tl.program_id(1).to(tl.int64)
    tiles = tl.cdiv(bond, K)
    k_tile = tl.program_id(2) % tiles
    k = k_tile * K + tl.arange(0, K)
    o = (tl.program_id(2) // tiles) * OT + tl.arange(0, OT)
    size = bond * tl.cast(columns, tl.int64)
    is_skip = i == features
    b_core = tl.zeros((K, OT), tl.float32)
    b_entry = tl.zeros((OT,), tl.float32)
    for start in range(0, batch, BB):
        b = (start + tl.arange(0, BB)).to(tl.int64)
        inside = b < batch
        b_x = tl.load(p_x + run * stride_xs + b * stride_xb + i * stride_xi, mask=inside & (i < features), other=1.0)
        b_out = tl.load(p_grad_out + (run * batch + b[:, None]) * O + o[None, :],
                        mask=inside[:, None] & (o < O)[None, :], other=0.0)  # fmt: skip
        real = (k < bond)[:, None] & inside[None, :]
        at = run * size + k[:, None] * columns + b[None, :]
        b_y = tl.zeros((K, BB), tl.float32)
        if CHAIN_HEAD:
            b_y += tl.load(p_last + at, mask=real & (i < features), other=0.0)
        if SKIP_HEAD:
            b_y += tl.load(p_leaving + at, mask=real & is_skip, other=0.0)
        if CHAIN_HEAD or SKIP_HEAD:
            b_core += product(b_y * b_x[None, :], b_out, PRECISION)
        b_entry += tl.sum(b_out * b_x[:, None], axis=0)
    real = (k < bond)[:, None] & (o < O)[None, :]
    if CHAIN_HEAD:
        p_tile = p_grad_chain + ((run * width + i) * bond + k[:, None]) * O + o[None, :]
        tl.store(p_tile, b_core, mask=real & (i < features))
    if SKIP_HEAD:
        tl.store(p_grad_skip + (run * bond + k[:, None]) * O + o[None, :], b_core, mask=real & is_skip)
    if LINEAR_HEAD:
        tl.store(p_grad_linear + (run * width + i) * O + o, b_entry, mask=(o < O) & (k_tile == 0) & (i < features))
