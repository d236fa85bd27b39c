/* The vendor's API (made up). Three queues run side by side, each its commands in their order.
   A call appends a command and returns its ticket: how many commands the queue has been given since
   the last heron_finish. Nothing has happened when it returns. */
#ifndef HERON_H
#define HERON_H

#include <stdint.h>

typedef uint32_t heron_ticket;
enum heron_queue { HERON_IN, HERON_OUT, HERON_CORE };

/* What the queue is given after this starts once the other has ended its commands up to the ticket.
   The caller goes on at once; ticket 0 is no command. */
void heron_wait(enum heron_queue queue, enum heron_queue other, heron_ticket ticket);

/* Returns when all commands have ended; tickets then begin at 1 again. */
void heron_finish(void);

/* Copies a box between main memory (addresses of this process) and local memory (bytes from its
   start), out of local memory where `out` is 1. */
struct heron_end { uint64_t address; int64_t stride[4]; };
struct heron_copy_async { uint32_t out, element, size[4]; struct heron_end source, target; };
heron_ticket heron_copy_async(const struct heron_copy_async *copy);

/* A nest of eight loops of n[0], n[1], ... runs; 0 means 1. An operand's element lies at its address
   plus the runs times its steps. Rows and columns of x follow from loops 0 (row), 1 (column), 2 and 3
   (taps) as `stride` and `dilation` say, begin at `row` and `column`, and are padding outside of
   `rows` and `columns`, where these are not 0.
   HERON_MAC adds up x * w, HERON_MAX takes the largest x, where y does not move; the first part of
   either begins with b or nothing, a later one with y in 32 bits. The last part, and HERON_MAP, apply
   the steps and write 16 bits. HERON_SOFTMAX runs along loop 7, points in steps[0]. */
enum heron_kind { HERON_MAC, HERON_MAX, HERON_MAP, HERON_SOFTMAX };
enum heron_function { HERON_NONE, HERON_RELU, HERON_CLIP, HERON_ADD, HERON_SUB, HERON_MUL,
                      HERON_REQUANTISE };
struct heron_operand { uint64_t address; int64_t step[8], h, w; };
struct heron_hw { int64_t h, w; };
struct heron_step { uint32_t function; int32_t first, second; }; /* binary points, or bounds */
struct heron_nest {
    uint32_t kind, n[8], bias, first, last, window;
    struct heron_operand x, w, b, r, y;
    int64_t row, rows, column, columns;
    struct heron_hw stride, dilation;
    struct heron_step steps[4];
};
heron_ticket heron_nest(const struct heron_nest *nest);

#endif
