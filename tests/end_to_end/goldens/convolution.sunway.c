// tilewright compile convolution.onnx -t sunway -o package; cat package/program/layers/*_slave.c
/* c, y: the CPEs' part.
   conv [dram: co=2, oh=1 by co > oh; ldm: n=1, co=2, oh=1, ow=6, ci=8, kh=2, kw=3 by kh] double x, w_3adc5c52; cores share co oh; x by column; w_3adc5c52 by row */
#include "../slave/cpe.h"
#include "../slave/mesh.h"
#include "../slave/scalars.h"
#include "../slave/gemm.h"
#include "k0_c_para.h"

/* Where a tile lies: first index and extent along each dim that is cut. */
struct tile {
    long co, co_n;
    long oh, oh_n;
    long kh, kh_n;
};

/* The tiles in LDM: first byte, bytes of a slot, reply word of the first one. */
enum {bias_at = 0, bias_bytes = 32, bias_word = 0}; /* b_086af818 */
typedef char bias_fits[bias_at + 1 * bias_bytes <= LDM_BYTES ? 1 : -1];
enum {output_at = 32, output_bytes = 64, output_word = 5}; /* y */
typedef char output_fits[output_at + 1 * output_bytes <= LDM_BYTES ? 1 : -1];
enum {input_at = 96, input_bytes = 384, input_word = 1}; /* x */
typedef char input_fits[input_at + 2 * input_bytes <= LDM_BYTES ? 1 : -1];
enum {weight_at = 864, weight_bytes = 384, weight_word = 3}; /* w_3adc5c52 */
typedef char weight_fits[weight_at + 2 * weight_bytes <= LDM_BYTES ? 1 : -1];

/* The box of b_086af818 that a tile needs: [co]. */
static struct box bias_box(const struct tile *at) {
    struct box box = {.at = {at->co},
                      .n = {2}};
    return box;
}

/* The box of y that a tile needs: [n, co, oh, ow]. */
static struct box output_box(const struct tile *at) {
    struct box box = {.at = {0, at->co, at->oh, 0},
                      .n = {1, 2, 1, 6}};
    return box;
}

/* The box of x that a tile needs: [n, ci, oh + kh - 1, ow + kw - 1]. */
static struct box input_box(const struct tile *at) {
    struct box box = {.at = {0, 0, MAX(at->oh + at->kh - 1, 0), 0},
                      .n = {1, 8, 0, 6}};
    box.n[2] = MIN(at->oh + at->kh + at->kh_n - 1, 6) - box.at[2];
    return box;
}

/* The box of w_3adc5c52 that a tile needs: [ci, kh, kw, co]. */
static struct box weight_box(const struct tile *at) {
    struct box box = {.at = {0, at->kh, 0, at->co},
                      .n = {8, at->kh_n, 3, 2}};
    return box;
}

/* Fetches a box of b_086af818 from main memory. */
static int get_bias(const struct k0_c_para *para, const struct box *box,
                    float *to, volatile int *reply) {
    const long block = 2;
    *reply = 0;
    athread_get(PE_MODE, (void *)(para->bias + box->at[0]), to,
                block * 4, (void *)reply, 0, 0, 0);
    return 1;
}

/* Fetches a box of x from main memory. */
static int get_input(const struct k0_c_para *para, const struct box *whole,
                     float *to, volatile int *reply) {
    /* An eighth of it: the other CPEs of the column fetch the rest. */
    const struct box own = share_of(whole, 1, COLUMN_OF_MESH);
    const struct box *box = &own;
    to += (own.at[1] - whole->at[1]) * whole->n[2] * 6;
    const long block = box->n[2] * 6;
    *reply = 0;
    if (box->n[1] <= 0 || box->n[2] <= 0)
        return 0;
    athread_get(PE_MODE, (void *)(para->input + box->at[1] * 36 + box->at[2] * 6), to,
                box->n[1] * block * 4, (void *)reply, 0, (36 - block) * 4, block * 4);
    return 1;
}

/* Gets the rest of x from the other CPEs of the column. */
static void exchange_input(const struct box *box, float *data) {
    if (box->n[2] <= 0)
        return;
    exchange(COLUMN_OF_MESH, data, 8, box->n[2] * 6);
}

