/* From the output's gradient to those of the features and the weights. */
#ifndef RESTT_BACKWARD_H
#define RESTT_BACKWARD_H

#include "forward.h"

INLINE REAL *g_at(const struct work *w, int64_t s, int64_t t) { return tile_of(w, w->g, 0, s, t); }

/* gx[i] += sum over k of y[k] * part[k] */
static void add_dot(REAL *gx, const REAL *y, const REAL *part, int64_t rows) {
    vec low = ((vec *)gx)[0], high = ((vec *)gx)[1];
    for (int64_t k = 0; k < rows; k++) {
        low = MULTIPLY_ADD(((const vec *)y)[2 * k], ((const vec *)part)[2 * k], low);
        high = MULTIPLY_ADD(((const vec *)y)[2 * k + 1], ((const vec *)part)[2 * k + 1], high);
    }
    ((vec *)gx)[0] = low;
    ((vec *)gx)[1] = high;
}

static REAL *grad_x_at(const struct work *w, int64_t s, int64_t t, int64_t site) {
    const int64_t run = w->c->x_runs == 1 ? 0 : s;
    return w->grad_x + (run * w->l.tiles + t) * w->l.x_tile + w->c->offsets[site] * TILE;
}

/* The gradient of x at one site: through the core, y . W_i g, and through the entry, U_i . g */
static void site_grad_x(const struct work *w, int64_t s, int64_t t, int64_t site, const REAL *y, const REAL *g,
                        int64_t columns, const REAL *core, const REAL *entry, REAL *part) {
    const int64_t R = w->c->bond, I = width_of(w, site);
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

/* out[k] = start[k] + extra + sum over i of x[i] * (W_i g)[k], for a core (I, R, columns) or without one */
static void through_core(const struct work *w, int64_t site, REAL *out, const REAL *start, const struct term *extra,
                         const REAL *x, const REAL *g, int64_t columns, const REAL *core, REAL *own) {
    const int64_t R = w->c->bond, I = width_of(w, site);
    struct term terms[FEATURES + 1];
    int count = 0;
    int64_t next = core ? 0 : I;
    if (extra) terms[count++] = *extra;
    do {
        if (next < I) count += gather(terms + count, &next, I, x, g, columns, core, R * columns, own);
        to_rows(out, R, start, columns, terms, count);
        start = out;
        count = 0;
    } while (next < I);
}

static REAL *g_head_at(const struct work *w, int64_t s, int64_t t) {
    return w->g_head + s * w->head_run + t * w->l.head_tile;
}

static void head_back(const struct work *w, int64_t s, int64_t t, REAL *own) {
    const struct chain *c = w->c;
    const int64_t R = c->bond, O = c->outputs, index = s * c->width;
    const uint8_t flags = c->flags[w->l.inner];
    REAL *g_out = g_head_at(w, s, t);
    for (int64_t o = 0; o < O; o++)
        for (int64_t b = 0; b < TILE; b++) {
            const int64_t sample = t * TILE + b;
            g_out[o * TILE + b] =
                sample < c->batch ? c->grad_output[s * c->g_run + sample * c->g_sample + o * c->g_output] : (REAL)0;
        }
    const struct term skip = {g_out, c->last_skip + s * R * O, 1, O, 0};
    const REAL *core = flags & CHAIN ? c->last_chain + index * R * O : 0;
    through_core(w, c->sites - 1, g_at(w, s, t), 0, flags & (FULL | OUTPUT) ? &skip : 0, x_at(w, s, t, c->sites - 1),
                 g_out, O, core, own);
    if (w->l.any_leaving) to_rows(tile_of(w, w->g_leaving, 0, s, t), R, 0, O, &skip, 1);
    if (w->grad_x)
        site_grad_x(w, s, t, c->sites - 1, state_at(w, w->l.inner, s, t), g_out, O, core,
                    flags & LINEAR ? c->last_linear + index * O : 0, own);
}

static REAL *z_at(const struct work *w, int64_t site, int64_t s, int64_t t) {
    return w->z + (site - w->from) * w->z_site + s * w->z_run + t * w->l.z_tile;
}

/* dL/dy(n-1) from dL/dy(n), in place, for one tile; leaves x (x) dL/dy(n), or dL/dy(n) itself where that is wide, for the
 * weight gradients */
static void step_back(const struct work *w, int64_t s, int64_t t, int64_t site, REAL *own) {
    const struct chain *c = w->c;
    const int64_t R = c->bond, I = width_of(w, site + 1), index = (s * w->l.inner + site) * c->width;
    const uint8_t flags = c->flags[site];
    const REAL *core = flags & CHAIN ? c->chain + index * R * R : 0, *start = 0, *x = x_at(w, s, t, site + 1);
    REAL *g = g_at(w, s, t), *z = z_at(w, site, s, t);
    if (w->grad_x)
        site_grad_x(w, s, t, site + 1, state_at(w, site, s, t), g, R, core,
                    flags & LINEAR ? c->linear + index * R : 0, own);
    if (flags & FULL) start = g;
    if (flags & OUTPUT) start = tile_of(w, w->g_leaving, 0, s, t);
    if (is_wide(w, site + 1)) {
        memcpy(z, g, R * TILE * sizeof(REAL));
        through_core(w, site + 1, g, start, 0, x, z, R, core, own);
        return;
    }
    if (flags & (CHAIN | LINEAR)) outer(z, x, g, I, R);
    const struct term term = {z, core, I, R, R * R};
    to_rows(g, R, start, R, &term, core ? 1 : 0);
}

static void first_back(const struct work *w, int64_t s, int64_t t) {
    const struct chain *c = w->c;
    if (!w->grad_x) return;
    const struct term term = {g_at(w, s, t), c->first + s * c->width * c->bond, 1, c->bond, 0};
    REAL *gx = grad_x_at(w, s, t, 0);
    to_rows(gx, width_of(w, 0), gx, c->bond, &term, 1);
}

static void store_grad_x(const struct work *w, int64_t run, int64_t t) {
    const struct chain *c = w->c;
    const int64_t columns = c->offsets[c->sites];
    const REAL *source = w->grad_x + (run * w->l.tiles + t) * w->l.x_tile;
    for (int64_t b = 0; b < smaller(TILE, c->batch - t * TILE); b++)
        for (int64_t q = 0; q < columns; q++)
            c->grad_x[(run * c->batch + t * TILE + b) * columns + q] = source[q * TILE + b];
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
        sweep_back(w, s, from, to, own);
    }
}

