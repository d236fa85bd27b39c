/* Vectors of LANES floats in plain C: GCC's vector extensions, which the compiler turns into the
 * processor's own instructions. LANES is defined by who includes this. */
#ifndef TILEWRIGHT_VECTORS_H
#define TILEWRIGHT_VECTORS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "scalars.h"

#if LANES == 16 && defined(__x86_64__) && !defined(__AVX512F__)
#error "planned for AVX-512: build with -march=native on such a machine, or compile the model again"
#elif LANES == 8 && defined(__x86_64__) && !defined(__AVX2__)
#error "planned for AVX2: build with -march=native on such a machine, or compile the model again"
#endif

typedef float vec __attribute__((vector_size(4 * LANES), may_alias));
typedef float vec_unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t mask __attribute__((vector_size(4 * LANES), may_alias));

/* What is hardly ever called, and stays out of the loops that may call it. */
#define SELDOM __attribute__((noinline, cold))

/* Accumulators stay in registers only when every loop over them is unrolled. */
#define UNROLL _Pragma("GCC unroll 64")

/* Makes the compiler forget where a pointer came from: what taps of a window load in common is
 * loaded again, or it would be kept in registers that the accumulators need. */
#define FORGET(p) __asm__("" : "+r"(p))

/* Makes the compiler keep v in a register, and forget how it came there. */
#if defined(__AVX512F__) && LANES == 16
#define PIN(v) __asm__("" : "+v"(v))
#elif defined(__SSE2__)
#define PIN(v) __asm__("" : "+x"(v))
#elif defined(__aarch64__)
#define PIN(v) __asm__("" : "+w"(v))
#else
#define PIN(v) __asm__("" : "+m"(v))
#endif

INLINE vec load(const float *p) { return *(const vec_unaligned *)p; }
INLINE void store(float *p, vec v) { *(vec_unaligned *)p = v; }
/* Asks for the cache line at p, which is read soon; p may lie beyond what is allocated. */
INLINE void fetch(const void *p) { __builtin_prefetch(p, 0, 2); }
/* The same, into the first cache: what is read a few hundred cycles later. */
INLINE void fetch_near(const void *p) { __builtin_prefetch(p, 0, 3); }
INLINE vec splat(float value) { return (vec){0} + value; }

/* The first `count` lanes only. */
INLINE vec load_part(const float *p, int count)
{
    vec v = {0};
    for (int i = 0; i < count; i++)
        v[i] = p[i];
    return v;
}

INLINE void store_part(float *p, vec v, int count)
{
    for (int i = 0; i < count; i++)
        p[i] = v[i];
}

/* The first `count` lanes, `stride` floats apart. */
INLINE vec gather(const float *p, ptrdiff_t stride, int count)
{
    vec v = {0};
    for (int i = 0; i < count; i++)
        v[i] = p[i * stride];
    return v;
}

INLINE void scatter(float *p, ptrdiff_t stride, vec v, int count)
{
    for (int i = 0; i < count; i++)
        p[i * stride] = v[i];
}

/* -1 in the first `count` lanes, 0 in the others. */
INLINE mask first_lanes(int count)
{
    mask m = {0};
    for (int i = 0; i < count; i++)
        m[i] = -1;
    return m;
}

#if LANES == 16
#define LOW_PAIRS 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_PAIRS 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif LANES == 8
#define LOW_PAIRS 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_PAIRS 4, 12, 5, 13, 6, 14, 7, 15
#else
#define LOW_PAIRS 0, 4, 1, 5
#define HIGH_PAIRS 2, 6, 3, 7
#endif

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif

/* Rows to columns: lane i of vector j becomes lane j of vector i. Each round puts the lanes of two
 * vectors, half of all apart, together in turns; as many rounds as lanes have bits. */
INLINE void transpose_v(vec v[LANES])
{
    UNROLL for (int round = 1; round < LANES; round *= 2)
    {
        vec t[LANES];
        UNROLL for (int i = 0; i < LANES / 2; i++)
        {
            t[2 * i] = SHUFFLE(v[i], v[i + LANES / 2], LOW_PAIRS);
            t[2 * i + 1] = SHUFFLE(v[i], v[i + LANES / 2], HIGH_PAIRS);
        }
        UNROLL for (int i = 0; i < LANES; i++) v[i] = t[i];
    }
}

/* The sum of all lanes, by halves. */
INLINE float sum_v(vec v)
{
    float t[LANES];
    store(t, v);
    for (int half = LANES / 2; half; half /= 2)
        UNROLL for (int i = 0; i < half; i++) t[i] += t[i + half];
    return t[0];
}

/* Whether any lane is infinite or no number. */
INLINE int any_odd(vec v)
{
    const vec w = v - v;
#if defined(__AVX512F__) && LANES == 16
    return __builtin_ia32_cmpps512_mask(w, w, 3, -1, 4) != 0;
#elif defined(__AVX__) && LANES == 8
    return __builtin_ia32_movmskps256((vec)(w != w)) != 0;
#elif defined(__SSE2__) && LANES == 4
    return __builtin_ia32_movmskps((vec)(w != w)) != 0;
#else
    return sum_v(w) != 0;
#endif
}