/* Fetches a box of w_3adc5c52 from main memory. */
static int get_weight(const struct k0_c_para *para, const struct box *whole,
                      float *to, volatile int *reply) {
    /* An eighth of it: the other CPEs of the row fetch the rest. */
    const struct box own = share_of(whole, 0, ROW_OF_MESH);
    const struct box *box = &own;
    to += (own.at[0] - whole->at[0]) * whole->n[1] * 6;
    const long block = 2;
    *reply = 0;
    if (box->n[0] <= 0)
        return 0;
    for (long i0 = 0; i0 < box->n[0]; i0++)
        athread_get(PE_MODE, (void *)(para->weight + box->at[0] * 144 + box->at[1] * 48 + box->at[3] + i0 * 144), to + i0 * box->n[1] * 6,
                    box->n[1] * block * 12, (void *)reply, 0, (16 - block) * 4, block * 4);
    return box->n[0];
}

/* Gets the rest of w_3adc5c52 from the other CPEs of the row. */
static void exchange_weight(const struct box *box, float *data) {
    exchange(ROW_OF_MESH, data, 8, box->n[1] * 6);
}

/* Writes a box of y to main memory. */
static int put_output(const struct k0_c_para *para, const struct box *box,
                      const float *from, volatile int *reply) {
    const long block = 6;
    *reply = 0;
    athread_put(PE_MODE, (void *)(from), para->output + box->at[1] * 36 + box->at[2] * 6,
                block * 8, (void *)reply, (36 - block) * 4, block * 4);
    return 1;
}

/* Steps to the next iteration over kh; 0 after the last of the part. */
static int next_kh(struct tile *at) {
    at->kh += 2;
    if (at->kh >= 3) {
        return 0;
    }
    at->kh_n = MIN(2, 3 - at->kh);
    return 1;
}

/* Computes a tile: conv, relu. */
static void compute(const struct tile *at,
                    const struct box *input_b, const float *input,
                    const struct box *weight_b, const float *weight,
                    const struct box *bias_b, const float *bias,
                    const struct box *output_b, float *output,
                    int first, int last)
{
    const long input_step1 = input_b->n[2] * 6;
    const long weight_step0 = weight_b->n[1] * 6;
    for (long co = at->co; co < at->co + 2; co++) {
        float *y = output + co * 6 - output_b->at[1] * 6 + at->oh * 6 - output_b->at[2] * 6;
        if (first)
            for (long i = 0; i < 6; i++)
                y[i] = bias[co - bias_b->at[0]];
    }
    struct gemm_tap taps[GEMM_TAPS];
    long row = at->oh, column = 0;
    for (long q = 0; q < 6; q += 4) {
        const long left = MIN(4, 6 - q);
        long rows[4], columns[4], places = 0, count = 0;
        for (long p = 0; p < 4; p++) {
            rows[p] = row;
            columns[p] = column;
            if (++column == 6) {
                column = 0;
                row++;
            }
        }
        for (long kh = at->kh; kh < at->kh + at->kh_n; kh++) {
            for (long kw = 0; kw < 3; kw++) {
                struct gemm_tap *tap = &taps[count++];
                for (long p = 0; p < 4; p++) {
                    const int inside = p < left
                        && rows[p] + kh - 1 >= 0
                        && rows[p] + kh - 1 < 6
                        && columns[p] + kw - 1 >= 0
                        && columns[p] + kw - 1 < 6;
                    tap->x[p] = inside ? input + (rows[p] * 6 + kh * 6 - input_b->at[2] * 6 + columns[p] + kw - 7) : gemm_zero;
                    tap->step[p] = inside ? input_step1 : 0;
                }
                tap->w = kh * 6 - weight_b->at[1] * 6 + kw * 2 + at->co - weight_b->at[3];
                places |= tap->w;
                if (count == GEMM_TAPS) {
                    gemm_positions(output + at->co * 6 - output_b->at[1] * 6 + at->oh * 6 - output_b->at[2] * 6 + q, 6, left, taps, count, weight, places,
                                   weight_step0, 2, 8);
                    count = 0;
                }
            }
        }
        gemm_positions(output + at->co * 6 - output_b->at[1] * 6 + at->oh * 6 - output_b->at[2] * 6 + q, 6, left, taps, count, weight, places,
                       weight_step0, 2, 8);
    }
    for (long co = at->co; co < at->co + 2; co++) {
        float *y = output + co * 6 - output_b->at[1] * 6 + at->oh * 6 - output_b->at[2] * 6;
        if (last)
            for (long i = 0; i < 6; i++) {
                const float t0 = y[i];
                const float t1 = relu_s(t0);
                y[i] = t1;
            }
    }
}

