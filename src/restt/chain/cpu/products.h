/* Vectors of samples, and the three products that everything else is made of. */
#ifndef RESTT_PRODUCTS_H
#define RESTT_PRODUCTS_H

#include <stdint.h>
#include <string.h>

#ifndef REAL
#define REAL float
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

#define LANES ((int64_t)(VECTOR_BYTES / sizeof(REAL)))
#define TILE (2 * LANES)
/* 6 x 2 vectors of sums, 2 of one operand and 1 of the other leave one of 16 registers to the compiler. */
#define PRODUCT_ROWS 6
#define DOT_STATES 2
#define DOT_GRADS 6
#define ONE_QUADS 6
/* Features whose outer products with a state are held at once; sites with more of them are wide. */
#define FEATURES 16
/* Tiles summed in registers before a weight gradient is stored; bounds what a block of rows needs of the L1 cache. */
#define DOT_TILES (512 / TILE)

#define INLINE static inline __attribute__((always_inline))

/* Keeps a loaded vector in its register; compilers otherwise load it anew for every use, and loads are the limit. */
#if defined(__x86_64__) || defined(__i386__)
#define IN_REGISTER(v) __asm__("" : "+x"(v))
#elif defined(__aarch64__)
#define IN_REGISTER(v) __asm__("" : "+w"(v))
#else
#define IN_REGISTER(v) ((void)0)
#endif

