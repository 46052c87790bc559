"""Triton kernels of the forward sweep. README.md has the derivation, the layouts and the tuning.

States are columns here: a tile is (R, BN), the bond down and the batch across, so that a step is core @ state with the
core straight from memory. Kernel pointers are p_*, values of a block b_*; capitals are compile-time constants.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
from __future__ import annotations

import triton
import triton.language as tl

# Bits of a site's flags, as Topology.connection_flags has them.
CHAIN = tl.constexpr(1)
LINEAR = tl.constexpr(2)
SKIP_FULL = tl.constexpr(4)
SKIP_OUTPUT = tl.constexpr(8)

# Numbers whose divisibility and being 1 make no faster code: without this each such case is compiled for itself.
UNSPECIALISED = (
    *("inner", "batch", "runs", "stride_xs", "stride_xb", "stride_xn", "O", "bond", "ld", "width"),
    *("first_width", "steps", "last_width", "per_run", "save", "height", "forward_ld"),
)


@triton.jit
def rounded(a):
    """The nearest numbers with the 10 bits of tf32."""
    return ((a.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """Product a @ b with float32 sums."""
    if PRECISION == "bf16":
        return tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))
    elif PRECISION == "fp16":
        return tl.dot(a.to(tl.float16), b.to(tl.float16))
    elif PRECISION == "tf32":
        return tl.dot(a, b, input_precision="tf32")
    else:
        # Three tf32 products that, unlike those of "tf32x3", do not wait for each other.
        a_high, b_high = rounded(a), rounded(b)
        low = tl.dot(a_high, b - b_high, input_precision="tf32") + tl.dot(a - a_high, b_high, input_precision="tf32")
        return tl.dot(a_high, b_high, input_precision="tf32") + low


@triton.jit
def load_cores(p_core, matrix, rows, R: tl.constexpr, PART: tl.constexpr, TMA: tl.constexpr):
    """Packed cores of PART features below each other (PART · R, R), zero beyond the bond.

    ``p_core`` is a descriptor where TMA is set.
    """
    if TMA:
        return p_core.load([matrix.to(tl.int32), 0, 0]).reshape(PART * R, R)
    else:
        below = tl.arange(0, PART * R)
        return tl.load(p_core + matrix * (R * R) + below[:, None] * R + rows[None, :])


@triton.jit
def head_forward(
    p_out, p_last, p_leaving, p_x, p_last_chain, p_last_linear, p_last_skip, run, batch, columns, stride_xb, stride_xi,
    features, width, O, bond, b, K: tl.constexpr, BN: tl.constexpr, OT: tl.constexpr,
    LAST_CHAIN: tl.constexpr, LAST_LINEAR: tl.constexpr, LAST_SKIP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Output (S, B, O) = Σ_i x(N,i) y(N-1) W(N,1)_i + x(N) W(N,2) + leaving W(N,3), from the stored y(N-1)."""
    inside = b < batch
    size = bond * tl.cast(columns, tl.int64)
    for o_start in range(0, O, OT):
        o = o_start + tl.arange(0, OT)
        b_out = tl.zeros((OT, BN), tl.float32)
        for k_start in range(0, bond, K):
            k = k_start + tl.arange(0, K)
            real = (o < O)[:, None] & (k < bond)[None, :]
            state = run * size + k[:, None] * columns + b[None, :]
            if LAST_CHAIN:
                b_y = tl.load(p_last + state, mask=(k < bond)[:, None] & inside[None, :], other=0.0)
                for i in range(features):
                    p_core = p_last_chain + (run * width + i) * bond * O
                    b_core = tl.load(p_core + k[None, :] * O + o[:, None], mask=real, other=0.0)
                    b_x = tl.load(p_x + b * stride_xb + i * stride_xi, mask=inside, other=0.0)
                    b_out += product(b_core, b_y, PRECISION) * b_x[None, :]
            if LAST_SKIP:
                b_left = tl.load(p_leaving + state, mask=(k < bond)[:, None] & inside[None, :], other=0.0)
                b_core = tl.load(p_last_skip + run * bond * O + k[None, :] * O + o[:, None], mask=real, other=0.0)
                b_out += product(b_core, b_left, PRECISION)
        if LAST_LINEAR:
            for i in range(features):
                b_entry = tl.load(p_last_linear + (run * width + i) * O + o, mask=o < O, other=0.0)
                b_x = tl.load(p_x + b * stride_xb + i * stride_xi, mask=inside, other=0.0)
                b_out += b_entry[:, None] * b_x[None, :]
        p_tile = p_out + (run * batch + b[None, :]) * O + o[:, None]
        tl.store(p_tile, b_out, mask=(o < O)[:, None] & inside[None, :])


