// tilewright compile product.onnx -t sunway -o package; cat package/program/layers/*_slave.c
/* y: the CPEs' part.
   matmul [dram: n=1, co=1 by n > co; ldm: n=1, co=1, ci=32]; cores share n co */
#include "../slave/cpe.h"
#include <math.h>
#include <stdint.h>
#include "../slave/gemm.h"
#include "k0_y_para.h"

/* Where a tile lies: first index and extent along each dim that is cut. */
struct tile {
    long n, n_n;
    long co, co_n;
};

/* The tiles in LDM: first byte, bytes of a slot, reply word of the first one. */
enum {input_at = 0, input_bytes = 128, input_word = 0}; /* x */
typedef char input_fits[input_at + 1 * input_bytes <= LDM_BYTES ? 1 : -1];
enum {weight_at = 128, weight_bytes = 128, weight_word = 1}; /* w_818bfcd8 */
typedef char weight_fits[weight_at + 1 * weight_bytes <= LDM_BYTES ? 1 : -1];
enum {bias_at = 256, bias_bytes = 32, bias_word = 2}; /* b_dbff4e5c */
typedef char bias_fits[bias_at + 1 * bias_bytes <= LDM_BYTES ? 1 : -1];
enum {output_at = 288, output_bytes = 32, output_word = 3}; /* y */
typedef char output_fits[output_at + 1 * output_bytes <= LDM_BYTES ? 1 : -1];

/* The box of x that a tile needs: [n, ci]. */
static struct box input_box(const struct tile *at) {
    struct box box = {.at = {at->n, 0},
                      .n = {1, 32}};
    return box;
}

/* The box of w_818bfcd8 that a tile needs: [co, ci]. */
static struct box weight_box(const struct tile *at) {
    struct box box = {.at = {at->co, 0},
                      .n = {1, 32}};
    return box;
}

/* The box of b_dbff4e5c that a tile needs: [co]. */
static struct box bias_box(const struct tile *at) {
    struct box box = {.at = {at->co},
                      .n = {1}};
    return box;
}

/* The box of y that a tile needs: [n, co]. */
static struct box output_box(const struct tile *at) {
    struct box box = {.at = {at->n, at->co},
                      .n = {1, 1}};
    return box;
}

/* Fetches a box of x from main memory. */
static int get_input(const struct k0_y_para *para, const struct box *box,
                     float *to, volatile int *reply) {
    const long block = 32;
    *reply = 0;
    athread_get(PE_MODE, (void *)(para->input + box->at[0] * 32), to,
                block * 4, (void *)reply, 0, 0, 0);
    return 1;
}

/* Fetches a box of w_818bfcd8 from main memory. */
static int get_weight(const struct k0_y_para *para, const struct box *box,
                      float *to, volatile int *reply) {
    const long block = 32;
    *reply = 0;
    athread_get(PE_MODE, (void *)(para->weight + box->at[0] * 32), to,
                block * 4, (void *)reply, 0, 0, 0);
    return 1;
}

/* Fetches a box of b_dbff4e5c from main memory. */
static int get_bias(const struct k0_y_para *para, const struct box *box,
                    float *to, volatile int *reply) {
    const long block = 1;
    *reply = 0;
    athread_get(PE_MODE, (void *)(para->bias + box->at[0]), to,
                block * 4, (void *)reply, 0, 0, 0);
    return 1;
}

/* Writes a box of y to main memory. */
static int put_output(const struct k0_y_para *para, const struct box *box,
                      const float *from, volatile int *reply) {
    const long block = 1;
    *reply = 0;
    athread_put(PE_MODE, (void *)(from), para->output + box->at[0] * 16 + box->at[1],
                block * 4, (void *)reply, 0, 0);
    return 1;
}

/* Computes a tile: matmul. */
static void compute(const struct tile *at,
                    const struct box *input_b, const float *input,
                    const struct box *weight_b, const float *weight,
                    const struct box *bias_b, const float *bias,
                    const struct box *output_b, float *output)
{
    {
        float *y = output + at->n - output_b->at[0] + at->co - output_b->at[1];
        for (long i = 0; i < 1; i++)
            y[i] = bias[at->co - bias_b->at[0] + i];
    }
    gemm_product(output + at->n - output_b->at[0] + at->co - output_b->at[1], 1, 1,
                 input + at->n * 32 - input_b->at[0] * 32, 32, 1,
                 weight + at->co * 32 - weight_b->at[0] * 32, 32, 1, 32);
}

void k0_y_slave(void *argument) {
    struct k0_y_para para;
    struct tile at;
    volatile int reply = 0;
    volatile int replies[4] = {0}; /* What transfers count up when done. */
    int counts[4] = {0}; /* What they come to then. */
    struct box input_b;
    struct box weight_b;
    struct box bias_b;
    struct box output_b;

    /* The parameters. */
    athread_get(PE_MODE, argument, &para, sizeof para, (void *)&reply, 0, 0, 0);
    dma_wait(&reply, 1);

    /* 64 parts, 1 for each CPE. */
    const long begin = athread_get_id(-1) * 1;
    const long end = MIN(begin + 1, 64);
    for (long part = begin; part < end; part++) {
        at.n = part / 16;
        at.n_n = 1;
        at.co = part % 16;
        at.co_n = 1;
        input_b = input_box(&at);
        counts[input_word] =
            get_input(&para, &input_b, TILE(input, 0), &replies[input_word]);
        dma_wait(&replies[input_word], counts[input_word]);
        weight_b = weight_box(&at);
        counts[weight_word] =
            get_weight(&para, &weight_b, TILE(weight, 0), &replies[weight_word]);
        bias_b = bias_box(&at);
        counts[bias_word] =
            get_bias(&para, &bias_b, TILE(bias, 0), &replies[bias_word]);
        output_b = output_box(&at);
        dma_wait(&replies[weight_word], counts[weight_word]);
        dma_wait(&replies[bias_word], counts[bias_word]);
        dma_wait(&replies[output_word], counts[output_word]);
        compute(&at,
                &input_b, TILE(input, 0),
                &weight_b, TILE(weight, 0),
                &bias_b, TILE(bias, 0),
                &output_b, TILE(output, 0));
        counts[output_word] =
            put_output(&para, &output_b, TILE(output, 0), &replies[output_word]);
    }
    dma_wait(&replies[output_word], counts[output_word]);
}
