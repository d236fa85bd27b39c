/* Integers of 8 and 16 bits: loads and stores as 32-bit lanes, and dot products of four bytes or of
 * two that were widened. Suffix v: a vector of lanes; s: one element. */
#ifndef TILEWRIGHT_INTEGERS_H
#define TILEWRIGHT_INTEGERS_H

#include "vectors.h"

typedef mask ivec;
typedef int32_t ivec_unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int8_t bytes_signed __attribute__((vector_size(LANES), aligned(1), may_alias));
typedef uint8_t bytes_plain __attribute__((vector_size(LANES), aligned(1), may_alias));

INLINE ivec splat_int(int32_t value) { return (ivec){0} + value; }

INLINE ivec load_int32(const int32_t *p) { return *(const ivec_unaligned *)p; }
INLINE void store_int32(int32_t *p, ivec v) { *(ivec_unaligned *)p = v; }

/* Bytes widen as they are loaded, and narrow as they are stored: GCC takes __builtin_convertvector
 * apart into scalars where one instruction would do. Stored numbers fit in a byte. */
#if (LANES == 16 && defined(__AVX512F__)) || (LANES == 8 && defined(__AVX2__)) || \
    (LANES == 4 && defined(__AVX__))
INLINE ivec load_uint8(const uint8_t *p)
{
    ivec v;
    __asm__("vpmovzxbd %1, %0" : "=v"(v) : "m"(*(const bytes_plain *)p));
    return v;
}

INLINE ivec load_int8(const int8_t *p)
{
    ivec v;
    __asm__("vpmovsxbd %1, %0" : "=v"(v) : "m"(*(const bytes_signed *)p));
    return v;
}
#else
INLINE ivec load_uint8(const uint8_t *p)
{
    return __builtin_convertvector(*(const bytes_plain *)p, ivec);
}

INLINE ivec load_int8(const int8_t *p)
{
    return __builtin_convertvector(*(const bytes_signed *)p, ivec);
}
#endif

#if LANES == 16 && defined(__AVX512F__)
INLINE void store_uint8(uint8_t *p, ivec v)
{
    __asm__("vpmovdb %1, %0" : "=m"(*(bytes_plain *)p) : "v"(v));
}

INLINE void store_int8(int8_t *p, ivec v) { store_uint8((uint8_t *)p, v); }
#elif LANES == 8 && defined(__AVX2__)
typedef int32_t ivec_half __attribute__((vector_size(16), may_alias));

INLINE void store_uint8(uint8_t *p, ivec v)
{
    ivec_half high, low;
    __asm__("vextracti128 $1, %1, %0" : "=x"(high) : "x"(v));
    __asm__("vpackusdw %2, %x1, %0" : "=x"(low) : "x"(v), "x"(high));
    __asm__("vpackuswb %1, %1, %0" : "=x"(low) : "x"(low));
    __asm__("vmovq %1, %0" : "=m"(*(bytes_plain *)p) : "x"(low));
}

INLINE void store_int8(int8_t *p, ivec v)
{
    ivec_half high, low;
    __asm__("vextracti128 $1, %1, %0" : "=x"(high) : "x"(v));
    __asm__("vpackssdw %2, %x1, %0" : "=x"(low) : "x"(v), "x"(high));
    __asm__("vpacksswb %1, %1, %0" : "=x"(low) : "x"(low));
    __asm__("vmovq %1, %0" : "=m"(*(bytes_signed *)p) : "x"(low));
}
#else
INLINE void store_uint8(uint8_t *p, ivec v) { *(bytes_plain *)p = __builtin_convertvector(v, bytes_plain); }
INLINE void store_int8(int8_t *p, ivec v) { *(bytes_signed *)p = __builtin_convertvector(v, bytes_signed); }
#endif

typedef int16_t shorts_signed __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

INLINE ivec load_int16(const int16_t *p)
{
#if (LANES == 16 && defined(__AVX512F__)) || (LANES == 8 && defined(__AVX2__)) || \
    (LANES == 4 && defined(__AVX__))
    ivec v;
    __asm__("vpmovsxwd %1, %0" : "=v"(v) : "m"(*(const shorts_signed *)p));
    return v;
#else
    return __builtin_convertvector(*(const shorts_signed *)p, ivec);
#endif
}

