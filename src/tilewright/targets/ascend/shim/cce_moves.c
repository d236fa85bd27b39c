/* Copies, loads of fractals, and products. */
#include "cce_core.h"

#include <string.h>

void cce_run_copy(const struct cce_command *c)
{
    size_t size = (size_t)c->length * BLOCK;
    for (int64_t burst = 0; burst < c->bursts; burst++) {
        uint64_t from = c->src + (uint64_t)(burst * (c->length + c->src_gap) * BLOCK);
        uint64_t to = c->dst + (uint64_t)(burst * (c->length + c->dst_gap) * BLOCK);
        const void *source = cce_touch(c, c->from, from, size, 0);
        memmove(cce_touch(c, c->to, to, size, 1), source, size);
    }
    if (c->from == CCE_GM) {
        cce_counts.gm_reads += (uint64_t)c->bursts * size;
        cce_counts.gm_read_bursts += (uint64_t)c->bursts;
    } else if (c->to == CCE_GM) {
        cce_counts.gm_writes += (uint64_t)c->bursts * size;
        cce_counts.gm_write_bursts += (uint64_t)c->bursts;
    } else {
        cce_counts.ub_copies += (uint64_t)c->bursts * size;
    }
}

void cce_run_load(const struct cce_command *c)
{
    for (int64_t repeat = 0; repeat < c->bursts; repeat++) {
        uint64_t from = c->src + (uint64_t)(repeat * c->src_gap * FRACTAL);
        const uint16_t *source = cce_touch(c, c->from, from, FRACTAL, 0);
        uint16_t *target = cce_touch(c, c->to, c->dst + (uint64_t)repeat * FRACTAL, FRACTAL, 1);
        if (!c->mode) {
            memcpy(target, source, FRACTAL);
            continue;
        }
        for (int row = 0; row < 16; row++)
            for (int column = 0; column < 16; column++)
                target[column * 16 + row] = source[row * 16 + column];
    }
    cce_counts.loads++;
    cce_counts.cbuf_reads += (uint64_t)c->bursts * FRACTAL;
}

void cce_run_img2col(const struct cce_command *c)
{
    const int64_t *of = c->window;
    int64_t tap_w = of[0], tap_h = of[1], stride_w = of[5], stride_h = of[6];
    int64_t kernel_w = of[7], kernel_h = of[8], channel = of[4];
    int64_t width = c->other & 0xFFFF, height = c->other >> 16 & 0xFFFF;
    int64_t left = c->other >> 32 & 0xFF, right = c->other >> 40 & 0xFF;
    int64_t outputs = (width + left + right - (of[9] * (kernel_w - 1) + 1)) / stride_w + 1;
    int64_t first = (of[2] + left) / stride_w;
    if (outputs < 1 || of[2] + left < 0 || (of[2] + left) % stride_w || tap_w >= kernel_w
        || tap_h >= kernel_h) {
        cce_report(c->line, "img2col begins at no position of its window");
        return;
    }
    for (int64_t repeat = 0; repeat < of[13]; repeat++) {
        uint64_t place = c->dst + (uint64_t)(repeat * of[11] * FRACTAL);
        uint16_t *target = cce_touch(c, CCE_CA, place, FRACTAL, 1);
        for (int64_t row = 0; row < 16; row++) {
            int64_t position = first + row + (of[12] ? 16 * repeat : 0);
            int64_t h = of[3] + position / outputs * stride_h + tap_h * of[10];
            int64_t w = position % outputs * stride_w - left + tap_w * of[9];
            if (h < 0 || h >= height || w < 0 || w >= width) {
                for (int lane = 0; lane < 16; lane++)
                    target[16 * row + lane] = (uint16_t)c->length;
                continue;
            }
            uint64_t at = (uint64_t)(((channel * height + h) * width + w) * BLOCK);
            memcpy(target + 16 * row, cce_touch(c, CCE_CBUF, c->src + at, BLOCK, 0), BLOCK);
        }
        if (!of[12] && ++tap_w == kernel_w) {
            tap_w = 0;
            if (++tap_h == kernel_h) {
                tap_h = 0;
                channel++;
            }
        }
    }
    cce_counts.loads++;
    cce_counts.cbuf_reads += (uint64_t)of[13] * FRACTAL;
}

#define MOST 4096 /* rows or columns of a mad */

/* Reads no row or column beyond m, k and n; what of c's fractals lies beyond becomes NaN, of
   integers the least. Sums of integers wrap around. */
