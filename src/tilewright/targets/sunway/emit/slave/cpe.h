/* What the CPE programs of all layers share. */
#ifndef CPE_H
#define CPE_H

#include <dma.h>
#include <simd.h>
#include <slave.h>

/* Buffers of tiles: one region for all layers, as LDM is one for all programs that are linked. What
   is left of 64 KB is the stack's. Vectors in it lie at multiples of 32 bytes from its start. */
#define LDM_BYTES 57344
extern __thread_local char ldm[LDM_BYTES] __attribute__((aligned(32)));

/* The tile in a slot of a buffer. */
#define TILE(buffer, slot) ((float *)(ldm + buffer##_at + (slot) * buffer##_bytes))

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* A box of a tensor: first index and extent of each axis. In LDM its elements lie dense. */
struct box {
    long at[6], n[6];
};

/* y[i] += x[i * step] * w */
static inline void row_fma(float *y, const float *x, long step, float w, long n)
{
    long i = 0;
    if (step == 1) {
        floatv4 xs, ys, ws;
        simd_loade(ws, &w);
        for (; i < n / 4 * 4; i += 4) {
            simd_loadu(xs, x + i);
            simd_loadu(ys, y + i);
            ys = simd_vmas(xs, ws, ys);
            simd_storeu(ys, y + i);
        }
    }
    for (; i < n; i++)
        y[i] += x[i * step] * w;
}

/* y[i] += x[i * step] */
static inline void row_add(float *y, const float *x, long step, long n)
{
    long i = 0;
    if (step == 1) {
        floatv4 xs, ys;
        for (; i < n / 4 * 4; i += 4) {
            simd_loadu(xs, x + i);
            simd_loadu(ys, y + i);
            ys = simd_vadds(xs, ys);
            simd_storeu(ys, y + i);
        }
    }
    for (; i < n; i++)
        y[i] += x[i * step];
}

/* y[i] = the greater of y[i] and x[i * step] */
static inline void row_max(float *y, const float *x, long step, long n)
{
    for (long i = 0; i < n; i++)
        y[i] = x[i * step] > y[i] ? x[i * step] : y[i];
}

/* y[i] += x[i * step] squared */
static inline void row_squares(float *y, const float *x, long step, long n)
{
    for (long i = 0; i < n; i++)
        y[i] += x[i * step] * x[i * step];
}

/* The sum of x[i] * w[i] */
static inline float row_dot(const float *x, const float *w, long n)
{
    float sums[4] __attribute__((aligned(32))), sum;
    floatv4 xs, ws, total;
    long i = 0;
    sum = 0.0f;
    simd_loade(total, &sum);
    for (; i < n / 4 * 4; i += 4) {
        simd_loadu(xs, x + i);
        simd_loadu(ws, w + i);
        total = simd_vmas(xs, ws, total);
    }
    simd_storeu(total, sums);
    sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (; i < n; i++)
        sum += x[i] * w[i];
    return sum;
}

/* The least i for which base + i * step is not negative; the least for which it reaches `end`. */
static inline long first_inside(long base, long step)
{
    return base >= 0 ? 0 : (step - 1 - base) / step;
}

static inline long end_inside(long base, long step, long end)
{
    return base >= end ? 0 : (end - base + step - 1) / step;
}

/* How many of base, base + step, ... (n of them) lie in [low, end). */
static inline long taps(long base, long step, long n, long low, long end)
{
    long count = 0;
    for (long i = 0; i < n; i++)
        count += base + i * step >= low && base + i * step < end;
    return count;
}

#endif
