// tilewright compile pool.onnx -t sunway -o package; cat package/program/layers/*_slave.c
/* y: the CPEs' part.
   pool [dram: c=1, oh=1 by c > oh; ldm: n=1, c=1, oh=1, ow=3, kh=3, kw=3]; cores share c oh */
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
enum {input_at = 0, input_bytes = 96, input_word = 0}; /* x */
typedef char input_fits[input_at + 1 * input_bytes <= LDM_BYTES ? 1 : -1];
enum {output_at = 96, output_bytes = 32, output_word = 1}; /* y */
typedef char output_fits[output_at + 1 * output_bytes <= LDM_BYTES ? 1 : -1];

/* The box of x that a tile needs: [n, c, oh*2 + kh, ow*2 + kw]. */
static struct box input_box(const struct tile *at) {
    struct box box = {.at = {0, at->c, at->oh * 2, 0},
                      .n = {1, 1, 3, 7}};
    return box;
}

/* The box of y that a tile needs: [n, c, oh, ow]. */
static struct box output_box(const struct tile *at) {
    struct box box = {.at = {0, at->c, at->oh, 0},
                      .n = {1, 1, 1, 3}};
    return box;
}

/* Fetches a box of x from main memory. */
static int get_input(const struct k0_y_para *para, const struct box *box,
                     float *to, volatile int *reply) {
    const long block = 21;
    *reply = 0;
    athread_get(PE_MODE, (void *)(para->input + box->at[1] * 49 + box->at[2] * 7), to,
                block * 4, (void *)reply, 0, 0, 0);
    return 1;
}

/* Writes a box of y to main memory. */
static int put_output(const struct k0_y_para *para, const struct box *box,
                      const float *from, volatile int *reply) {
    const long block = 3;
    *reply = 0;
    athread_put(PE_MODE, (void *)(from), para->output + box->at[1] * 9 + box->at[2] * 3,
                block * 4, (void *)reply, 0, 0);
    return 1;
}

/* Computes a tile: max_pool. */
static void compute(const struct tile *at,
                    const struct box *input_b, const float *input,
                    const struct box *output_b, float *output)
{
    {
        float *y = output + at->c * 3 - output_b->at[1] * 3 + at->oh * 3 - output_b->at[2] * 3;
        for (long i = 0; i < 3; i++)
            y[i] = -INFINITY;
        for (long kh = 0; kh < 3; kh++) {
            for (long kw = 0; kw < 3; kw++) {
                const float *x = input + at->c * 21 - input_b->at[1] * 21 + at->oh * 14 + kh * 7 - input_b->at[2] * 7 + kw;
                row_max(y, x, 2, 3);
            }
        }
    }
}

void k0_y_slave(void *argument) {
    struct k0_y_para para;
    struct tile at;
    volatile int reply = 0;
    volatile int replies[2] = {0}; /* What transfers count up when done. */
    int counts[2] = {0}; /* What they come to then. */
    struct box input_b;
    struct box output_b;

    /* The parameters. */
    athread_get(PE_MODE, argument, &para, sizeof para, (void *)&reply, 0, 0, 0);
    dma_wait(&reply, 1);

    /* 48 parts, 1 for each CPE; 16 stay idle. */
    const long begin = athread_get_id(-1) * 1;
    const long end = MIN(begin + 1, 48);
    for (long part = begin; part < end; part++) {
        at.c = part / 3;
        at.c_n = 1;
        at.oh = part % 3;
        at.oh_n = 1;
        input_b = input_box(&at);
        counts[input_word] =
            get_input(&para, &input_b, TILE(input, 0), &replies[input_word]);
        output_b = output_box(&at);
        dma_wait(&replies[input_word], counts[input_word]);
        dma_wait(&replies[output_word], counts[output_word]);
        compute(&at,
                &input_b, TILE(input, 0),
                &output_b, TILE(output, 0));
        counts[output_word] =
            put_output(&para, &output_b, TILE(output, 0), &replies[output_word]);
    }
    dma_wait(&replies[output_word], counts[output_word]);
}