INLINE vec choose(mask m, vec yes, vec no) { return (vec)(((mask)yes & m) | ((mask)no & ~m)); }

/* a > b ? a : b and a < b ? a : b; where one is NaN, b. */
INLINE vec above_v(vec a, vec b)
{
#if defined(__AVX512F__) || defined(__AVX__)
    __asm__("vmaxps %2, %1, %0" : "=v"(a) : "v"(a), "v"(b));
    return a;
#else
    return choose(a > b, a, b);
#endif
}

INLINE vec below_v(vec a, vec b)
{
#if defined(__AVX512F__) || defined(__AVX__)
    __asm__("vminps %2, %1, %0" : "=v"(a) : "v"(a), "v"(b));
    return a;
#else
    return choose(a < b, a, b);
#endif
}

/* NaN goes through, as in the reference. */
INLINE vec max_v(vec a, vec b) { return choose((a > b) | (a != a), a, b); }
INLINE vec min_v(vec a, vec b) { return choose((a < b) | (a != a), a, b); }
/* For maxima over windows: the new element first. */
INLINE vec larger(vec fresh, vec most) { return above_v(fresh, most); }
INLINE vec relu_v(vec a) { return above_v(splat(0.0f), a); }
INLINE vec abs_v(vec a) { return (vec)((mask)a & 0x7fffffff); }
INLINE vec neg_v(vec a) { return -a; }
INLINE vec clip_v(vec a, float low, float high) { return below_v(splat(high), above_v(splat(low), a)); }
INLINE vec leaky_relu_v(vec a, float slope) { return choose(a < 0.0f, a * slope, a); }
INLINE vec prelu_v(vec a, vec slope) { return choose(a < 0.0f, a * slope, a); }
INLINE vec hard_sigmoid_v(vec a, float alpha, float beta) { return clip_v(a * alpha + beta, 0.0f, 1.0f); }
INLINE vec hard_swish_v(vec a) { return a * hard_sigmoid_v(a, 1.0f / 6.0f, 0.5f); }

INLINE vec sqrt_v(vec a)
{
    vec r;
    for (int i = 0; i < LANES; i++)
        r[i] = sqrtf(a[i]);
    return r;
}

/* a ** -0.75 for positive numbers that are not denormal: the cube of the fourth root of 1 / a. That
 * root begins with a quarter of the exponent, 3.2 % off at most, which three of Newton's steps make
 * exact but for rounding; relative error below 4e-7. The greatest number stands for infinity. */
INLINE vec inverse_three_quarters_v(vec a)
{
    const vec x = below_v(splat(3.4028235e38f), a), quarter = 0.25f * x;
    vec r = (vec)(0x4f586000 - ((mask)x >> 2));
    UNROLL for (int step = 0; step < 3; step++)
    {
        const vec square = r * r;
        r = r + r * (0.25f - quarter * square * square);
    }
    return r * r * r;
}

/* exp(a) = 2**n * exp(r), r within ln(2)/2 of zero: a polynomial, relative error below 2e-7. */
INLINE vec exp_v(vec a)
{
    vec x = clip_v(a, -87.33654f, 88.72283f);
    const vec shift = splat(12582912.0f); /* 1.5 * 2**23: adding it rounds to an integer */
    vec n = x * 1.44269504f + shift;
    mask exponent = (mask)n << 23;
    n -= shift;
    vec r = x - n * 0.693145752f;
    r -= n * 1.42860677e-6f;
    vec p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    /* 2**n in two steps, for n = 128 has no float. */
    mask half = (exponent >> 24) << 23;
    vec result = (vec)((mask)p + half) * (vec)((exponent - half) + 0x3f800000);
    result = (vec)((mask)result & ~(a < -87.33654f));
    result = choose(a > 88.72283f, splat(INFINITY), result);
    return choose(a != a, a, result);
}

/* exp(a) for -87 <= a <= 0; NaN goes through. */
INLINE vec exp_inner_v(vec a)
{
    const vec shift = splat(12582912.0f);
    vec n = a * 1.44269504f + shift;
    const mask exponent = (mask)n << 23;
    n -= shift;
    vec r = a - n * 0.693145752f;
    r -= n * 1.42860677e-6f;
    vec p = splat(1.38144649e-3f);
    p = p * r + 8.36878084e-3f;
    p = p * r + 4.16683927e-2f;
    p = p * r + 1.66665196e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    return p * (vec)(exponent + 0x3f800000);
}

/* exp(a) for a <= 0, as softmax needs it: 0 below -87. */
INLINE vec exp_low_v(vec a)
{
    return (vec)((mask)exp_inner_v(above_v(splat(-87.0f), a)) & ~(a < -87.0f));
}

INLINE vec sigmoid_v(vec a)
{
    vec e = exp_v(-abs_v(a));
    vec r = 1.0f / (1.0f + e);
    return choose(a < 0.0f, e * r, r);
}

INLINE vec silu_v(vec a) { return a / (1.0f + exp_v(-a)); }

