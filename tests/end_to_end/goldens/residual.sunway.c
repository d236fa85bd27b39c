// tilewright compile residual.onnx -t sunway -o package; cat package/program/layers/*_slave.c
/* c, s, y: the CPEs' part.
   conv [dram: co=1, ow=2 by co > ow; ldm: n=1, co=1, oh=1, ow=2, ci=8, kh=1, kw=1]; cores share co ow */
#include "../slave/cpe.h"
#include "../slave/scalars.h"
#include "../slave/gemm.h"
#include "k0_c_para.h"

/* Where a tile lies: first index and extent along each dim that is cut. */
struct tile {
    long co, co_n;
    long ow, ow_n;
};

/* The tiles in LDM: first byte, bytes of a slot, reply word of the first one. */
enum {weight_at = 0, weight_bytes = 32, weight_word = 0}; /* w_cbe4c115 */
typedef char weight_fits[weight_at + 1 * weight_bytes <= LDM_BYTES ? 1 : -1];
enum {input_at = 32, input_bytes = 64, input_word = 1}; /* x */
typedef char input_fits[input_at + 1 * input_bytes <= LDM_BYTES ? 1 : -1];
enum {residual_at = 96, residual_bytes = 32, residual_word = 2}; /* r */
typedef char residual_fits[residual_at + 1 * residual_bytes <= LDM_BYTES ? 1 : -1];
enum {output_at = 128, output_bytes = 32, output_word = 3}; /* y */
typedef char output_fits[output_at + 1 * output_bytes <= LDM_BYTES ? 1 : -1];

/* The box of w_cbe4c115 that a tile needs: [ci, kh, kw, co]. */
static struct box weight_box(const struct tile *at) {
    struct box box = {.at = {0, 0, 0, at->co},
                      .n = {8, 1, 1, 1}};
    return box;
}

/* The box of x that a tile needs: [n, ci, oh + kh, ow + kw]. */
static struct box input_box(const struct tile *at) {
    struct box box = {.at = {0, 0, 0, at->ow},
                      .n = {1, 8, 1, 2}};
    return box;
}

/* The box of r that a tile needs: [n, co, oh, ow]. */
static struct box residual_box(const struct tile *at) {
    struct box box = {.at = {0, at->co, 0, at->ow},
                      .n = {1, 1, 1, 2}};
    return box;
}

/* The box of y that a tile needs: [n, co, oh, ow]. */
static struct box output_box(const struct tile *at) {
    struct box box = {.at = {0, at->co, 0, at->ow},
                      .n = {1, 1, 1, 2}};
    return box;
}

/* Fetches a box of w_cbe4c115 from main memory. */
static int get_weight(const struct k0_c_para *para, const struct box *box,
                      float *to, volatile int *reply) {
    const long block = 1;
    *reply = 0;
    athread_get(PE_MODE, (void *)(para->weight + box->at[3]), to,
                block * 32, (void *)reply, 0, (8 - block) * 4, block * 4);
    return 1;
}

/* Fetches a box of x from main memory. */
static int get_input(const struct k0_c_para *para, const struct box *box,
                     float *to, volatile int *reply) {
    const long block = 2;
    *reply = 0;
    athread_get(PE_MODE, (void *)(para->input + box->at[3]), to,
                block * 32, (void *)reply, 0, (16 - block) * 4, block * 4);
    return 1;
}

/* Fetches a box of r from main memory. */
static int get_residual(const struct k0_c_para *para, const struct box *box,
                        float *to, volatile int *reply) {
    const long block = 2;
    *reply = 0;
    athread_get(PE_MODE, (void *)(para->residual + box->at[1] * 16 + box->at[3]), to,
                block * 4, (void *)reply, 0, 0, 0);
    return 1;
}

/* Writes a box of y to main memory. */
static int put_output(const struct k0_c_para *para, const struct box *box,
                      const float *from, volatile int *reply) {
    const long block = 2;
    *reply = 0;
    athread_put(PE_MODE, (void *)(from), para->output + box->at[1] * 16 + box->at[3],
                block * 4, (void *)reply, 0, 0);
    return 1;
}

