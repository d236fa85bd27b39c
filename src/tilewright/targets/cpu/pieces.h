/* Products of float32 on matrix tiles of bfloat16 (AMX).
 *
 * A float is nearly the sum of two bfloat16, its pieces: the nearest one, and the nearest to what is
 * left, which is below 2**-17 of the number. Of the four products of two such sums the three
 * greatest are added up in float32. Pieces below 2**-126 count as 0, what rounds to more than the
 * greatest bfloat16 as infinite; infinite operands give NaN.
 *
 * A tile has 16 rows of 16 words, of two bfloat16 each. Of points a row is one, and word j has
 * inputs j and 16 + j of 32; of weights row j has these inputs, and a word is an output channel. */
#ifndef TILEWRIGHT_PIECES_H
#define TILEWRIGHT_PIECES_H

#include "shorts.h"

#if LANES == 16

/* Two vectors of inputs as a row of words, and `mid` words further what they leave. */
INLINE void split_pair(uint32_t *o, long mid, vec low, vec high)
{
    const bits a = ((bits)low + 0x8000) & 0xffff0000, b = ((bits)high + 0x8000) & 0xffff0000;
    *(bits *)o = a >> 16 | b;
    low -= (vec)a;
    high -= (vec)b;
    *(bits *)(o + mid) = ((bits)low + 0x8000) >> 16 | (((bits)high + 0x8000) & 0xffff0000);
}

#if defined(__AMX_BF16__) && defined(__linux__)

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

/* What the processor's tiles do, on one that has none. */
struct tile {
    bits row[16];
};

static inline void add_tiles(struct tile *sum, const struct tile *a, const struct tile *b)
{
    for (int i = 0; i < 16; i++) {
        vec v = (vec)sum->row[i];
        for (int j = 0; j < 16; j++) {
            const uint32_t pair = a->row[i][j];
            const bits w = b->row[j];
            v += (vec)((bits){0} + (pair << 16)) * (vec)(w << 16);
            v += (vec)((bits){0} + (pair & 0xffff0000)) * (vec)(w & 0xffff0000);
        }
        sum->row[i] = (bits)v;
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
