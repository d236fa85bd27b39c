/* Sums of products: convolutions and matrix products, depthwise ones, and compressed weights. */
#include "families.h"

/* A sum, exact modulo 2 to the power 64 on integers; on floats rounded once, when it is read. */
struct sum {
    uint64_t whole;
    double real;
};

/* The first of `count` elements; all of them are inside their memory. */
static const uint8_t *row_of(const struct operand *o, int64_t offset, int64_t step, int64_t count)
{
    uint64_t bytes = (uint64_t)element_bytes(o->element);
    (void)operand_place(o, offset + (count - 1) * step, bytes);
    return operand_place(o, offset, bytes);
}

/* Adds `count` products of two rows of elements; without `x`, those of a number with a row. */
static void add_products(struct sum *sum, const struct operand *x, int64_t x_at, int64_t x_step,
                         const struct operand *w, int64_t w_at, int64_t w_step, int64_t count,
                         int64_t fill)
{
    if (count <= 0 || (!x && !fill))
        return;
    const uint8_t *left = x ? row_of(x, x_at, x_step, count) : 0;
    const uint8_t *right = row_of(w, w_at, w_step, count);
    if (x && x->element == ELEMENT_INT8 && w->element == ELEMENT_INT8) {
        int64_t total = 0;
        for (int64_t i = 0; i < count; i++)
            total += (int8_t)left[i * x_step] * (int8_t)right[i * w_step];
        sum->whole += (uint64_t)total;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        struct value b = value_at(right + i * w_step, w->element);
        struct value a = x ? value_at(left + i * x_step, x->element)
                           : element_is_real(w->element) ? real_value((float)fill)
                                                         : whole_value(ELEMENT_INT32, fill);
        sum->whole += (uint64_t)a.whole * (uint64_t)b.whole;
        sum->real += (double)a.real * (double)b.real;
    }
}

/* Adds what is there, or the bias, and writes the sum, or what the steps make of it. */
static void finish(struct sum sum, const struct operand *output, const struct operand *bias,
                   int64_t bias_at, int first, int last, const struct steps *steps,
                   const int64_t *at)
{
    const struct numbers *numbers = &steps->numbers;
    struct operand sums = as_element(*output, numbers->sum);
    int64_t place = operand_offset(output, at);
    struct value added = whole_value(numbers->sum, 0);
    if (!first)
        added = operand_load(&sums, place);
    else if (bias)
        added = operand_load(bias, bias_at);
    int64_t whole = wrapped((int64_t)(sum.whole + (uint64_t)added.whole), ELEMENT_INT32);
    struct value total = numbers->kind == KIND_FLOAT
                             ? real_value((float)(sum.real + (double)added.real))
                             : whole_value(ELEMENT_INT32, whole);
    if (last)
        total = apply_steps(steps, total, at);
    operand_store(last ? output : &sums, place, total, numbers->saturate);
}

void family_product(const struct product *p)
{
    for (int64_t n = 0; n < p->n; n++)
    for (int64_t g = 0; g < p->g; g++)
    for (int64_t oh = 0; oh < p->oh; oh++)
    for (int64_t ow = 0; ow < p->ow; ow++)
    for (int64_t co = 0; co < p->co; co++) {
        int64_t at[FAMILY_AXES] = {n, g, oh, ow, co};
        struct sum sum = {0, 0};
        for (int64_t kh = 0; kh < p->kh; kh++)
        for (int64_t kw = 0; kw < p->kw; kw++) {
            int64_t row = 0, column = 0;
            int there = p->gathered || window_inside(&p->window, oh, ow, kh, kw, &row, &column);
            int64_t gathered[FAMILY_AXES] = {n, g, oh, ow, kh, kw, 0};
            int64_t slid[FAMILY_AXES] = {n, g, row, column, 0};
            int64_t used[FAMILY_AXES] = {g, co, kh, kw, 0};
            int64_t x = there ? operand_offset(&p->input, p->gathered ? gathered : slid) : 0;
            add_products(&sum, there ? &p->input : 0, x, p->input.stride[p->gathered ? 6 : 4],
                         &p->weight, operand_offset(&p->weight, used), p->weight.stride[4], p->ci,
                         p->window.fill);
        }
        finish(sum, &p->output, p->has_bias ? &p->bias : 0, operand_offset(&p->bias, at),
               p->first, p->last, &p->steps, at);
    }
}

void family_depthwise(const struct depthwise *p)
{
    for (int64_t n = 0; n < p->n; n++)
    for (int64_t oh = 0; oh < p->oh; oh++)
    for (int64_t ow = 0; ow < p->ow; ow++)
    for (int64_t c = 0; c < p->c; c++) {
        int64_t at[FAMILY_AXES] = {n, oh, ow, c, 0};
        struct sum sum = {0, 0};
        for (int64_t kh = 0; kh < p->kh; kh++)
        for (int64_t kw = 0; kw < p->kw; kw++) {
            int64_t row, column;
            int there = window_inside(&p->window, oh, ow, kh, kw, &row, &column);
            int64_t seen[FAMILY_AXES] = {n, row, column, c, 0};
            int64_t used[FAMILY_AXES] = {c, kh, kw, 0, 0};
            add_products(&sum, there ? &p->input : 0, there ? operand_offset(&p->input, seen) : 0,
                         0, &p->weight, operand_offset(&p->weight, used), 0, 1, p->window.fill);
        }
        finish(sum, &p->output, p->has_bias ? &p->bias : 0, c * p->bias.stride[0], p->first,
               p->last, &p->steps, at);
    }
}

/* The products of one neuron's entries in one stream with the windows at a position. */
static void add_stream(struct sum *sum, const struct sparse *p, int64_t block, int64_t segment,
                       int64_t lane, const int64_t *at)
{
    int64_t stream = block * p->weight.stride[0] + segment * p->weight.stride[1];
    int64_t before = 0, count = 0, all = 0, place = -1, channels = p->ci / p->segments;
    for (int64_t other = 0; other < p->lanes; other++) {
        int64_t entries = (uint16_t)operand_load(&p->weight, stream + 2 * other).whole;
        before += other < lane ? entries : 0;
        count = other == lane ? entries : count;
        all += entries;
    }
    int64_t steps = stream + 2 * p->lanes, weights = steps + 2 * ((all + 1) / 2);
    for (int64_t entry = before; entry < before + count; entry++) {
        int64_t row, column;
        place += *operand_place(&p->weight, steps + entry, 1);
        int64_t tap = place / channels, channel = segment * channels + place % channels;
        if (!window_inside(&p->window, at[1], at[2], tap / p->kw, tap % p->kw, &row, &column))
            continue;
        int64_t seen[FAMILY_AXES] = {at[0], row, column, channel, 0};
        int64_t x = operand_load(&p->input, operand_offset(&p->input, seen)).whole;
        sum->whole += (uint64_t)(x * operand_load(&p->weight, weights + 2 * entry).whole);
    }
}

void family_sparse(const struct sparse *p)
{
    for (int64_t n = 0; n < p->n; n++)
    for (int64_t oh = 0; oh < p->oh; oh++)
    for (int64_t ow = 0; ow < p->ow; ow++)
    for (int64_t co = 0; co < p->co; co++) {
        int64_t at[FAMILY_AXES] = {n, oh, ow, co, 0};
        struct sum sum = {0, 0};
        for (int64_t segment = 0; segment < p->segments; segment++)
            add_stream(&sum, p, co / p->lanes, segment, co % p->lanes, at);
        finish(sum, &p->output, p->has_bias ? &p->bias : 0, co * p->bias.stride[0], p->first,
               p->last, &p->steps, at);
    }
}
