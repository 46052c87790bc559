/* Tables over the states of columns of numbers, from nine parameters a column, and the pull-back to these.

   The parameters of a column are: a, j, b, r, w, 1/length, 1/rough length, share of the line, share of the rank. The
   same in torch is Kernel.number_tables in kernel.py; letters are those of its module. States from ``knots`` on are a
   missing value, or none at all. Built with -ffp-contract=off: sums do not depend on the CPU. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

struct columns {
    int64_t columns, width;
    double least;                        /* less variance is that of a column of one value */
    const int64_t *knots;                /* (columns) */
    const double *value, *further;       /* (columns, width): standardised values, and ranks less these */
    const double *mean, *moment, *line;  /* (columns, width), and twice (columns, width, width) */
    const double *parameters;            /* (9, columns) */
    double *table;                       /* (columns, width, width, 4) */
    double *kept;                        /* (columns, 2, width, width): covariances before they are centred */
    const double *grad;                  /* (columns, width, width, 4) */
    double *by;                          /* (9, columns) */
};

/* What makes a covariance one of mean 0 and mean variance 1: its means, their mean, and one over the variance. */
static double unit_of(const double *table, const double *mean, const double *moment, int64_t width, double least,
                      double *means, double *whole) {
    double variance = 0.0, total = 0.0;
    for (int64_t s = 0; s < width; s++) {
        double sum = 0.0;
        for (int64_t t = 0; t < width; t++) sum += table[s * width + t] * mean[t];
        means[s] = sum;
        total += sum * mean[s];
    }
    for (int64_t s = 0; s < width; s++)
        for (int64_t t = 0; t < width; t++)
            variance += moment[s * width + t] * (table[s * width + t] - means[s] - means[t] + total);
    *whole = total;
    return variance > least ? 1.0 / variance : 0.0;
}

int columns_forward(const struct columns *p) {
    const int64_t width = p->width, size = width * width, count = p->columns;
    double *place = malloc(3 * width * sizeof(double));
    if (!place) return 1;
    for (int64_t k = 0; k < count; k++) {
        double own[9];
        for (int q = 0; q < 9; q++) own[q] = p->parameters[q * count + k];
        const double *mean = p->mean + k * width, *moment = p->moment + k * size, *line = p->line + k * size;
        double *smooth = p->kept + 2 * k * size, *rough = smooth + size, *table = p->table + 4 * k * size;
        for (int64_t s = 0; s < width; s++) place[s] = p->value[k * width + s] + own[8] * p->further[k * width + s];
        for (int64_t s = 0; s < width; s++) {
            for (int64_t t = 0; t <= s; t++) {
                const double far = place[s] - place[t], square = far * far;
                const int known = s < p->knots[k], same = !known && s == t;
                const double even = known ? exp(-0.5 * own[5] * own[5] * square) : same;
                const double uneven = known ? exp(-own[6] * fabs(far)) : same;
                const double joint = exp(-0.5 * own[4] * (square + (!known && !same)));
                smooth[s * width + t] = smooth[t * width + s] = even;
                rough[s * width + t] = rough[t * width + s] = uneven;
                table[4 * (s * width + t) + 2] = table[4 * (t * width + s) + 2] = joint;
            }
        }
        double *means = place + width, *others = place + 2 * width, whole, other;
        const double unit = unit_of(smooth, mean, moment, width, p->least, means, &whole);
        const double unit2 = unit_of(rough, mean, moment, width, p->least, others, &other);
        for (int64_t s = 0; s < width; s++) {
            for (int64_t t = 0; t < width; t++) {
                const int64_t at = s * width + t;
                const double curved = (smooth[at] - means[s] - means[t] + whole) * unit;
                const double even = curved + own[7] * (line[at] - curved);
                const double uneven = (rough[at] - others[s] - others[t] + other) * unit2;
                table[4 * at] = 1.0 + own[0] * even;
                table[4 * at + 1] = 1.0 + own[1] * uneven;
                table[4 * at + 3] = own[2] * even + own[3] * uneven;
            }
        }
    }
    free(place);
    return 0;
}

