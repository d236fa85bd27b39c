/* See elements.h. */
#include "elements.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int element_bytes(enum element element)
{
    switch (element) {
    case ELEMENT_INT8:
        return 1;
    case ELEMENT_INT16:
    case ELEMENT_FLOAT16:
    case ELEMENT_BFLOAT16:
        return 2;
    case ELEMENT_INT32:
    case ELEMENT_FLOAT32:
        return 4;
    default:
        fprintf(stderr, "there are no such elements\n");
        abort();
    }
}

int element_is_real(enum element element)
{
    return element >= ELEMENT_FLOAT16;
}

int64_t wrapped(int64_t value, enum element element)
{
    switch (element) {
    case ELEMENT_INT8:
        return (int8_t)(uint8_t)(uint64_t)value;
    case ELEMENT_INT16:
        return (int16_t)(uint16_t)(uint64_t)value;
    default:
        return (int32_t)(uint32_t)(uint64_t)value;
    }
}

int64_t saturated(int64_t value, enum element element)
{
    int64_t limit = (int64_t)1 << (8 * element_bytes(element) - 1);
    return value < -limit ? -limit : value > limit - 1 ? limit - 1 : value;
}

struct value whole_value(enum element element, int64_t whole)
{
    struct value value = {element, whole, 0};
    return value;
}

struct value real_value(float real)
{
    struct value value = {ELEMENT_FLOAT32, 0, real};
    return value;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_float16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7FFF;
    if (rest >= 0x7C00) /* infinities and what is no number */
        return float_of(sign | 0x7F800000 | (rest & 0x3FF) << 13);
    if (rest < 0x400) { /* multiples of the least number */
        float value = (float)rest / 16777216.0f;
        return sign ? -value : value;
    }
    return float_of(sign | (rest + 0x1C000) << 13);
}

static uint16_t to_float16(float value)
{
    uint32_t bits = bits_of(value), rest = bits & 0x7FFFFFFF;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (rest > 0x7F800000)
        return sign | 0x7E00;
    if (rest >= 0x477FF000) /* half a unit beyond the largest number */
        return sign | 0x7C00;
    if (rest < 0x38800000)
        return sign | (uint16_t)lrintf(float_of(rest) * 16777216.0f);
    return sign | (uint16_t)((rest - 0x38000000 + 0xFFF + (rest >> 13 & 1)) >> 13);
}

static uint16_t to_bfloat16(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

struct value value_at(const uint8_t *from, enum element element)
{
    int16_t short_value;
    int32_t long_value;
    float real;
    switch (element) {
    case ELEMENT_INT8:
        return whole_value(element, (int8_t)*from);
    case ELEMENT_INT16:
        memcpy(&short_value, from, sizeof short_value);
        return whole_value(element, short_value);
    case ELEMENT_INT32:
        memcpy(&long_value, from, sizeof long_value);
        return whole_value(element, long_value);
    case ELEMENT_FLOAT32:
        memcpy(&real, from, sizeof real);
        return real_value(real);
    default:
        memcpy(&short_value, from, sizeof short_value);
        if (element == ELEMENT_FLOAT16)
            return real_value(from_float16((uint16_t)short_value));
        return real_value(float_of((uint32_t)(uint16_t)short_value << 16));
    }
}

uint8_t *operand_place(const struct operand *o, int64_t offset, uint64_t bytes)
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

int64_t operand_offset(const struct operand *o, const int64_t *at)
{
    int64_t offset = 0;
    for (int axis = 0; axis < FAMILY_AXES; axis++) {
        int turns = o->circle && axis == o->rows;
        offset += (turns ? (at[axis] + o->turn) % o->circle : at[axis]) * o->stride[axis];
    }
    return offset;
}

struct value operand_load(const struct operand *o, int64_t offset)
{
    return value_at(operand_place(o, offset, (uint64_t)element_bytes(o->element)), o->element);
}

/* Infinities and what is no number stay what they are. */
static float limited(float value, float limit)
{
    return !isfinite(value) ? value : value < -limit ? -limit : value > limit ? limit : value;
}

void operand_store(const struct operand *o, int64_t offset, struct value value, int saturate)
{
    uint64_t bytes = (uint64_t)element_bytes(o->element), low = (uint64_t)value.whole;
    uint8_t *to = operand_place(o, offset, bytes);
    float real = value.real;
    if (o->element == ELEMENT_FLOAT32)
        low = bits_of(real);
    if (o->element == ELEMENT_FLOAT16)
        low = to_float16(saturate ? limited(real, 65504.0f) : real);
    if (o->element == ELEMENT_BFLOAT16)
        low = to_bfloat16(saturate ? limited(real, float_of(0x7F7F0000)) : real);
    if (element_is_real(o->element) != element_is_real(value.element)) {
        fprintf(stderr, "%s: a float is stored as an integer, or an integer as a float\n", o->name);
        abort();
    }
    for (uint64_t byte = 0; byte < bytes; byte++)
        to[byte] = (uint8_t)(low >> 8 * byte);
}

struct operand as_element(struct operand o, enum element element)
{
    o.element = element;
    return o;
}
