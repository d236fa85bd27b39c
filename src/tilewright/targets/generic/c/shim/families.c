/* See families.h. */
#include "families.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The place of an element; ends the process where it is outside its memory. */
static uint8_t *place(const struct operand *o, int64_t offset, uint64_t bytes)
{
    uint64_t at = o->address + (uint64_t)offset;
    if (!o->memory)
        return (uint8_t *)(uintptr_t)at;
    if (at > o->bytes || bytes > o->bytes - at) {
        fprintf(stderr, "%s: %llu bytes at %llu of %llu\n", o->name, (unsigned long long)bytes,
                (unsigned long long)at, (unsigned long long)o->bytes);
        abort();
    }
    return o->memory + at;
}

static int64_t load(const struct operand *o, int64_t offset, int bits)
{
    const uint8_t *from = place(o, offset, (uint64_t)bits / 8);
    if (bits == 16) {
        int16_t value;
        memcpy(&value, from, sizeof value);
        return value;
    }
    if (bits == 32) {
        int32_t value;
        memcpy(&value, from, sizeof value);
        return value;
    }
    return (int8_t)*from;
}

/* The low bits of a value. */
static void store(const struct operand *o, int64_t offset, int bits, int64_t value)
{
    uint8_t *to = place(o, offset, (uint64_t)bits / 8);
    uint64_t low = (uint64_t)value;
    for (int byte = 0; byte < bits / 8; byte++)
        to[byte] = (uint8_t)(low >> 8 * byte);
}

static int64_t wrap32(int64_t value)
{
    return (int32_t)(uint32_t)(uint64_t)value;
}

