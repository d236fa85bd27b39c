// tilewright compile residual.onnx -t cpu --cpu avx2 -o package; cat package/program/src/*_k[0-9]*.c
/* Computes k1_copy_x.
 * Also k2_copy_r.
 * Schedule: pointwise [registers: ]
 */
#include "residual_kernels.h"

void residual_k00_convert_layout(const float *x, float *y)
{
    {
        const float *p0 = x;
        float *p1 = y;
        for (long b = 0; b < 16; b += 8) {
            for (long a = 0; a < 8; a += 8) {
                vec v0[8] = {{0}};
                UNROLL for (int u = 0; u < 8; u++) v0[u] = (vec)load(p0 + (a + u) * 16 + b);
                transpose_v(v0);
                UNROLL for (int u = 0; u < 8; u++) {
                    const vec t0 = (vec)v0[u];
                    store(p1 + (b + u) * 8 + a, t0);
                }
            }
        }
    }
}
/* Computes c, s, y.
 * Schedule: conv [registers: ci=8, co=8, n=1, oh=2, ow=4 by n > ci > co > oh > ow]
 */
#include "residual_kernels.h"

/* 2 x 4 points x 1 vectors of output channels */
static void conv_tile(const float *x, const float *w, const float *r, float *y)
{
    vec a[8][1];
    UNROLL for (int q = 0; q < 2; q++) UNROLL for (int j = 0; j < 4; j++) a[q * 4 + j][0] = splat(0.0f);
    for (long i = 0; i < 8; i++) {
        const vec w0 = load(w + i * 8);
        UNROLL for (int q = 0; q < 2; q++) UNROLL for (int j = 0; j < 4; j++) {
            const float e = x[i + j * 8 + q * 32];
            a[q * 4 + j][0] += e * w0;
        }
    }
    UNROLL for (int q = 0; q < 2; q++) UNROLL for (int j = 0; j < 4; j++) {
        const vec t = a[q * 4 + j][0];
        const vec t1 = t + load(r + j * 8 + q * 32);
        const vec t2 = relu_v(t1);
        store(y + j * 8 + q * 32, t2);
    }
}

void residual_k01_conv(const float *x, const float *w, const float *r, float *y)
{
    for (long oh = 0; oh < 4; oh += 2) {
        {
            conv_tile(x + oh * 32, w, r + oh * 32, y + oh * 32);
        }
    }
}
/* Computes k3_copy_k0_c.
 * Schedule: pointwise [registers: ]
 */
#include "residual_kernels.h"

void residual_k02_convert_layout(const float *x, float *y)
{
    {
        const float *p0 = x;
        float *p1 = y;
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