/* tanh: an odd polynomial below 0.625, then by way of exp; error below 2 units in the last place. */
INLINE vec tanh_v(vec a)
{
    const vec x = abs_v(a), s = a * a;
    vec p = splat(-6.1131828e-3f);
    p = p * s + 2.1010075e-2f;
    p = p * s - 5.3854066e-2f;
    p = p * s + 1.3332795e-1f;
    p = p * s - 3.3333328e-1f;
    p = p * s * a + a;
    vec far = 1.0f - 2.0f / (exp_v(2.0f * x) + 1.0f);
    return (vec)((mask)choose(x < 0.625f, p, far) | ((mask)a & INT32_MIN));
}

/* 1 - erf(a) for 0 <= a <= 4.2: exp(-a * q(a)), q a polynomial; beyond, float32 has no more to
 * say. Relative error below 2e-6 (it is that of the exponent). */
INLINE vec erfc_inner_v(vec a)
{
    vec q = splat(-8.7302304e-8f);
    q = q * a + 2.2797642e-6f;
    q = q * a - 2.6395535e-5f;
    q = q * a + 1.7714185e-4f;
    q = q * a - 7.4096880e-4f;
    q = q * a + 1.7687790e-3f;
    q = q * a - 2.0014044e-4f;
    q = q * a - 1.9157337e-2f;
    q = q * a + 1.0278481e-1f;
    q = q * a + 6.3661814e-1f;
    q = q * a + 1.1283792f;
    return exp_inner_v(-a * q);
}

/* erf: an odd polynomial below 0.95, then by way of erfc; error below 3 units in the last place. */
INLINE vec erf_v(vec a)
{
    const vec x = abs_v(a), s = a * a;
    vec p = splat(-5.8867701e-4f);
    p = p * s + 4.9731159e-3f;
    p = p * s - 2.6753334e-2f;
    p = p * s + 1.1281466e-1f;
    p = p * s - 3.7612462e-1f;
    p = p * s + 1.1283791f;
    vec far = 1.0f - erfc_inner_v(min_v(x, splat(4.2f)));
    far = (vec)((mask)far | ((mask)a & INT32_MIN));
    return choose(x < 0.95f, p * a, far);
}

/* a * (1 + erf(a / sqrt(2))) / 2 = max(a, 0) - |a| * erfc(|a| / sqrt(2)) / 2, without loss where
 * erf nears -1; |error| below 2e-7 * |a|. */
INLINE vec gelu_v(vec a)
{
    const vec x = abs_v(a);
    const vec near = choose(x < 5.9396970f, x, splat(5.9396970f));
    return relu_v(a) - near * (0.5f * erfc_inner_v(near * 0.70710678f));
}

/* One element of what has no vector form here. */
#define EACH_LANE(name, function)               \
    INLINE vec name(vec a)                      \
    {                                           \
        vec r;                                  \
        for (int i = 0; i < LANES; i++)         \
            r[i] = function(a[i]);              \
        return r;                               \
    }

EACH_LANE(sign_v, sign_s)
/* To integers, by the processor's own instruction: down, up, to the nearest (of two the even). */
#if LANES == 16 && defined(__AVX512F__)
#define TO_INTEGERS(name, way, function)                                                        \
    INLINE vec name(vec a)                                                                      \
    {                                                                                           \
        __asm__("vrndscaleps %2, %1, %0" : "=v"(a) : "v"(a), "i"(way));                         \
        return a;                                                                               \
    }
#elif LANES < 16 && defined(__AVX__)
#define TO_INTEGERS(name, way, function)                                                        \
    INLINE vec name(vec a)                                                                      \
    {                                                                                           \
        __asm__("vroundps %2, %1, %0" : "=x"(a) : "x"(a), "i"(way));                            \
        return a;                                                                               \
    }
#else
#define TO_INTEGERS(name, way, function) EACH_LANE(name, function)
#endif

TO_INTEGERS(floor_v, 9, floorf)
TO_INTEGERS(ceil_v, 10, ceilf)
TO_INTEGERS(round_v, 8, rintf)

/* FUNCTIONS: those that have no vector form above */

#define EACH_PAIR(name, function)               \
    INLINE vec name(vec a, vec b)               \
    {                                           \
        vec r;                                  \
        for (int i = 0; i < LANES; i++)         \
            r[i] = function(a[i], b[i]);        \
        return r;                               \
    }

EACH_PAIR(any_pow_v, powf)
/* The power 1/2 is the root, but that of -0 is 0, and that of minus infinity is infinite. */
INLINE vec pow_v(vec a, vec b)
{
    if (any_odd(choose(b == splat(0.5f), splat(0.0f), splat(INFINITY))))
        return any_pow_v(a, b);
    return choose(a == splat(-INFINITY), splat(INFINITY), abs_v(sqrt_v(a)));
}
EACH_PAIR(fmod_v, fmodf)
EACH_PAIR(mod_v, mod_s)

/* Fixed point: value = integer / 2**fraction; rounds to nearest even, saturates. */
INLINE int16_t quantise_s(float a, float scale)
{
    float r = rintf(a * scale);
    return (int16_t)(r >= 32767.0f ? 32767.0f : r <= -32768.0f ? -32768.0f : r != r ? 0.0f : r);
}

#endif
