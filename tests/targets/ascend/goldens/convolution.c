/* node */
#ifndef __CCE_AICORE__ /* of no CCE compiler, but on the host */
#include "cce.h"
#endif

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#ifdef __cplusplus
extern "C"
#endif
__global__ __aicore__ void kernel(__gm__ half *a, __gm__ half *b, __gm__ half *bias, __gm__ half *c);

__global__ __aicore__ void kernel(__gm__ half *a, __gm__ half *b, __gm__ half *bias, __gm__ half *c) {
    /* b_cbuf: 18432 bytes of cbuf at 0 */
    /* a_cbuf: 2688 bytes of cbuf at 18432, 2 slots */
    /* c_ub: 1536 bytes of ub at 0, 2 slots */
    /* c_cc: 3072 bytes of cc at 0, 2 slots */
    /* bias_ub: 32 bytes of ub at 3072, 2 slots */
    /* a_ca: 3072 bytes of ca at 0, 2 slots */
    /* b_cb: 1024 bytes of cb at 0, 2 slots */
    set_flag(PIPE_V, PIPE_MTE2, EVENT_ID0);
    set_flag(PIPE_V, PIPE_MTE2, EVENT_ID1);
    set_flag(PIPE_M, PIPE_MTE1, EVENT_ID0);
    set_flag(PIPE_M, PIPE_MTE1, EVENT_ID1);
    set_flag(PIPE_V, PIPE_M, EVENT_ID0);
    set_flag(PIPE_V, PIPE_M, EVENT_ID1);
    set_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
    set_flag(PIPE_MTE3, PIPE_V, EVENT_ID1);
    copy_gm_to_cbuf((__cbuf__ half *)(uintptr_t)0x0, b, 0, 18, 32, 0, 0, PAD_NONE);
    for (int64_t oh = 0; oh < 2; oh++) {
        copy_gm_to_cbuf((__cbuf__ half *)(uintptr_t)(oh % 2 * 2688 + 18432),
                (__gm__ half *)((__gm__ uint8_t *)a + MAX(oh * 6 - 1, 0) * 224), 0, 2,
                MIN(oh * 6 + MIN(3, 5 - oh * 3) * 2, 9) * 7 - MAX(oh * 6 - 1, 0) * 7,
                MAX(oh * 6 - 1, 0) * 7 - MIN(oh * 6 + MIN(3, 5 - oh * 3) * 2, 9) * 7 + 63, 0,
                PAD_NONE);
        set_flag(PIPE_MTE2, PIPE_MTE1, (event_t)(oh % 2));
        wait_flag(PIPE_MTE2, PIPE_MTE1, (event_t)(oh % 2));
        for (int64_t co = 0; co < 2; co++) {
            wait_flag(PIPE_V, PIPE_MTE2, (event_t)(co % 2));
            copy_gm_to_ubuf((__ubuf__ half *)(uintptr_t)(co % 2 * 32 + 3072),
                    (__gm__ half *)((__gm__ uint8_t *)bias + co * 32), 0, 1, 1, 0, 0);
            set_flag(PIPE_MTE2, PIPE_V, (event_t)(co % 2));
            wait_flag(PIPE_V, PIPE_M, (event_t)(co % 2));
            for (int64_t kh = 0; kh < 3; kh++) {
                for (int64_t kw = 0; kw < 3; kw++) {
                    set_fmatrix(
                            (oh * 6 + MIN(3, 5 - oh * 3) * 2 - MIN(oh * 6 + MIN(3, 5 - oh * 3) * 2, 9)) * 72057594037927936 + MAX(1 - oh * 6, 0) * 281474976710656 + (MIN(oh * 6 + MIN(3, 5 - oh * 3) * 2, 9) - MAX(oh * 6 - 1, 0)) * 65536 + 1103806595079);
                    wait_flag(PIPE_M, PIPE_MTE1, (event_t)((kw + kh + co) % 2));
                    for (int64_t i = 0; i < 2; i++) {
                        img2col_cbuf_to_ca(
                                (__ca__ half *)(uintptr_t)((kw + kh + co) % 2 * 3072 + i * 512),
                                (__cbuf__ half *)(uintptr_t)(oh % 2 * 2688 + 18432), kw, kh, -1,
                                -MAX(1 - oh * 6, 0), i, 1, 2, 3, 3, 1, 1, 2, 1,
                                (MIN(3, 5 - oh * 3) * 7 + 15) / 16, 0);
                    }
                    for (int64_t i = 0; i < 2; i++) {
                        load_cbuf_to_cb(
                                (__cb__ half *)(uintptr_t)((kw + kh + co) % 2 * 1024 + i * 512),
                                (__cbuf__ half *)(uintptr_t)(i * 9216 + kh * 3072 + kw * 1024 + co * 512),
                                0, 1, 1, 0, 0, inc);
                    }
                    set_flag(PIPE_MTE1, PIPE_M, (event_t)((kw + kh + co) % 2));
                    wait_flag(PIPE_MTE1, PIPE_M, (event_t)((kw + kh + co) % 2));
                    pipe_barrier(PIPE_M);
                    mad((__cc__ float *)(uintptr_t)(co % 2 * 3072),
                            (__ca__ half *)(uintptr_t)((kw + kh + co) % 2 * 3072),
                            (__cb__ half *)(uintptr_t)((kw + kh + co) % 2 * 1024),
                            (MIN(3, 5 - oh * 3) * 7 + 15) / 16 * 16, 32, 16, kw + kh == 0);
                    set_flag(PIPE_M, PIPE_MTE1, (event_t)((kw + kh + co) % 2));
                }
            }
            set_flag(PIPE_M, PIPE_V, (event_t)(co % 2));
            wait_flag(PIPE_M, PIPE_V, (event_t)(co % 2));
            wait_flag(PIPE_MTE3, PIPE_V, (event_t)(co % 2));
            copy_matrix_cc_to_ubuf((__ubuf__ half *)(uintptr_t)(co % 2 * 1536),
                    (__cc__ float *)(uintptr_t)(co % 2 * 3072), 0, 1,
                    (MIN(3, 5 - oh * 3) * 7 + 15) / 16, 0, 0, CRMODE_F32toF16_NONE);
            set_flag(PIPE_V, PIPE_M, (event_t)(co % 2));
            set_vector_mask(0xffffffffffffffffULL, 0xffffffffffffffffULL);
            wait_flag(PIPE_MTE2, PIPE_V, (event_t)(co % 2));
            pipe_barrier(PIPE_V);
            vadd((__ubuf__ half *)(uintptr_t)(co % 2 * 1536),
                    (__ubuf__ half *)(uintptr_t)(co % 2 * 1536),
                    (__ubuf__ half *)(uintptr_t)(co % 2 * 32 + 3072),
                    (MIN(3, 5 - oh * 3) * 7 + 15) / 16 * 2, 1, 1, 0, 8, 8, 0);
            pipe_barrier(PIPE_V);
            vrelu((__ubuf__ half *)(uintptr_t)(co % 2 * 1536),
                    (__ubuf__ half *)(uintptr_t)(co % 2 * 1536),
                    (MIN(3, 5 - oh * 3) * 7 + 15) / 16 * 2, 1, 1, 8, 8);
            set_flag(PIPE_V, PIPE_MTE2, (event_t)(co % 2));
            set_flag(PIPE_V, PIPE_MTE3, (event_t)(co % 2));
            wait_flag(PIPE_V, PIPE_MTE3, (event_t)(co % 2));
            copy_ubuf_to_gm((__gm__ half *)((__gm__ uint8_t *)c + co * 1120 + oh * 672),
                    (__ubuf__ half *)(uintptr_t)(co % 2 * 1536), 0, 1, MIN(3, 5 - oh * 3) * 7,
                    (MIN(3, 5 - oh * 3) * 7 + 15) / 16 * 16 - MIN(3, 5 - oh * 3) * 7,
                    35 - MIN(3, 5 - oh * 3) * 7);
            set_flag(PIPE_MTE3, PIPE_V, (event_t)(co % 2));
        }
    }
    wait_flag(PIPE_V, PIPE_MTE2, EVENT_ID0);
    wait_flag(PIPE_V, PIPE_MTE2, EVENT_ID1);
    wait_flag(PIPE_M, PIPE_MTE1, EVENT_ID0);
    wait_flag(PIPE_M, PIPE_MTE1, EVENT_ID1);
    wait_flag(PIPE_V, PIPE_M, EVENT_ID0);
    wait_flag(PIPE_V, PIPE_M, EVENT_ID1);
    wait_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
    wait_flag(PIPE_MTE3, PIPE_V, EVENT_ID1);
}
