/* See steps.h. Every step in float32 is one operation of IEEE arithmetic: compile this without
   contraction to fused multiply-adds (-ffp-contract=off). */
#include "steps.h"

#include <math.h>

int is_binary(enum function function)
{
    switch (function) {
    case FUNCTION_ADD:
    case FUNCTION_SUB:
    case FUNCTION_MUL:
    case FUNCTION_MAX:
    case FUNCTION_MIN:
    case FUNCTION_DIV:
    case FUNCTION_POW:
    case FUNCTION_PRELU:
    case FUNCTION_REQUANTISE_LINEAR:
    case FUNCTION_DEQUANTISE_LINEAR:
    case FUNCTION_ADD_LINEAR:
    case FUNCTION_MUL_LINEAR:
        return 1;
    default:
        return 0;
    }
}

struct value second_operand(enum function function, const struct operand *o, int64_t offset)
{
    struct operand factors = as_element(*o, ELEMENT_FLOAT32);
    int scaled = function == FUNCTION_REQUANTISE_LINEAR || function == FUNCTION_DEQUANTISE_LINEAR;
    return operand_load(scaled ? &factors : o, offset);
}

/* The wider type of two integers. */
static enum element wider(struct value x, struct value y)
{
    return element_bytes(x.element) >= element_bytes(y.element) ? x.element : y.element;
}

static int64_t shift_left(int64_t value, int64_t by)
{
    return by > 63 ? 0 : (int64_t)((uint64_t)value << by);
}

int64_t requantised(int64_t value, int64_t shift, enum element narrow)
{
    if (shift > 62)
        value = 0;
    else if (shift > 0)
        value = (value + ((int64_t)1 << (shift - 1))) >> shift;
    else if (shift < 0)
        value = shift_left(value, -shift > 32 ? 32 : -shift);
    return saturated(value, narrow);
}

/* Fixed point: both operands at the larger of their binary points. */
static struct value aligned_sum(struct value x, struct value y, const struct step *s, int sign)
{
    int64_t point = s->x > s->y ? s->x : s->y;
    uint64_t left = (uint64_t)shift_left(x.whole, point - s->x);
    uint64_t right = (uint64_t)shift_left(y.whole, point - s->y);
    int64_t sum = (int64_t)(sign > 0 ? left + right : left - right);
    return whole_value(ELEMENT_INT32, wrapped(sum, ELEMENT_INT32));
}

static struct value sloped(struct value x, int64_t slope, int fraction)
{
    int64_t value = x.whole;
    if (value < 0)
        value = (value * slope + ((int64_t)1 << (fraction - 1))) >> fraction;
    return whole_value(x.element, saturated(value, x.element));
}

static struct value interpolated(const struct operand *table, int64_t x)
{
    int64_t segment = (x + 32768) >> 8, rest = x & 255;
    int64_t low = operand_load(table, 2 * segment).whole;
    int64_t high = operand_load(table, 2 * segment + 2).whole;
    return whole_value(ELEMENT_INT16, low + (((high - low) * rest + 128) >> 8));
}

static struct value of_fixed(const struct step *s, struct value x, struct value y,
                             enum element narrow)
{
    int64_t value = x.whole, low, high;
    switch (s->function) {
    case FUNCTION_ADD:
        return aligned_sum(x, y, s, 1);
    case FUNCTION_SUB:
        return aligned_sum(x, y, s, -1);
    case FUNCTION_MUL:
        value = (int64_t)((uint64_t)x.whole * (uint64_t)y.whole);
        return whole_value(ELEMENT_INT32, wrapped(value, ELEMENT_INT32));
    case FUNCTION_PRELU:
        return sloped(x, y.whole, s->y < 1 ? 1 : s->y > 62 ? 62 : s->y);
    case FUNCTION_NEG:
        return whole_value(x.element, saturated(-value, x.element));
    case FUNCTION_ABS:
        return whole_value(x.element, saturated(value < 0 ? -value : value, x.element));
    case FUNCTION_CLIP:
        low = saturated(s->x, x.element), high = saturated(s->y, x.element);
        value = value < low ? low : value;
        return whole_value(x.element, value > high ? high : value);
    case FUNCTION_LEAKY_RELU:
        return sloped(x, s->x, 14);
    case FUNCTION_REQUANTISE:
        return whole_value(narrow, requantised(value, (int64_t)s->x - s->y, narrow));
    case FUNCTION_TABLE:
        return interpolated(&s->table, value);
    default:
        return x;
    }
}

/* Float32 in units of a scale to integers from `minimum` to `maximum`; NaN gives the least. */
static struct value quantised(float units, const struct step *s, enum element to)
{
    float below = (float)((int64_t)s->minimum - s->zero);
    float above = (float)((int64_t)s->maximum - s->zero);
    float kept = units > below ? units : below;
    kept = kept < above ? kept : above;
    return whole_value(to, wrapped((int64_t)rintf(kept) + s->zero, to));
}

