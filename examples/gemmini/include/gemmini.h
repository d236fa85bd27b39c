/* The part of Gemmini's C interface that driver.c uses, as functions.

   Names and parameters are those of the macros in Gemmini's own header (gemmini-rocc-tests,
   include/gemmini.h), which takes the place of this one on the machine; what commands do is what
   "Memory Addressing Scheme" and "ISA" of Gemmini's README say. README.md has the references.

   Private memories are addressed by rows of DIM elements: int8 in the scratchpad, int32 in the
   accumulators. Addresses have 32 bits; GEMMINI_* below are their three highest ones. Commands take
   effect as if one after the other: the machine finds out by itself which of them depend on which.
   Main memory belongs to the processor again after gemmini_fence(). */
#ifndef GEMMINI_H
#define GEMMINI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIM 16
#define BANK_NUM 4
#define BANK_ROWS 4096 /* of the scratchpad: 256 KB in all */
#define ACC_ROWS 1024  /* of the accumulators: 64 KB */
#define MAX_BLOCK_LEN 4 /* blocks of DIM columns that one mvin of int8 moves */

typedef int8_t elem_t;
typedef int32_t acc_t;
typedef float scale_t;
typedef float acc_scale_t;

#define GARBAGE_ADDR ((uint32_t)-1)
#define OUTPUT_STATIONARY 0
#define WEIGHT_STATIONARY 1
#define NO_ACTIVATION 0
#define RELU 1
#define MVIN_SCALE_IDENTITY 1.0f
#define ACC_SCALE_IDENTITY 1.0f

/* The dataflow; rows of A lie `A_stride` rows of the scratchpad apart. The activation and the shift
   are those of outputs that stay in the array (OUTPUT_STATIONARY). */
void gemmini_extended_config_ex(int dataflow, int sys_act, int sys_shift, size_t A_stride,
                                bool A_transpose, bool B_transpose);

/* For mvin (`id` 0), mvin2 (1) and mvin3 (2): bytes from one row in main memory to the next, a factor
   for what is loaded, and whether accumulators are loaded from int8 (`shrunk`). */
void gemmini_extended3_config_ld(size_t stride, scale_t scale, bool shrunk, int id);

/* For mvout: bytes from one row in main memory to the next, and, for int8 of accumulators, the
   activation and the factor: the int32 times the float, rounded to the nearest, of two the even
   one, saturated. */
void gemmini_extended_config_st(size_t stride, int acc_act, acc_scale_t acc_scale);

/* Rows of main memory to consecutive rows of a private memory, and back. */
void gemmini_extended_mvin(const void *dram_addr, uint32_t spad_addr, size_t cols, size_t rows);
void gemmini_extended_mvin2(const void *dram_addr, uint32_t spad_addr, size_t cols, size_t rows);
void gemmini_extended_mvin3(const void *dram_addr, uint32_t spad_addr, size_t cols, size_t rows);
void gemmini_extended_mvout(void *dram_addr, uint32_t spad_addr, size_t cols, size_t rows);

/* B is what compute_preloaded puts into the array, C where its result goes, and that of the
   compute_accumulated commands after their own preload, which multiply by the B that is there. */
void gemmini_extended_preload(uint32_t BD, uint32_t C, size_t BD_cols, size_t BD_rows,
                              size_t C_cols, size_t C_rows);
void gemmini_extended_compute_preloaded(uint32_t A, uint32_t BD, size_t A_cols, size_t A_rows,
                                        size_t BD_cols, size_t BD_rows);
void gemmini_extended_compute_accumulated(uint32_t A, uint32_t BD, size_t A_cols, size_t A_rows,
                                          size_t BD_cols, size_t BD_rows);

/* Returns once all commands are done. */
void gemmini_fence(void);

#endif