INLINE void store_int16(int16_t *p, ivec v)
{
#if LANES == 16 && defined(__AVX512F__)
    __asm__("vpmovdw %1, %0" : "=m"(*(shorts_signed *)p) : "v"(v));
#elif LANES == 8 && defined(__AVX2__)
    ivec_half high, low;
    __asm__("vextracti128 $1, %1, %0" : "=x"(high) : "x"(v));
    __asm__("vpackssdw %2, %x1, %0" : "=x"(low) : "x"(v), "x"(high));
    __asm__("vmovdqu %1, %0" : "=m"(*(shorts_signed *)p) : "x"(low));
#else
    *(shorts_signed *)p = __builtin_convertvector(v, shorts_signed);
#endif
}

/* The first `count` lanes only, next to one another or `stride` elements apart. */
#define PARTS(T, NAME)                                                              \
    INLINE ivec load_part_##NAME(const T *p, int count)                             \
    {                                                                               \
        ivec v = {0};                                                               \
        for (int i = 0; i < count; i++)                                             \
            v[i] = p[i];                                                            \
        return v;                                                                   \
    }                                                                               \
    INLINE void store_part_##NAME(T *p, ivec v, int count)                          \
    {                                                                               \
        for (int i = 0; i < count; i++)                                             \
            p[i] = (T)v[i];                                                         \
    }                                                                               \
    INLINE ivec gather_##NAME(const T *p, ptrdiff_t stride, int count)              \
    {                                                                               \
        ivec v = {0};                                                               \
        for (int i = 0; i < count; i++)                                             \
            v[i] = p[i * stride];                                                   \
        return v;                                                                   \
    }                                                                               \
    INLINE void scatter_##NAME(T *p, ptrdiff_t stride, ivec v, int count)           \
    {                                                                               \
        for (int i = 0; i < count; i++)                                             \
            p[i * stride] = (T)v[i];                                                \
    }

PARTS(int32_t, int32)
PARTS(uint8_t, uint8)
PARTS(int8_t, int8)
PARTS(int16_t, int16)

/* Four bytes next to one another, repeated in every lane. */
INLINE ivec word_at(const uint8_t *p)
{
    int32_t word;
    memcpy(&word, p, 4);
    return splat_int(word);
}

/* A word of `count` bytes behind `skip` that are 0, as are those that follow them. */
INLINE ivec word_part(const uint8_t *p, int skip, int count)
{
    uint8_t word[4] = {0};
    int32_t value;
    memcpy(word + skip, p, (size_t)count);
    memcpy(&value, word, 4);
    return splat_int(value);
}

/* LANES words of four weights. */
INLINE ivec words_at(const int8_t *p) { return *(const ivec_unaligned *)p; }

/* sum + x0*w0 + x1*w1 + x2*w2 + x3*w3 in every lane: unsigned bytes x, signed bytes w. Exact. */
INLINE ivec dot_v(ivec sum, ivec x, ivec w)
{
#if LANES == 16 && defined(__AVX512VNNI__)
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
#else
    sum += (x & 0xff) * ((w << 24) >> 24);
    sum += ((x >> 8) & 0xff) * ((w << 16) >> 24);
    sum += ((x >> 16) & 0xff) * ((w << 8) >> 24);
    return sum + ((x >> 24) & 0xff) * (w >> 24);
#endif
}

/* Makes the compiler load what was stored to an array, where it would take vectors apart. */
#define KEEP(array) __asm__("" : "+m"(array))

typedef int16_t eight_shorts __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint8_t eight_bytes __attribute__((vector_size(8), aligned(1), may_alias));

/* Bytes as 16-bit numbers. */
INLINE void widen_8(int16_t *to, const uint8_t *from)
{
#if defined(__AVX__)
    eight_shorts v;
    __asm__("vpmovzxbw %1, %0" : "=x"(v) : "m"(*(const eight_bytes *)from));
    *(eight_shorts *)to = v;
#elif defined(__SSE2__)
    eight_shorts v;
    __asm__("movq %1, %0\n\tpunpcklbw %0, %0\n\tpsrlw $8, %0"
            : "=x"(v) : "m"(*(const eight_bytes *)from));
    *(eight_shorts *)to = v;
#else
    *(eight_shorts *)to = __builtin_convertvector(*(const eight_bytes *)from, eight_shorts);
#endif
}

