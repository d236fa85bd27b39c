/* The requests of dlplib.c, and the process that answers them. */
#ifndef DLPLIB_WIRE_H
#define DLPLIB_WIRE_H

#include "dlplib.h"

/* Start a process for a new handle. */
dlpStatus dlpWireOpen(int *id);

/* Stop a handle's process; the handle is refused from now on. */
void dlpWireClose(int id);

/* A line of words made as printf does, then bytes; the answer's numbers (at most `count`; others
 * stay what they are) and bytes (exactly `expected`). */
dlpStatus dlpWireAsk(int id, const void *data, size_t size, void *reply, size_t expected,
                     int64_t *numbers, int count, const char *format, ...)
    __attribute__((format(printf, 8, 9)));

/* What the last answer on a handle said. */
const char *dlpWireMessage(int id);

#endif