@triton.jit(do_not_specialize=UNSPECIALISED)
def forward_sweep(
    p_out, p_states, p_last, p_leaving, p_x, p_first, p_core, p_linear, p_flags, p_table,
    p_last_chain, p_last_linear, p_last_skip,
    inner, batch, columns, runs, stride_xs, stride_xb, stride_xn, stride_xi, O, bond, width,
    first_width, steps, last_width, save,
    R: tl.constexpr, BN: tl.constexpr, OT: tl.constexpr, PART: tl.constexpr, WHOLE: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr, TMA: tl.constexpr,
    MIXED: tl.constexpr, SKIP: tl.constexpr, HAS_CHAIN: tl.constexpr, HAS_LINEAR: tl.constexpr,
    HAS_OUTPUT_SKIP: tl.constexpr, ENDS_WITH_SKIP: tl.constexpr,
    LAST_CHAIN: tl.constexpr, LAST_LINEAR: tl.constexpr, LAST_SKIP: tl.constexpr,
    RAGGED: tl.constexpr, FOLDED: tl.constexpr,
):  # fmt: skip
    """Site 1, sites 2…N-1 with the state on chip, and the output site, for BN samples of one run.

    The loop runs over parts of a site, PART features each, so that cores of the coming parts are in flight while one
    is multiplied; the state moves on after a site's last part. WHOLE says that a part is a whole site. ``save`` keeps
    all states. With RAGGED x is packed: a step is one feature, and ``p_table`` says of which site. With FOLDED the
    cores hold the linear entries as one more column (pack_cores), and the state has a 1 as one more row.
    """
    run = tl.program_id(1).to(tl.int64)
    b = tl.program_id(0) * BN + tl.arange(0, BN)
    rows, features = tl.arange(0, R), tl.arange(0, PART)
    real = (rows < bond)[:, None] & (b < columns)[None, :]
    p_x += run * stride_xs
    inside = b < batch
    b = b.to(tl.int64)
    size = bond * tl.cast(columns, tl.int64)

    tile = rows[:, None] * columns + b[None, :]
    b_y = tl.zeros((R, BN), tl.float32)
    for feature in range(first_width):
        b_entry = tl.load(p_first + (run * width + feature) * bond + rows, mask=rows < bond, other=0.0)
        b_x = tl.load(p_x + b * stride_xb + feature * stride_xi, mask=inside, other=0.0)
        b_y += b_entry[:, None] * b_x[None, :]
    saved = real & (save != 0)
    stride = runs * size
    p_here = p_states + run * size + tile
    tl.store(p_here, b_y, mask=saved)
    if FOLDED:
        b_y = tl.where((rows == bond)[:, None], 1.0, b_y)
    b_left = tl.zeros((R, BN), tl.float32)
    b_sum = tl.zeros((R, BN), tl.float32)

    for step in tl.range(0, steps // PART, num_stages=STAGES):
        if RAGGED:
            entry = tl.load(p_table + step)
            n = tl.cast((entry >> 1) // width, tl.int64)
            begin = (entry >> 1) % width
            done = (entry & 1) != 0
        elif WHOLE:
            n = tl.cast(step, tl.int64)
            begin = 0
            done = True
        else:
            n = tl.cast(step * PART // width, tl.int64)
            begin = step * PART % width
            done = begin == width - PART
        if MIXED:
            flags = tl.load(p_flags + n)
        column = step * PART
        if RAGGED:
            p_features = p_x + b[None, :] * stride_xb + (first_width + column + features[:, None]) * stride_xi
        else:
            p_features = p_x + b[None, :] * stride_xb + (n + 1) * stride_xn + (begin + features[:, None]) * stride_xi
        b_x = tl.load(p_features, mask=inside[None, :], other=0.0)
        if HAS_CHAIN:
            b_cores = load_cores(p_core, run * steps + column, rows, R, PART, TMA)
            # One product for all features of the part: its sums do not wait for each other.
            b_new = product(b_cores, b_y, PRECISION).reshape(PART, R, BN)
            if MIXED:
                b_new = tl.where((flags & CHAIN) != 0, b_new, 0.0)
            b_sum += tl.sum(b_new * b_x[:, None, :], axis=0)
        if HAS_LINEAR and not FOLDED:
            p_entries = p_linear + ((run * inner + n) * width + begin + features[:, None]) * bond + rows[None, :]
            b_entries = tl.load(p_entries, mask=(rows < bond)[None, :], other=0.0)
            if MIXED:
                b_entries = tl.where((flags & LINEAR) != 0, b_entries, 0.0)
            b_sum += tl.sum(b_entries[:, :, None] * b_x[:, None, :], axis=0)
        b_next = b_sum
        b_leave = b_y
        if MIXED:
            b_next += tl.where((flags & SKIP_FULL) != 0, b_y, 0.0)
            b_leave = tl.where((flags & SKIP_OUTPUT) != 0, b_y, 0.0)
        elif SKIP == "full":
            b_next += b_y
        elif FOLDED:
            b_next = tl.where((rows == bond)[:, None], 1.0, b_next)
        p_tile = p_here + (n + 1) * stride
        if WHOLE:
            if HAS_OUTPUT_SKIP:
                b_left += b_leave
            b_y = b_next
            b_sum = tl.zeros((R, BN), tl.float32)
            tl.store(p_tile, b_y, mask=saved)
        else:
            if HAS_OUTPUT_SKIP:
                b_left += tl.where(done, b_leave, 0.0)
            b_y = tl.where(done, b_next, b_y)
            b_sum = tl.where(done, 0.0, b_sum)
            if done:
                tl.store(p_tile, b_y, mask=saved)

    if ENDS_WITH_SKIP:
        b_left += b_y
    tl.store(p_last + run * size + tile, b_y, mask=real)
    if HAS_OUTPUT_SKIP:
        tl.store(p_leaving + run * size + tile, b_left, mask=real)
    tl.debug_barrier()
    if RAGGED:
        p_last_x = p_x + (first_width + steps) * stride_xi
    else:
        p_last_x = p_x + (inner + 1) * stride_xn
    head_forward(
        p_out, p_last, p_leaving, p_last_x, p_last_chain, p_last_linear, p_last_skip, run, batch, columns,
        stride_xb, stride_xi, last_width, width, O, bond, b, R, BN, OT, LAST_CHAIN, LAST_LINEAR, LAST_SKIP, PRECISION,
    )  # fmt: skip