static int64_t wrap(int64_t value, int bits)
{
    return bits == 8 ? (int8_t)(uint8_t)value : bits == 16 ? (int16_t)(uint16_t)value : wrap32(value);
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static int64_t saturate(int64_t value, int bits)
{
    int64_t limit = (int64_t)1 << (bits - 1);
    return clamp(value, -limit, limit - 1);
}

static int64_t shift_left(int64_t value, int64_t by)
{
    return by > 63 ? 0 : (int64_t)((uint64_t)value << by);
}

/* Both operands at the larger of their binary points. */
static int64_t aligned_sum(int64_t x, int64_t y, const struct step *s, int sign)
{
    int64_t point = s->x > s->y ? s->x : s->y;
    uint64_t left = (uint64_t)shift_left(x, point - s->x);
    uint64_t right = (uint64_t)shift_left(y, point - s->y);
    return wrap32((int64_t)(sign > 0 ? left + right : left - right));
}

static int64_t requantise(int64_t value, int64_t shift, int narrow)
{
    if (shift > 62)
        value = 0;
    else if (shift > 0)
        value = (value + ((int64_t)1 << (shift - 1))) >> shift;
    else if (shift < 0)
        value = shift_left(value, -shift > 32 ? 32 : -shift);
    return saturate(value, narrow);
}

static int64_t sloped(int64_t value, int64_t slope, int fraction, int bits)
{
    if (value < 0)
        value = (value * slope + ((int64_t)1 << (fraction - 1))) >> fraction;
    return saturate(value, bits);
}

static int64_t interpolate(const struct operand *table, int64_t x)
{
    int64_t segment = (x + 32768) >> 8, rest = x & 255;
    int64_t low = load(table, 2 * segment, 16), high = load(table, 2 * segment + 2, 16);
    return low + (((high - low) * rest + 128) >> 8);
}

static int is_binary(enum function function)
{
    return function >= FUNCTION_ADD && function <= FUNCTION_PRELU;
}

/* One step: the value, and in ``bits`` the width of its type, before and after. */
static int64_t apply(const struct step *s, int64_t x, int64_t y, int other, int *bits, int narrow)
{
    switch (s->function) {
    case FUNCTION_ADD:
        *bits = 32;
        return aligned_sum(x, y, s, 1);
    case FUNCTION_SUB:
        *bits = 32;
        return aligned_sum(x, y, s, -1);
    case FUNCTION_MUL:
        *bits = 32;
        return wrap32((int64_t)((uint64_t)x * (uint64_t)y));
    case FUNCTION_MAX:
        *bits = other > *bits ? other : *bits;
        return x > y ? x : y;
    case FUNCTION_MIN:
        *bits = other > *bits ? other : *bits;
        return x < y ? x : y;
    case FUNCTION_PRELU:
        return sloped(x, y, (int)clamp(s->y, 1, 62), *bits);
    case FUNCTION_TRANSPOSE: /* The strides of the operand exchange the axes. */
        return x;
    case FUNCTION_RELU:
        return x > 0 ? x : 0;
    case FUNCTION_NEG:
        return saturate(-x, *bits);
    case FUNCTION_ABS:
        return saturate(x < 0 ? -x : x, *bits);
    case FUNCTION_CLIP: {
        int64_t low = saturate(s->x, *bits), high = saturate(s->y, *bits);
        x = x < low ? low : x;
        return x > high ? high : x;
    }
    case FUNCTION_LEAKY_RELU:
        return sloped(x, s->x, 14, *bits);
    case FUNCTION_REQUANTISE:
        *bits = narrow;
        return requantise(x, (int64_t)s->x - s->y, narrow);
    case FUNCTION_TABLE:
        *bits = 16;
        return interpolate(&s->table, x);
    default:
        return x;
    }
}

/* All steps; ``at`` is the position of the result. */
static int64_t apply_all(const struct steps *steps, int64_t value, int bits, const int64_t *at)
{
    for (int number = 0; number < steps->count; number++) {
        const struct step *s = &steps->step[number];
        int64_t other = 0;
        if (is_binary(s->function)) {
            int64_t offset = 0;
            for (int axis = 0; axis < FAMILY_AXES; axis++)
                offset += at[axis] * steps->residual.stride[axis];
            other = load(&steps->residual, offset, steps->residual.bits);
        }
        value = apply(s, value, other, steps->residual.bits, &bits, steps->narrow);
    }
    return value;
}

static int64_t offset_of(const struct operand *o, const int64_t *at)
{
    int64_t offset = 0;
    for (int axis = 0; axis < FAMILY_AXES; axis++) {
        int turns = o->circle && axis == o->rows;
        offset += (turns ? (at[axis] + o->turn) % o->circle : at[axis]) * o->stride[axis];
    }
    return offset;
}

void family_transfer(const struct transfer *t)
{
    for (int64_t a = 0; a < t->size[0]; a++)
        for (int64_t b = 0; b < t->size[1]; b++)
            for (int64_t c = 0; c < t->size[2]; c++)
                for (int64_t d = 0; d < t->size[3]; d++) {
                    int64_t at[FAMILY_AXES] = {a, b, c, d, 0};
                    const uint8_t *from =
                        place(&t->source, offset_of(&t->source, at), (uint64_t)t->element);
                    memmove(place(&t->target, offset_of(&t->target, at), (uint64_t)t->element),
                            from, (size_t)t->element);
                }
    if (t->extra_bytes)
        memmove(place(&t->extra_target, 0, (uint64_t)t->extra_bytes),
                place(&t->extra_source, 0, (uint64_t)t->extra_bytes), (size_t)t->extra_bytes);
}

void family_convert(const struct convert *p)
{
    for (int64_t a = 0; a < p->size[0]; a++)
        for (int64_t b = 0; b < p->size[1]; b++)
            for (int64_t c = 0; c < p->size[2]; c++)
                for (int64_t d = 0; d < p->size[3]; d++) {
                    int64_t at[FAMILY_AXES] = {a, b, c, d, 0};
                    int64_t sum = load(&p->source, offset_of(&p->source, at), 32);
                    int bits = p->target.bits;
                    store(&p->target, offset_of(&p->target, at), bits,
                          requantise(sum, p->shift, bits));
                }
}

/* Where row and column of a window lie in the input; 0 in the padding. */
static int inside(const struct window *w, int64_t oh, int64_t ow, int64_t kh, int64_t kw,
                  int64_t *row, int64_t *column)
{
    *row = w->row + oh * w->stride_h + kh * w->dilation_h;
    *column = w->column + ow * w->stride_w + kw * w->dilation_w;
    return *row >= 0 && *row < w->rows && *column >= 0 && *column < w->columns;
}

void family_img2col(const struct img2col *p)
{
    for (int64_t n = 0; n < p->n; n++)
    for (int64_t g = 0; g < p->g; g++)
    for (int64_t oh = 0; oh < p->oh; oh++)
    for (int64_t ow = 0; ow < p->ow; ow++)
    for (int64_t kh = 0; kh < p->kh; kh++)
    for (int64_t kw = 0; kw < p->kw; kw++)
    for (int64_t ci = 0; ci < p->ci; ci++) {
        int64_t row, column, to[FAMILY_AXES] = {n, g, oh, ow, kh, kw, ci};
        uint8_t *into = place(&p->target, offset_of(&p->target, to), (uint64_t)p->element);
        if (inside(&p->window, oh, ow, kh, kw, &row, &column)) {
            int64_t from[FAMILY_AXES] = {n, g, row, column, ci};
            memcpy(into, place(&p->source, offset_of(&p->source, from), (uint64_t)p->element),
                   (size_t)p->element);
        } else {
            memset(into, 0, (size_t)p->element);
        }
    }
}

void family_product(const struct product *p)
{
    for (int64_t n = 0; n < p->n; n++)
    for (int64_t g = 0; g < p->g; g++)
    for (int64_t oh = 0; oh < p->oh; oh++)
    for (int64_t ow = 0; ow < p->ow; ow++)
    for (int64_t co = 0; co < p->co; co++) {
        int64_t at[FAMILY_AXES] = {n, g, oh, ow, co};
        uint64_t sum = 0;
        for (int64_t kh = 0; kh < p->kh; kh++)
        for (int64_t kw = 0; kw < p->kw; kw++) {
            int64_t row = 0, column = 0;
            if (!p->gathered && !inside(&p->window, oh, ow, kh, kw, &row, &column))
                continue;
            int64_t gathered[FAMILY_AXES] = {n, g, oh, ow, kh, kw, 0};
            int64_t slid[FAMILY_AXES] = {n, g, row, column, 0};
            const int64_t *seen = p->gathered ? gathered : slid;
            int64_t used[FAMILY_AXES] = {g, co, kh, kw, 0};
            int64_t step = p->input.stride[p->gathered ? 6 : 4];
            int64_t x = offset_of(&p->input, seen), w = offset_of(&p->weight, used);
            for (int64_t ci = 0; ci < p->ci; ci++)
                sum += (uint64_t)(load(&p->input, x + ci * step, p->input.bits)
                                  * load(&p->weight, w + ci * p->weight.stride[4], p->weight.bits));
        }
        int64_t place_of = offset_of(&p->output, at);
        if (!p->first)
            sum += (uint64_t)load(&p->output, place_of, 32);
        else if (p->has_bias)
            sum += (uint64_t)load(&p->bias, offset_of(&p->bias, at), 32);
        int64_t total = wrap32((int64_t)sum);
        if (p->last)
            total = apply_all(&p->steps, total, 32, at);
        store(&p->output, place_of, p->last ? p->output.bits : 32, total);
    }
}

void family_depthwise(const struct depthwise *p)
{
    for (int64_t n = 0; n < p->n; n++)
    for (int64_t oh = 0; oh < p->oh; oh++)
    for (int64_t ow = 0; ow < p->ow; ow++)
    for (int64_t c = 0; c < p->c; c++) {
        int64_t at[FAMILY_AXES] = {n, oh, ow, c, 0};
        uint64_t sum = 0;
        for (int64_t kh = 0; kh < p->kh; kh++)
        for (int64_t kw = 0; kw < p->kw; kw++) {
            int64_t row, column;
            if (!inside(&p->window, oh, ow, kh, kw, &row, &column))
                continue;
            int64_t seen[FAMILY_AXES] = {n, row, column, c, 0};
            int64_t used[FAMILY_AXES] = {c, kh, kw, 0, 0};
            sum += (uint64_t)(load(&p->input, offset_of(&p->input, seen), p->input.bits)
                              * load(&p->weight, offset_of(&p->weight, used), p->weight.bits));
        }
        int64_t place_of = offset_of(&p->output, at);
        if (!p->first)
            sum += (uint64_t)load(&p->output, place_of, 32);
        else if (p->has_bias)
            sum += (uint64_t)load(&p->bias, c * p->bias.stride[0], 32);
        int64_t total = wrap32((int64_t)sum);
        if (p->last)
            total = apply_all(&p->steps, total, 32, at);
        store(&p->output, place_of, p->last ? p->output.bits : 32, total);
    }
}

/* Positions of the whole kernel that count along one axis. */
static int64_t counted(int64_t start, int64_t size, int64_t step, int64_t low, int64_t high)
{
    int64_t count = 0;
    for (int64_t k = 0; k < size; k++)
        count += start + k * step >= low && start + k * step < high;
    return count;
}

static int64_t floor_divide(int64_t value, int64_t by)
{
    return value / by - (value % by < 0);
}

void family_pool(const struct pool *p)
{
    const struct window *w = &p->window;
    for (int64_t n = 0; n < p->n; n++)
    for (int64_t oh = 0; oh < p->oh; oh++)
    for (int64_t ow = 0; ow < p->ow; ow++)
    for (int64_t c = 0; c < p->c; c++) {
        int64_t at[FAMILY_AXES] = {n, oh, ow, c, 0}, place_of = offset_of(&p->output, at);
        int64_t total = p->average ? 0 : INT64_MIN;
        for (int64_t kh = 0; kh < p->kh; kh++)
        for (int64_t kw = 0; kw < p->kw; kw++) {
            int64_t row, column, x = p->average ? 0 : -((int64_t)1 << (p->steps.narrow - 1));
            if (inside(w, oh, ow, kh, kw, &row, &column)) {
                int64_t seen[FAMILY_AXES] = {n, row, column, c, 0};
                x = load(&p->input, offset_of(&p->input, seen), p->input.bits);
            }
            total = p->average ? total + x : x > total ? x : total;
        }
        if (!p->first) {
            int64_t before = load(&p->output, place_of, 32);
            total = p->average ? total + before : before > total ? before : total;
        }
        if (p->last) {
            if (p->average) {
                int64_t rows = counted(p->window_row + oh * w->stride_h, p->window_h, w->dilation_h,
                                       p->count_top, p->count_bottom);
                int64_t columns = counted(p->window_column + ow * w->stride_w, p->window_w,
                                          w->dilation_w, p->count_left, p->count_right);
                int64_t count = rows * columns > 1 ? rows * columns : 1;
                total = floor_divide(2 * total + count, 2 * count);
            }
            total = apply_all(&p->steps, wrap(total, p->steps.narrow), p->steps.narrow, at);
        }
        store(&p->output, place_of, p->last ? p->output.bits : 32, total);
    }
}

void family_points(const struct points *p)
{
    for (int64_t a = 0; a < p->size[0]; a++)
    for (int64_t b = 0; b < p->size[1]; b++)
    for (int64_t c = 0; c < p->size[2]; c++)
    for (int64_t d = 0; d < p->size[3]; d++) {
        int64_t at[FAMILY_AXES] = {a, b, c, d, 0}, other = 0;
        int bits = p->input.bits;
        int64_t value = load(&p->input, offset_of(&p->input, at), bits);
        if (is_binary(p->function.function))
            other = load(&p->other, offset_of(&p->other, at), p->other.bits);
        value = apply(&p->function, value, other, p->other.bits, &bits, p->steps.narrow);
        value = apply_all(&p->steps, value, bits, at);
        store(&p->output, offset_of(&p->output, at), p->output.bits, value);
    }
}

/* Halvings of 1 with 16 fraction bits: 2 to the power -i / 256, rounded. */
static const int32_t halvings[257] = {
    65536, 65359, 65182, 65006, 64830, 64655, 64480, 64306, 64132, 63958, 63785, 63613, 63441,
    63269, 63098, 62928, 62757, 62588, 62419, 62250, 62081, 61914, 61746, 61579, 61413, 61247,
    61081, 60916, 60751, 60587, 60423, 60260, 60097, 59934, 59772, 59611, 59449, 59289, 59128,
    58968, 58809, 58650, 58491, 58333, 58176, 58018, 57861, 57705, 57549, 57393, 57238, 57083,
    56929, 56775, 56622, 56468, 56316, 56163, 56012, 55860, 55709, 55558, 55408, 55258, 55109,
    54960, 54811, 54663, 54515, 54368, 54221, 54074, 53928, 53782, 53637, 53492, 53347, 53203,
    53059, 52916, 52773, 52630, 52488, 52346, 52204, 52063, 51922, 51782, 51642, 51502, 51363,
    51224, 51085, 50947, 50810, 50672, 50535, 50399, 50262, 50126, 49991, 49856, 49721, 49586,
    49452, 49319, 49185, 49052, 48920, 48787, 48655, 48524, 48393, 48262, 48131, 48001, 47871,
    47742, 47613, 47484, 47356, 47228, 47100, 46973, 46846, 46719, 46593, 46467, 46341, 46216,
    46091, 45966, 45842, 45718, 45594, 45471, 45348, 45225, 45103, 44981, 44859, 44738, 44617,
    44497, 44376, 44256, 44137, 44017, 43898, 43780, 43661, 43543, 43425, 43308, 43191, 43074,
    42958, 42841, 42726, 42610, 42495, 42380, 42265, 42151, 42037, 41923, 41810, 41697, 41584,
    41472, 41360, 41248, 41136, 41025, 40914, 40804, 40693, 40583, 40473, 40364, 40255, 40146,
    40037, 39929, 39821, 39714, 39606, 39499, 39392, 39286, 39180, 39074, 38968, 38863, 38757,
    38653, 38548, 38444, 38340, 38236, 38133, 38030, 37927, 37824, 37722, 37620, 37518, 37417,
    37316, 37215, 37114, 37014, 36914, 36814, 36715, 36615, 36516, 36417, 36319, 36221, 36123,
    36025, 35928, 35831, 35734, 35637, 35541, 35445, 35349, 35253, 35158, 35063, 34968, 34874,
    34779, 34685, 34591, 34498, 34405, 34312, 34219, 34126, 34034, 33942, 33850, 33759, 33667,
    33576, 33486, 33395, 33305, 33215, 33125, 33035, 32946, 32857, 32768
};

static int64_t rounded_shift(int64_t value, int64_t shift)
{
    return shift >= 0 ? (value + (((int64_t)1 << shift) >> 1)) >> shift : shift_left(value, -shift);
}

/* exp(-distance) with 16 fraction bits. */
static int64_t exponential(int64_t distance, int64_t point)
{
    int64_t z = rounded_shift(distance * 47274, point - 1), most = (int64_t)48 << 16;
    z = z > most ? most : z;
    int64_t segment = (z >> 8) & 255, rest = z & 255, low = halvings[segment];
    return rounded_shift(low + (((halvings[segment + 1] - low) * rest + 128) >> 8), z >> 16);
}

void family_softmax(const struct softmax *p)
{
    for (int64_t a = 0; a < p->size[0]; a++)
    for (int64_t b = 0; b < p->size[1]; b++)
    for (int64_t c = 0; c < p->size[2]; c++)
    for (int64_t d = 0; d < p->size[3]; d++) {
        int64_t at[FAMILY_AXES] = {a, b, c, d, 0}, greatest = INT64_MIN, sum = 0;
        int64_t from = offset_of(&p->input, at), to = offset_of(&p->output, at);
        int64_t *held = malloc((size_t)p->axis * sizeof *held);
        if (!held)
            abort();
        for (int64_t i = 0; i < p->axis; i++) {
            held[i] = load(&p->input, from + i * p->input.stride[4], p->input.bits);
            greatest = held[i] > greatest ? held[i] : greatest;
        }
        for (int64_t i = 0; i < p->axis; i++)
            sum += held[i] = exponential(greatest - held[i], p->point_in);
        for (int64_t i = 0; i < p->axis; i++) {
            int64_t scaled = rounded_shift(held[i], -p->point_out);
            at[4] = i;
            int64_t value = saturate(floor_divide(2 * scaled + sum, 2 * sum), 16);
            value = apply_all(&p->steps, value, 16, at);
            store(&p->output, to + i * p->output.stride[4], p->output.bits, value);
        }
        free(held);
    }
}