/* The gradients of one feature's core (R, columns) and entry (columns), from the states y before its site and the
 * gradients g after it; tiles in which the feature is zero are left out. z is room for one feature of all tiles. */
static void feature_gradient(const struct work *w, int64_t s, int64_t site, int64_t i, const REAL *y, const REAL *g,
                             int64_t g_tile, int64_t columns, REAL *core, REAL *entry, REAL *z) {
    const int64_t R = w->c->bond, tiles = w->l.tiles, width = width_of(w, site);
    int added = 0;
    if (!core && !entry) return;
    for (int64_t t = 0; i < width && t < tiles; t++) {
        const int64_t from = t;
        for (; t < tiles && acts(x_at(w, s, t, site) + i * TILE); t++)
            scale(z + t * w->l.feature_tile, x_at(w, s, t, site) + i * TILE, g + t * g_tile, columns);
        if (t == from) continue;
        weight_gradient(y + from * w->l.state_tile, w->l.state_tile, z + from * w->l.feature_tile, w->l.feature_tile,
                        t - from, R, columns, core, entry, added);
        added = 1;
    }
    if (added) return;
    if (core) fill(core, R * columns, 0);
    if (entry) fill(entry, columns, 0);
}

static void inner_gradient(const struct work *w, int64_t s, int64_t site, int64_t i, REAL *z) {
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
    const REAL *y = state_at(w, site, s, 0), *kept = z_at(w, site, s, 0);
    if (is_wide(w, site + 1) || i >= width_of(w, site + 1))
        feature_gradient(w, s, site + 1, i, y, kept, w->l.z_tile, R, core, entry, z);
    else if (core || entry)
        weight_gradient(y, w->l.state_tile, kept + i * R * TILE, w->l.z_tile, w->l.tiles, R, R, core, entry, 0);
}

