/* What a processor reaches: dependent rotations, multiply-adds, and reads of buffers of any size.
 * Each function returns seconds; what it computes is stored where the compiler cannot follow.
 */
#define _POSIX_C_SOURCE 200112L
#include "pieces.h"
#include <stdint.h>
#include <time.h>

static volatile float sink;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 16 * n rotations, each of which needs the one before: a cycle each. Additions of constants would
 * not do: recent processors fold a chain of them while they rename registers.
 */
double calibrate_rotations(long n)
{
    const double start = now();
    uint64_t x = 0x9e3779b97f4a7c15u;
    for (long i = 0; i < n; i++) {
        UNROLL for (int j = 0; j < 16; j++)
        {
            x = x << 1 | x >> 63;
            __asm__ volatile("" : "+r"(x));
        }
    }
    return now() - start;
}

/* 12 * n multiply-adds of whole vectors, independent of each other. */
double calibrate_products(long n, float factor)
{
    vec a[12], b = splat(factor);
    UNROLL for (int j = 0; j < 12; j++) a[j] = splat((float)j);
    const double start = now();
    for (long i = 0; i < n; i++) {
        UNROLL for (int j = 0; j < 12; j++) a[j] = a[j] * b + b;
    }
    const double took = now() - start;
    for (int j = 1; j < 12; j++)
        a[0] += a[j];
    sink = a[0][0];
    return took;
}

/* n passes over `count` floats, a multiple of eight vectors. */
double calibrate_reads(const float *data, long count, long n)
{
    vec a[8];
    UNROLL for (int j = 0; j < 8; j++) a[j] = splat(0.0f);
    const double start = now();
    for (long i = 0; i < n; i++) {
        for (long k = 0; k < count; k += 8 * LANES) {
            UNROLL for (int j = 0; j < 8; j++) a[j] += load(data + k + j * LANES);
        }
        __asm__ volatile("" ::: "memory");
    }
    const double took = now() - start;
    for (int j = 1; j < 8; j++)
        a[0] += a[j];
    sink = a[0][0];
    return took;
}

#if LANES == 16

/* n times the products of a register tile of two by two matrix tiles over 32 inputs, in pieces as
 * primitives/pieces.py multiplies them: three products for each of four tiles of sums. Operands, of
 * eight matrix tiles, lie in the first cache. */
double calibrate_pieces(const float *data, long n)
{
    const uint32_t *a = (const uint32_t *)data, *u = a + 1024;
    uint32_t sums[256] __attribute__((aligned(64)));
    begin_tiles();
    TILES;
    TILE_CLEAR(0);
    TILE_CLEAR(1);
    TILE_CLEAR(2);
    TILE_CLEAR(3);
    const double start = now();
    for (long i = 0; i < n; i++) {
        TILE_READ(4, a);
        TILE_READ(5, a + 256);
        TILE_READ(6, u);
        TILE_READ(7, u + 256);
        TILE_ADD(0, 4, 6);
        TILE_ADD(1, 4, 7);
        TILE_ADD(2, 5, 6);
        TILE_ADD(3, 5, 7);
        TILE_READ(6, u + 512);
        TILE_READ(7, u + 768);
        TILE_ADD(0, 4, 6);
        TILE_ADD(1, 4, 7);
        TILE_ADD(2, 5, 6);
        TILE_ADD(3, 5, 7);
        TILE_READ(4, a + 512);
        TILE_READ(5, a + 768);
        TILE_ADD(0, 4, 6);
        TILE_ADD(1, 4, 7);
        TILE_ADD(2, 5, 6);
        TILE_ADD(3, 5, 7);
    }
    const double took = now() - start;
    TILE_WRITE(0, sums);
    end_tiles();
    sink = (float)sums[0];
    return took;
}

#endif
