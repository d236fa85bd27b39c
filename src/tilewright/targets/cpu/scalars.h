/* Maps of one element, for float (suffix s) and double (suffix d), and of integers. */
#ifndef TILEWRIGHT_SCALARS_H
#define TILEWRIGHT_SCALARS_H

#include <math.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

/* F(name) is the C library's function of that type. NaN goes through, as in the reference. */
#define SCALARS(T, S, F)                                                                          \
    INLINE T relu_##S(T a) { return a < 0 ? 0 : a; }                                              \
    INLINE T max_##S(T a, T b) { return a > b || a != a ? a : b; }                                \
    INLINE T min_##S(T a, T b) { return a < b || a != a ? a : b; }                                \
    INLINE T abs_##S(T a) { return F(fabs)(a); }                                                  \
    INLINE T neg_##S(T a) { return -a; }                                                          \
    INLINE T sign_##S(T a) { return a != a ? a : (T)((a > 0) - (a < 0)); }                        \
    INLINE T clip_##S(T a, T low, T high) { return min_##S(max_##S(a, low), high); }              \
    INLINE T leaky_relu_##S(T a, T slope) { return a < 0 ? a * slope : a; }                       \
    INLINE T prelu_##S(T a, T slope) { return a < 0 ? a * slope : a; }                            \
    /* FUNCTIONS: as numerics/operators.py defines them */                                        \
    INLINE T pow_##S(T a, T b)                                                                    \
    {                                                                                             \
        if (b == (T)0.5)                                                                          \
            return a == -INFINITY ? INFINITY : F(fabs)(F(sqrt)(a));                               \
        return F(pow)(a, b);                                                                      \
    }                                                                                             \
    INLINE T fmod_##S(T a, T b) { return F(fmod)(a, b); }                                         \
    INLINE T mod_##S(T a, T b)                                                                    \
    {                                                                                             \
        const T r = F(fmod)(a, b);                                                                \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                          \
    }

#define OF_FLOAT(name) name##f
#define OF_DOUBLE(name) name
SCALARS(float, s, OF_FLOAT)
SCALARS(double, d, OF_DOUBLE)

/* Integers, in 64 bits (i: with a sign, u: without): what has no result gives 0, without a trap. */
#define INTEGERS(T, S)                                                    \
    INLINE T max_##S(T a, T b) { return a > b ? a : b; }                  \
    INLINE T min_##S(T a, T b) { return a < b ? a : b; }
INTEGERS(int64_t, i)
INTEGERS(uint64_t, u)

