/* Matrices in blocks of small integers, and numbers rounded to 16 bits in such blocks: see BLOCKS
 * where they are packed. Groups are of 16 rows, whatever vectors have. */
#ifndef TILEWRIGHT_BLOCKS_H
#define TILEWRIGHT_BLOCKS_H

#include "integers.h"
#include "shorts.h"

#define GROUP 16

/* The largest lane, by halves; NaN where one is. */
INLINE float largest_v(vec v)
{
    float t[LANES];
    store(t, v);
    for (int half = LANES / 2; half; half /= 2)
        UNROLL for (int i = 0; i < half; i++)
            t[i] = t[i] > t[i + half] || t[i] != t[i] ? t[i] : t[i + half];
    return t[0];
}

/* A block of numbers as `count` / 2 words of two, the bits of their scale, and their sum. */
INLINE void round_block(const float *x, int32_t *y, int count)
{
    vec most = {0};
    ivec sum = {0};
    for (int i = 0; i < count; i += LANES)
        most = max_v(most, abs_v(load(x + i)));
    const float largest = largest_v(most), scale = largest * (1.0f / 32767.0f);
    const float inverse = largest > 0.0f ? 32767.0f / largest : 0.0f;
    for (int i = 0; i < count; i += LANES) {
        const ivec whole = __builtin_convertvector(round_v(load(x + i) * inverse), ivec);
        store_int16((int16_t *)y + i, whole);
        sum += whole;
    }
    memcpy(y + count / 2, &scale, 4);
    y[count / 2 + 1] = (int32_t)sum_v(__builtin_convertvector(sum, vec)); /* exact */
}

/* The scale of a rounded block, from its bits. */
INLINE float scale_of(int32_t word)
{
    float scale;
    memcpy(&scale, &word, 4);
    return scale;
}

#endif
