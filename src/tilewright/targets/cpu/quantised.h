/* The maps of affine quantisation, real = (integer - zero) * scale, and operations on quantised
 * integers. Every float operation rounds by itself (PIN keeps the compiler from fusing a product with
 * a sum), so results are the same everywhere. Suffix v: a vector of lanes; s: one element. */
#ifndef TILEWRIGHT_QUANTISED_H
#define TILEWRIGHT_QUANTISED_H

#include "integers.h"

/* To the nearest integer, the even one of two, within limits; NaN gives the least. Adding
 * 1.5 * 2**23 to a number of 22 bits at most leaves its nearest integer in the lower bits. */
INLINE ivec rounded_v(vec units, ivec zero, int low, int high)
{
    units = above_v(units, __builtin_convertvector(low - zero, vec));
    units = below_v(units, __builtin_convertvector(high - zero, vec));
    units += 12582912.0f;
    return (ivec)units - 0x4b400000 + zero;
}

INLINE int32_t rounded_s(float units, int32_t zero, int low, int high)
{
    const float least = (float)(low - zero), most = (float)(high - zero);
    units = units > least ? units : least;
    units = units < most ? units : most;
    return (int32_t)rintf(units) + zero;
}

INLINE float pinned_s(float value)
{
    PIN(value);
    return value;
}

INLINE ivec quantise_linear_v(vec x, vec scale, ivec zero, int low, int high)
{
    return rounded_v(x / scale, zero, low, high);
}

INLINE int32_t quantise_linear_s(float x, float scale, int32_t zero, int low, int high)
{
    return rounded_s(x / scale, zero, low, high);
}

INLINE vec dequantise_linear_v(ivec x, vec scale, ivec zero)
{
    vec value = __builtin_convertvector(x - zero, vec) * scale;
    PIN(value);
    return value;
}

INLINE float dequantise_linear_s(int32_t x, float scale, int32_t zero)
{
    return pinned_s((float)(int32_t)((uint32_t)x - (uint32_t)zero) * scale);
}

INLINE ivec requantise_linear_v(ivec x, vec factor, int zero, int low, int high)
{
    return rounded_v(__builtin_convertvector(x, vec) * factor, splat_int(zero), low, high);
}

INLINE int32_t requantise_linear_s(int32_t x, float factor, int zero, int low, int high)
{
    return rounded_s((float)x * factor, zero, low, high);
}

INLINE ivec add_linear_v(ivec x, float fx, int zx, ivec y, float fy, int zy, int zero, int low, int high)
{
    vec a = __builtin_convertvector(x - zx, vec) * fx, b = __builtin_convertvector(y - zy, vec) * fy;
    PIN(a);
    PIN(b);
    return rounded_v(a + b, splat_int(zero), low, high);
}

INLINE int32_t add_linear_s(int32_t x, float fx, int zx, int32_t y, float fy, int zy, int zero, int low, int high)
{
    const float a = pinned_s((float)(x - zx) * fx), b = pinned_s((float)(y - zy) * fy);
    return rounded_s(a + b, zero, low, high);
}

INLINE ivec mul_linear_v(ivec x, int zx, ivec y, int zy, float factor, int zero, int low, int high)
{
    vec units = __builtin_convertvector((x - zx) * (y - zy), vec) * factor;
    return rounded_v(units, splat_int(zero), low, high);
}

INLINE int32_t mul_linear_s(int32_t x, int zx, int32_t y, int zy, float factor, int zero, int low, int high)
{
    return rounded_s((float)((x - zx) * (y - zy)) * factor, zero, low, high);
}

/* Entry x of 256 bytes, the first of which is for `least`; further bits of a lane are anything. */
INLINE ivec look_up_bytes(ivec x, const char *table, int least)
{
    x -= least;
#if LANES == 16 && defined(__AVX512VBMI__)
    /* An instruction finds bytes in 128 by the lower seven bits of each index; the eighth chooses. */
    const ivec *quarter = (const ivec *)(const void *)table;
    ivec low = x, high = x, first, second, third, fourth;
    memcpy(&first, quarter, 64), memcpy(&second, quarter + 1, 64);
    memcpy(&third, quarter + 2, 64), memcpy(&fourth, quarter + 3, 64);
    __asm__("vpermi2b %2, %1, %0" : "+v"(low) : "v"(first), "v"(second));
    __asm__("vpermi2b %2, %1, %0" : "+v"(high) : "v"(third), "v"(fourth));
    return (ivec)choose((x & 128) == 0, (vec)low, (vec)high);
#else
    ivec r;
    for (int i = 0; i < LANES; i++)
        r[i] = table[x[i]];
    return r;
#endif
}

INLINE ivec look_up_uint8_v(ivec x, const char *table, int least)
{
    return look_up_bytes(x, table, least) & 255;
}

INLINE ivec look_up_int8_v(ivec x, const char *table, int least)
{
    return look_up_bytes(x, table, least) << 24 >> 24;
}

INLINE int32_t look_up_uint8_s(int32_t x, const char *table, int least) { return (uint8_t)table[x - least]; }
INLINE int32_t look_up_int8_s(int32_t x, const char *table, int least) { return (int8_t)table[x - least]; }

#endif
