/* What a contraction is given, where everything lies in memory, and how tasks are shared among threads. */
#ifndef RESTT_WORK_H
#define RESTT_WORK_H

#if !defined(_WIN32)
#include <pthread.h>
#endif

#include "products.h"

/* Tiles walked together: enough to reuse a core from cache, few enough that their states stay there too. */
#define GROUP_TILES 16

enum { CHAIN = 1, LINEAR = 2, FULL = 4, OUTPUT = 8 };

typedef void (*parallel_fn)(void (*)(void *), void *, unsigned, unsigned);

struct chain {
    int64_t runs, x_runs, batch, sites, width, bond, outputs; /* width: the widest site's, which weights are padded to */
    int64_t packed;                             /* whether x is (S or 1, B, sum of the widths) */
    int64_t x_run, x_sample, x_site, x_feature; /* strides of x (S or 1, B, N, I) */
    int64_t g_run, g_sample, g_output;          /* strides of the output's gradient (S, B, O) */
    int64_t threads;
    int64_t keep_every;                         /* 1: all states are kept, for a backward pass; more: those between take turns */
    int64_t site_scratch;                       /* about how many numbers of x (x) g may be held at once */
    int64_t saved_size, forward_size, backward_size; /* set by plan() */
    const uint8_t *flags;                       /* of sites 2..N */
    const int64_t *offsets;                     /* of each site's features among all, and how many there are */
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
    int64_t state_tile, x_tile, z_tile, head_tile, feature_tile, thread_tile;
    int64_t states, ring, leaving, saved; /* offsets into what is saved, x at 0, and its size */
};

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
    l.x_tile = c->offsets[c->sites] * TILE;
    l.z_tile = ((smaller(c->width, FEATURES) * c->bond) | 1) * TILE;
    l.feature_tile = (larger(c->bond, c->outputs) | 1) * TILE;
    l.head_tile = c->outputs * TILE;
    l.thread_tile = (FEATURES + 3) * larger(c->bond, c->outputs) * TILE;
    const int64_t states = c->runs * l.tiles * l.state_tile;
    l.states = c->x_runs * l.tiles * l.x_tile;
    l.ring = l.states + l.kept * states;
    l.leaving = l.ring + (c->keep_every > 1 ? 2 : 0) * states;
    l.saved = l.leaving + (l.any_leaving ? states : 0);
    return l;
}

struct work {
    const struct chain *c;
    struct layout l;
    void (*task)(const struct work *, int64_t task, REAL *own);
    int64_t tasks, own_size;
    int64_t groups, joint;   /* groups of tiles; joint: one task takes all runs of its tiles, to sum x's gradient */
    int64_t from, to;        /* sites of this round of the backward pass */
    REAL *own;               /* scratch of each thread */
    REAL *g, *g_leaving, *grad_x;
    /* Where x (x) g, or g alone of a wide site, is kept until the weight gradients are taken;
     * strides in numbers. */
    REAL *z, *g_head;
    int64_t z_site, z_run, head_run;
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

INLINE REAL *x_at(const struct work *w, int64_t s, int64_t t, int64_t site) {
    const int64_t run = w->c->x_runs == 1 ? 0 : s;
    return w->c->saved + (run * w->l.tiles + t) * w->l.x_tile + w->c->offsets[site] * TILE;
}

INLINE int64_t width_of(const struct work *w, int64_t site) { return w->c->offsets[site + 1] - w->c->offsets[site]; }

INLINE int is_wide(const struct work *w, int64_t site) { return width_of(w, site) > FEATURES; }

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

#endif
