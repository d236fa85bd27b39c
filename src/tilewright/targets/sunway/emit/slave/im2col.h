/* Windows of a tile of images, written side by side. */
#ifndef IM2COL_H
#define IM2COL_H

#include "cpe.h"

/* y[i] = x[start + i * step] from low to end, and 0 for the others of n */
static inline void row_window(float *y, long n, const float *x, long start, long step, long low,
                              long end)
{
    for (long i = 0; i < n; i++)
        y[i] = i >= low && i < end ? x[start + i * step] : 0.0f;
}

#endif
