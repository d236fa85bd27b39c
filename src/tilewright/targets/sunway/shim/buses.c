/* Register communication: a buffer of `depth` vectors at each CPE's end of its row and column. Who
   sends to a full one waits, and who receives from an empty one. */
#include "internal.h"

static int reaches(int from, int to, int column)
{
    return from != to && same_scope(from, to, column ? 1 : 0);
}

void shim_send(int column, const void *vector, int target, const char *file, int line)
{
    struct place here = {file, line};
    count_vector(1, column, target);
    int from = current, own = column ? from / SHIM_SIDE : from % SHIM_SIDE;
    if (target < 0 || target > SHIM_SIDE || target == own)
        fail(here, "there is no CPE %d to send to", target);
    for (;;) {
        int full = 0;
        for (int to = 0; to < SHIM_CPES; to++) {
            int lane = column ? to / SHIM_SIDE : to % SHIM_SIDE;
            if (reaches(from, to, column) && (target == SHIM_SIDE || lane == target))
                full |= cpes[to].received[column].count >= depth;
        }
        if (!full)
            break;
        block(SENDING, here);
    }
    for (int to = 0; to < SHIM_CPES; to++) {
        int lane = column ? to / SHIM_SIDE : to % SHIM_SIDE;
        if (reaches(from, to, column) && (target == SHIM_SIDE || lane == target)) {
            struct fifo *fifo = &cpes[to].received[column];
            memcpy(fifo->vector[(fifo->first + fifo->count++) % FIFO], vector, 32);
        }
    }
    progress++;
}

void shim_receive(int column, void *vector, const char *file, int line)
{
    struct place here = {file, line};
    struct cpe *own = &cpes[current];
    struct fifo *fifo = &own->received[column];
    own->scope = column;
    count_vector(0, column, 0);
    if (!fifo->count)
        block(RECEIVING, here);
    memcpy(vector, fifo->vector[fifo->first], 32);
    fifo->first = (fifo->first + 1) % FIFO;
    fifo->count--;
    progress++;
}