static float centred(struct value x, int32_t zero)
{
    return (float)(int32_t)wrapped(x.whole - zero, ELEMENT_INT32);
}

static struct value of_integers(const struct step *s, struct value x, struct value y,
                                enum element to)
{
    enum element wide = is_binary(s->function) && !element_is_real(y.element) ? wider(x, y)
                                                                               : x.element;
    uint64_t left = (uint64_t)x.whole, right = (uint64_t)y.whole;
    float first, second;
    switch (s->function) {
    case FUNCTION_ADD:
        return whole_value(wide, wrapped((int64_t)(left + right), wide));
    case FUNCTION_SUB:
        return whole_value(wide, wrapped((int64_t)(left - right), wide));
    case FUNCTION_MUL:
        return whole_value(wide, wrapped((int64_t)(left * right), wide));
    case FUNCTION_LOOK_UP:
        return whole_value(x.element, operand_load(&s->table, x.whole + 128).whole);
    case FUNCTION_REQUANTISE_LINEAR:
        return quantised((float)(int32_t)x.whole * y.real, s, to);
    case FUNCTION_DEQUANTISE_LINEAR:
        return real_value(centred(x, s->zero) * y.real);
    case FUNCTION_ADD_LINEAR:
        first = centred(x, s->first_zero) * s->first_factor;
        second = centred(y, s->second_zero) * s->second_factor;
        return quantised(first + second, s, to);
    case FUNCTION_MUL_LINEAR:
        left = (uint64_t)(x.whole - s->first_zero) * (uint64_t)(y.whole - s->second_zero);
        first = (float)(int32_t)wrapped((int64_t)left, ELEMENT_INT32);
        return quantised(first * s->factor, s, to);
    default:
        return x;
    }
}

/* What is no number stays so. */
static float greater(float x, float y)
{
    return x >= y || isnan(x) ? x : y;
}

static float less(float x, float y)
{
    return x <= y || isnan(x) ? x : y;
}

static struct value of_floats(const struct step *s, float x, float y, enum element to)
{
    switch (s->function) {
    case FUNCTION_ADD:
        return real_value(x + y);
    case FUNCTION_SUB:
        return real_value(x - y);
    case FUNCTION_MUL:
        return real_value(x * y);
    case FUNCTION_MAX:
        return real_value(greater(x, y));
    case FUNCTION_MIN:
        return real_value(less(x, y));
    case FUNCTION_DIV:
        return real_value(x / y);
    case FUNCTION_POW:
        return real_value(powf(x, y));
    case FUNCTION_PRELU:
        return real_value(x < 0 ? x * y : x);
    case FUNCTION_RELU:
        return real_value(greater(x, 0));
    case FUNCTION_NEG:
        return real_value(-x);
    case FUNCTION_ABS:
        return real_value(fabsf(x));
    case FUNCTION_CLIP:
        return real_value(less(greater(x, s->low), s->high));
    case FUNCTION_LEAKY_RELU:
        return real_value(x < 0 ? x * s->alpha : x);
    case FUNCTION_QUANTISE_LINEAR:
        return quantised(x / s->scale, s, to);
    case FUNCTION_CALLED:
        return real_value(s->call(x, s->alpha, s->beta));
    default:
        return real_value(x);
    }
}

struct value apply_step(const struct step *s, struct value x, struct value y,
                        const struct numbers *numbers, enum element to)
{
    if (element_is_real(x.element))
        return of_floats(s, x.real, y.real, to);
    switch (s->function) { /* What all integers have in common. */
    case FUNCTION_MAX:
        return whole_value(wider(x, y), x.whole > y.whole ? x.whole : y.whole);
    case FUNCTION_MIN:
        return whole_value(wider(x, y), x.whole < y.whole ? x.whole : y.whole);
    case FUNCTION_RELU:
        return whole_value(x.element, x.whole > 0 ? x.whole : 0);
    default:
        return numbers->kind == KIND_FIXED ? of_fixed(s, x, y, numbers->narrow)
                                           : of_integers(s, x, y, to);
    }
}

struct value apply_steps(const struct steps *steps, struct value value, const int64_t *at)
{
    for (int number = 0; number < steps->count; number++) {
        const struct step *s = &steps->step[number];
        struct value other = value;
        if (is_binary(s->function)) {
            int64_t offset = operand_offset(&steps->residual, at);
            other = second_operand(s->function, &steps->residual, offset);
        }
        value = apply_step(s, value, other, &steps->numbers, steps->to);
    }
    return value;
}
