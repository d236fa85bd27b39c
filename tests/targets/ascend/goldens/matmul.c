/* C[64 x 96] = A[64 x 100] B[100 x 96] */
#ifndef __CCE_AICORE__ /* of no CCE compiler, but on the host */
#include "cce.h"
#endif

__global__ __aicore__ void matmul(__gm__ half *a, __gm__ half *b, __gm__ half *bias, __gm__ half *c);

__global__ __aicore__ void matmul(__gm__ half *a, __gm__ half *b, __gm__ half *bias, __gm__ half *c) {
    /* bias: 192 bytes of ub at 0 */
    /* l1_a: 7168 bytes of cbuf at 0, 2 slots */
    /* l1_b: 10752 bytes of cbuf at 14336, 2 slots */
    /* l0a: 1536 bytes of ca at 0, 2 slots */
    /* l0b: 4608 bytes of cb at 0, 2 slots */
    /* l0c: 3072 bytes of cc at 0, 2 slots */
    /* ub: 1536 bytes of ub at 192, 2 slots */
    set_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID0);
    set_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID1);
    set_flag(PIPE_M, PIPE_MTE1, EVENT_ID0);
    set_flag(PIPE_M, PIPE_MTE1, EVENT_ID1);
    set_flag(PIPE_V, PIPE_M, EVENT_ID0);
    set_flag(PIPE_V, PIPE_M, EVENT_ID1);
    set_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
    set_flag(PIPE_MTE3, PIPE_V, EVENT_ID1);
    copy_gm_to_ubuf((__ubuf__ half *)(uintptr_t)0x0, bias, 0, 1, 6, 0, 0);
    for (int64_t x = 0; x < 2; x++) {
        copy_gm_to_cbuf((__cbuf__ half *)(uintptr_t)(x % 2 * 7168),
                (__gm__ half *)((__gm__ uint8_t *)a + x * 32 * 32), 0, 7, 32, 32, 0, PAD_NONE);
        for (int64_t y = 0; y < 2; y++) {
            wait_flag(PIPE_MTE1, PIPE_MTE2, (event_t)((y + x * 2) % 2));
            copy_gm_to_cbuf((__cbuf__ half *)(uintptr_t)((y + x * 2) % 2 * 10752 + 14336),
                    (__gm__ half *)((__gm__ uint8_t *)b + y * 3 * 112 * 32), 0, 3, 112, 0, 0,
                    PAD_NONE);
            set_flag(PIPE_MTE2, PIPE_MTE1, (event_t)((y + x * 2) % 2));
            wait_flag(PIPE_MTE2, PIPE_MTE1, (event_t)((y + x * 2) % 2));
            for (int64_t u = 0; u < 2; u++) {
                wait_flag(PIPE_V, PIPE_M, (event_t)((u + (y + x * 2) * 2) % 2));
                for (int64_t t = 0; t < 3; t++) {
                    wait_flag(PIPE_M, PIPE_MTE1, (event_t)((t + (u + (y + x * 2) * 2) * 3) % 2));
                    load_cbuf_to_ca(
                            (__ca__ half *)(uintptr_t)((t + (u + (y + x * 2) * 2) * 3) % 2 * 1536),
                            (__cbuf__ half *)(uintptr_t)(x % 2 * 7168 + (t * 3 * 2 + u) * 512), 0,
                            (48 < 112 - t * 48 ? 48 : 112 - t * 48) / 16, 2, 0, 0, inc);
                    for (int64_t r = 0; r < (48 < 112 - t * 48 ? 48 : 112 - t * 48) / 16; r++) {
                        load_cbuf_to_cb(
                                (__cb__ half *)(uintptr_t)((t + (u + (y + x * 2) * 2) * 3) % 2 * 4608 + r * 3 * 512),
                                (__cbuf__ half *)(uintptr_t)((y + x * 2) % 2 * 10752 + 14336 + (t * 3 + r) * 512),
                                0, 3, 7, 0, 1, inc);
                    }
                    set_flag(PIPE_MTE1, PIPE_M, (event_t)((t + (u + (y + x * 2) * 2) * 3) % 2));
                    wait_flag(PIPE_MTE1, PIPE_M, (event_t)((t + (u + (y + x * 2) * 2) * 3) % 2));
                    pipe_barrier(PIPE_M);
                    mad((__cc__ float *)(uintptr_t)((u + (y + x * 2) * 2) % 2 * 3072),
                            (__ca__ half *)(uintptr_t)((t + (u + (y + x * 2) * 2) * 3) % 2 * 1536),
                            (__cb__ half *)(uintptr_t)((t + (u + (y + x * 2) * 2) * 3) % 2 * 4608),
                            16,
                            ((48 < 112 - t * 48 ? 48 : 112 - t * 48) < 100 - t * 48 ? (48 < 112 - t * 48 ? 48 : 112 - t * 48) : 100 - t * 48),
                            48, t == 0);
                    set_flag(PIPE_M, PIPE_MTE1, (event_t)((t + (u + (y + x * 2) * 2) * 3) % 2));
                }
                set_flag(PIPE_M, PIPE_V, (event_t)((u + (y + x * 2) * 2) % 2));
                wait_flag(PIPE_M, PIPE_V, (event_t)((u + (y + x * 2) * 2) % 2));
                wait_flag(PIPE_MTE3, PIPE_V, (event_t)((u + (y + x * 2) * 2) % 2));
                copy_matrix_cc_to_ubuf(
                        (__ubuf__ half *)(uintptr_t)((u + (y + x * 2) * 2) % 2 * 1536 + 192),
                        (__cc__ float *)(uintptr_t)((u + (y + x * 2) * 2) % 2 * 3072), 0, 3, 1, 0,
                        0, CRMODE_F32toF16_NONE);
                set_flag(PIPE_V, PIPE_M, (event_t)((u + (y + x * 2) * 2) % 2));
                set_vector_mask(0xffffffffffffffffULL, 0xffffffffffffffffULL);
                for (int64_t j = 0; j < 3; j++) {
                    pipe_barrier(PIPE_V);
                    vadd(
                            (__ubuf__ half *)(uintptr_t)((u + (y + x * 2) * 2) % 2 * 1536 + 192 + j * 16 * 32),
                            (__ubuf__ half *)(uintptr_t)((u + (y + x * 2) * 2) % 2 * 1536 + 192 + j * 16 * 32),
                            (__ubuf__ half *)(uintptr_t)((y * 3 + j) * 32), 2, 1, 1, 0, 8, 8, 0);
                    pipe_barrier(PIPE_V);
                    vrelu(
                            (__ubuf__ half *)(uintptr_t)((u + (y + x * 2) * 2) % 2 * 1536 + 192 + j * 16 * 32),
                            (__ubuf__ half *)(uintptr_t)((u + (y + x * 2) * 2) % 2 * 1536 + 192 + j * 16 * 32),
                            2, 1, 1, 8, 8);
                }
                set_flag(PIPE_V, PIPE_MTE3, (event_t)((u + (y + x * 2) * 2) % 2));
                wait_flag(PIPE_V, PIPE_MTE3, (event_t)((u + (y + x * 2) * 2) % 2));
                copy_ubuf_to_gm(
                        (__gm__ half *)((__gm__ uint8_t *)c + (y * 3 * 64 + x * 32 + u * 16) * 32),
                        (__ubuf__ half *)(uintptr_t)((u + (y + x * 2) * 2) % 2 * 1536 + 192), 0, 3,
                        16, 0, 48);
                set_flag(PIPE_MTE3, PIPE_V, (event_t)((u + (y + x * 2) * 2) % 2));
            }
            set_flag(PIPE_MTE1, PIPE_MTE2, (event_t)((y + x * 2) % 2));
        }
    }
    wait_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID0);
    wait_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID1);
    wait_flag(PIPE_M, PIPE_MTE1, EVENT_ID0);
    wait_flag(PIPE_M, PIPE_MTE1, EVENT_ID1);
    wait_flag(PIPE_V, PIPE_M, EVENT_ID0);
    wait_flag(PIPE_V, PIPE_M, EVENT_ID1);
    wait_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
    wait_flag(PIPE_MTE3, PIPE_V, EVENT_ID1);
}
