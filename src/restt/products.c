/* Sums of products over sites for a chunk of rows of x, and their gradient by z = T x.

   State (g, r) has at site n the factor z[code] * (1 - share) + z[code + 1] * share, of the lines of group g. See
   products.py, which holds the same in torch. Built with -ffp-contract=off: results do not depend on the CPU. */

#include <stdint.h>
#include <stdlib.h>

struct products {
    int64_t sites, rows, groups, outputs, batch;
    const int64_t *start;        /* (sites): first line of a site */
    const int64_t *count;        /* (sites): lines of one group */
    const int32_t *code;         /* (rows, sites) */
    const double *share;         /* (rows, sites) */
    const double *coefficients;  /* (groups, rows, outputs) */
    const double *z;             /* (lines, batch) */
    double *out;                 /* (outputs, batch) */
    const double *grad;          /* (outputs, batch) */
    double *back;                /* (lines, batch) */
};

/* The line of a state's factor; the next one counts with the share. */
static inline int64_t line(const struct products *p, int64_t g, int64_t r, int64_t n) {
    return (p->start[n] + g * p->count[n] + p->code[r * p->sites + n]) * p->batch;
}

static inline void factor(const struct products *p, int64_t g, int64_t r, int64_t n, double *restrict to) {
    const double *here = p->z + line(p, g, r, n);
    const double s = p->share[r * p->sites + n];
    if (s == 0.0) {
        for (int64_t b = 0; b < p->batch; b++) to[b] = here[b];
    } else {
        const double *next = here + p->batch, rest = 1.0 - s;
        for (int64_t b = 0; b < p->batch; b++) to[b] = here[b] * rest + next[b] * s;
    }
}

int products_forward(const struct products *p) {
    double *scratch = malloc(2 * p->batch * sizeof(double));
    if (!scratch) return 1;
    double *state = scratch, *value = scratch + p->batch;
    for (int64_t g = 0; g < p->groups; g++)
        for (int64_t r = 0; r < p->rows; r++) {
            factor(p, g, r, 0, state);
            for (int64_t n = 1; n < p->sites; n++) {
                factor(p, g, r, n, value);
                for (int64_t b = 0; b < p->batch; b++) state[b] *= value[b];
            }
            const double *c = p->coefficients + (g * p->rows + r) * p->outputs;
            for (int64_t o = 0; o < p->outputs; o++) {
                double *out = p->out + o * p->batch;
                for (int64_t b = 0; b < p->batch; b++) out[b] += c[o] * state[b];
            }
        }
    free(scratch);
    return 0;
}

int products_backward(const struct products *p) {
    const int64_t batch = p->batch;
    double *scratch = malloc((2 * p->sites + 1) * batch * sizeof(double));
    if (!scratch) return 1;
    double *value = scratch, *before = scratch + p->sites * batch, *restrict after = before + p->sites * batch;
    for (int64_t g = 0; g < p->groups; g++)
        for (int64_t r = 0; r < p->rows; r++) {
            const double *c = p->coefficients + (g * p->rows + r) * p->outputs;
            for (int64_t b = 0; b < batch; b++) before[b] = 0.0, after[b] = 1.0;
            for (int64_t o = 0; o < p->outputs; o++)
                for (int64_t b = 0; b < batch; b++) before[b] += c[o] * p->grad[o * batch + b];
            for (int64_t n = 0; n < p->sites; n++) {
                double *restrict v = value + n * batch, *restrict k = before + n * batch;
                factor(p, g, r, n, v);
                if (n + 1 < p->sites)
                    for (int64_t b = 0; b < batch; b++) k[batch + b] = k[b] * v[b];
            }
            for (int64_t n = p->sites - 1; n >= 0; n--) {
                const double s = p->share[r * p->sites + n], rest = 1.0 - s;
                double *restrict here = p->back + line(p, g, r, n), *restrict k = before + n * batch;
                const double *restrict v = value + n * batch;
                for (int64_t b = 0; b < batch; b++) {
                    k[b] *= after[b];
                    after[b] *= v[b];
                }
                for (int64_t b = 0; b < batch; b++) here[b] += k[b] * rest;
                if (s != 0.0)
                    for (int64_t b = 0; b < batch; b++) here[batch + b] += k[b] * s;
            }
        }
    free(scratch);
    return 0;
}
