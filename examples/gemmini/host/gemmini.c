/* Gemmini's commands on the host: what they do to its memories, one after the other.

   A command that the machine does not take ends the process with a message. */
#include "gemmini.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS (BANK_NUM * BANK_ROWS)
#define ACCUMULATOR 0x80000000u
#define ADDED 0x40000000u
#define FULL 0x20000000u
#define POISON 0x5A /* what memories hold before they are written */

static elem_t scratchpad[ROWS][DIM];
static acc_t accumulator[ACC_ROWS][DIM];
static elem_t weights[DIM][DIM]; /* in the array */

static struct {
    int configured;
    size_t a_stride;
} execute;

static struct {
    int configured;
    size_t stride;
    scale_t scale;
} load[3];

static struct {
    int configured, activation;
    size_t stride;
    acc_scale_t scale;
} stored;

static struct {
    int given;
    uint32_t b, c;
    size_t b_cols, b_rows, c_cols, c_rows;
} next; /* what the last preload said */

static void need(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "gemmini: %s\n", what);
        abort();
    }
}

static void begin(void)
{
    static int begun;
    if (begun)
        return;
    begun = 1;
    memset(scratchpad, POISON, sizeof scratchpad);
    memset(accumulator, POISON, sizeof accumulator);
    memset(weights, POISON, sizeof weights);
}

/* The row of a private memory of so many rows; `count` of them are there. */
static uint32_t row_of(uint32_t address, size_t count, size_t rows)
{
    uint32_t row = address & ~(ACCUMULATOR | ADDED | FULL);
    need(row < rows && count <= rows - row, "rows outside of a memory");
    return row;
}

void gemmini_extended_config_ex(int dataflow, int sys_act, int sys_shift, size_t A_stride,
                                bool A_transpose, bool B_transpose)
{
    begin();
    need(dataflow == WEIGHT_STATIONARY, "this shim computes weight-stationary");
    need(sys_act == NO_ACTIVATION && !sys_shift, "the array itself scales in the other dataflow");
    need(!A_transpose && !B_transpose, "this shim transposes nothing");
    need(A_stride < 1u << 16, "the stride of A has 16 bits");
    execute.configured = 1;
    execute.a_stride = A_stride;
}

void gemmini_extended3_config_ld(size_t stride, scale_t scale, bool shrunk, int id)
{
    begin();
    need(id >= 0 && id < 3, "there are three mvin");
    need(!shrunk, "this shim loads sums of 32 bits");
    load[id].configured = 1;
    load[id].stride = stride;
    load[id].scale = scale;
}

void gemmini_extended_config_st(size_t stride, int acc_act, acc_scale_t acc_scale)
{
    begin();
    need(acc_act == NO_ACTIVATION || acc_act == RELU, "an activation that this shim does not have");
    stored.configured = 1;
    stored.stride = stride;
    stored.activation = acc_act;
    stored.scale = acc_scale;
}

static void mvin(const void *dram_addr, uint32_t spad_addr, size_t cols, size_t rows, int id)
{
    need(load[id].configured, "mvin before its config_ld");
    need(load[id].scale == MVIN_SCALE_IDENTITY, "this shim scales nothing that it loads");
    need(rows > 0 && rows <= DIM && cols > 0, "mvin moves 1 to 16 rows");
    if (spad_addr & ACCUMULATOR) {
        uint32_t first = row_of(spad_addr, rows, ACC_ROWS);
        need(cols <= DIM, "this shim loads one block of sums at a time");
        for (size_t row = 0; row < rows; row++) {
            acc_t values[DIM];
            memcpy(values, (const char *)dram_addr + row * load[id].stride, cols * sizeof *values);
            for (size_t column = 0; column < cols; column++) {
                acc_t *sum = &accumulator[first + row][column];
                uint32_t before = spad_addr & ADDED ? (uint32_t)*sum : 0;
                *sum = (acc_t)(before + (uint32_t)values[column]);
            }
        }
        return;
    }
    uint32_t first = row_of(spad_addr, rows, ROWS);
    need(cols <= DIM, "this shim loads one block at a time");
    for (size_t row = 0; row < rows; row++)
        memcpy(scratchpad[first + row], (const char *)dram_addr + row * load[id].stride, cols);
}

void gemmini_extended_mvin(const void *dram_addr, uint32_t spad_addr, size_t cols, size_t rows)
{
    mvin(dram_addr, spad_addr, cols, rows, 0);
}