/* Computes a tile: conv, add, relu. */
static void compute(const struct tile *at,
                    const struct box *input_b, const float *input,
                    const struct box *weight_b, const float *weight,
                    const struct box *residual_b, const float *residual,
                    const struct box *output_b, float *output)
{
    {
        float *y = output + at->co * 2 - output_b->at[1] * 2 + at->ow - output_b->at[3];
        for (long i = 0; i < 2; i++)
            y[i] = 0.0f;
    }
    struct gemm_tap taps[GEMM_TAPS];
    long row = 0, column = at->ow;
    for (long q = 0; q < 2; q += 4) {
        const long left = MIN(4, 2 - q);
        long rows[4], columns[4], places = 0, count = 0;
        for (long p = 0; p < 4; p++) {
            rows[p] = row;
            columns[p] = column;
            if (++column == at->ow + 2) {
                column = at->ow;
                row++;
            }
        }
        struct gemm_tap *tap = &taps[count++];
        for (long p = 0; p < 4; p++) {
            const int inside = p < left;
            tap->x[p] = inside ? input + (columns[p] - input_b->at[3]) : gemm_zero;
            tap->step[p] = inside ? 2 : 0;
        }
        tap->w = at->co - weight_b->at[3];
        places |= tap->w;
        (void)rows;
        gemm_positions(output + at->co * 2 - output_b->at[1] * 2 + at->ow - output_b->at[3] + q, 2, left, taps, count, weight, places,
                       1, 1, 8);
    }
    {
        float *y = output + at->co * 2 - output_b->at[1] * 2 + at->ow - output_b->at[3];
        for (long i = 0; i < 2; i++) {
            const float t0 = y[i];
            const float t1 = t0 + residual[at->co * 2 - residual_b->at[1] * 2 + at->ow - residual_b->at[3] + i];
            const float t2 = relu_s(t1);
            y[i] = t2;
        }
    }
}

void k0_c_slave(void *argument) {
    struct k0_c_para para;
    struct tile at;
    volatile int reply = 0;
    volatile int replies[4] = {0}; /* What transfers count up when done. */
    int counts[4] = {0}; /* What they come to then. */
    struct box weight_b;
    struct box input_b;
    struct box residual_b;
    struct box output_b;

    /* The parameters. */
    athread_get(PE_MODE, argument, &para, sizeof para, (void *)&reply, 0, 0, 0);
    dma_wait(&reply, 1);

    /* 64 parts, 1 for each CPE. */
    const long begin = athread_get_id(-1) * 1;
    const long end = MIN(begin + 1, 64);
    for (long part = begin; part < end; part++) {
        at.co = part / 8;
        at.co_n = 1;
        at.ow = part % 8 * 2;
        at.ow_n = 2;
        weight_b = weight_box(&at);
        counts[weight_word] =
            get_weight(&para, &weight_b, TILE(weight, 0), &replies[weight_word]);
        dma_wait(&replies[weight_word], counts[weight_word]);
        input_b = input_box(&at);
        counts[input_word] =
            get_input(&para, &input_b, TILE(input, 0), &replies[input_word]);
        residual_b = residual_box(&at);
        counts[residual_word] =
            get_residual(&para, &residual_b, TILE(residual, 0), &replies[residual_word]);
        output_b = output_box(&at);
        dma_wait(&replies[input_word], counts[input_word]);
        dma_wait(&replies[residual_word], counts[residual_word]);
        dma_wait(&replies[output_word], counts[output_word]);
        compute(&at,
                &input_b, TILE(input, 0),
                &weight_b, TILE(weight, 0),
                &residual_b, TILE(residual, 0),
                &output_b, TILE(output, 0));
        counts[output_word] =
            put_output(&para, &output_b, TILE(output, 0), &replies[output_word]);
    }
    dma_wait(&replies[output_word], counts[output_word]);
}
