/* Tiles that the CPEs of a row or of a column need alike: each fetches an eighth, and gets the
   others' by registers. */
#ifndef MESH_H
#define MESH_H

#include "cpe.h"

enum { ROW_OF_MESH, COLUMN_OF_MESH, SIDE = 8 };

/* The number of this CPE in its row or column. */
static inline int lane_in(int axis)
{
    const int id = athread_get_id(-1);
    return axis == ROW_OF_MESH ? id % SIDE : id / SIDE;
}

/* The first of `count` indices that a lane fetches; the lane behind the last one begins at `count`. */
static inline long share_begin(long count, int lane)
{
    return count * lane / SIDE;
}

/* What this CPE fetches of a box: an eighth along one of its axes. */
static inline struct box share_of(const struct box *box, int number, int axis)
{
    struct box own = *box;
    const int lane = lane_in(axis);
    const long begin = share_begin(box->n[number], lane);
    own.at[number] += begin;
    own.n[number] = share_begin(box->n[number], lane + 1) - begin;
    return own;
}

/* Sends four floats to all others of the row or column. */
static inline void give(int axis, floatv4 v)
{
    if (axis == ROW_OF_MESH)
        simd_putr(v, 8);
    else
        simd_putc(v, 8);
}

/* Receives four floats. */
static inline floatv4 take(int axis)
{
    floatv4 v;
    if (axis == ROW_OF_MESH)
        v = simd_getr(v);
    else
        v = simd_getc(v);
    return v;
}

/* Of `count` runs of `size` floats each CPE of the row or column has an eighth: one after the other
   sends its own to all others. */
static inline void exchange(int axis, float *data, long count, long size)
{
    const int own = lane_in(axis);
    for (int lane = 0; lane < SIDE; lane++) {
        const long end = share_begin(count, lane + 1) * size;
        long i = share_begin(count, lane) * size;
        floatv4 v;
        if (lane == own) {
            for (; i + 4 <= end; i += 4) {
                simd_loadu(v, data + i);
                give(axis, v);
            }
            for (; i < end; i++) {
                simd_loade(v, data + i);
                give(axis, v);
            }
        } else {
            float one[4] __attribute__((aligned(32)));
            for (; i + 4 <= end; i += 4) {
                v = take(axis);
                simd_storeu(v, data + i);
            }
            for (; i < end; i++) {
                v = take(axis);
                simd_storeu(v, one);
                data[i] = one[0];
            }
        }
    }
}

#endif
