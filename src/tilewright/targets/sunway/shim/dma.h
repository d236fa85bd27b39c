/* dma.h for the host: descriptors and the wait. */
#ifndef DMA_H
#define DMA_H

#include "slave.h"

enum { DMA_PUT, DMA_GET, DMA_PUT_P, DMA_GET_P, DMA_BARRIER = 5 };

typedef struct {
    int operation, mode, mask;
    long size, block, step;
    volatile void *reply;
} dma_desc;

#define dma_set_op(d, value) ((d)->operation = (value))
#define dma_set_mode(d, value) ((d)->mode = (value))
#define dma_set_reply(d, value) ((d)->reply = (value))
#define dma_set_size(d, value) ((d)->size = (value))
#define dma_set_bsize(d, value) ((d)->block = (value))
#define dma_set_stepsize(d, value) ((d)->step = (value))
#define dma_set_mask(d, value) ((d)->mask = (value))

/* Main memory first, whichever way the data go. */
#define dma(d, memory, ldm)                                                                       \
    ((d).operation == DMA_GET                                                                     \
         ? shim_get((d).mode, (const void *)(memory), (void *)(ldm), (d).size, (d).reply,         \
                    (d).mask, (d).step, (d).block, SHIM_HERE)                                     \
         : shim_put((d).mode, (const void *)(ldm), (void *)(memory), (d).size, (d).reply,         \
                    (d).step, (d).block, SHIM_HERE))
#define dma_wait(reply, count) shim_wait(reply, count, SHIM_HERE)

#endif
