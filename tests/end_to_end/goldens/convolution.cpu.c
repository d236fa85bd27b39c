// tilewright compile convolution.onnx -t cpu --cpu avx2 -o package; cat package/program/src/*_k[0-9]*.c
/* Computes k1_copy_x.
 * Schedule: pointwise [registers: ]
 */
#include "convolution_kernels.h"

void convolution_k00_convert_layout(const float *x, float *y)
{
    {
        const float *p0 = x;
        float *p1 = y;
        for (long b = 0; b < 32; b += 8) {
            for (long a = 0; a < 8; a += 8) {
                vec v0[8] = {{0}};
                UNROLL for (int u = 0; u < 8; u++) v0[u] = (vec)load(p0 + (a + u) * 36 + b);
                transpose_v(v0);
                UNROLL for (int u = 0; u < 8; u++) {
                    const vec t0 = (vec)v0[u];
                    store(p1 + (b + u) * 8 + a, t0);
                }
            }
        }
        for (long b = 32; b < 36; b += 1) {
            for (long a = 0; a < 8; a += 8) {
                {
                    const vec t0 = gather(p0 + b + a * 36, 36, 8);
                    store(p1 + b * 8 + a, t0);
                }
            }
        }
    }
}
/* Computes c, y.
 * Schedule: conv [l2: ci=8, co=16, n=1, oh=2, ow=6 by n > oh; registers: ci=8, co=16, n=1, oh=1, ow=6 by co > ci > oh > ow]
 */
#include "convolution_kernels.h"

/* 6 points x 2 vectors of output channels */
static void conv_tile(const float *x, const float *w, const float *b, float *y, long rows)
{
    vec a[6][2];
    UNROLL for (int j = 0; j < 6; j++) a[j][0] = load(b);
    UNROLL for (int j = 0; j < 6; j++) a[j][1] = load(b + 1 * 8);
    for (long k = 0; k < rows; k++) {
        const float *xk = x + k * 48;
        const float *wk = w + k * 192;
        for (long i = 0; i < 8; i++) {
            const vec w0 = load(wk + i * 8);
            const vec w1 = load(wk + i * 8 + 576);
            UNROLL for (int j = 1; j < 6; j++) {
                const float e = xk[i + j * 8 - 8];
                a[j][0] += e * w0;
                a[j][1] += e * w1;
            }
        }
        for (long i = 0; i < 8; i++) {
            const vec w0 = load(wk + i * 8 + 64);
            const vec w1 = load(wk + i * 8 + 640);
            UNROLL for (int j = 0; j < 6; j++) {
                const float e = xk[i + j * 8];
                a[j][0] += e * w0;
                a[j][1] += e * w1;
            }
        }
        for (long i = 0; i < 8; i++) {
            const vec w0 = load(wk + i * 8 + 128);
            const vec w1 = load(wk + i * 8 + 704);
            UNROLL for (int j = 0; j < 5; j++) {
                const float e = xk[i + j * 8 + 8];
                a[j][0] += e * w0;
                a[j][1] += e * w1;
            }
        }
    }
    UNROLL for (int j = 0; j < 6; j++) {
        const vec t = a[j][0];
        const vec t1 = relu_v(t);
        store(y + j * 8, t1);
    }
    UNROLL for (int j = 0; j < 6; j++) {
        const vec t = a[j][1];
        const vec t1 = relu_v(t);
        store(y + 1 * 288 + j * 8, t1);
    }
}

void convolution_k01_conv(const float *x, const float *w, const float *b, float *y)
{
    for (long oh = 0; oh < 6; oh += 2) {
        for (long oh2 = oh; oh2 < oh + 2; oh2 += 1) {
            {
                const long row = oh2 - 1; /* of the image */
                const long first = row < 0 ? -row : 0;
                const long rows = (row + 3 > 6 ? 6 - row : 3) - first;
                conv_tile(x + oh2 * 48 + first * 48 - 56 + 8, w + first * 192, b, y + oh2 * 48, rows);
            }
        }
    }
}
/* Computes k2_copy_k0_c.
 * Schedule: pointwise [registers: ]
 */
#include "convolution_kernels.h"

void convolution_k02_convert_layout(const float *x, float *y)
{
    {
        for (long i0 = 0; i0 < 2; i0++) {
            const float *p0 = x + i0 * 288;
            float *p1 = y + i0 * 288;
            for (long b = 0; b < 8; b += 8) {
                for (long a = 0; a < 32; a += 8) {
                    vec v0[8] = {{0}};
                    UNROLL for (int u = 0; u < 8; u++) v0[u] = (vec)load(p0 + (a + u) * 8 + b);
                    transpose_v(v0);
                    UNROLL for (int u = 0; u < 8; u++) {
                        const vec t0 = (vec)v0[u];
                        store(p1 + (b + u) * 36 + a, t0);
                    }
                }
                {
                    const long a = 32;
                    vec v0[8] = {{0}};
                    UNROLL for (int u = 0; u < 4; u++) v0[u] = (vec)load(p0 + (a + u) * 8 + b);
                    transpose_v(v0);
                    UNROLL for (int u = 0; u < 8; u++) {
                        const vec t0 = (vec)v0[u];
                        store_part(p1 + (b + u) * 36 + a, t0, 4);
                    }
                }
            }
        }
    }
}