INLINE void widen_16(int16_t *to, const uint8_t *from)
{
#if defined(__AVX2__)
    typedef int16_t shorts __attribute__((vector_size(32), aligned(2), may_alias));
    typedef uint8_t bytes __attribute__((vector_size(16), aligned(1), may_alias));
    shorts v;
    __asm__("vpmovzxbw %1, %0" : "=x"(v) : "m"(*(const bytes *)from));
    *(shorts *)to = v;
#else
    widen_8(to, from);
    widen_8(to + 8, from + 8);
#endif
}

/* The last block may overlap the one before it: what lies behind `count` bytes is not read. */
INLINE void widen(int16_t *to, const uint8_t *from, int count)
{
    if (count >= 16) {
        UNROLL for (int i = 0; i < count / 16; i++) widen_16(to + 16 * i, from + 16 * i);
        if (count % 16 > 8)
            widen_16(to + count - 16, from + count - 16);
        else if (count % 16)
            widen_8(to + count - 8, from + count - 8);
    } else if (count >= 8) {
        widen_8(to, from);
        if (count > 8)
            widen_8(to + count - 8, from + count - 8);
    } else {
        UNROLL for (int i = 0; i < count; i++) to[i] = from[i];
    }
}

/* Two numbers next to one another, repeated in every lane. */
INLINE ivec wide_pair_at(const int16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, 4);
    return splat_int(pair);
}

/* One number behind `skip` that are 0, or in front of one. */
INLINE ivec wide_pair_part(const int16_t *p, int skip, int count)
{
    (void)count;
    return splat_int((int32_t)((uint32_t)(uint16_t)*p << (16 * skip)));
}

/* LANES pairs of weights, each widened. */
INLINE ivec byte_pairs_at(const int8_t *p)
{
    typedef int8_t bytes __attribute__((vector_size(2 * LANES), aligned(1), may_alias));
#if (LANES == 16 && defined(__AVX512BW__)) || (LANES == 8 && defined(__AVX2__)) || \
    (LANES == 4 && defined(__AVX__))
    ivec v;
    __asm__("vpmovsxbw %1, %0" : "=v"(v) : "m"(*(const bytes *)p));
    return v;
#elif LANES == 4 && defined(__SSE2__)
    ivec v;
    __asm__("movq %1, %0\n\tpunpcklbw %0, %0\n\tpsraw $8, %0" : "=x"(v) : "m"(*(const bytes *)p));
    return v;
#else
    typedef int16_t shorts __attribute__((vector_size(4 * LANES), may_alias));
    return (ivec)__builtin_convertvector(*(const bytes *)p, shorts);
#endif
}

/* sum + x0*w0 + x1*w1 in every lane, of 16-bit numbers. Exact for what was widened from bytes. */
INLINE ivec dot_wide_v(ivec sum, ivec x, ivec w)
{
    ivec products;
#if (LANES == 16 && defined(__AVX512BW__)) || (LANES == 8 && defined(__AVX2__)) || \
    (LANES == 4 && defined(__AVX__))
    __asm__("vpmaddwd %2, %1, %0" : "=v"(products) : "v"(x), "v"(w));
#elif LANES == 4 && defined(__SSE2__)
    products = x;
    __asm__("pmaddwd %1, %0" : "+x"(products) : "x"(w));
#elif LANES == 4 && defined(__aarch64__)
    ivec high;
    __asm__("smull %0.4s, %1.4h, %2.4h" : "=w"(products) : "w"(x), "w"(w));
    __asm__("smull2 %0.4s, %1.8h, %2.8h" : "=w"(high) : "w"(x), "w"(w));
    __asm__("addp %0.4s, %0.4s, %1.4s" : "+w"(products) : "w"(high));
#else
    products = (x << 16 >> 16) * (w << 16 >> 16) + (x >> 16) * (w >> 16);
#endif
    return sum + products;
}

/* sum + x*w in every lane, for unsigned bytes x and signed bytes w: a lane's upper half adds 0. */
INLINE ivec multiply_add_v(ivec sum, ivec x, ivec w)
{
#if LANES == 16 && defined(__AVX512VNNI__)
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
#else
    return dot_wide_v(sum, x, w);
#endif
}

INLINE ivec larger_int(ivec fresh, ivec most)
{
    mask m = fresh > most;
    return (fresh & m) | (most & ~m);
}

#endif
