/* What counting and playing share: the lists that CPEs leave. */
#ifndef COUNT_H
#define COUNT_H

#include "internal.h"

/* Beside SEND and RECEIVE. */
enum { CHARGE = 16, GET, PUT, WAIT, SYNCHRONISE };
enum { POINTS = 32 };

struct event {
    int kind, column, target; /* of a bus; column is the scope of athread_syn */
    long count;               /* vectors, or bytes */
    double value;             /* cycles; of a command those that memory takes for it alone */
    const volatile int *reply;
};

/* A DMA command: when it was issued, and when its reply word says that it is done. */
struct command {
    const struct event *event;
    double issued, done;
    int settled; /* A wait has seen it. */
};

/* A CPE's commands of one direction: memory serves them one behind the other. */
struct queue {
    struct command *commands;
    long count, room, served;
    long settled; /* those up to here */
    int active; /* Memory serves the first that is not served, */
    double end; /* until the direction's clock says so. */
};

struct track {
    struct event *events;
    long count, room, next;
    double time, computed, waited, idle;
    struct queue queues[2];
    struct arrival { long count; double time; } *arrivals[2];
    long first[2], last[2], arrival_room[2];
    int blocked;
    int covered; /* Registers that are sent and received now are part of the last charge. */
};

struct direction {
    double rate, latency, sizes[POINTS], parts[POINTS];
    int points, in_flight;
    double clock; /* Cycles that each CPE served so far would have had of memory alone. */
    int active;   /* CPEs that it serves */
};

extern struct track tracks[SHIM_CPES];
extern struct direction directions[2]; /* get, put */
extern double memory_rate, issue;
extern double bus_cycles, bus_latency; /* of a vector that is sent or received; till it is there */

void play_all(void);

#endif
