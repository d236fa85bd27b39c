// tilewright compile depthwise.onnx -t sunway -o package; cat package/program/layers/*_slave.c
/* y: the CPEs' part.
   depthwise_conv [dram: c=1, oh=1 by c > oh; ldm: n=1, c=1, oh=1, ow=4, kh=3, kw=3]; cores share c oh */
#include "../slave/cpe.h"
#include <math.h>
#include <stdint.h>
#include "k0_y_para.h"

/* Where a tile lies: first index and extent along each dim that is cut. */
struct tile {
    long c, c_n;
    long oh, oh_n;
};

/* The tiles in LDM: first byte, bytes of a slot, reply word of the first one. */
enum {weight_at = 0, weight_bytes = 64, weight_word = 0}; /* w_60e0db7a */
typedef char weight_fits[weight_at + 1 * weight_bytes <= LDM_BYTES ? 1 : -1];
enum {input_at = 64, input_bytes = 96, input_word = 1}; /* x */
typedef char input_fits[input_at + 1 * input_bytes <= LDM_BYTES ? 1 : -1];
enum {output_at = 160, output_bytes = 32, output_word = 2}; /* y */
typedef char output_fits[output_at + 1 * output_bytes <= LDM_BYTES ? 1 : -1];

/* The box of w_60e0db7a that a tile needs: [c, 0, kh, kw]. */
static struct box weight_box(const struct tile *at) {
    struct box box = {.at = {at->c, 0, 0, 0},
                      .n = {1, 1, 3, 3}};
    return box;
}

/* The box of x that a tile needs: [n, c, oh*2 + kh - 1, ow*2 + kw - 1]. */
static struct box input_box(const struct tile *at) {
    struct box box = {.at = {0, at->c, MAX(at->oh * 2 - 1, 0), 0},
                      .n = {1, 1, 0, 8}};
    box.n[2] = at->oh * 2 + 2 - box.at[2];
    return box;
}

/* The box of y that a tile needs: [n, c, oh, ow]. */
static struct box output_box(const struct tile *at) {
    struct box box = {.at = {0, at->c, at->oh, 0},
                      .n = {1, 1, 1, 4}};
    return box;
}

/* Fetches a box of w_60e0db7a from main memory. */
static int get_weight(const struct k0_y_para *para, const struct box *box,
                      float *to, volatile int *reply) {
    const long block = 9;
    *reply = 0;
    athread_get(PE_MODE, (void *)(para->weight + box->at[0] * 9), to,
                block * 4, (void *)reply, 0, 0, 0);
    return 1;
}

/* Fetches a box of x from main memory. */
static int get_input(const struct k0_y_para *para, const struct box *box,
                     float *to, volatile int *reply) {
    const long block = box->n[2] * 8;
    *reply = 0;
    if (box->n[2] <= 0)
        return 0;
    athread_get(PE_MODE, (void *)(para->input + box->at[1] * 64 + box->at[2] * 8), to,
                block * 4, (void *)reply, 0, 0, 0);
    return 1;
}

/* Writes a box of y to main memory. */
static int put_output(const struct k0_y_para *para, const struct box *box,
                      const float *from, volatile int *reply) {
    const long block = 4;
    *reply = 0;
    athread_put(PE_MODE, (void *)(from), para->output + box->at[1] * 16 + box->at[2] * 4,
                block * 4, (void *)reply, 0, 0);
    return 1;
}

/* Computes a tile: depthwise_conv. */
static void compute(const struct tile *at,
                    const struct box *input_b, const float *input,
                    const struct box *weight_b, const float *weight,
                    const struct box *output_b, float *output)
{
    const long input_step1 = input_b->n[2] * 8;
    {
        float *y = output + at->c * 4 - output_b->at[1] * 4 + at->oh * 4 - output_b->at[2] * 4;
        for (long i = 0; i < 4; i++)
            y[i] = 0.0f;
        for (long kh = 0; kh < 3; kh++) {
            if (at->oh * 2 + kh - 1 < 0 || at->oh * 2 + kh - 1 >= 8)
                continue;
            for (long kw = 0; kw < 3; kw++) {
                const long low = MAX(0, first_inside(kw - 1, 2));
                const long end = MIN(4, end_inside(kw - 1, 2, 8));
                if (low >= end)
                    continue;
                const float *x = input + (at->c - input_b->at[1]) * input_step1 + at->oh * 16 + kh * 8 - input_b->at[2] * 8 + kw + low * 2 - 9;
                const float *w = weight + at->c * 9 - weight_b->at[0] * 9 + kh * 3 + kw;
                row_fma(y + low, x, 2, *w, end - low);
            }
        }
    }
}

void k0_y_slave(void *argument) {
    struct k0_y_para para;
    struct tile at;
    volatile int reply = 0;
    volatile int replies[3] = {0}; /* What transfers count up when done. */
    int counts[3] = {0}; /* What they come to then. */
    struct box weight_b;
    struct box input_b;
    struct box output_b;

    /* The parameters. */
    athread_get(PE_MODE, argument, &para, sizeof para, (void *)&reply, 0, 0, 0);
    dma_wait(&reply, 1);

    /* 64 parts, 1 for each CPE. */
    const long begin = athread_get_id(-1) * 1;
    const long end = MIN(begin + 1, 64);
    for (long part = begin; part < end; part++) {
        at.c = part / 4;
        at.c_n = 1;
        at.oh = part % 4;
        at.oh_n = 1;
        weight_b = weight_box(&at);
        counts[weight_word] =
            get_weight(&para, &weight_b, TILE(weight, 0), &replies[weight_word]);
        dma_wait(&replies[weight_word], counts[weight_word]);
        input_b = input_box(&at);
        counts[input_word] =
            get_input(&para, &input_b, TILE(input, 0), &replies[input_word]);
        output_b = output_box(&at);
        dma_wait(&replies[input_word], counts[input_word]);
        dma_wait(&replies[output_word], counts[output_word]);
        compute(&at,
                &input_b, TILE(input, 0),
                &weight_b, TILE(weight, 0),
                &output_b, TILE(output, 0));
        counts[output_word] =
            put_output(&para, &output_b, TILE(output, 0), &replies[output_word]);
    }
    dma_wait(&replies[output_word], counts[output_word]);
}
