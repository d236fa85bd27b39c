#ifndef __CCE_AICORE__ /* of no CCE compiler, but on the host */
#include "cce.h"
#endif

#define MIN(a, b) ((a) < (b) ? (a) : (b))

#ifdef __cplusplus
extern "C"
#endif
__global__ __aicore__ void add(__gm__ half *x, __gm__ half *y, __gm__ half *out);

__global__ __aicore__ void add(__gm__ half *x, __gm__ half *y, __gm__ half *out) {
    /* x_ub: 1024 bytes of ub at 0 */
    /* y_ub: 1024 bytes of ub at 1024 */
    /* out_ub: 1024 bytes of ub at 2048 */
    set_vector_mask(0xffffffffffffffffULL, 0xffffffffffffffffULL);
    set_flag(PIPE_V, PIPE_MTE2, EVENT_ID0);
    set_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
    for (int64_t e = 0; e < 2; e++) {
        wait_flag(PIPE_V, PIPE_MTE2, EVENT_ID0);
        copy_gm_to_ubuf((__ubuf__ half *)(uintptr_t)0x0,
                (__gm__ half *)((__gm__ uint8_t *)x + e * 1024), 0, 1,
                (MIN(512, 1000 - e * 512) * 2 + 31) / 32, 0, 0);
        copy_gm_to_ubuf((__ubuf__ half *)(uintptr_t)0x400,
                (__gm__ half *)((__gm__ uint8_t *)y + e * 1024), 0, 1,
                (MIN(512, 1000 - e * 512) * 2 + 31) / 32, 0, 0);
        set_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
        set_vector_mask(0xffffffffffffffffULL, 0xffffffffffffffffULL);
        wait_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
        wait_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
        vadd((__ubuf__ half *)(uintptr_t)0x800, (__ubuf__ half *)(uintptr_t)0x0,
                (__ubuf__ half *)(uintptr_t)0x400, MIN(512, 1000 - e * 512) / 128, 1, 1, 1, 8, 8,
                8);
        for (int64_t of_104 = 0; of_104 < (MIN(512, 1000 - e * 512) % 128 == 104 ? 1 : 0); of_104++) {
            set_vector_mask(0xffffffffffULL, 0xffffffffffffffffULL);
            vadd((__ubuf__ half *)(uintptr_t)(MIN(512, 1000 - e * 512) / 128 * 256 + 2048),
                    (__ubuf__ half *)(uintptr_t)(MIN(512, 1000 - e * 512) / 128 * 256),
                    (__ubuf__ half *)(uintptr_t)(MIN(512, 1000 - e * 512) / 128 * 256 + 1024), 1, 1,
                    1, 1, 8, 8, 8);
            set_vector_mask(0xffffffffffffffffULL, 0xffffffffffffffffULL);
        }
        set_flag(PIPE_V, PIPE_MTE2, EVENT_ID0);
        set_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
        wait_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
        copy_ubuf_to_gm((__gm__ half *)((__gm__ uint8_t *)out + e * 1024),
                (__ubuf__ half *)(uintptr_t)0x800, 0, 1, (MIN(512, 1000 - e * 512) * 2 + 31) / 32,
                0, 0);
        set_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
    }
    wait_flag(PIPE_V, PIPE_MTE2, EVENT_ID0);
    wait_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
}