INLINE int64_t relu_i(int64_t a) { return a > 0 ? a : 0; }
INLINE uint64_t relu_u(uint64_t a) { return a; }
INLINE int64_t sign_i(int64_t a) { return (a > 0) - (a < 0); }
INLINE uint64_t sign_u(uint64_t a) { return a > 0; }
INLINE int64_t prelu_i(int64_t a, int64_t slope) { return a < 0 ? (int64_t)((uint64_t)a * (uint64_t)slope) : a; }
INLINE uint64_t prelu_u(uint64_t a, uint64_t slope) { (void)slope; return a; }
INLINE int64_t div_i(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b; }
INLINE uint64_t div_u(uint64_t a, uint64_t b) { return b ? a / b : 0; }
INLINE int64_t fmod_i(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
INLINE uint64_t fmod_u(uint64_t a, uint64_t b) { return b ? a % b : 0; }
INLINE uint64_t mod_u(uint64_t a, uint64_t b) { return fmod_u(a, b); }
INLINE int64_t mod_i(int64_t a, int64_t b)
{
    const int64_t r = fmod_i(a, b);
    return r && (r < 0) != (b < 0) ? r + b : r;
}
INLINE uint64_t pow_u(uint64_t a, uint64_t b)
{
    uint64_t r = 1;
    for (; b; b >>= 1, a *= a)
        r *= b & 1 ? a : 1;
    return r;
}
INLINE int64_t pow_i(int64_t a, int64_t b)
{
    if (b < 0)  /* 1 / a**-b, towards zero */
        return a == 1 || a == -1 ? (b & 1 ? a : 1) : 0;
    return (int64_t)pow_u((uint64_t)a, (uint64_t)b);
}

/* Floats as integers, towards zero; what is out of range, and not-a-number, is the least integer. */
INLINE int32_t int32_of_float(float a) { return a >= -0x1p31f && a < 0x1p31f ? (int32_t)a : INT32_MIN; }
INLINE int32_t int32_of_double(double a) { return a >= -0x1p31 && a < 0x1p31 ? (int32_t)a : INT32_MIN; }
INLINE int64_t int64_of_float(float a) { return a >= -0x1p63f && a < 0x1p63f ? (int64_t)a : INT64_MIN; }
INLINE int64_t int64_of_double(double a) { return a >= -0x1p63 && a < 0x1p63 ? (int64_t)a : INT64_MIN; }
INLINE uint64_t uint64_of_float(float a) { return a >= 0x1p63f && a < 0x1p64f ? (uint64_t)a : (uint64_t)int64_of_float(a); }
INLINE uint64_t uint64_of_double(double a) { return a >= 0x1p63 && a < 0x1p64 ? (uint64_t)a : (uint64_t)int64_of_double(a); }

/* bfloat16 is the upper half of a float: to the nearest, the even one of two. */
INLINE float float_of_brain(uint16_t a)
{
    union { uint32_t bits; float value; } u = {.bits = (uint32_t)a << 16};
    return u.value;
}

INLINE uint16_t brain_of_float(float a)
{
    union { float value; uint32_t bits; } u = {.value = a};
    if (a != a)
        return (uint16_t)(u.bits >> 16 | 0x40);
    return (uint16_t)((u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16);
}

/* float16 likewise, by way of its bits: subnormal numbers are units of 2**-24. */
INLINE float float_of_half(uint16_t a)
{
    union { uint32_t bits; float value; } u = {.bits = (uint32_t)(a & 0x7fff) << 13};
    u.value *= 0x1p112f;
    if ((a & 0x7fff) > 0x7bff)
        u.bits |= 0x7f800000;
    u.bits |= (uint32_t)(a & 0x8000) << 16;
    return u.value;
}

INLINE uint16_t half_of_float(float a)
{
    union { float value; uint32_t bits; } u = {.value = a};
    const uint32_t sign = u.bits >> 16 & 0x8000;
    u.bits &= 0x7fffffff;
    if (u.bits > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (u.bits > 0x477fffff)
        return (uint16_t)(sign | 0x7c00);
    if (u.bits < 0x38800000) {
        u.value += 0.5f;
        return (uint16_t)(sign | (u.bits - 0x3f000000));
    }
    return (uint16_t)(sign | (u.bits + 0xc8000fff + (u.bits >> 13 & 1)) >> 13);
}

/* Numbers of formats of at most 8 bits, as their codes (numerics/codes.py): the sign is the bit
   `sign`, `most` the code of the largest number, and `nan` that of what is no number. */
INLINE int32_t integer_of_code(uint8_t a, int bits, int is_signed)
{
    const int32_t code = a & ((1 << bits) - 1);
    return is_signed && code >> (bits - 1) ? code - (1 << bits) : code;
}

INLINE float power_of_code(uint8_t a) { return a == 255 ? NAN : ldexpf(1, a - 127); }

INLINE float float_of_code(uint8_t a, int sign, int fraction, int bias, int most, int nan, int minus_zero)
{
    const int size = a & (sign - 1);
    union { uint32_t bits; float value; } u = {.bits = (uint32_t)size << (23 - fraction)};
    u.value *= ldexpf(1, 127 - bias);
    if (size > most)
        u.value = nan > size && size == most + 1 ? INFINITY : NAN;
    if (a & sign)
        return size || minus_zero ? -u.value : -NAN;
    return u.value;
}

/* To the nearest, the even one of two; what is larger than `most` is `beyond`. */
INLINE uint8_t code_of_float(float a, int sign, int fraction, int bias, int most, int nan, int minus_zero, int beyond)
{
    const union { float value; uint32_t bits; } u = {.value = a};
    const int negative = u.bits >> 31 ? sign : 0;
    const float size = fabsf(a);
    int code = beyond, exponent;
    if (a != a)
        return (uint8_t)(minus_zero ? nan ^ negative : nan);
    if (size < 0x1p20f) {
        frexpf(size, &exponent);
        exponent = size > 0 && exponent > 2 - bias ? exponent - 1 : 1 - bias;
        code = (int)rintf(ldexpf(size, fraction - exponent)) + (exponent + bias - 1) * (1 << fraction);
        code = code > most ? beyond : code;
    }
    return (uint8_t)(code || minus_zero ? code | negative : 0);
}

#endif
