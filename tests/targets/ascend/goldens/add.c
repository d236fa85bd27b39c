/* add of 1000 half */
#ifndef __CCE_AICORE__ /* of no CCE compiler, but on the host */
#include "cce.h"
#endif

#define MIN(a, b) ((a) < (b) ? (a) : (b))

#ifdef __cplusplus
extern "C"
#endif
__global__ __aicore__ void add(__gm__ half *x, __gm__ half *y, __gm__ half *out);

__global__ __aicore__ void add(__gm__ half *x, __gm__ half *y, __gm__ half *out) {
    /* x: 512 bytes of ub at 0, 2 slots */
    /* y: 512 bytes of ub at 1024, 2 slots */
    /* out: 512 bytes of ub at 2048, 2 slots */
    set_flag(PIPE_V, PIPE_MTE2, EVENT_ID0);
    set_flag(PIPE_V, PIPE_MTE2, EVENT_ID1);
    set_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
    set_flag(PIPE_MTE3, PIPE_V, EVENT_ID1);
    set_vector_mask(0xffffffffffffffffULL, 0xffffffffffffffffULL);
    for (int64_t i1 = 0; i1 < 4; i1++) {
        wait_flag(PIPE_V, PIPE_MTE2, (event_t)(i1 % 2));
        copy_gm_to_ubuf((__ubuf__ half *)(uintptr_t)(i1 % 2 * 512),
                (__gm__ half *)((__gm__ uint8_t *)x + MIN(i1 * 256, 744) * 2), 0, 1, 16, 0, 0);
        copy_gm_to_ubuf((__ubuf__ half *)(uintptr_t)(i1 % 2 * 512 + 1024),
                (__gm__ half *)((__gm__ uint8_t *)y + MIN(i1 * 256, 744) * 2), 0, 1, 16, 0, 0);
        set_flag(PIPE_MTE2, PIPE_V, (event_t)(i1 % 2));
        wait_flag(PIPE_MTE2, PIPE_V, (event_t)(i1 % 2));
        wait_flag(PIPE_MTE3, PIPE_V, (event_t)(i1 % 2));
        vadd((__ubuf__ half *)(uintptr_t)(i1 % 2 * 512 + 2048),
                (__ubuf__ half *)(uintptr_t)(i1 % 2 * 512),
                (__ubuf__ half *)(uintptr_t)(i1 % 2 * 512 + 1024), 2, 1, 1, 1, 8, 8, 8);
        set_flag(PIPE_V, PIPE_MTE2, (event_t)(i1 % 2));
        set_flag(PIPE_V, PIPE_MTE3, (event_t)(i1 % 2));
        wait_flag(PIPE_V, PIPE_MTE3, (event_t)(i1 % 2));
        pipe_barrier(PIPE_MTE3);
        copy_ubuf_to_gm((__gm__ half *)((__gm__ uint8_t *)out + MIN(i1 * 256, 744) * 2),
                (__ubuf__ half *)(uintptr_t)(i1 % 2 * 512 + 2048), 0, 1, 16, 0, 0);
        set_flag(PIPE_MTE3, PIPE_V, (event_t)(i1 % 2));
    }
    wait_flag(PIPE_V, PIPE_MTE2, EVENT_ID0);
    wait_flag(PIPE_V, PIPE_MTE2, EVENT_ID1);
    wait_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
    wait_flag(PIPE_MTE3, PIPE_V, EVENT_ID1);
}
