/* C[64 x 96] = A[64 x 100] B[100 x 96] */
#ifndef __CCE_AICORE__ /* of no CCE compiler, but on the host */
#include "cce.h"
#endif

#define MIN(a, b) ((a) < (b) ? (a) : (b))

#ifdef __cplusplus
extern "C"
#endif
__global__ __aicore__ void matmul(__gm__ half *a, __gm__ half *b, __gm__ half *bias, __gm__ half *c);

__global__ __aicore__ void matmul(__gm__ half *a, __gm__ half *b, __gm__ half *bias, __gm__ half *c) {
    /* a_cbuf: 7168 bytes of cbuf at 0, 2 slots */
    /* b_cbuf: 10752 bytes of cbuf at 14336, 2 slots */
    /* bias_ub: 96 bytes of ub at 0 */
    /* c_ub: 1536 bytes of ub at 96, 2 slots */
    /* c_cc: 3072 bytes of cc at 0, 2 slots */
    /* a_ca: 1536 bytes of ca at 0, 2 slots */
    /* b_cb: 4608 bytes of cb at 0, 2 slots */
    set_flag(PIPE_V, PIPE_MTE2, EVENT_ID0);
    set_flag(PIPE_M, PIPE_MTE1, EVENT_ID0);
    set_flag(PIPE_M, PIPE_MTE1, EVENT_ID1);
    set_flag(PIPE_V, PIPE_M, EVENT_ID0);
    set_flag(PIPE_V, PIPE_M, EVENT_ID1);
    set_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
    set_flag(PIPE_MTE3, PIPE_V, EVENT_ID1);
    for (int64_t m = 0; m < 2; m++) {
        copy_gm_to_cbuf((__cbuf__ half *)(uintptr_t)(m % 2 * 7168),
                (__gm__ half *)((__gm__ uint8_t *)a + m * 1024), 0, 7, 32, 32, 0, PAD_NONE);
        for (int64_t co = 0; co < 2; co++) {
            copy_gm_to_cbuf((__cbuf__ half *)(uintptr_t)(co % 2 * 10752 + 14336),
                    (__gm__ half *)((__gm__ uint8_t *)b + co * 10752), 0, 3, 112, 0, 0, PAD_NONE);
            set_flag(PIPE_MTE2, PIPE_MTE1, (event_t)(co % 2));
            wait_flag(PIPE_V, PIPE_MTE2, EVENT_ID0);
            copy_gm_to_ubuf((__ubuf__ half *)(uintptr_t)0x0,
                    (__gm__ half *)((__gm__ uint8_t *)bias + co * 96), 0, 1, 3, 0, 0);
            set_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
            wait_flag(PIPE_MTE2, PIPE_MTE1, (event_t)(co % 2));
            wait_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
            for (int64_t m_1 = 0; m_1 < 2; m_1++) {
                wait_flag(PIPE_V, PIPE_M, (event_t)(m_1 % 2));
                for (int64_t ci = 0; ci < 3; ci++) {
                    wait_flag(PIPE_M, PIPE_MTE1, (event_t)((ci + m_1) % 2));
                    load_cbuf_to_ca((__ca__ half *)(uintptr_t)((ci + m_1) % 2 * 1536),
                            (__cbuf__ half *)(uintptr_t)(m % 2 * 7168 + ci * 3072 + m_1 * 512), 0,
                            MIN(48, 112 - ci * 48) / 16, 2, 0, 0, inc);
                    for (int64_t i = 0; i < MIN(48, 112 - ci * 48) / 16; i++) {
                        load_cbuf_to_cb(
                                (__cb__ half *)(uintptr_t)((ci + m_1) % 2 * 4608 + i * 1536),
                                (__cbuf__ half *)(uintptr_t)(co % 2 * 10752 + ci * 1536 + i * 512 + 14336),
                                0, 3, 7, 0, 1, inc);
                    }
                    set_flag(PIPE_MTE1, PIPE_M, (event_t)((ci + m_1) % 2));
                    wait_flag(PIPE_MTE1, PIPE_M, (event_t)((ci + m_1) % 2));
                    pipe_barrier(PIPE_M);
                    mad((__cc__ float *)(uintptr_t)(m_1 % 2 * 3072),
                            (__ca__ half *)(uintptr_t)((ci + m_1) % 2 * 1536),
                            (__cb__ half *)(uintptr_t)((ci + m_1) % 2 * 4608), 16,
                            MIN(MIN(48, 112 - ci * 48), 100 - ci * 48), 48, ci == 0);
                    set_flag(PIPE_M, PIPE_MTE1, (event_t)((ci + m_1) % 2));
                }
                set_flag(PIPE_M, PIPE_V, (event_t)(m_1 % 2));
                wait_flag(PIPE_M, PIPE_V, (event_t)(m_1 % 2));
                wait_flag(PIPE_MTE3, PIPE_V, (event_t)(m_1 % 2));
                copy_matrix_cc_to_ubuf((__ubuf__ half *)(uintptr_t)(m_1 % 2 * 1536 + 96),
                        (__cc__ float *)(uintptr_t)(m_1 % 2 * 3072), 0, 3, 1, 0, 0,
                        CRMODE_F32toF16_NONE);
                set_flag(PIPE_V, PIPE_M, (event_t)(m_1 % 2));
                set_vector_mask(0xffffffffffffffffULL, 0xffffffffffffffffULL);
                for (int64_t j = 0; j < 3; j++) {
                    pipe_barrier(PIPE_V);
                    vadd((__ubuf__ half *)(uintptr_t)(m_1 % 2 * 1536 + j * 512 + 96),
                            (__ubuf__ half *)(uintptr_t)(m_1 % 2 * 1536 + j * 512 + 96),
                            (__ubuf__ half *)(uintptr_t)(j * 32), 2, 1, 1, 0, 8, 8, 0);
                    pipe_barrier(PIPE_V);
                    vrelu((__ubuf__ half *)(uintptr_t)(m_1 % 2 * 1536 + j * 512 + 96),
                            (__ubuf__ half *)(uintptr_t)(m_1 % 2 * 1536 + j * 512 + 96), 2, 1, 1, 8,
                            8);
                }
                set_flag(PIPE_V, PIPE_MTE3, (event_t)(m_1 % 2));
                wait_flag(PIPE_V, PIPE_MTE3, (event_t)(m_1 % 2));
                copy_ubuf_to_gm(
                        (__gm__ half *)((__gm__ uint8_t *)c + co * 6144 + m * 1024 + m_1 * 512),
                        (__ubuf__ half *)(uintptr_t)(m_1 % 2 * 1536 + 96), 0, 3, 16, 0, 48);
                set_flag(PIPE_MTE3, PIPE_V, (event_t)(m_1 % 2));
            }
            set_flag(PIPE_V, PIPE_MTE2, EVENT_ID0);
        }
    }
    wait_flag(PIPE_V, PIPE_MTE2, EVENT_ID0);
    wait_flag(PIPE_M, PIPE_MTE1, EVENT_ID0);
    wait_flag(PIPE_M, PIPE_MTE1, EVENT_ID1);
    wait_flag(PIPE_V, PIPE_M, EVENT_ID0);
    wait_flag(PIPE_V, PIPE_M, EVENT_ID1);
    wait_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
    wait_flag(PIPE_MTE3, PIPE_V, EVENT_ID1);
}
