/* Floats of 16 bits in memory, as their bits: float16 (IEEE) and bfloat16 (the upper half of a
 * float). Lanes hold them as floats. Rounding is to the nearest, of two the even one, the same on
 * every processor. */
#ifndef TILEWRIGHT_SHORTS_H
#define TILEWRIGHT_SHORTS_H

#include "quantised.h"

typedef uint32_t bits __attribute__((vector_size(4 * LANES), may_alias));
typedef uint16_t shorts __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

/* GCC takes __builtin_convertvector apart into scalars where one instruction would do. */
INLINE bits widen_shorts(const uint16_t *p)
{
#if (LANES == 16 && defined(__AVX512F__)) || (LANES == 8 && defined(__AVX2__)) || \
    (LANES == 4 && defined(__AVX__))
    bits v;
    __asm__("vpmovzxwd %1, %0" : "=v"(v) : "m"(*(const shorts *)p));
    return v;
#else
    return __builtin_convertvector(*(const shorts *)p, bits);
#endif
}

/* Numbers below 2**16. */
INLINE void narrow_shorts(uint16_t *p, bits v)
{
#if LANES == 16 && defined(__AVX512F__)
    __asm__("vpmovdw %1, %0" : "=m"(*(shorts *)p) : "v"(v));
#elif LANES == 8 && defined(__AVX2__)
    ivec_half high, low;
    __asm__("vextracti128 $1, %1, %0" : "=x"(high) : "x"(v));
    __asm__("vpackusdw %2, %x1, %0" : "=x"(low) : "x"(v), "x"(high));
    __asm__("vmovdqu %1, %0" : "=m"(*(shorts *)p) : "x"(low));
#else
    *(shorts *)p = __builtin_convertvector(v, shorts);
#endif
}

INLINE vec load_bfloat16(const uint16_t *p) { return (vec)(widen_shorts(p) << 16); }

/* Stored numbers are bfloat16 already. */
INLINE void store_bfloat16(uint16_t *p, vec v) { narrow_shorts(p, (bits)v >> 16); }

INLINE vec round_bfloat16_v(vec v)
{
    const bits b = (bits)v, near = b + 0x7fff + (b >> 16 & 1);
    return choose(v == v, (vec)(near & 0xffff0000), (vec)((b | 0x400000) & 0xffff0000));
}

#if defined(__F16C__) && ((LANES == 16 && defined(__AVX512F__)) || LANES < 16)
INLINE vec load_float16(const uint16_t *p)
{
    vec v;
    __asm__("vcvtph2ps %1, %0" : "=v"(v) : "m"(*(const shorts *)p));
    return v;
}

INLINE void store_float16(uint16_t *p, vec v)
{
    __asm__("vcvtps2ph $0, %1, %0" : "=m"(*(shorts *)p) : "v"(v));
}

INLINE vec round_float16_v(vec v)
{
    shorts s;
    store_float16((uint16_t *)&s, v);
    return load_float16((const uint16_t *)&s);
}
#else
/* As the exponent of a float and its upper bits, scaled: subnormal numbers come out right. */
INLINE vec floats_of_halves(bits h)
{
    const bits size = h & 0x7fff;
    vec v = (vec)(size << 13) * 0x1p112f;
    v = choose((mask)(size > 0x7bff), (vec)((bits)v | 0x7f800000), v);
    return (vec)((bits)v | (h & 0x8000) << 16);
}

INLINE bits halves_of_floats(vec v)
{
    const bits sign = (bits)v & 0x80000000, size = (bits)v ^ sign;
    const bits normal = (size + 0xc8000fff + (size >> 13 & 1)) >> 13;
    /* Below 2**-14 adding 0.5 leaves units of 2**-24 in the lower bits. */
    const bits small = (bits)((vec)size + 0.5f) - 0x3f000000;
    vec h = choose((mask)(size < 0x38800000), (vec)small, (vec)normal);
    h = choose((mask)(size > 0x477fffff), (vec)((bits){0} + 0x7c00), h);
    h = choose((mask)(size > 0x7f800000), (vec)((bits){0} + 0x7e00), h);
    return (bits)h | sign >> 16;
}

INLINE vec load_float16(const uint16_t *p) { return floats_of_halves(widen_shorts(p)); }
INLINE void store_float16(uint16_t *p, vec v) { narrow_shorts(p, halves_of_floats(v)); }
INLINE vec round_float16_v(vec v) { return floats_of_halves(halves_of_floats(v)); }
#endif

/* One element in every lane. */
INLINE vec splat_bfloat16(uint16_t value) { return splat(float_of_brain(value)); }
INLINE vec splat_float16(uint16_t value) { return splat(float_of_half(value)); }

/* The first `count` lanes only, next to one another or `stride` elements apart. */
#define SHORT_PARTS(NAME, WIDE, SHORT)                                              \
    INLINE vec load_part_##NAME(const uint16_t *p, int count)                       \
    {                                                                               \
        vec v = {0};                                                                \
        for (int i = 0; i < count; i++)                                             \
            v[i] = WIDE(p[i]);                                                      \
        return v;                                                                   \
    }                                                                               \
    INLINE void store_part_##NAME(uint16_t *p, vec v, int count)                    \
    {                                                                               \
        for (int i = 0; i < count; i++)                                             \
            p[i] = SHORT(v[i]);                                                     \
    }                                                                               \
    INLINE vec gather_##NAME(const uint16_t *p, ptrdiff_t stride, int count)        \
    {                                                                               \
        vec v = {0};                                                                \
        for (int i = 0; i < count; i++)                                             \
            v[i] = WIDE(p[i * stride]);                                             \
        return v;                                                                   \
    }                                                                               \
    INLINE void scatter_##NAME(uint16_t *p, ptrdiff_t stride, vec v, int count)     \
    {                                                                               \
        for (int i = 0; i < count; i++)                                             \
            p[i * stride] = SHORT(v[i]);                                            \
    }

SHORT_PARTS(bfloat16, float_of_brain, brain_of_float)
SHORT_PARTS(float16, float_of_half, half_of_float)

/* Two bfloat16 next to one another, repeated in every lane. */
INLINE ivec pair_at(const uint16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, 4);
    return splat_int(pair);
}

/* The first of two alone; the other is 0. */
INLINE ivec pair_part(const uint16_t *p, int skip, int count)
{
    (void)skip, (void)count;
    return splat_int(*p);
}

/* LANES pairs of weights. */
INLINE ivec pairs_at(const uint16_t *p) { return *(const ivec_unaligned *)p; }

/* sum + x1*w1 + x0*w0 in every lane, of pairs of bfloat16. The processor's own instruction takes
 * numbers below 2**-126 for 0; otherwise the two differ by the rounding of sums alone. */
INLINE vec dot_pairs_v(vec sum, ivec x, ivec w)
{
#if LANES == 16 && defined(__AVX512BF16__)
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
#else
    sum += (vec)((bits)x & 0xffff0000) * (vec)((bits)w & 0xffff0000);
    return sum + (vec)((bits)x << 16) * (vec)((bits)w << 16);
#endif
}

#endif