void k0_c_slave(void *argument) {
    struct k0_c_para para;
    struct tile at;
    struct tile next;
    struct box box;
    int spare = 0; /* Whether the part is another CPE's, which computes it. */
    volatile int reply = 0;
    volatile int replies[6] = {0}; /* What transfers count up when done. */
    int counts[6] = {0}; /* What they come to then. */
    struct box bias_b;
    struct box output_b;
    struct box input_b;
    int input_slot = 0;
    struct box weight_b;
    int weight_slot = 0;

    /* The parameters. */
    athread_get(PE_MODE, argument, &para, sizeof para, (void *)&reply, 0, 0, 0);
    dma_wait(&reply, 1);

    /* 64 parts, 1 for each CPE. */
    const long begin = athread_get_id(-1) * 1;
    const long end = MIN(begin + 1, 64);
    for (long part = begin; part < end; part++) {
        at.co = part / 8 * 2;
        at.co_n = 2;
        spare |= part % 8 >= 6;
        at.oh = MIN(part % 8, 5);
        at.oh_n = 1;
        bias_b = bias_box(&at);
        if (!spare) {
            counts[bias_word] =
                get_bias(&para, &bias_b, TILE(bias, 0), &replies[bias_word]);
        }
        dma_wait(&replies[bias_word], counts[bias_word]);
        output_b = output_box(&at);
        /* The first tile of input. */
        next = at;
        next.kh = 0;
        next.kh_n = MIN(2, 3 - next.kh);
        box = input_box(&next);
        counts[input_word + input_slot] =
            get_input(&para, &box, TILE(input, input_slot), &replies[input_word + input_slot]);
        /* The first tile of weight. */
        next = at;
        next.kh = 0;
        next.kh_n = MIN(2, 3 - next.kh);
        box = weight_box(&next);
        counts[weight_word + weight_slot] =
            get_weight(&para, &box, TILE(weight, weight_slot), &replies[weight_word + weight_slot]);
        dma_wait(&replies[output_word], counts[output_word]);
        for (at.kh = 0; at.kh < 3; at.kh += 2) {
            at.kh_n = MIN(2, 3 - at.kh);
            input_b = input_box(&at);
            weight_b = weight_box(&at);
            next = at;
            if (next_kh(&next)) {
                const int other = (input_slot + 1) % 2;
                box = input_box(&next);
                counts[input_word + other] =
                    get_input(&para, &box, TILE(input, other), &replies[input_word + other]);
            }
            next = at;
            if (next_kh(&next)) {
                const int other = (weight_slot + 1) % 2;
                box = weight_box(&next);
                counts[weight_word + other] =
                    get_weight(&para, &box, TILE(weight, other), &replies[weight_word + other]);
            }
            dma_wait(&replies[input_word + input_slot], counts[input_word + input_slot]);
            dma_wait(&replies[weight_word + weight_slot], counts[weight_word + weight_slot]);
            exchange_input(&input_b, TILE(input, input_slot));
            exchange_weight(&weight_b, TILE(weight, weight_slot));
            if (!spare) {
                compute(&at,
                        &input_b, TILE(input, input_slot),
                        &weight_b, TILE(weight, weight_slot),
                        &bias_b, TILE(bias, 0),
                        &output_b, TILE(output, 0),
                        at.kh == 0, at.kh + at.kh_n == 3);
            }
            input_slot = (input_slot + 1) % 2;
            weight_slot = (weight_slot + 1) % 2;
        }
        if (!spare) {
            counts[output_word] =
                put_output(&para, &output_b, TILE(output, 0), &replies[output_word]);
        }
    }
    dma_wait(&replies[output_word], counts[output_word]);
}