void gemmini_extended_mvin2(const void *dram_addr, uint32_t spad_addr, size_t cols, size_t rows)
{
    mvin(dram_addr, spad_addr, cols, rows, 1);
}

void gemmini_extended_mvin3(const void *dram_addr, uint32_t spad_addr, size_t cols, size_t rows)
{
    mvin(dram_addr, spad_addr, cols, rows, 2);
}

/* An accumulator as int8: in float32, rounded to the nearest, of two the even one, saturated. */
static elem_t scaled(acc_t sum)
{
    float units = rintf((float)sum * stored.scale);
    int whole = units > 127.0f ? 127 : units < -128.0f ? -128 : (int)units;
    return (elem_t)(stored.activation == RELU && whole < 0 ? 0 : whole);
}

void gemmini_extended_mvout(void *dram_addr, uint32_t spad_addr, size_t cols, size_t rows)
{
    need(stored.configured, "mvout before config_st");
    need(rows > 0 && rows <= DIM && cols > 0 && cols <= DIM, "mvout moves up to 16 x 16 numbers");
    need(spad_addr & ACCUMULATOR, "this shim stores accumulators");
    uint32_t first = row_of(spad_addr, rows, ACC_ROWS);
    for (size_t row = 0; row < rows; row++) {
        char *to = (char *)dram_addr + row * stored.stride;
        for (size_t column = 0; column < cols; column++) {
            acc_t sum = accumulator[first + row][column];
            if (spad_addr & FULL)
                memcpy(to + column * sizeof sum, &sum, sizeof sum);
            else
                ((elem_t *)to)[column] = scaled(sum);
        }
    }
}

void gemmini_extended_preload(uint32_t BD, uint32_t C, size_t BD_cols, size_t BD_rows,
                              size_t C_cols, size_t C_rows)
{
    need(BD_cols <= DIM && BD_rows <= DIM && C_cols <= DIM && C_rows <= DIM, "blocks of 16 x 16");
    next.given = 1;
    next.b = BD, next.b_cols = BD_cols, next.b_rows = BD_rows;
    next.c = C, next.c_cols = C_cols, next.c_rows = C_rows;
}

/* C = A * B: what a block has less than 16 rows or columns counts as 0. */
static void compute(uint32_t A, uint32_t D, size_t A_cols, size_t A_rows)
{
    need(execute.configured, "a compute before config_ex");
    need(D == GARBAGE_ADDR, "this shim adds nothing in the array");
    need(A_cols <= DIM && A_rows <= DIM, "blocks of 16 x 16");
    need(next.c & ACCUMULATOR && !(next.c & FULL), "results go to the accumulators");
    uint32_t c = row_of(next.c, next.c_rows, ACC_ROWS);
    for (size_t row = 0; row < next.c_rows; row++) {
        need(row < A_rows, "as many rows of C as of A");
        const elem_t *a = scratchpad[row_of((uint32_t)(A + row * execute.a_stride), 1, ROWS)];
        for (size_t column = 0; column < next.c_cols; column++) {
            acc_t sum = 0, *to = &accumulator[c + row][column];
            for (size_t k = 0; k < A_cols; k++)
                sum += a[k] * weights[k][column];
            *to = (acc_t)((next.c & ADDED ? (uint32_t)*to : 0) + (uint32_t)sum);
        }
    }
    next.given = 0;
}

void gemmini_extended_compute_preloaded(uint32_t A, uint32_t BD, size_t A_cols, size_t A_rows,
                                        size_t BD_cols, size_t BD_rows)
{
    (void)BD_cols, (void)BD_rows;
    need(next.given, "a compute without its preload");
    memset(weights, 0, sizeof weights);
    if (next.b != GARBAGE_ADDR) {
        uint32_t first = row_of(next.b, next.b_rows, ROWS);
        for (size_t row = 0; row < next.b_rows; row++)
            memcpy(weights[row], scratchpad[first + row], next.b_cols);
    }
    compute(A, BD, A_cols, A_rows);
}

void gemmini_extended_compute_accumulated(uint32_t A, uint32_t BD, size_t A_cols, size_t A_rows,
                                          size_t BD_cols, size_t BD_rows)
{
    (void)BD_cols, (void)BD_rows;
    need(next.given, "a compute without its preload");
    need(next.b == GARBAGE_ADDR, "weights of a preload that no compute_preloaded takes");
    compute(A, BD, A_cols, A_rows);
}

void gemmini_fence(void)
{
}