static void run_mad_s8(const struct cce_command *c)
{
    static int8_t left[16 * MOST];
    int64_t m = c->strides[0], k = c->strides[1], n = c->strides[2];
    int64_t m1 = (m + 15) / 16, k1 = (k + 31) / 32, n1 = (n + 15) / 16;
    for (int64_t i = 0; i < m1; i++) {
        int64_t rows = m - 16 * i < 16 ? m - 16 * i : 16;
        memset(left, 0, 16 * 32 * (size_t)k1);
        for (int64_t row = 0; row < rows; row++)
            for (int64_t s = 0; s < k1; s++) {
                int64_t at = m == 1 ? s * 32 : ((i * k1 + s) * 16 + row) * 32;
                const int8_t *source = cce_touch(c, CCE_CA, c->src + (uint64_t)at, BLOCK, 0);
                int64_t most = k - 32 * s < 32 ? k - 32 * s : 32;
                memcpy(left + (row * k1 + s) * 32, source, (size_t)most);
            }
        for (int64_t j = 0; j < n1; j++) {
            int64_t columns = n - 16 * j < 16 ? n - 16 * j : 16;
            uint64_t place = c->dst + (uint64_t)(j * m1 + i) * 1024;
            if (!c->mode)
                cce_touch(c, CCE_CC, place, 1024, 0);
            int32_t *sums = cce_touch(c, CCE_CC, place, 1024, 1);
            uint32_t tile[16][16];
            for (int row = 0; row < 16; row++)
                for (int column = 0; column < 16; column++)
                    tile[row][column] = c->mode ? 0 : (uint32_t)sums[row * 16 + column];
            for (int64_t s = 0; s < k1; s++)
                for (int64_t column = 0; column < columns; column++) {
                    uint64_t at = (uint64_t)(((s * n1 + j) * 16 + column) * 32);
                    const int8_t *right = cce_touch(c, CCE_CB, c->other + at, BLOCK, 0);
                    for (int64_t row = 0; row < rows; row++) {
                        const int8_t *of = left + (row * k1 + s) * 32;
                        int32_t sum = 0;
                        for (int lane = 0; lane < 32; lane++)
                            sum += of[lane] * right[lane];
                        tile[row][column] += (uint32_t)sum;
                    }
                }
            for (int64_t row = 0; row < 16; row++)
                for (int64_t column = 0; column < 16; column++)
                    sums[row * 16 + column] =
                        row < rows && column < columns ? (int32_t)tile[row][column] : INT32_MIN;
        }
    }
    cce_counts.mads++;
    cce_counts.cube_cycles += (uint64_t)(m1 * k1 * n1);
}

void cce_run_mad(const struct cce_command *c)
{
    if (c->from == CCE_S8) {
        run_mad_s8(c);
        return;
    }
    static float left[16 * MOST], right[16 * MOST];
    int64_t m = c->strides[0], k = c->strides[1], n = c->strides[2];
    int64_t m1 = (m + 15) / 16, k1 = (k + 15) / 16, n1 = (n + 15) / 16;
    for (int64_t i = 0; i < m1; i++) {
        int rows = (int)(m - 16 * i < 16 ? m - 16 * i : 16);
        memset(left, 0, sizeof(float) * 16 * 16 * (size_t)k1);
        for (int row = 0; row < rows; row++)
            for (int64_t s = 0; s < k1; s++) {
                int64_t at = m == 1 ? s * 16 : ((i * k1 + s) * 16 + row) * 16;
                const uint16_t *source = cce_touch(c, CCE_CA, c->src + 2 * (uint64_t)at, 32, 0);
                for (int64_t lane = 0; lane < 16 && 16 * s + lane < k; lane++)
                    left[(16 * s + lane) * 16 + row] = cce_float_of(source[lane]);
            }
        for (int64_t j = 0; j < n1; j++) {
            int columns = (int)(n - 16 * j < 16 ? n - 16 * j : 16);
            for (int64_t s = 0; s < k1; s++)
                for (int column = 0; column < columns; column++) {
                    uint64_t at = (uint64_t)(((s * n1 + j) * 16 + column) * 16);
                    const uint16_t *source = cce_touch(c, CCE_CB, c->other + 2 * at, 32, 0);
                    for (int lane = 0; lane < 16; lane++)
                        right[(16 * s + lane) * 16 + column] = cce_float_of(source[lane]);
                }
            uint64_t place = c->dst + (uint64_t)(j * m1 + i) * 1024;
            if (!c->mode)
                cce_touch(c, CCE_CC, place, 1024, 0);
            float *sums = cce_touch(c, CCE_CC, place, 1024, 1);
            float tile[16][16];
            for (int row = 0; row < 16; row++)
                for (int column = 0; column < 16; column++)
                    tile[row][column] = c->mode ? 0 : sums[row * 16 + column];
            for (int64_t s = 0; s < k; s++)
                for (int row = 0; row < 16; row++)
                    for (int column = 0; column < 16; column++)
                        tile[row][column] += left[s * 16 + row] * right[s * 16 + column];
            for (int row = 0; row < 16; row++)
                for (int column = 0; column < 16; column++)
                    sums[row * 16 + column] =
                        row < rows && column < columns ? tile[row][column] : __builtin_nanf("");
        }
    }
    cce_counts.mads++;
    cce_counts.cube_cycles += (uint64_t)(m1 * k1 * n1);
}

void cce_run_cc_to_ub(const struct cce_command *c)
{
    int narrows = c->mode == CRMODE_F32toF16_NONE || c->mode == CRMODE_F32toF16_RELU;
    int relu = c->mode == CRMODE_F32toF16_RELU || c->mode == CRMODE_NONE_RELU;
    if (!narrows && c->mode != CRMODE_NONE && c->mode != CRMODE_NONE_RELU) {
        cce_report(c->line, "conversion %d is not known on the host", c->mode);
        return;
    }
    size_t fractal = narrows ? 512 : 1024;
    for (int64_t burst = 0; burst < c->bursts; burst++)
        for (int64_t part = 0; part < c->length; part++) {
            uint64_t from = (uint64_t)(burst * (c->length + c->src_gap) + part) * 1024;
            uint64_t to = (uint64_t)(burst * c->length + part) * fractal
                          + (uint64_t)(burst * c->dst_gap) * BLOCK;
            const float *source = cce_touch(c, CCE_CC, c->src + from, 1024, 0);
            void *target = cce_touch(c, CCE_UB, c->dst + to, fractal, 1);
            for (int number = 0; number < 256; number++) {
                float value = relu && source[number] < 0 ? 0 : source[number];
                if (narrows)
                    ((uint16_t *)target)[number] = cce_half_of(value);
                else
                    ((float *)target)[number] = value;
            }
        }
    cce_counts.vector_commands++;
    cce_counts.vector_cycles += (uint64_t)(c->bursts * c->length) * 4;
}
