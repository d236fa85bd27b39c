/* simd.h for the host: vectors of four, and registers that CPEs exchange.

   A vector is loaded and stored at a multiple of its bytes in memory: 16 of floats, 32 of doubles
   and integers. Those that may lie anywhere have instructions of their own (simd_loadu). */
#ifndef SIMD_H
#define SIMD_H

#include <string.h>

#include "shim.h"

typedef float floatv4 __attribute__((vector_size(16)));
typedef double doublev4 __attribute__((vector_size(32)));

static inline void *shim_placed(const void *p, size_t bytes, const char *file, int line)
{
    if ((size_t)p % bytes)
        shim_misplaced(p, bytes, file, line);
    return (void *)p;
}

#define SHIM_PLACED(p) ((__typeof__(p))shim_placed(p, sizeof *(p), SHIM_HERE))
#define simd_load(v, p) ((void)((v) = *SHIM_PLACED(p)))
#define simd_store(v, p) ((void)(*SHIM_PLACED(p) = (v)))
#define simd_loadu(v, p) ((void)memcpy(&(v), p, sizeof(v)))
#define simd_storeu(v, p) ((void)memcpy(p, &(v), sizeof(v)))
#define simd_loade(v, p) ((void)((v) = (__typeof__(v)){0} + *SHIM_PLACED(p)))

#define simd_vadds(a, b) ((a) + (b))
#define simd_vsubs(a, b) ((a) - (b))
#define simd_vmuls(a, b) ((a) * (b))
#define simd_vmas(a, b, c) ((floatv4)((a) * (b) + (c)))
#define simd_vmss(a, b, c) ((floatv4)((a) * (b) - (c)))
#define simd_vaddd(a, b) ((a) + (b))
#define simd_vsubd(a, b) ((a) - (b))
#define simd_vmuld(a, b) ((a) * (b))
#define simd_vmad(a, b, c) ((doublev4)((a) * (b) + (c)))
#define simd_vmsd(a, b, c) ((doublev4)((a) * (b) - (c)))

/* Two lanes of the second vector, then two of the first: two bits of the mask choose each. */
#define simd_vshff(high, low, mask)                                                               \
    ((__typeof__(high)){(low)[(mask) & 3], (low)[(mask) >> 2 & 3], (high)[(mask) >> 4 & 3],       \
                        (high)[(mask) >> 6 & 3]})

/* Registers have 32 bytes; floatv4 fills them with what they convert to. */
#define SHIM_SEND(column, v, target)                                                              \
    do {                                                                                          \
        char shim_register[32] = {0};                                                             \
        memcpy(shim_register, &(v), sizeof(v));                                                   \
        shim_send(column, shim_register, target, SHIM_HERE);                                      \
    } while (0)
#define SHIM_RECEIVE(column, v)                                                                   \
    __extension__({                                                                               \
        char shim_register[32];                                                                   \
        shim_receive(column, shim_register, SHIM_HERE);                                           \
        memcpy(&(v), shim_register, sizeof(v));                                                   \
        v;                                                                                        \
    })
#define simd_putr(v, target) SHIM_SEND(0, v, target)
#define simd_putc(v, target) SHIM_SEND(1, v, target)
#define simd_getr(v) SHIM_RECEIVE(0, v)
#define simd_getc(v) SHIM_RECEIVE(1, v)

/* Load, and send to all others of the row or column: a vector, or one element in all lanes. */
#define SHIM_LOAD_SEND(column, load, v, p)                                                        \
    do {                                                                                          \
        load(v, p);                                                                               \
        SHIM_SEND(column, v, 8);                                                                  \
    } while (0)
#define simd_loadr(v, p) SHIM_LOAD_SEND(0, simd_load, v, p)
#define simd_loadc(v, p) SHIM_LOAD_SEND(1, simd_load, v, p)
#define simd_loader(v, p) SHIM_LOAD_SEND(0, simd_loade, v, p)
#define simd_loadec(v, p) SHIM_LOAD_SEND(1, simd_loade, v, p)

#endif