/* The gradient by a covariance, in the place of that by its centred and scaled form ``by``; ``sums`` is for (width). */
static void pull_unit(double *by, const double *table, const double *mean, const double *moment, int64_t width,
                      const double *means, double whole, double unit, double *sums) {
    double along = 0.0, total = 0.0;
    for (int64_t s = 0; s < width; s++)
        for (int64_t t = 0; t < width; t++)
            along += by[s * width + t] * (table[s * width + t] - means[s] - means[t] + whole);
    for (int64_t s = 0; s < width; s++) sums[s] = 0.0;
    for (int64_t s = 0; s < width; s++) {
        for (int64_t t = 0; t < width; t++) {
            const int64_t at = s * width + t;
            by[at] = unit * (by[at] - unit * along * moment[at]);
            sums[s] += by[at];
            sums[t] += by[at];
            total += by[at];
        }
    }
    for (int64_t s = 0; s < width; s++)
        for (int64_t t = 0; t < width; t++) by[s * width + t] += (total * mean[s] - sums[s]) * mean[t];
}

int columns_backward(const struct columns *p) {
    const int64_t width = p->width, size = width * width, count = p->columns;
    double *place = malloc((4 * width + 2 * size) * sizeof(double));
    if (!place) return 1;
    double *means = place + width, *others = means + width, *sums = others + width, *even = sums + width;
    double *uneven = even + size, whole, other;
    for (int64_t k = 0; k < count; k++) {
        double own[9], by[9] = {0.0};
        for (int q = 0; q < 9; q++) own[q] = p->parameters[q * count + k];
        const double *mean = p->mean + k * width, *moment = p->moment + k * size, *line = p->line + k * size;
        const double *smooth = p->kept + 2 * k * size, *rough = smooth + size;
        const double *table = p->table + 4 * k * size, *grad = p->grad + 4 * k * size;
        const double *further = p->further + k * width;
        for (int64_t s = 0; s < width; s++) place[s] = p->value[k * width + s] + own[8] * further[s];
        const double unit = unit_of(smooth, mean, moment, width, p->least, means, &whole);
        const double unit2 = unit_of(rough, mean, moment, width, p->least, others, &other);
        for (int64_t s = 0; s < width; s++) {
            for (int64_t t = 0; t < width; t++) {
                const int64_t at = s * width + t;
                const double *slope = grad + 4 * at;
                const double curved = (smooth[at] - means[s] - means[t] + whole) * unit;
                const double both = curved + own[7] * (line[at] - curved);
                const double corner = (rough[at] - others[s] - others[t] + other) * unit2;
                by[0] += slope[0] * both;
                by[1] += slope[1] * corner;
                by[2] += slope[3] * both;
                by[3] += slope[3] * corner;
                const double by_both = own[0] * slope[0] + own[2] * slope[3];
                by[7] += by_both * (line[at] - curved);
                even[at] = by_both * (1.0 - own[7]);
                uneven[at] = own[1] * slope[1] + own[3] * slope[3];
            }
        }
        pull_unit(even, smooth, mean, moment, width, means, whole, unit, sums);
        pull_unit(uneven, rough, mean, moment, width, others, other, unit2, sums);
        for (int64_t s = 0; s < width; s++) {
            for (int64_t t = 0; t < width; t++) {
                const int64_t at = s * width + t;
                const double far = place[s] - place[t], square = far * far;
                const int known = s < p->knots[k] && t < p->knots[k], same = !known && s == t;
                const double joint = grad[4 * at + 2] * table[4 * at + 2];
                double by_far = -own[4] * far * joint;
                by[4] -= 0.5 * joint * (square + (!known && !same));
                if (known) {
                    const double first = even[at] * smooth[at], second = uneven[at] * rough[at];
                    by[5] -= first * own[5] * square;
                    by[6] -= second * fabs(far);
                    by_far -= first * own[5] * own[5] * far + second * own[6] * ((far > 0.0) - (far < 0.0));
                }
                by[8] += by_far * (further[s] - further[t]);
            }
        }
        for (int q = 0; q < 9; q++) p->by[q * count + k] = by[q];
    }
    free(place);
    return 0;
}