typedef REAL vec __attribute__((vector_size(VECTOR_BYTES), aligned(VECTOR_BYTES), may_alias));
typedef REAL quad __attribute__((vector_size(4 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

/* MULTIPLY_ADD(a, b, c) is a * b + c for a vec, QUAD_ and ONE_MULTIPLY_ADD for a quad and a number. All three round once
 * where the processor can and twice where it cannot. Compilers choose by the vector's length (GCC for AMD's processors
 * does), so build.py forbids them to contract, and a sample has the same bits in a lane, in a quad and alone. */
#if defined(__FMA__)
#include <immintrin.h>
#if VECTOR_BYTES == 64
#define MULTIPLY_ADD _Generic((REAL)0, float: _mm512_fmadd_ps, double: _mm512_fmadd_pd)
#else
#define MULTIPLY_ADD _Generic((REAL)0, float: _mm256_fmadd_ps, double: _mm256_fmadd_pd)
#endif
#define QUAD_MULTIPLY_ADD _Generic((REAL)0, float: _mm_fmadd_ps, double: _mm256_fmadd_pd)
#define ONE_MULTIPLY_ADD _Generic((REAL)0, float: __builtin_fmaf, double: __builtin_fma)
#elif defined(__aarch64__)
#include <arm_neon.h>
#define MULTIPLY_ADD(a, b, c) _Generic((REAL)0, float: vfmaq_f32, double: vfmaq_f64)(c, a, b)
#define ONE_MULTIPLY_ADD _Generic((REAL)0, float: __builtin_fmaf, double: __builtin_fma)
INLINE quad QUAD_MULTIPLY_ADD(quad a, quad b, quad c) {
    vec parts[3][sizeof(quad) / sizeof(vec)];
    memcpy(parts[0], &a, sizeof(quad));
    memcpy(parts[1], &b, sizeof(quad));
    memcpy(parts[2], &c, sizeof(quad));
    for (size_t p = 0; p < sizeof(quad) / sizeof(vec); p++)
        parts[2][p] = MULTIPLY_ADD(parts[0][p], parts[1][p], parts[2][p]);
    memcpy(&c, parts[2], sizeof(quad));
    return c;
}
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#define QUAD_MULTIPLY_ADD MULTIPLY_ADD
#define ONE_MULTIPLY_ADD MULTIPLY_ADD
#endif

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }


/* sums[r] += sum over k of z[k] * w[k * step + r * row_step], for one tile */
INLINE void accumulate(const int rows, vec sums[][2], const REAL *z, const REAL *w, int64_t count, int64_t step,
                       int64_t row_step) {
    for (int64_t k = 0; k < count; k++) {
        const vec *source = (const vec *)(z + k * TILE);
        const vec low = source[0], high = source[1];
        const REAL *weight = w + k * step;
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const vec factor = weight[r * row_step] - (vec){0}; /* in every lane: no bit changes by it */
            sums[r][0] = MULTIPLY_ADD(low, factor, sums[r][0]);
            sums[r][1] = MULTIPLY_ADD(high, factor, sums[r][1]);
        }
    }
}

/* One addend of a product: sum over features i and k of z[i, k] * w[i * feature_step + k * step + r * row_step]. */
struct term {
    const REAL *z, *w;
    int64_t features, count, feature_step;
};

INLINE void product_rows(const int rows, const int transposed, REAL *out, const REAL *start, int64_t width,
                         const struct term *terms, int count, int64_t row) {
    vec sums[PRODUCT_ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        const vec *source = (const vec *)(start + r * TILE);
        sums[r][0] = start ? source[0] : (vec){0};
        sums[r][1] = start ? source[1] : (vec){0};
    }
    for (int t = 0; t < count; t++) {
        const struct term *term = terms + t;
        for (int64_t i = 0; i < term->features; i++) {
            const REAL *z = term->z + i * term->count * TILE, *w = term->w + i * term->feature_step;
            if (transposed)
                accumulate(rows, sums, z, w + row * width, term->count, 1, width);
            else
                accumulate(rows, sums, z, w + row, term->count, width, 1);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        vec *target = (vec *)(out + r * TILE);
        target[0] = sums[r][0];
        target[1] = sums[r][1];
    }
}

/* out[r] = start[r] + the terms, r < rows. A core is (.., width): out runs over its columns, or its rows if transposed. */
INLINE void product(const int transposed, REAL *out, int64_t rows, const REAL *start, int64_t width,
                    const struct term *terms, int count) {
    const int64_t blocks = (rows + PRODUCT_ROWS - 1) / PRODUCT_ROWS;
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t row = b * rows / blocks, end = (b + 1) * rows / blocks;
        REAL *target = out + row * TILE;
        const REAL *origin = start ? start + row * TILE : 0;
        switch (end - row) {
        case 1: product_rows(1, transposed, target, origin, width, terms, count, row); break;
        case 2: product_rows(2, transposed, target, origin, width, terms, count, row); break;
        case 3: product_rows(3, transposed, target, origin, width, terms, count, row); break;
        case 4: product_rows(4, transposed, target, origin, width, terms, count, row); break;
        case 5: product_rows(5, transposed, target, origin, width, terms, count, row); break;
        default: product_rows(6, transposed, target, origin, width, terms, count, row); break;
        }
    }
}

/* Columns row .. row + 4 quads (one column if there are none) of `product` for the first sample of a tile */
INLINE void columns_of_one(const int quads, REAL *out, const REAL *start, int64_t width, const struct term *terms,
                           int count, int64_t row) {
    quad sums[ONE_QUADS];
    REAL sum = start ? start[row * TILE] : 0;
    for (int q = 0; q < quads; q++)
        for (int r = 0; r < 4; r++) sums[q][r] = start ? start[(row + 4 * q + r) * TILE] : 0;
    for (int t = 0; t < count; t++) {
        const struct term *term = terms + t;
        for (int64_t i = 0; i < term->features; i++) {
            const REAL *z = term->z + i * term->count * TILE, *w = term->w + i * term->feature_step + row;
            for (int64_t k = 0; k < term->count; k++) {
                const quad factor = z[k * TILE] - (quad){0};
                if (!quads) sum = ONE_MULTIPLY_ADD(w[k * width], z[k * TILE], sum);
#pragma GCC unroll 8
                for (int q = 0; q < quads; q++)
                    sums[q] = QUAD_MULTIPLY_ADD(*(const quad *)(w + k * width + 4 * q), factor, sums[q]);
            }
        }
    }
    if (!quads) out[row * TILE] = sum;
    for (int q = 0; q < quads; q++)
        for (int r = 0; r < 4; r++) out[(row + 4 * q + r) * TILE] = sums[q][r];
}

/* The same bits as `product` where only the first sample of a tile is there and the others are zero. A lone sample leaves
 * the lanes to the columns, so that a core is read once, from one end to the other. */
static void product_of_one(REAL *out, int64_t rows, const REAL *start, int64_t width, const struct term *terms,
                           int count) {
    int64_t row = 0;
    while (row < rows) {
        const int64_t quads = smaller((rows - row) / 4, ONE_QUADS);
        switch (quads) {
        case 0: columns_of_one(0, out, start, width, terms, count, row); break;
        case 1: columns_of_one(1, out, start, width, terms, count, row); break;
        case 2: columns_of_one(2, out, start, width, terms, count, row); break;
        case 3: columns_of_one(3, out, start, width, terms, count, row); break;
        case 4: columns_of_one(4, out, start, width, terms, count, row); break;
        case 5: columns_of_one(5, out, start, width, terms, count, row); break;
        default: columns_of_one(ONE_QUADS, out, start, width, terms, count, row); break;
        }
        row += quads ? 4 * quads : 1;
    }
    for (row = 0; row < rows; row++)
        for (int64_t b = 1; b < TILE; b++) out[row * TILE + b] = 0;
}

/* `samples` is the whole batch's number */
static __attribute__((noinline)) void to_columns(REAL *out, int64_t rows, const REAL *start, int64_t width,
                                                 const struct term *terms, int count, int64_t samples) {
    if (samples == 1)
        product_of_one(out, rows, start, width, terms, count);
    else
        product(0, out, rows, start, width, terms, count);
}

static __attribute__((noinline)) void to_rows(REAL *out, int64_t rows, const REAL *start, int64_t width,
                                              const struct term *terms, int count) {
    product(1, out, rows, start, width, terms, count);
}

/* The lanes' sums of four vectors */
INLINE quad lane_sums(const vec *v) {
    union {
        vec whole;
        quad part[(LANES + 3) / 4];
        REAL lane[LANES];
    } u;
    quad folded[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        u.whole = v[k];
        folded[k] = LANES < 4 ? (quad){u.lane[0], u.lane[1]} : u.part[0];
#pragma GCC unroll 4
        for (int64_t p = 1; p < LANES / 4; p++) folded[k] += u.part[p];
    }
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
    const quad low = __builtin_shufflevector(folded[0], folded[1], 0, 4, 1, 5) +
                     __builtin_shufflevector(folded[0], folded[1], 2, 6, 3, 7);
    const quad high = __builtin_shufflevector(folded[2], folded[3], 0, 4, 1, 5) +
                      __builtin_shufflevector(folded[2], folded[3], 2, 6, 3, 7);
    return __builtin_shufflevector(low, high, 0, 1, 4, 5) + __builtin_shufflevector(low, high, 2, 3, 6, 7);
#define HAS_SHUFFLE
#endif
#endif
#ifndef HAS_SHUFFLE
    quad sums;
    for (int k = 0; k < 4; k++) sums[k] = (folded[k][0] + folded[k][2]) + (folded[k][1] + folded[k][3]);
    return sums;
#endif
}

/* out[a][b] = sum over the samples of states[a] * grads[b], added to what is there when `add` */
INLINE void dot_rows(const int states, const int grads, const REAL *y, int64_t y_tile, const REAL *z, int64_t z_tile,
                     int64_t tiles, REAL **out, int add) {
    vec sums[DOT_STATES][(DOT_GRADS + 3) / 4 * 4];
#pragma GCC unroll 4
    for (int a = 0; a < states; a++)
#pragma GCC unroll 8
        for (int b = 0; b < (DOT_GRADS + 3) / 4 * 4; b++) sums[a][b] = (vec){0};
    for (int64_t t = 0; t < tiles; t++) {
#pragma GCC unroll 1
        for (int part = 0; part < 2; part++) {
            const vec *left = (const vec *)(y + t * y_tile) + part, *right = (const vec *)(z + t * z_tile) + part;
            vec state[DOT_STATES];
#pragma GCC unroll 4
            for (int a = 0; a < states; a++) {
                state[a] = left[2 * a];
                IN_REGISTER(state[a]);
            }
#pragma GCC unroll 8
            for (int b = 0; b < grads; b++) {
                vec grad = right[2 * b];
                IN_REGISTER(grad);
#pragma GCC unroll 4
                for (int a = 0; a < states; a++) sums[a][b] = MULTIPLY_ADD(state[a], grad, sums[a][b]);
            }
        }
    }
#pragma GCC unroll 4
    for (int a = 0; a < states; a++)
#pragma GCC unroll 2
        for (int b = 0; b < grads; b += 4) {
            const int64_t size = (grads - b < 4 ? grads - b : 4) * sizeof(REAL);
            quad total = lane_sums(sums[a] + b), before = {0};
            if (add) memcpy(&before, out[a] + b, size);
            total += before;
            memcpy(out[a] + b, &total, size);
        }
}

#define DOT_CASE(states, grads) \
    case (states) * 8 + (grads): dot_rows(states, grads, y, y_tile, z, z_tile, tiles, out, add); break;

static void dot_block(int64_t states, int64_t grads, const REAL *y, int64_t y_tile, const REAL *z, int64_t z_tile,
                      int64_t tiles, REAL **out, int add) {
    switch (states * 8 + grads) {
        DOT_CASE(1, 1) DOT_CASE(1, 2) DOT_CASE(1, 3) DOT_CASE(1, 4) DOT_CASE(1, 5) DOT_CASE(1, 6)
        DOT_CASE(2, 1) DOT_CASE(2, 2) DOT_CASE(2, 3) DOT_CASE(2, 4) DOT_CASE(2, 5) DOT_CASE(2, 6)
    }
}

/* core[k][l] = sum over the samples of y[k] * z[l] for k < bond, entry[l] = sum of z[l] (the state's row of ones);
 * either may be absent. Added to what is there when `add`. */
static void weight_gradient(const REAL *y, int64_t y_tile, const REAL *z, int64_t z_tile, int64_t tiles, int64_t bond,
                            int64_t columns, REAL *core, REAL *entry, int add) {
    const int64_t low = core ? 0 : bond, high = entry ? bond + 1 : bond;
    const int64_t blocks = (columns + DOT_GRADS - 1) / DOT_GRADS;
    for (int64_t from = 0; from < tiles || from == 0; from += DOT_TILES) {
        const int64_t count = smaller(DOT_TILES, tiles - from);
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t l = b * columns / blocks, l_end = (b + 1) * columns / blocks;
            for (int64_t k = low; k < high; k += DOT_STATES) {
                const int64_t states = smaller(DOT_STATES, high - k);
                REAL *out[DOT_STATES];
                for (int64_t a = 0; a < states; a++) out[a] = (k + a < bond ? core + (k + a) * columns : entry) + l;
                dot_block(states, l_end - l, y + from * y_tile + k * TILE, y_tile, z + from * z_tile + l * TILE, z_tile,
                          count, out, add || from > 0);
            }
        }
    }
}

