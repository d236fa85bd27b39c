// tilewright compile product.onnx -t cpu --cpu avx2 -o package; cat package/program/src/*_k[0-9]*.c
/* Computes y.
 * Schedule: matmul_n [registers: ci=32, co=16, n=4 by ci > co > n]
 */
#include "product_kernels.h"

/* 4 points x 2 vectors of output channels */
static void matmul_tile(const float *x, const float *w, const float *b, float *y)
{
    vec a[4][2];
    UNROLL for (int j = 0; j < 4; j++) a[j][0] = load(b);
    UNROLL for (int j = 0; j < 4; j++) a[j][1] = load(b + 1 * 8);
    for (long i = 0; i < 32; i++) {
        vec w0 = load(w + i * 16);
        PIN(w0);
        vec w1 = load(w + i * 16 + 8);
        PIN(w1);
        UNROLL for (int j = 0; j < 4; j++) {
            const float e = x[i + j * 32];
            a[j][0] += e * w0;
            a[j][1] += e * w1;
        }
    }
    UNROLL for (int j = 0; j < 4; j++) {
        const vec t = a[j][0];
        store(y + j * 16, t);
    }
    UNROLL for (int j = 0; j < 4; j++) {
        const vec t = a[j][1];
        store(y + 1 * 8 + j * 16, t);
    }
}

void product_k00_matmul(const float *x, const float *w, const float *b, float *y)
{
    {
        matmul_tile(x, w, b, y);
    }
}
