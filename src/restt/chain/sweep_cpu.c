/* The whole contraction of a (residual) tensor train and its gradients, for one floating point type.
 *
 * A tile is TILE samples. Everything a tile touches is stored with the samples innermost, so a vector register holds one
 * number of several samples and a weight is one broadcast: the bond dimension needs no padding and no weight is packed
 * or transposed. Each thread walks a few tiles through all sites while a site's core sits in its cache. README.md beside
 * this file has the derivation. Built by cpu_build.py; `struct chain` is mirrored in fused_cpu.py.
 *
 * Legend: S runs, B batch, N sites, I feature width, R bond dimension, O outputs.
 */
#include <stdint.h>
#include <string.h>
#if !defined(_WIN32)
#include <pthread.h>
#endif

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
/* Tiles walked together: enough to reuse a core from cache, few enough that their states stay there too. */
#define GROUP_TILES 16
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

enum { CHAIN = 1, LINEAR = 2, FULL = 4, OUTPUT = 8 };

typedef void (*parallel_fn)(void (*)(void *), void *, unsigned, unsigned);

struct chain {
    int64_t runs, x_runs, batch, sites, width, bond, outputs;
    int64_t x_run, x_sample, x_site, x_feature; /* strides of x (S or 1, B, N, I) */
    int64_t g_run, g_sample, g_output;          /* strides of the output's gradient (S, B, O) */
    int64_t threads;
    int64_t keep_every;                         /* every how many-th state the forward keeps; 1: all */
    int64_t site_scratch;                       /* about how many numbers of x (x) g may be held at once */
    int64_t saved_size, forward_size, backward_size; /* set by plan() */
    const uint8_t *flags;                       /* of sites 2..N */
    const REAL *x, *first, *chain, *linear, *last_chain, *last_linear, *last_skip;
    REAL *output;
    const REAL *grad_output;
    REAL *grad_x, *grad_first, *grad_chain, *grad_linear, *grad_last_chain, *grad_last_linear, *grad_last_skip;
    REAL *saved, *scratch;
    parallel_fn parallel;
};

