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

/* The tiles in LDM: the first byte of each buffer, and the bytes of a slot. */
enum {input_at = 0, input_bytes = 128}; /* x */
typedef char input_fits[input_at + 1 * input_bytes <= LDM_BYTES ? 1 : -1];
enum {weight_at = 128, weight_bytes = 128}; /* w_818bfcd8 */
typedef char weight_fits[weight_at + 1 * weight_bytes <= LDM_BYTES ? 1 : -1];
enum {bias_at = 256, bias_bytes = 32}; /* b_dbff4e5c */
typedef char bias_fits[bias_at + 1 * bias_bytes <= LDM_BYTES ? 1 : -1];
enum {output_at = 288, output_bytes = 32}; /* y */
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
    struct box input_b;
    volatile int input_reply[1] = {0};
    int input_count[1] = {0};
    struct box weight_b;
    volatile int weight_reply[1] = {0};
    int weight_count[1] = {0};
    struct box bias_b;
    volatile int bias_reply[1] = {0};
    int bias_count[1] = {0};
    struct box output_b;
    volatile int output_reply[1] = {0};
    int output_count[1] = {0};

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
        input_count[0] =
            get_input(&para, &input_b, TILE(input, 0), &input_reply[0]);
        dma_wait(&input_reply[0], input_count[0]);
        weight_b = weight_box(&at);
        weight_count[0] =
            get_weight(&para, &weight_b, TILE(weight, 0), &weight_reply[0]);
        bias_b = bias_box(&at);
        bias_count[0] =
            get_bias(&para, &bias_b, TILE(bias, 0), &bias_reply[0]);
        output_b = output_box(&at);
        dma_wait(&weight_reply[0], weight_count[0]);
        dma_wait(&bias_reply[0], bias_count[0]);
        dma_wait(&output_reply[0], output_count[0]);
        compute(&at,
                &input_b, TILE(input, 0),
                &weight_b, TILE(weight, 0),
                &bias_b, TILE(bias, 0),
                &output_b, TILE(output, 0));
        output_count[0] =
            put_output(&para, &output_b, TILE(output, 0), &output_reply[0]);
    }

    /* What is still being written. */
    dma_wait(&output_reply[0], output_count[0]);
}
