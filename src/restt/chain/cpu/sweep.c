/* The whole contraction of a (residual) tensor train and its gradients, for one floating point type.
 *
 * A tile is TILE samples. Everything a tile touches is stored with the samples innermost, so a vector register holds one
 * number of several samples and a weight is one broadcast: the bond dimension needs no padding and no weight is packed
 * or transposed. Each thread walks a few tiles through all sites while a site's core sits in its cache. ../README.md has
 * the derivation, build.py builds this file, contraction.py calls it and mirrors `struct chain` of work.h.
 *
 * Legend: S runs, B batch, N sites, I feature width, R bond dimension, O outputs.
 */
#include "backward.h"

int64_t restt_chain_bytes(void) { return sizeof(struct chain); }

int64_t restt_tile(void) { return TILE; }

/* How many numbers the forward pass saves and how many each pass needs besides */
void restt_plan(struct chain *c) {
    const struct layout l = layout_of(c);
    const int64_t tiles = c->runs * l.tiles, once = whole_runs(c) ? 0 : tiles;
    c->saved_size = l.saved;
    c->forward_size = c->threads * l.thread_tile;
    c->backward_size = c->threads * own_backward(c, &l) + tiles * l.state_tile * (l.any_leaving ? 2 : 1) +
                       (c->grad_x ? c->x_runs * l.tiles * l.x_tile : 0) +
                       once * (round_sites(c, &l) * l.z_tile + l.head_tile);
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
    w.z = room;
    w.g_head = w.z + sites * tiles * l->z_tile;
    w.z_site = tiles * l->z_tile;
    w.z_run = l->tiles * l->z_tile;
    w.head_run = l->tiles * l->head_tile;
    w.joint = c->grad_x && c->x_runs == 1 && c->runs > 1;
    const int64_t runs = w.joint ? 1 : c->runs;
    w.groups = groups_for(c, l, runs);
    w.to = l->inner;
    do {
        w.from = larger(0, w.to - sites);
        run(&w, backward_task, runs * w.groups);
        run(&w, weights_task, c->runs * pieces(&w));
        w.to = w.from;
    } while (w.to > 0);
}
