// tilewright compile depthwise.onnx -t cpu --cpu avx2 -o package; cat package/program/src/*_k[0-9]*.c
/* Computes k1_copy_x.
 * Schedule: pointwise [registers: ]
 */
#include "depthwise_kernels.h"

void depthwise_k00_convert_layout(const float *x, float *y)
{
    {
        for (long i0 = 0; i0 < 2; i0++) {
            const float *p0 = x + i0 * 512;
            float *p1 = y + i0 * 512;
            for (long b = 0; b < 64; b += 8) {
                for (long a = 0; a < 8; a += 8) {
                    vec v0[8] = {{0}};
                    UNROLL for (int u = 0; u < 8; u++) v0[u] = (vec)load(p0 + (a + u) * 64 + b);
                    transpose_v(v0);
                    UNROLL for (int u = 0; u < 8; u++) {
                        const vec t0 = (vec)v0[u];
                        store(p1 + (b + u) * 8 + a, t0);
                    }
                }
            }
        }
    }
}
/* Computes y.
 * Schedule: depthwise_conv [registers: c=8, n=1, oh=1, ow=4 by n > c > oh > ow]
 */
#include "depthwise_kernels.h"

/* 4 points of 8 channels */
static void depthwise_conv_tile(const float *x, const float *w, float *y, long rows)
{
    vec a[4];
    UNROLL for (int j = 0; j < 4; j++) a[j] = splat(0.0f);
    for (long k = 0; k < rows; k++) {
        const float *xk = x + k * 64;
        const float *wk = w + k * 24;
        {
            const vec wt = load(wk);
            UNROLL for (int j = 1; j < 4; j++) a[j] += load(xk + j * 16 - 16) * wt;
        }
        {
            const vec wt = load(wk + 8);
            UNROLL for (int j = 0; j < 4; j++) a[j] += load(xk + j * 16 - 8) * wt;
        }
        {
            const vec wt = load(wk + 16);
            UNROLL for (int j = 0; j < 4; j++) a[j] += load(xk + j * 16) * wt;
        }
    }
    UNROLL for (int j = 0; j < 4; j++) {
        const vec t = a[j];
        store(y + j * 8, t);
    }
}

void depthwise_k01_depthwise_conv(const float *x, const float *w, float *y)
{
    for (long c = 0; c < 16; c += 8) {
        for (long oh = 0; oh < 4; oh += 1) {
            {
                const long row = oh * 2 - 1; /* of the image */
                const long first = row < 0 ? -row : 0;
                const long rows = (row + 3 > 8 ? 8 - row : 3) - first;
                depthwise_conv_tile(x + c * 64 + oh * 128 + first * 64 - 72 + 16, w + c * 9 + first * 24, y + c * 16 + oh * 32, rows);
            }
        }
    }
}
/* Computes k2_copy_k0_y.
 * Schedule: pointwise [registers: ]
 */
#include "depthwise_kernels.h"

void depthwise_k02_convert_layout(const float *x, float *y)
{
    {
        for (long i0 = 0; i0 < 2; i0++) {
            const float *p0 = x + i0 * 128;
            float *p1 = y + i0 * 128;
            for (long b = 0; b < 8; b += 8) {
                for (long a = 0; a < 16; a += 8) {
                    vec v0[8] = {{0}};
                    UNROLL for (int u = 0; u < 8; u++) v0[u] = (vec)load(p0 + (a + u) * 8 + b);
                    transpose_v(v0);
                    UNROLL for (int u = 0; u < 8; u++) {
                        const vec t0 = (vec)v0[u];
                        store(p1 + (b + u) * 16 + a, t0);
                    }
                }
            }
        }
    }
}
