/* Pooling, and functions of one element or two. */
#include "families.h"

#include <math.h>

/* Positions of the whole kernel that count along one axis. */
static int64_t counted(int64_t start, int64_t size, int64_t step, int64_t low, int64_t high)
{
    int64_t count = 0;
    for (int64_t k = 0; k < size; k++)
        count += start + k * step >= low && start + k * step < high;
    return count;
}

static int64_t positions(const struct pool *p, int64_t oh, int64_t ow)
{
    const struct window *w = &p->window;
    int64_t rows = counted(p->window_row + oh * w->stride_h, p->window_h, w->dilation_h,
                           p->count_top, p->count_bottom);
    int64_t columns = counted(p->window_column + ow * w->stride_w, p->window_w, w->dilation_w,
                              p->count_left, p->count_right);
    return rows * columns > 1 ? rows * columns : 1;
}

static int64_t floor_divide(int64_t value, int64_t by)
{
    return value / by - (value % by < 0);
}

static struct value pooled(const struct pool *p, const int64_t *at)
{
    const struct numbers *numbers = &p->steps.numbers;
    struct operand sums = as_element(p->output, numbers->sum);
    int64_t place = operand_offset(&p->output, at), least = 0, total;
    double real = p->average ? 0 : -INFINITY;
    if (numbers->kind != KIND_FLOAT)
        least = -((int64_t)1 << (8 * element_bytes(numbers->narrow) - 1));
    total = p->average ? 0 : least;
    for (int64_t k = 0; k < p->kh * p->kw; k++) {
        int64_t row, column;
        if (!window_inside(&p->window, at[1], at[2], k / p->kw, k % p->kw, &row, &column))
            continue;
        int64_t seen[FAMILY_AXES] = {at[0], row, column, at[3], 0};
        struct value x = operand_load(&p->input, operand_offset(&p->input, seen));
        total = p->average ? total + x.whole : x.whole > total ? x.whole : total;
        real = p->average ? real + (double)x.real : fmax((double)x.real, real);
    }
    if (!p->first) {
        struct value before = operand_load(&sums, place);
        total = p->average ? total + before.whole : before.whole > total ? before.whole : total;
        real = p->average ? real + (double)before.real : fmax((double)before.real, real);
    }
    if (p->last && p->average) {
        int64_t count = positions(p, at[1], at[2]);
        total = floor_divide(2 * total + count, 2 * count);
        real /= (double)count;
    }
    if (numbers->kind == KIND_FLOAT)
        return real_value((float)real);
    return p->last ? whole_value(numbers->narrow, wrapped(total, numbers->narrow))
                   : whole_value(numbers->sum, total);
}

void family_pool(const struct pool *p)
{
    const struct numbers *numbers = &p->steps.numbers;
    struct operand sums = as_element(p->output, numbers->sum);
    for (int64_t n = 0; n < p->n; n++)
    for (int64_t oh = 0; oh < p->oh; oh++)
    for (int64_t ow = 0; ow < p->ow; ow++)
    for (int64_t c = 0; c < p->c; c++) {
        int64_t at[FAMILY_AXES] = {n, oh, ow, c, 0};
        struct value total = pooled(p, at);
        if (p->last)
            total = apply_steps(&p->steps, total, at);
        operand_store(p->last ? &p->output : &sums, operand_offset(&p->output, at), total,
                      numbers->saturate);
    }
}

void family_points(const struct points *p)
{
    const struct steps *steps = &p->steps;
    for (int64_t a = 0; a < p->size[0]; a++)
    for (int64_t b = 0; b < p->size[1]; b++)
    for (int64_t c = 0; c < p->size[2]; c++)
    for (int64_t d = 0; d < p->size[3]; d++) {
        int64_t at[FAMILY_AXES] = {a, b, c, d, 0};
        enum function function = p->function.function;
        struct value value = operand_load(&p->input, operand_offset(&p->input, at)), other = value;
        if (is_binary(function))
            other = second_operand(function, &p->other, operand_offset(&p->other, at));
        value = apply_step(&p->function, value, other, &steps->numbers, steps->to);
        value = apply_steps(steps, value, at);
        operand_store(&p->output, operand_offset(&p->output, at), value, steps->numbers.saturate);
    }
}