/* Sizes that follow from a chain; *_tile are numbers per tile. */
struct layout {
    int64_t tiles, inner, kept, any_leaving;
    int64_t state_tile, x_tile, z_tile, head_tile, thread_tile;
    int64_t states, ring, leaving, saved; /* offsets into what is saved, x at 0, and its size */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static struct layout layout_of(const struct chain *c) {
    struct layout l;
    l.tiles = (c->batch + TILE - 1) / TILE;
    l.inner = c->sites - 2;
    l.kept = l.inner / c->keep_every + 1;
    l.any_leaving = 0;
    for (int64_t n = 0; n < l.inner; n++) l.any_leaving |= c->flags[n] & OUTPUT;
    /* A state has one more row of ones, with which the entries' gradients come out of the cores' product. An odd number
     * of rows keeps the same row of successive tiles out of the same cache set. */
    l.state_tile = ((c->bond + 1) | 1) * TILE;
    l.x_tile = c->sites * c->width * TILE;
    l.z_tile = ((c->width * c->bond) | 1) * TILE;
    l.head_tile = ((c->width + 1) * c->outputs) * TILE;
    l.thread_tile = (c->width + 3) * larger(c->bond, c->outputs) * TILE;
    const int64_t states = c->runs * l.tiles * l.state_tile;
    l.states = c->x_runs * l.tiles * l.x_tile;
    l.ring = l.states + l.kept * states;
    l.leaving = l.ring + (c->keep_every > 1 ? 2 : 0) * states;
    l.saved = l.leaving + (l.any_leaving ? states : 0);
    return l;
}

/* ---- the three products ---- */

/* sums[r] += sum over k of z[k] * w[k * step + r * row_step], for one tile */
INLINE void accumulate(const int rows, vec sums[][2], const REAL *z, const REAL *w, int64_t count, int64_t step,
                       int64_t row_step) {
    for (int64_t k = 0; k < count; k++) {
        const vec *source = (const vec *)(z + k * TILE);
        const vec low = source[0], high = source[1];
        const REAL *weight = w + k * step;
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const REAL factor = weight[r * row_step];
            sums[r][0] += low * factor;
            sums[r][1] += high * factor;
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

static __attribute__((noinline)) void to_columns(REAL *out, int64_t rows, const REAL *start, int64_t width,
                                                 const struct term *terms, int count) {
    product(0, out, rows, start, width, terms, count);
}

static __attribute__((noinline)) void to_rows(REAL *out, int64_t rows, const REAL *start, int64_t width,
                                              const struct term *terms, int count) {
    product(1, out, rows, start, width, terms, count);
}

typedef REAL quad __attribute__((vector_size(4 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

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
                for (int a = 0; a < states; a++) sums[a][b] += state[a] * grad;
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
 * either may be absent. */
static void weight_gradient(const REAL *y, int64_t y_tile, const REAL *z, int64_t z_tile, int64_t tiles, int64_t bond,
                            int64_t columns, REAL *core, REAL *entry) {
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
                          count, out, from > 0);
            }
        }
    }
}

/* z[i, k] = x[i] * y[k] for one tile */
static void outer(REAL *restrict z, const REAL *restrict x, const REAL *restrict y, int64_t width, int64_t rows) {
    for (int64_t i = 0; i < width; i++) {
        const vec low = ((const vec *)(x + i * TILE))[0], high = ((const vec *)(x + i * TILE))[1];
        vec *target = (vec *)(z + i * rows * TILE);
        const vec *source = (const vec *)y;
        for (int64_t k = 0; k < rows; k++) {
            target[2 * k] = low * source[2 * k];
            target[2 * k + 1] = high * source[2 * k + 1];
        }
    }
}

static void add_to(REAL *restrict out, const REAL *restrict addend, int64_t rows) {
    for (int64_t k = 0; k < rows * TILE / LANES; k++) ((vec *)out)[k] += ((const vec *)addend)[k];
}

static void fill(REAL *out, int64_t count, REAL value) {
    for (int64_t k = 0; k < count; k++) out[k] = value;
}

/* ---- running in parallel ---- */

struct work {
    const struct chain *c;
    struct layout l;
    void (*task)(const struct work *, int64_t task, REAL *own);
    int64_t tasks, own_size;
    int64_t groups, joint;   /* groups of tiles; joint: one task takes all runs of its tiles, to sum x's gradient */
    int64_t from, to;        /* sites of this round of the backward pass */
    REAL *own;               /* scratch of each thread */
    REAL *g, *g_leaving, *grad_x;
    /* Where x (x) g is kept until the weight gradients are taken, and the replayed states; strides in numbers. */
    REAL *z, *z_first, *z_head, *replayed;
    int64_t z_site, z_run, head_run, replayed_site, replayed_run;
    int64_t next, tickets;
};

static void run_tasks(void *data) {
    struct work *w = data;
    REAL *own = w->own + __atomic_fetch_add(&w->tickets, 1, __ATOMIC_RELAXED) * w->own_size;
    for (;;) {
        const int64_t task = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED);
        if (task >= w->tasks) break;
        w->task(w, task, own);
    }
}

#if !defined(_WIN32)
static void *run_thread(void *data) {
    run_tasks(data);
    return 0;
}
#endif

static void run(struct work *w, void (*task)(const struct work *, int64_t, REAL *), int64_t tasks) {
    int64_t threads = smaller(w->c->threads, tasks);
    w->task = task;
    w->tasks = tasks;
    w->next = w->tickets = 0;
    if (threads > 1 && w->c->parallel) {
        w->c->parallel(run_tasks, w, (unsigned)threads, 0);
        return;
    }
#if !defined(_WIN32)
    pthread_t others[63];
    int64_t started = 0;
    threads = smaller(threads, 64);
    while (started < threads - 1 && !pthread_create(&others[started], 0, run_thread, w)) started++;
    run_tasks(w);
    while (started) pthread_join(others[--started], 0);
#else
    run_tasks(w);
#endif
}

/* Tiles are dealt out in groups; their number fits the threads where there are enough tiles for that. */
static int64_t groups_for(const struct chain *c, const struct layout *l, int64_t runs) {
    int64_t groups = larger(1, (l->tiles + GROUP_TILES - 1) / GROUP_TILES);
    while (groups < l->tiles && runs * groups % c->threads) groups++;
    return groups;
}

/* ---- forward ---- */

INLINE REAL *x_at(const struct work *w, int64_t s, int64_t t, int64_t site) {
    const int64_t run = w->c->x_runs == 1 ? 0 : s;
    return w->c->saved + (run * w->l.tiles + t) * w->l.x_tile + site * w->c->width * TILE;
}

INLINE REAL *tile_of(const struct work *w, REAL *base, int64_t slot, int64_t s, int64_t t) {
    return base + ((slot * w->c->runs + s) * w->l.tiles + t) * w->l.state_tile;
}

/* Where the forward pass keeps y(n+1); those it does not keep take turns in two places. */
INLINE REAL *state_at(const struct work *w, int64_t n, int64_t s, int64_t t) {
    const int64_t every = w->c->keep_every;
    if (n % every == 0) return tile_of(w, w->c->saved + w->l.states, n / every, s, t);
    return tile_of(w, w->c->saved + w->l.ring, n & 1, s, t);
}

/* The sum of the states that leave for the output */
INLINE REAL *leaving_at(const struct work *w, int64_t s, int64_t t) {
    return tile_of(w, w->c->saved + w->l.leaving, 0, s, t);
}

static void load_x(const struct work *w, int64_t run, int64_t t) {
    const struct chain *c = w->c;
    REAL *out = c->saved + (run * w->l.tiles + t) * w->l.x_tile;
    for (int64_t b = 0; b < TILE; b++) {
        const int64_t sample = t * TILE + b;
        const REAL *source = c->x + run * c->x_run + sample * c->x_sample;
        for (int64_t n = 0; n < c->sites; n++)
            for (int64_t i = 0; i < c->width; i++)
                out[(n * c->width + i) * TILE + b] =
                    sample < c->batch ? source[n * c->x_site + i * c->x_feature] : (REAL)0;
    }
}

/* y(n) from y(n-1) at inner site number `site` (0 is the paper's site 2), for one tile */
static void step(const struct work *w, int64_t s, int64_t t, int64_t site, const REAL *y, REAL *out, REAL *own) {
    const struct chain *c = w->c;
    const int64_t R = c->bond, I = c->width, index = s * w->l.inner + site;
    const uint8_t flags = c->flags[site];
    const REAL *x = x_at(w, s, t, site + 1);
    struct term terms[2];
    int count = 0;
    if (flags & LINEAR) terms[count++] = (struct term){x, c->linear + index * I * R, 1, I, 0};
    if (flags & CHAIN) {
        outer(own, x, y, I, R);
        terms[count++] = (struct term){own, c->chain + index * I * R * R, 1, I * R, 0};
    }
    to_columns(out, R, flags & FULL ? y : 0, R, terms, count);
    fill(out + R * TILE, TILE, 1);
}

static void first_state(const struct work *w, int64_t s, int64_t t) {
    const struct chain *c = w->c;
    REAL *out = state_at(w, 0, s, t);
    const struct term term = {x_at(w, s, t, 0), c->first + s * c->width * c->bond, 1, c->width, 0};
    to_columns(out, c->bond, 0, c->bond, &term, 1);
    fill(out + c->bond * TILE, TILE, 1);
}

static void last_site(const struct work *w, int64_t s, int64_t t, REAL *own) {
    const struct chain *c = w->c;
    const int64_t R = c->bond, I = c->width, O = c->outputs;
    const uint8_t flags = c->flags[w->l.inner];
    const REAL *y = state_at(w, w->l.inner, s, t), *x = x_at(w, s, t, c->sites - 1), *head = y;
    if (w->l.any_leaving) {
        REAL *leaving = leaving_at(w, s, t);
        if (flags & (FULL | OUTPUT)) add_to(leaving, y, R);
        head = leaving;
    }
    REAL *z = own, *out = own + I * R * TILE;
    struct term terms[3];
    int count = 0;
    if (flags & CHAIN) {
        outer(z, x, y, I, R);
        terms[count++] = (struct term){z, c->last_chain + s * I * R * O, 1, I * R, 0};
    }
    if (flags & LINEAR) terms[count++] = (struct term){x, c->last_linear + s * I * O, 1, I, 0};
    if (c->last_skip) terms[count++] = (struct term){head, c->last_skip + s * R * O, 1, R, 0};
    to_columns(out, O, 0, O, terms, count);
    for (int64_t b = 0; b < smaller(TILE, c->batch - t * TILE); b++)
        for (int64_t o = 0; o < O; o++) c->output[(s * c->batch + t * TILE + b) * O + o] = out[o * TILE + b];
}

static void load_task(const struct work *w, int64_t task, REAL *own) {
    (void)own;
    load_x(w, task / w->l.tiles, task % w->l.tiles);
}

static void forward_task(const struct work *w, int64_t task, REAL *own) {
    const int64_t s = task / w->groups, group = task % w->groups, inner = w->l.inner;
    const int64_t from = group * w->l.tiles / w->groups, to = (group + 1) * w->l.tiles / w->groups;
    for (int64_t t = from; t < to; t++) {
        if (w->c->x_runs == w->c->runs) load_x(w, s, t);
        first_state(w, s, t);
        if (w->l.any_leaving) fill(leaving_at(w, s, t), w->l.state_tile, 0);
    }
    for (int64_t n = 0; n < inner; n++)
        for (int64_t t = from; t < to; t++) {
            const REAL *y = state_at(w, n, s, t);
            if (w->c->flags[n] & OUTPUT) add_to(leaving_at(w, s, t), y, w->c->bond);
            step(w, s, t, n, y, state_at(w, n + 1, s, t), own);
        }
    for (int64_t t = from; t < to; t++) last_site(w, s, t, own);
}

/* ---- backward ---- */

/* y(n+1) in the backward pass: kept, or replayed from the last one kept before it */
INLINE REAL *past_state(const struct work *w, int64_t n, int64_t s, int64_t t) {
    const int64_t every = w->c->keep_every;
    if (n % every == 0 || n == w->l.inner) return state_at(w, n, s, t);
    return w->replayed + (n % every - 1) * w->replayed_site + s * w->replayed_run + t * w->l.state_tile;
}

INLINE REAL *g_at(const struct work *w, int64_t s, int64_t t) { return tile_of(w, w->g, 0, s, t); }

/* gx[i] += sum over k of y[k] * part[k] */
static void add_dot(REAL *gx, const REAL *y, const REAL *part, int64_t rows) {
    vec low = ((vec *)gx)[0], high = ((vec *)gx)[1];
    for (int64_t k = 0; k < rows; k++) {
        low += ((const vec *)y)[2 * k] * ((const vec *)part)[2 * k];
        high += ((const vec *)y)[2 * k + 1] * ((const vec *)part)[2 * k + 1];
    }
    ((vec *)gx)[0] = low;
    ((vec *)gx)[1] = high;
}

static REAL *grad_x_at(const struct work *w, int64_t s, int64_t t, int64_t site) {
    const int64_t run = w->c->x_runs == 1 ? 0 : s;
    return w->grad_x + (run * w->l.tiles + t) * w->l.x_tile + site * w->c->width * TILE;
}

/* The gradient of x at one site: through the core, y . W_i g, and through the entry, U_i . g */
static void site_grad_x(const struct work *w, int64_t s, int64_t t, int64_t site, const REAL *y, const REAL *g,
                        int64_t columns, const REAL *core, const REAL *entry, REAL *part) {
    const int64_t R = w->c->bond, I = w->c->width;
    REAL *gx = grad_x_at(w, s, t, site);
    if (entry) {
        const struct term term = {g, entry, 1, columns, 0};
        to_rows(gx, I, gx, columns, &term, 1);
    }
    for (int64_t i = 0; core && i < I; i++) {
        const struct term term = {g, core + i * R * columns, 1, columns, 0};
        to_rows(part, R, 0, columns, &term, 1);
        add_dot(gx + i * TILE, y, part, R);
    }
}

static void head_back(const struct work *w, int64_t s, int64_t t, REAL *own) {
    const struct chain *c = w->c;
    const int64_t R = c->bond, I = c->width, O = c->outputs;
    const uint8_t flags = c->flags[w->l.inner];
    REAL *z = w->z_head + s * w->head_run + t * w->l.head_tile, *g_out = z + I * O * TILE, *g = g_at(w, s, t);
    for (int64_t o = 0; o < O; o++)
        for (int64_t b = 0; b < TILE; b++) {
            const int64_t sample = t * TILE + b;
            g_out[o * TILE + b] =
                sample < c->batch ? c->grad_output[s * c->g_run + sample * c->g_sample + o * c->g_output] : (REAL)0;
        }
    outer(z, x_at(w, s, t, c->sites - 1), g_out, I, O);
    struct term terms[2];
    int count = 0;
    if (flags & CHAIN) terms[count++] = (struct term){z, c->last_chain + s * I * R * O, I, O, R * O};
    const struct term skip = {g_out, c->last_skip + s * R * O, 1, O, 0};
    if (flags & (FULL | OUTPUT)) terms[count++] = skip;
    to_rows(g, R, 0, O, terms, count);
    if (w->l.any_leaving) to_rows(tile_of(w, w->g_leaving, 0, s, t), R, 0, O, &skip, 1);
    if (w->grad_x)
        site_grad_x(w, s, t, c->sites - 1, past_state(w, w->l.inner, s, t), g_out, O,
                    flags & CHAIN ? c->last_chain + s * I * R * O : 0,
                    flags & LINEAR ? c->last_linear + s * I * O : 0, own);
}

/* dL/dy(n-1) from dL/dy(n), in place, for one tile; leaves x (x) dL/dy(n) for the weight gradients */
static void step_back(const struct work *w, int64_t s, int64_t t, int64_t site, REAL *own) {
    const struct chain *c = w->c;
    const int64_t R = c->bond, I = c->width, index = s * w->l.inner + site;
    const uint8_t flags = c->flags[site];
    const REAL *core = flags & CHAIN ? c->chain + index * I * R * R : 0;
    const REAL *start = 0;
    REAL *g = g_at(w, s, t), *z = w->z + (site - w->from) * w->z_site + s * w->z_run + t * w->l.z_tile;
    if (w->grad_x)
        site_grad_x(w, s, t, site + 1, past_state(w, site, s, t), g, R, core,
                    flags & LINEAR ? c->linear + index * I * R : 0, own);
    if (flags & (CHAIN | LINEAR)) outer(z, x_at(w, s, t, site + 1), g, I, R);
    if (flags & FULL) start = g;
    if (flags & OUTPUT) start = tile_of(w, w->g_leaving, 0, s, t);
    const struct term term = {z, core, I, R, R * R};
    to_rows(g, R, start, R, &term, core ? 1 : 0);
}

static void first_back(const struct work *w, int64_t s, int64_t t) {
    const struct chain *c = w->c;
    const int64_t R = c->bond, I = c->width;
    const REAL *g = g_at(w, s, t), *x = x_at(w, s, t, 0);
    outer(w->z_first + s * w->z_run + t * w->l.z_tile, x, g, I, R);
    if (!w->grad_x) return;
    const struct term term = {g, c->first + s * I * R, 1, R, 0};
    REAL *gx = grad_x_at(w, s, t, 0);
    to_rows(gx, I, gx, R, &term, 1);
}

static void store_grad_x(const struct work *w, int64_t run, int64_t t) {
    const struct chain *c = w->c;
    const int64_t columns = c->sites * c->width;
    const REAL *source = w->grad_x + (run * w->l.tiles + t) * w->l.x_tile;
    for (int64_t b = 0; b < smaller(TILE, c->batch - t * TILE); b++)
        for (int64_t q = 0; q < columns; q++)
            c->grad_x[(run * c->batch + t * TILE + b) * columns + q] = source[q * TILE + b];
}

static void replay(const struct work *w, int64_t s, int64_t from_tile, int64_t to_tile, REAL *own) {
    for (int64_t n = w->from; n + 1 < w->to; n++)
        for (int64_t t = from_tile; t < to_tile; t++)
            step(w, s, t, n, past_state(w, n, s, t), past_state(w, n + 1, s, t), own);
}

/* Sites from..to of one run for some tiles, with the two ends of the chain where the range reaches them */
static void sweep_back(const struct work *w, int64_t s, int64_t from_tile, int64_t to_tile, REAL *own) {
    for (int64_t t = from_tile; t < to_tile && w->to == w->l.inner; t++) {
        if (w->grad_x && (s == 0 || w->c->x_runs > 1)) fill(grad_x_at(w, s, t, 0), w->l.x_tile, 0);
        head_back(w, s, t, own);
    }
    for (int64_t n = w->to - 1; n >= w->from; n--)
        for (int64_t t = from_tile; t < to_tile; t++) step_back(w, s, t, n, own);
    for (int64_t t = from_tile; t < to_tile && w->from == 0; t++) {
        first_back(w, s, t);
        if (w->grad_x && (s == w->c->runs - 1 || w->c->x_runs > 1)) store_grad_x(w, w->c->x_runs > 1 ? s : 0, t);
    }
}

static void backward_task(const struct work *w, int64_t task, REAL *own) {
    const int64_t group = task % w->groups, run = task / w->groups;
    const int64_t from = group * w->l.tiles / w->groups, to = (group + 1) * w->l.tiles / w->groups;
    for (int64_t s = w->joint ? 0 : run; s < (w->joint ? w->c->runs : run + 1); s++) {
        if (w->c->keep_every > 1) replay(w, s, from, to, own);
        sweep_back(w, s, from, to, own);
    }
}

static void inner_gradient(const struct work *w, int64_t s, int64_t site, int64_t i) {
    const struct chain *c = w->c;
    const int64_t R = c->bond, index = (s * w->l.inner + site) * c->width + i;
    const uint8_t flags = c->flags[site];
    REAL *core = c->grad_chain ? c->grad_chain + index * R * R : 0, *entry = c->grad_linear ? c->grad_linear + index * R : 0;
    if (core && !(flags & CHAIN)) {
        fill(core, R * R, 0);
        core = 0;
    }
    if (entry && !(flags & LINEAR)) {
        fill(entry, R, 0);
        entry = 0;
    }
    if (core || entry)
        weight_gradient(past_state(w, site, s, 0), w->l.state_tile,
                        w->z + (site - w->from) * w->z_site + s * w->z_run + i * R * TILE, w->l.z_tile, w->l.tiles, R, R,
                        core, entry);
}

/* What the weight gradients of this round are made of: a piece is one feature of one site, or the skip's head. */
static int64_t pieces(const struct work *w) {
    const int64_t ends = (w->to == w->l.inner ? w->c->width + 1 : 0) + (w->from == 0 ? w->c->width : 0);
    return (w->to - w->from) * w->c->width + ends;
}

static void weight_piece(const struct work *w, int64_t s, int64_t piece) {
    const struct chain *c = w->c;
    const int64_t R = c->bond, I = c->width, O = c->outputs, tiles = w->l.tiles;
    if (piece < (w->to - w->from) * I) {
        inner_gradient(w, s, w->from + piece / I, piece % I);
        return;
    }
    piece -= (w->to - w->from) * I;
    if (w->to == w->l.inner) {
        const REAL *y = past_state(w, w->l.inner, s, 0), *z = w->z_head + s * w->head_run;
        const uint8_t flags = c->flags[w->l.inner];
        if (piece < I) {
            REAL *core = c->grad_last_chain && (flags & CHAIN) ? c->grad_last_chain + (s * I + piece) * R * O : 0;
            REAL *entry = c->grad_last_linear && (flags & LINEAR) ? c->grad_last_linear + (s * I + piece) * O : 0;
            if (core || entry)
                weight_gradient(y, w->l.state_tile, z + piece * O * TILE, w->l.head_tile, tiles, R, O, core, entry);
            return;
        }
        if (piece == I) {
            const REAL *head = w->l.any_leaving ? leaving_at(w, s, 0) : y;
            if (c->grad_last_skip)
                weight_gradient(head, w->l.state_tile, z + I * O * TILE, w->l.head_tile, tiles, R, O,
                                c->grad_last_skip + s * R * O, 0);
            return;
        }
        piece -= I + 1;
    }
    if (c->grad_first)
        weight_gradient(state_at(w, 0, s, 0), w->l.state_tile, w->z_first + s * w->z_run + piece * R * TILE, w->l.z_tile,
                        tiles, R, R, 0, c->grad_first + (s * I + piece) * R);
}

static void weights_task(const struct work *w, int64_t task, REAL *own) {
    (void)own;
    weight_piece(w, task / pieces(w), task % pieces(w));
}

/* One run from its end to its start, weight gradients at once: nothing leaves the thread's cache. */
static void whole_run_task(const struct work *shared, int64_t s, REAL *own) {
    struct work w = *shared;
    const struct layout *l = &w.l;
    REAL *room = own + l->thread_tile;
    w.z = room;
    w.z_first = w.z + l->tiles * l->z_tile;
    w.z_head = w.z_first + l->tiles * l->z_tile;
    w.replayed = w.z_head + l->tiles * l->head_tile;
    w.z_site = w.z_run = w.head_run = w.replayed_run = 0;
    w.replayed_site = l->tiles * l->state_tile;
    const int64_t stretch = w.c->keep_every > 1 ? w.c->keep_every : larger(1, l->inner);
    int64_t start = larger(0, l->inner - 1) / stretch * stretch, end = l->inner;
    for (; start >= 0; end = start, start -= stretch) {
        w.from = start;
        w.to = end;
        if (w.c->keep_every > 1) replay(&w, s, 0, l->tiles, own);
        do {
            w.from = larger(0, w.to - 1);
            sweep_back(&w, s, 0, l->tiles, own);
            for (int64_t piece = 0; piece < pieces(&w); piece++) weight_piece(&w, s, piece);
            w.to = w.from;
        } while (w.to > start);
    }
}

static int whole_runs(const struct chain *c) {
    return c->runs >= 2 * c->threads && !(c->grad_x && c->x_runs == 1 && c->runs > 1);
}

/* Sites per round of the backward pass: a replayed stretch, or what keeps x (x) g within the scratch asked for */
static int64_t round_sites(const struct chain *c, const struct layout *l) {
    if (c->keep_every > 1) return smaller(c->keep_every, larger(1, l->inner));
    return smaller(larger(1, l->inner), larger(1, c->site_scratch / larger(1, c->runs * l->tiles * l->z_tile)));
}

static int64_t own_backward(const struct chain *c, const struct layout *l) {
    const int64_t replayed = c->keep_every > 1 ? smaller(c->keep_every, larger(1, l->inner)) * l->state_tile : 0;
    return l->thread_tile + (whole_runs(c) ? l->tiles * (2 * l->z_tile + l->head_tile + replayed) : 0);
}

/* ---- what is called from outside ---- */

int64_t restt_chain_bytes(void) { return sizeof(struct chain); }

/* How many numbers the forward pass saves and how many each pass needs besides */
void restt_plan(struct chain *c) {
    const struct layout l = layout_of(c);
    const int64_t tiles = c->runs * l.tiles, once = whole_runs(c) ? 0 : tiles;
    c->saved_size = l.saved;
    c->forward_size = c->threads * l.thread_tile;
    c->backward_size = c->threads * own_backward(c, &l) + tiles * l.state_tile * (l.any_leaving ? 2 : 1) +
                       (c->grad_x ? c->x_runs * l.tiles * l.x_tile : 0) +
                       once * ((round_sites(c, &l) + 1) * l.z_tile + l.head_tile +
                               (c->keep_every > 1 ? round_sites(c, &l) * l.state_tile : 0));
}

void restt_forward(const struct chain *c) {
    struct work w = {.c = c, .l = layout_of(c), .own = c->scratch};
    w.own_size = w.l.thread_tile;
    w.groups = groups_for(c, &w.l, c->runs);
    if (c->x_runs != c->runs) run(&w, load_task, c->x_runs * w.l.tiles);
    run(&w, forward_task, c->runs * w.groups);
}

void restt_backward(const struct chain *c) {
    struct work w = {.c = c, .l = layout_of(c), .own = c->scratch};
    const struct layout *l = &w.l;
    const int64_t tiles = c->runs * l->tiles;
    w.own_size = own_backward(c, l);
    w.g = w.own + c->threads * w.own_size;
    w.g_leaving = w.g + tiles * l->state_tile;
    REAL *room = w.g_leaving + (l->any_leaving ? tiles * l->state_tile : 0);
    if (c->grad_x) {
        w.grad_x = room;
        room += c->x_runs * l->tiles * l->x_tile;
    }
    if (whole_runs(c)) {
        run(&w, whole_run_task, c->runs);
        return;
    }
    const int64_t sites = round_sites(c, l);
    w.z_first = room;
    w.z = w.z_first + tiles * l->z_tile;
    w.z_head = w.z + sites * tiles * l->z_tile;
    w.replayed = w.z_head + tiles * l->head_tile;
    w.z_site = tiles * l->z_tile;
    w.z_run = l->tiles * l->z_tile;
    w.head_run = l->tiles * l->head_tile;
    w.replayed_site = tiles * l->state_tile;
    w.replayed_run = l->tiles * l->state_tile;
    w.joint = c->grad_x && c->x_runs == 1 && c->runs > 1;
    const int64_t runs = w.joint ? 1 : c->runs;
    w.groups = groups_for(c, l, runs);
    w.to = l->inner;
    do {
        w.from = larger(0, c->keep_every > 1 ? (w.to - 1) / sites * sites : w.to - sites);
        run(&w, backward_task, runs * w.groups);
        run(&w, weights_task, c->runs * pieces(&w));
        w.to = w.from;
    } while (w.to > 0);
}
