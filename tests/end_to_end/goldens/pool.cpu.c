// tilewright compile pool.onnx -t cpu --cpu avx2 -o package; cat package/program/src/*_k[0-9]*.c
/* Computes k1_copy_x.
 * Schedule: pointwise [registers: ]
 */
#include "pool_kernels.h"

void pool_k00_convert_layout(const float *x, float *y)
{
    {
        for (long i0 = 0; i0 < 2; i0++) {
            const float *p0 = x + i0 * 392;
            float *p1 = y + i0 * 392;
            for (long b = 0; b < 48; b += 8) {
                for (long a = 0; a < 8; a += 8) {
                    vec v0[8] = {{0}};
                    UNROLL for (int u = 0; u < 8; u++) v0[u] = (vec)load(p0 + (a + u) * 49 + b);
                    transpose_v(v0);
                    UNROLL for (int u = 0; u < 8; u++) {
                        const vec t0 = (vec)v0[u];
                        store(p1 + (b + u) * 8 + a, t0);
                    }
                }
            }
            for (long b = 48; b < 49; b += 1) {
                for (long a = 0; a < 8; a += 8) {
                    {
                        const vec t0 = gather(p0 + b + a * 49, 49, 8);
                        store(p1 + b * 8 + a, t0);
                    }
                }
            }
        }
    }
}
/* Computes y.
 * Schedule: pool [registers: c=8, n=1, oh=1, ow=3 by n > c > oh > ow]
 */
#include "pool_kernels.h"

/* 3 points of 8 channels */
static void max_pool_tile(const float *x, float *y)
{
    vec a[3];
    UNROLL for (int j = 0; j < 3; j++) a[j] = splat(-INFINITY);
    for (long k = 0; k < 3; k++) {
        const float *xk = x + k * 56;
        {
            UNROLL for (int j = 0; j < 3; j++) a[j] = larger(load(xk + j * 16), a[j]);
        }
        {
            UNROLL for (int j = 0; j < 3; j++) a[j] = larger(load(xk + j * 16 + 8), a[j]);
        }
        {
            UNROLL for (int j = 0; j < 3; j++) a[j] = larger(load(xk + j * 16 + 16), a[j]);
        }
    }
    UNROLL for (int j = 0; j < 3; j++) {
        const vec t = a[j];
        store(y + j * 8, t);
    }
}

void pool_k01_max_pool(const float *x, float *y)
{
    for (long c = 0; c < 16; c += 8) {
        for (long oh = 0; oh < 3; oh += 1) {
            {
                max_pool_tile(x + c * 49 + oh * 112, y + c * 9 + oh * 24);
            }
        }
    }
}
/* Computes k2_copy_k0_y.
 * Schedule: pointwise [registers: ]
 */
#include "pool_kernels.h"

void pool_k02_convert_layout(const float *x, float *y)
{
    {
        for (long i0 = 0; i0 < 2; i0++) {
            const float *p0 = x + i0 * 72;
            float *p1 = y + i0 * 72;
            for (long b = 0; b < 8; b += 8) {
                for (long a = 0; a < 8; a += 8) {
                    vec v0[8] = {{0}};
                    UNROLL for (int u = 0; u < 8; u++) v0[u] = (vec)load(p0 + (a + u) * 8 + b);
                    transpose_v(v0);
                    UNROLL for (int u = 0; u < 8; u++) {
                        const vec t0 = (vec)v0[u];
                        store(p1 + (b + u) * 9 + a, t0);
                    }
                }
                {
                    const long a = 8;
                    vec v0[8] = {{0}};
                    UNROLL for (int u = 0; u < 1; u++) v0[u] = (vec)load(p0 + (a + u) * 8 + b);
                    transpose_v(v0);
                    UNROLL for (int u = 0; u < 8; u++) {
                        const vec t0 = (vec)v0[u];
                        store_part(p1 + (b + u) * 9 + a, t0, 1);
                    }
                }
            }
        }
    }
}