/* What the weight gradients of this round are made of: a piece is one feature of one site, or the skip's head. */
static int64_t pieces(const struct work *w) {
    const int64_t ends = (w->to == w->l.inner ? w->c->width + 1 : 0) + (w->from == 0 ? w->c->width : 0);
    return (w->to - w->from) * w->c->width + ends;
}

static void weight_piece(const struct work *w, int64_t s, int64_t piece, REAL *z) {
    const struct chain *c = w->c;
    const int64_t R = c->bond, I = c->width, O = c->outputs, tiles = w->l.tiles;
    if (piece < (w->to - w->from) * I) {
        inner_gradient(w, s, w->from + piece / I, piece % I, z);
        return;
    }
    piece -= (w->to - w->from) * I;
    if (w->to == w->l.inner) {
        const REAL *y = state_at(w, w->l.inner, s, 0), *g = g_head_at(w, s, 0);
        const uint8_t flags = c->flags[w->l.inner];
        if (piece < I) {
            REAL *core = c->grad_last_chain && (flags & CHAIN) ? c->grad_last_chain + (s * I + piece) * R * O : 0;
            REAL *entry = c->grad_last_linear && (flags & LINEAR) ? c->grad_last_linear + (s * I + piece) * O : 0;
            feature_gradient(w, s, c->sites - 1, piece, y, g, w->l.head_tile, O, core, entry, z);
            return;
        }
        if (piece == I) {
            const REAL *head = w->l.any_leaving ? leaving_at(w, s, 0) : y;
            if (c->grad_last_skip)
                weight_gradient(head, w->l.state_tile, g, w->l.head_tile, tiles, R, O, c->grad_last_skip + s * R * O, 0,
                                0);
            return;
        }
        piece -= I + 1;
    }
    feature_gradient(w, s, 0, piece, state_at(w, 0, s, 0), g_at(w, s, 0), w->l.state_tile, R, 0,
                     c->grad_first ? c->grad_first + (s * I + piece) * R : 0, z);
}

static void weights_task(const struct work *w, int64_t task, REAL *own) {
    weight_piece(w, task / pieces(w), task % pieces(w), own + w->l.thread_tile);
}

/* One run from its end to its start, weight gradients at once: nothing leaves the thread's cache. */
static void whole_run_task(const struct work *shared, int64_t s, REAL *own) {
    struct work w = *shared;
    const struct layout *l = &w.l;
    REAL *z = own + l->thread_tile;
    w.z = z + l->tiles * l->feature_tile;
    w.g_head = w.z + l->tiles * l->z_tile;
    w.z_site = w.z_run = w.head_run = 0;
    w.to = l->inner;
    do {
        w.from = larger(0, w.to - 1);
        sweep_back(&w, s, 0, l->tiles, own);
        for (int64_t piece = 0; piece < pieces(&w); piece++) weight_piece(&w, s, piece, z);
        w.to = w.from;
    } while (w.to > 0);
}

static int whole_runs(const struct chain *c) {
    return c->runs >= 2 * c->threads && !(c->grad_x && c->x_runs == 1 && c->runs > 1);
}

/* Sites per round of the backward pass: what keeps x (x) g within the scratch asked for */
static int64_t round_sites(const struct chain *c, const struct layout *l) {
    return smaller(larger(1, l->inner), larger(1, c->site_scratch / larger(1, c->runs * l->tiles * l->z_tile)));
}

static int64_t own_backward(const struct chain *c, const struct layout *l) {
    return l->thread_tile + l->tiles * (l->feature_tile + (whole_runs(c) ? l->z_tile + l->head_tile : 0));
}

#endif
