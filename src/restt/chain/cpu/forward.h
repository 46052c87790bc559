/* From the features to the output. */
#ifndef RESTT_FORWARD_H
#define RESTT_FORWARD_H

#include "work.h"

static void load_x(const struct work *w, int64_t run, int64_t t) {
    const struct chain *c = w->c;
    REAL *out = c->saved + (run * w->l.tiles + t) * w->l.x_tile;
    for (int64_t b = 0; b < TILE; b++) {
        const int64_t sample = t * TILE + b;
        const REAL *source = c->x + run * c->x_run + sample * c->x_sample;
        for (int64_t n = 0; n < c->sites; n++) {
            const REAL *features = source + (c->packed ? c->offsets[n] * c->x_feature : n * c->x_site);
            for (int64_t i = 0; i < width_of(w, n); i++)
                out[(c->offsets[n] + i) * TILE + b] = sample < c->batch ? features[i * c->x_feature] : (REAL)0;
        }
    }
}

/* y(n) from y(n-1) at inner site number `site` (0 is the paper's site 2), for one tile */
static void step(const struct work *w, int64_t s, int64_t t, int64_t site, const REAL *y, REAL *out, REAL *own) {
    const struct chain *c = w->c;
    const int64_t R = c->bond, I = width_of(w, site + 1), index = (s * w->l.inner + site) * c->width;
    const uint8_t flags = c->flags[site];
    const REAL *x = x_at(w, s, t, site + 1), *start = flags & FULL ? y : 0;
    struct term terms[FEATURES + 1];
    int count = 0;
    int64_t next = flags & CHAIN ? 0 : I;
    if (flags & LINEAR) terms[count++] = (struct term){x, c->linear + index * R, 1, I, 0};
    do {
        if (next < I) count += gather(terms + count, &next, I, x, y, R, c->chain + index * R * R, R * R, own);
        to_columns(out, R, start, R, terms, count, c->batch);
        start = out;
        count = 0;
    } while (next < I);
    fill(out + R * TILE, w->l.state_tile - R * TILE, 1);
}

static void first_state(const struct work *w, int64_t s, int64_t t) {
    const struct chain *c = w->c;
    REAL *out = state_at(w, 0, s, t);
    const struct term term = {x_at(w, s, t, 0), c->first + s * c->width * c->bond, 1, width_of(w, 0), 0};
    to_columns(out, c->bond, 0, c->bond, &term, 1, c->batch);
    fill(out + c->bond * TILE, w->l.state_tile - c->bond * TILE, 1);
}

static void last_site(const struct work *w, int64_t s, int64_t t, REAL *own) {
    const struct chain *c = w->c;
    const int64_t R = c->bond, I = width_of(w, c->sites - 1), O = c->outputs, index = s * c->width;
    const uint8_t flags = c->flags[w->l.inner];
    const REAL *y = state_at(w, w->l.inner, s, t), *x = x_at(w, s, t, c->sites - 1), *head = y, *start = 0;
    if (w->l.any_leaving) {
        REAL *leaving = leaving_at(w, s, t);
        if (flags & (FULL | OUTPUT)) add_to(leaving, y, R);
        head = leaving;
    }
    REAL *z = own, *out = own + FEATURES * R * TILE;
    struct term terms[FEATURES + 2];
    int count = 0;
    int64_t next = flags & CHAIN ? 0 : I;
    if (flags & LINEAR) terms[count++] = (struct term){x, c->last_linear + index * O, 1, I, 0};
    if (c->last_skip) terms[count++] = (struct term){head, c->last_skip + s * R * O, 1, R, 0};
    do {
        if (next < I) count += gather(terms + count, &next, I, x, y, R, c->last_chain + index * R * O, R * O, z);
        to_columns(out, O, start, O, terms, count, c->batch);
        start = out;
        count = 0;
    } while (next < I);
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
        /* What is saved has the same bits every time, whether or not anything reads it. */
        for (int64_t slot = 0; w->c->keep_every > 1 && slot < 2; slot++)
            fill(tile_of(w, w->c->saved + w->l.ring, slot, s, t), w->l.state_tile, 0);
    }
    for (int64_t n = 0; n < inner; n++)
        for (int64_t t = from; t < to; t++) {
            const REAL *y = state_at(w, n, s, t);
            if (w->c->flags[n] & OUTPUT) add_to(leaving_at(w, s, t), y, w->c->bond);
            step(w, s, t, n, y, state_at(w, n + 1, s, t), own);
        }
    for (int64_t t = from; t < to; t++) last_site(w, s, t, own);
}

#endif