/* z[k] = x * y[k] for one feature of one tile */
INLINE void scale(REAL *restrict z, const REAL *restrict x, const REAL *restrict y, int64_t rows) {
    const vec low = ((const vec *)x)[0], high = ((const vec *)x)[1];
    for (int64_t k = 0; k < rows; k++) {
        ((vec *)z)[2 * k] = low * ((const vec *)y)[2 * k];
        ((vec *)z)[2 * k + 1] = high * ((const vec *)y)[2 * k + 1];
    }
}

/* Whether a feature is anything but zero in a tile */
INLINE int acts(const REAL *x) {
    int found = 0;
    for (int64_t b = 0; b < TILE; b++) found |= x[b] != 0;
    return found;
}

/* z[i, k] = x[i] * y[k] for one tile */
static void outer(REAL *restrict z, const REAL *restrict x, const REAL *restrict y, int64_t width, int64_t rows) {
    for (int64_t i = 0; i < width; i++) scale(z + i * rows * TILE, x + i * TILE, y, rows);
}

/* Features of x (x) y with their slices of w as terms: all where they are few, otherwise the next ones that act in this
 * tile, since a category of many levels acts with few of them. `next` moves on to the first one not looked at. */
static int gather(struct term *terms, int64_t *next, int64_t width, const REAL *x, const REAL *y, int64_t rows,
                  const REAL *w, int64_t slice, REAL *z) {
    int count = 0, open = 0;
    int64_t i = *next;
    if (width <= FEATURES) {
        outer(z, x, y, width, rows);
        terms[0] = (struct term){z, w, width, rows, slice};
        *next = width;
        return 1;
    }
    for (int64_t held = 0; i < width && held < FEATURES; i++) {
        if (!acts(x + i * TILE)) {
            open = 0;
            continue;
        }
        REAL *here = z + held++ * rows * TILE;
        scale(here, x + i * TILE, y, rows);
        if (open)
            terms[count - 1].features++;
        else
            terms[count++] = (struct term){here, w + i * slice, 1, rows, slice};
        open = 1;
    }
    *next = i;
    return count;
}

static void add_to(REAL *restrict out, const REAL *restrict addend, int64_t rows) {
    for (int64_t k = 0; k < rows * TILE / LANES; k++) ((vec *)out)[k] += ((const vec *)addend)[k];
}

static void fill(REAL *out, int64_t count, REAL value) {
    for (int64_t k = 0; k < count; k++) out[k] = value;
}

#endif
