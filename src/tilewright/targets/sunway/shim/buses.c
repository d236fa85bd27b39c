/* Register communication: a buffer of `depth` vectors at each CPE's end of its row and column. Who
   sends to a full one waits, and who receives from an empty one. */
#include "internal.h"

int reached(int from, int to, int column, int target)
{
    int lane = column ? to / SHIM_SIDE : to % SHIM_SIDE;
    return from != to && same_scope(from, to, column) && (target == SHIM_SIDE || lane == target);
}

/* The CPE at a place of a CPE's row or column. */
static int beside(int cpe, int column, int lane)
{
    return column ? lane * SHIM_SIDE + cpe % SHIM_SIDE : cpe / SHIM_SIDE * SHIM_SIDE + lane;
}

void shim_send(int column, const void *vector, int target, const char *file, int line)
{
    struct place here = {file, line};
    count_vector(1, column, target);
    int from = current, own = column ? from / SHIM_SIDE : from % SHIM_SIDE;
    if (target < 0 || target > SHIM_SIDE || target == own)
        fail(here, "there is no CPE %d to send to", target);
    note_step(SEND, column, target, here);
    for (;;) {
        int full = 0;
        for (int lane = 0; lane < SHIM_SIDE; lane++) {
            int to = beside(from, column, lane);
            if (reached(from, to, column, target))
                full |= cpes[to].received[column].count >= (run_ahead ? FIFO : depth);
        }
        if (!full)
            break;
        block(SENDING, here);
    }
    for (int lane = 0; lane < SHIM_SIDE; lane++) {
        int to = beside(from, column, lane);
        if (reached(from, to, column, target)) {
            struct fifo *fifo = &cpes[to].received[column];
            int place = (fifo->first + fifo->count++) % FIFO;
            memcpy(fifo->vector[place], vector, 32);
            fifo->sender[place] = (signed char)from;
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
    note_step(RECEIVE, column, fifo->sender[fifo->first], here);
    memcpy(vector, fifo->vector[fifo->first], 32);
    fifo->first = (fifo->first + 1) % FIFO;
    fifo->count--;
    progress++;
}
