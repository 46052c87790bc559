/* Variances of a sum of boxes under independent columns, over pairs of boxes.

   In a column that both constrain, a pair has A = a_j a_k where the column is absent and B = P(both sets) where it is
   averaged with itself, G = B - A; any other column gives the product of the a's. restt.explain.products has it in torch. */

#include <stdint.h>

#define MOST 64

struct set {
    double low;     /* probability below the interval */
    double high;    /* and up to its end */
    double missing; /* root of the probability of a missing value, 0 where not in the set */
    double alone;   /* probability of the set */
};

struct boxes {
    int64_t count, sites, outputs, first, last;
    const int64_t *start;    /* (count + 1): entries of a box, sites growing */
    const int64_t *site;     /* (entries) */
    const int64_t *set;      /* (entries): of a category, its set */
    const struct set *entry; /* (entries) */
    const int64_t *table;    /* (sites): where the overlaps of a category's sets are, -1 for numbers */
    const int64_t *sets;     /* (sites): how many sets it has */
    const double *tables;    /* overlaps of categories' sets */
    const double *weights;   /* (count, outputs) */
    double *whole;           /* (outputs) */
    double *totals;          /* (sites, outputs) */
    double *orders;          /* (MOST + 1, outputs) */
    double *pairs;           /* (sites, sites, outputs), the upper triangle */
};

static inline double overlap(const struct boxes *p, int64_t i, int64_t k) {
    const int64_t table = p->table[p->site[i]];
    if (table >= 0) return p->tables[table + p->set[i] * p->sets[p->site[i]] + p->set[k]];
    const struct set *x = p->entry + i, *y = p->entry + k;
    const double low = x->low > y->low ? x->low : y->low, high = x->high < y->high ? x->high : y->high;
    return (high > low ? high - low : 0.0) + x->missing * y->missing;
}

static void add(const struct boxes *p, int64_t j, int64_t k, double scale, double value, double *to) {
    const double *ours = p->weights + j * p->outputs, *theirs = p->weights + k * p->outputs;
    for (int64_t o = 0; o < p->outputs; o++) to[o] += scale * value * ours[o] * theirs[o];
}

static void pair(const struct boxes *p, int64_t j, int64_t k) {
    int64_t site[MOST], n = 0;
    double a[MOST], b[MOST], g[MOST], after[MOST + 1], rest[MOST + 1], order[MOST + 1];
    double scale = j == k ? 1.0 : 2.0;
    int64_t i = p->start[j], m = p->start[k];
    const int64_t end = p->start[j + 1], last = p->start[k + 1];
    while (i < end && m < last) {
        if (p->site[i] < p->site[m]) {
            scale *= p->entry[i++].alone;
        } else if (p->site[i] > p->site[m]) {
            scale *= p->entry[m++].alone;
        } else {
            a[n] = p->entry[i].alone * p->entry[m].alone;
            b[n] = overlap(p, i, m);
            g[n] = b[n] - a[n];
            site[n++] = p->site[i];
            i++, m++;
        }
    }
    if (!n) return;
    while (i < end) scale *= p->entry[i++].alone;
    while (m < last) scale *= p->entry[m++].alone;
    if (scale == 0.0) return;
    after[n] = rest[n] = 1.0; /* products of b and of a behind a place */
    for (int64_t t = n - 1; t >= 0; t--) after[t] = after[t + 1] * b[t], rest[t] = rest[t + 1] * a[t];
    double before = 1.0, whole = 0.0;
    order[0] = 1.0;
    for (int64_t t = 0; t < n; t++) {
        whole += before * g[t] * rest[t + 1];
        add(p, j, k, scale, before * g[t] * after[t + 1], p->totals + site[t] * p->outputs);
        double between = before * g[t];
        for (int64_t u = t + 1; u < n; u++) {
            add(p, j, k, scale, between * g[u] * after[u + 1], p->pairs + (site[t] * p->sites + site[u]) * p->outputs);
            between *= b[u];
        }
        order[t + 1] = order[t] * g[t];
        for (int64_t d = t; d > 0; d--) order[d] = order[d] * a[t] + order[d - 1] * g[t];
        order[0] *= a[t];
        before *= b[t];
    }
    add(p, j, k, scale, whole, p->whole);
    for (int64_t d = 1; d <= n; d++) add(p, j, k, scale, order[d], p->orders + d * p->outputs);
}

int box_variances(const struct boxes *p) {
    for (int64_t j = 0; j < p->count; j++)
        if (p->start[j + 1] - p->start[j] > MOST) return 1;
    for (int64_t j = p->first; j < p->last; j++)
        for (int64_t k = j; k < p->count; k++) pair(p, j, k);
    return 0;
}
