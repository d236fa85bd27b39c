/* Products of float32 on matrix tiles of bfloat16 (AMX).
 *
 * A float is nearly the sum of two bfloat16, its pieces: the nearest one, and the nearest to what is
 * left; they lack at most 2**-17 of it. Of the four products of two such sums the three greatest are
 * added up in float32. Where the nearest would be infinite both pieces are cut, not rounded, so that
 * they and their sum are finite; they lack less than 2**-16.
 *
 * It is the sum of three: its first 8 bits, the nearest bfloat16 to the rest, and what is then left.
 * Of nine products the six greatest are added up.
 *
 * Pieces below 2**-126 count as 0. Sums that become infinite or NaN are computed again as float32
 * does it.
 *
 * A tile has 16 rows of 16 words, of two bfloat16 each. Of points a row is one, and word j has
 * inputs j and 16 + j of 32; of weights row j has these inputs, and a word is an output channel. */
#ifndef TILEWRIGHT_PIECES_H
#define TILEWRIGHT_PIECES_H

#include "blocks.h"

#if LANES == 16

/* What rounds the pieces of each number when it is added to their bits: half of the last one, but 0
 * where the first would become infinite. */
INLINE bits half_bits(vec v)
{
    return (bits)(((bits)v & 0x7fffffff) < 0x7f7f8000) & 0x8000;
}

/* Two vectors of inputs as a row of words, and `mid` words further what they leave. */
INLINE void split_pair(uint32_t *o, long mid, vec low, vec high)
{
    const bits half = half_bits(low), other = half_bits(high);
    const bits a = ((bits)low + half) & 0xffff0000, b = ((bits)high + other) & 0xffff0000;
    *(bits *)o = a >> 16 | b;
    low -= (vec)a;
    high -= (vec)b;
    *(bits *)(o + mid) = ((bits)low + half) >> 16 | (((bits)high + other) & 0xffff0000);
}

/* The same in three pieces, `plane` words apart. The first is cut, not rounded: it is finite. */
INLINE void split_three(uint32_t *o, long plane, vec low, vec high)
{
    bits a = (bits)low & 0xffff0000, b = (bits)high & 0xffff0000;
    *(bits *)o = a >> 16 | b;
    low -= (vec)a;
    high -= (vec)b;
    a = ((bits)low + 0x8000) & 0xffff0000, b = ((bits)high + 0x8000) & 0xffff0000;
    *(bits *)(o + plane) = a >> 16 | b;
    low -= (vec)a;
    high -= (vec)b;
    *(bits *)(o + 2 * plane) = (bits)low >> 16 | ((bits)high & 0xffff0000);
}

/* Rows `from` to `to` of the tiles of two vectors' weights in a step of the reduction, 16 of each,
 * in three pieces; asks for what is split next, and for the place of it. */
INLINE void split_rows(uint32_t *u, const float *w, int from, int to)
{
    for (int j = from; j < to; j++) {
        const float *f = w + 32 * j;
        uint32_t *o = u + 16 * j;
        fetch_near(f + 2048);
        fetch_near(f + 2048 + 16);
        for (int piece = 0; piece < 3; piece++)
            __builtin_prefetch(o + 1536 + 512 * piece, 1, 3);
        split_three(o, 512, load(f), load(f + 16));
    }
}

/* Whether the first `count` points of a register tile's sums are finite, by any of its vectors. */
INLINE int all_finite(const float *m, long count, int vectors)
{
    vec odd = {0};
    for (long n = 0; n < count; n++)
        for (int k = 0; k < vectors; k++)
            odd += 0.0f * load(m + (n / 16 * vectors + k) * 256 + n % 16 * 16);
    return sum_v(odd) == 0;
}

/* The sum of the pieces in a word's lower half, or its upper one; the first alone if infinite. */
INLINE float joined(const uint32_t *o, int pieces, long plane, int upper)
{
    float piece[3] = {0};
    for (int k = 0; k < pieces; k++) {
        const uint32_t b = upper ? o[k * plane] & 0xffff0000 : o[k * plane] << 16;
        memcpy(&piece[k], &b, sizeof b);
    }
    return piece[0] - piece[0] == 0 ? piece[0] + (piece[1] + piece[2]) : piece[0];
}

/* A vector of the weights of an input, of the halves of words in turns, in a step of the reduction;
 * as they are stored: two pieces, or floats. */
