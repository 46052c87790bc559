/* Covariances of pairs of rows out of tables over the states of each column, and the pull-back to the tables.

   A row is, in column n, at state code[n] with the share 1 - frac[n] and at the next one with the share frac[n]. Four
   numbers belong to each pair of states and lie side by side: the factors of three products over columns, and a term of
   one sum. See pairs.py, which holds the same in torch. Built with -ffp-contract=off: results do not depend on the CPU. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef double v4 __attribute__((vector_size(32)));

struct pairs {
    int64_t columns, rows, others, half, first, step; /* half: rows are the others, pairs j <= i alone */
    const int64_t *offset;           /* (columns): first state of a column among all states */
    const int64_t *width;            /* (columns) */
    const int64_t *start;            /* (columns): first entry of a column's table */
    const int32_t *code, *code2;     /* (rows, columns), (others, columns) */
    const double *frac, *frac2;
    const v4 *table;                 /* of column n: (width, width) entries */
    const double *scale;             /* (4): of the three products and of the sum */
    double *out;                     /* (rows, others) */
    const double *grad;              /* (rows, others) */
    v4 *grad_table;
    double *grad_scale;              /* (4) */
};

/* The table's row of this row's state: (states in all columns). */
static void fill(const struct pairs *p, int64_t i, v4 *line) {
    for (int64_t n = 0; n < p->columns; n++) {
        const int64_t width = p->width[n];
        const double f = p->frac[i * p->columns + n];
        const v4 *here = p->table + p->start[n] + p->code[i * p->columns + n] * width;
        v4 *to = line + p->offset[n];
        if (f == 0.0) {
            memcpy(to, here, width * sizeof(v4));
        } else {
            const v4 *next = here + width;
            for (int64_t s = 0; s < width; s++) to[s] = here[s] * (1.0 - f) + next[s] * f;
        }
    }
}

/* Without a branch: one state more than there are is read, of which the share is 0. */
static inline v4 look(const v4 *line, double f) { return line[0] * (1.0 - f) + line[1] * f; }

/* Pairs done at once: the product over columns is a chain, and a processor waits for each link of a lone one. */
#define LANES 4

int pairs_forward(const struct pairs *p, int64_t states) {
    v4 *line = aligned_alloc(32, (states + 1) * sizeof(v4));
    if (!line) return 1;
    line[states] = (v4){0.0, 0.0, 0.0, 0.0};
    const int64_t columns = p->columns;
    const double a = p->scale[0], b = p->scale[1], c = p->scale[2], d = p->scale[3];
    for (int64_t i = p->first; i < p->rows; i += p->step) {
        fill(p, i, line);
        const int64_t end = p->half ? i + 1 : p->others;
        for (int64_t j = 0; j < end; j += LANES) {
            const int64_t count = end - j < LANES ? end - j : LANES;
            const int32_t *code[LANES];
            const double *frac[LANES];
            v4 product[LANES], sum[LANES];
            for (int q = 0; q < LANES; q++) {
                const int64_t row = j + (q < count ? q : 0);
                code[q] = p->code2 + row * columns;
                frac[q] = p->frac2 + row * columns;
                product[q] = (v4){1.0, 1.0, 1.0, 1.0};
                sum[q] = (v4){0.0, 0.0, 0.0, 0.0};
            }
            for (int64_t n = 0; n < columns; n++) {
                const v4 *from = line + p->offset[n];
                for (int q = 0; q < LANES; q++) {
                    const v4 x = look(from + code[q][n], frac[q][n]);
                    product[q] *= x;
                    sum[q] += x;
                }
            }
            double *to = p->out + i * p->others + j;
            for (int64_t q = 0; q < count; q++)
                to[q] = a * product[q][0] + b * product[q][1] + c * product[q][2] + d * sum[q][3];
        }
    }
    free(line);
    return 0;
}

/* Adds Σ_ij grad_ij ∂out_ij/∂table to grad_table, and by the scales to grad_scale; of a symmetric grad half is read. */
int pairs_backward(const struct pairs *p, int64_t states) {
    const int64_t columns = p->columns;
    v4 *line = aligned_alloc(32, (2 * states + 2 * LANES * (columns + 1) + 2) * sizeof(v4));
    if (!line) return 1;
    v4 *pulled = line + states + 1, *at = pulled + states + 1, *after = at + LANES * (columns + 1);
    line[states] = (v4){0.0, 0.0, 0.0, 0.0};
    const v4 scale = {p->scale[0], p->scale[1], p->scale[2], p->scale[3]}, one = {1.0, 1.0, 1.0, 1.0};
    v4 by_scale = {0.0, 0.0, 0.0, 0.0};
    for (int64_t i = p->first; i < p->rows; i += p->step) {
        fill(p, i, line);
        memset(pulled, 0, (states + 1) * sizeof(v4));
        const int64_t end = p->half ? i + 1 : p->others;
        for (int64_t j = 0; j < end; j += LANES) {
            const int64_t count = end - j < LANES ? end - j : LANES;
            const int32_t *code[LANES];
            const double *frac[LANES];
            double g[LANES], sum[LANES];
            v4 running[LANES], before[LANES];
            for (int q = 0; q < LANES; q++) {
                const int64_t row = j + (q < count ? q : 0);
                code[q] = p->code2 + row * columns;
                frac[q] = p->frac2 + row * columns;
                g[q] = q < count ? p->grad[i * p->others + row] : 0.0;
                if (p->half && row < i) g[q] *= 2.0;
                running[q] = one;
                sum[q] = 0.0;
                before[q] = scale * g[q];
            }
            for (int64_t n = columns - 1; n >= 0; n--) {
                const v4 *from = line + p->offset[n];
                v4 *here = at + LANES * n, *behind = after + LANES * n;
                for (int q = 0; q < LANES; q++) {
                    v4 x = look(from + code[q][n], frac[q][n]);
                    sum[q] += x[3];
                    x[3] = 1.0; /* the sum's slope is the same in every column */
                    here[q] = x;
                    behind[q] = running[q]; /* of the columns after this one */
                    running[q] *= x;
                }
            }
            for (int q = 0; q < LANES; q++) {
                v4 value = running[q];
                value[3] = sum[q];
                by_scale += value * g[q];
            }
            for (int64_t n = 0; n < columns; n++) {
                const v4 *here = at + LANES * n, *behind = after + LANES * n;
                v4 *into = pulled + p->offset[n];
                for (int q = 0; q < LANES; q++) {
                    const v4 slope = before[q] * behind[q];
                    v4 *to = into + code[q][n];
                    const double f = frac[q][n];
                    to[0] += slope * (1.0 - f);
                    to[1] += slope * f;
                    before[q] *= here[q];
                }
            }
        }
        for (int64_t n = 0; n < columns; n++) {
            const int64_t width = p->width[n];
            const double f = p->frac[i * columns + n];
            v4 *here = p->grad_table + p->start[n] + p->code[i * columns + n] * width;
            const v4 *from = pulled + p->offset[n];
            for (int64_t s = 0; s < width; s++) here[s] += from[s] * (1.0 - f);
            if (f != 0.0)
                for (int64_t s = 0; s < width; s++) here[width + s] += from[s] * f;
        }
    }
    for (int k = 0; k < 4; k++) p->grad_scale[k] += by_scale[k];
    free(line);
    return 0;
}