INLINE vec stored_weights(const float *w, int pieces, int vector, int input)
{
    if (pieces == 3)
        return load(w + 512 * vector + 16 * input);
    w += 256 * vector + 16 * (input / 2);
    const bits first = (bits)load(w), second = (bits)load(w + 512);
    if (input % 2)
        return (vec)(first & 0xffff0000) + (vec)(second & 0xffff0000);
    return (vec)(first << 16) + (vec)(second << 16);
}

/* Sums of `count` points by some vectors' weights once more, by vectors of floats, where pieces gave
 * what is not finite; the others stay. Sizes are those of the register tile that gave it. */
static __attribute__((noinline, unused)) void
multiply_again(float *m, const uint32_t *i, const void *weights, int pieces, long plane, long group,
               long groups, const int *taps, int tap_count, long count, int vectors)
{
    for (long n = 0; n < count; n++)
        for (int k = 0; k < vectors; k++) {
            float *const place = m + (n / 16 * vectors + k) * 256 + n % 16 * 16;
            const vec given = load(place);
            if (!any_odd(given))
                continue;
            const float *w = weights;
            vec sum = {0};
            for (long c = 0; c < groups; c++)
                for (int t = 0; t < tap_count; t++, w += 1024)
                    for (int j = 0; j < 32; j++) {
                        const uint32_t *o = i + c * group + taps[t] + n * 16 + j / 2;
                        const float point = joined(o, pieces, plane, j % 2);
                        sum += splat(point) * stored_weights(w, pieces, k, j);
                    }
            store(place, choose((mask)(given - given == 0.0f), given, sum));
        }
}

#if defined(__AMX_BF16__) && defined(__linux__) && !defined(BARE)

#include <stdio.h>
#include <stdlib.h>

/* Linux gives a process the registers when it asks, once for all of its threads. */
INLINE void ask_for_tiles(void)
{
    static int given;
    if (__atomic_load_n(&given, __ATOMIC_RELAXED))
        return;
    long refused; /* arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) */
    __asm__ volatile("syscall" : "=a"(refused) : "0"(158L), "D"(0x1023L), "S"(18L)
                     : "rcx", "r11", "memory");
    if (refused) {
        fputs("this program needs the processor's matrix tiles (AMX), which the system refuses; "
              "compile its model for another processor (--cpu avx512)\n", stderr);
        abort();
    }
    __atomic_store_n(&given, 1, __ATOMIC_RELAXED);
}

/* Eight tiles of 16 rows of 64 bytes, until end_tiles. */
INLINE void begin_tiles(void)
{
    ask_for_tiles();
    uint8_t shape[64] = {1};
    for (int n = 0; n < 8; n++) {
        shape[16 + 2 * n] = 64;
        shape[48 + n] = 16;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
}

INLINE void end_tiles(void) { __asm__ volatile("tilerelease"); }

#define TILES
#define TILE_CLEAR(n) __asm__ volatile("tilezero %%tmm" #n : :)
#define TILE_READ(n, p)                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #n : : "r"(p), "r"(64L) : "memory")
#define TILE_WRITE(n, p)                                                                    \
    __asm__ volatile("tilestored %%tmm" #n ", (%0,%1,1)" : : "r"(p), "r"(64L) : "memory")
#define TILE_ADD(n, a, b)                                                                   \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #n : :)

#else

INLINE void begin_tiles(void) { }
INLINE void end_tiles(void) { }

/* What the processor's tiles do, on one that has none: products of words' lower halves, and of their
 * upper ones, are added up each by themselves before they meet the sums. */
struct tile {
    bits row[16];
};

static inline void add_tiles(struct tile *sum, const struct tile *a, const struct tile *b)
{
    for (int i = 0; i < 16; i++) {
        vec lower = {0}, upper = {0};
        for (int j = 0; j < 16; j++) {
            const uint32_t pair = a->row[i][j];
            const bits w = b->row[j];
            lower += (vec)((bits){0} + (pair << 16)) * (vec)(w << 16);
            upper += (vec)((bits){0} + (pair & 0xffff0000)) * (vec)(w & 0xffff0000);
        }
        sum->row[i] = (bits)((vec)sum->row[i] + (lower + upper));
    }
}

#define TILES struct tile tiles[8]
#define TILE_CLEAR(n) memset(&tiles[n], 0, sizeof(struct tile))
#define TILE_READ(n, p) memcpy(&tiles[n], p, sizeof(struct tile))
#define TILE_WRITE(n, p) memcpy(p, &tiles[n], sizeof(struct tile))
#define TILE_ADD(n, a, b) add_tiles(&tiles[n], &tiles[a], &tiles[b])

#endif

#endif

#endif
