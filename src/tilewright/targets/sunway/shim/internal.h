/* What the files of the shim share among themselves. */
#ifndef INTERNAL_H
#define INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "shim.h"

enum {
    STACK_BYTES = 1 << 18,
    MOST_PENDING = 4096, /* DMA commands of a CPE under way: what the machine holds is not known */
    DEEPEST = 64, /* vectors that a buffer of a bus holds at most (SHIM_FIFO) */
    FIFO = 4096 /* and in a run without SHIM_FIFO (replay.c) */
};

struct place {
    const char *file;
    int line;
};

struct transfer {
    int get, mode, mask;
    const char *source;
    char *target;
    long bytes, stride, block;
    volatile int *reply;
    uint64_t sum;
    struct place from;
};

enum state { READY, SYNCHRONISING, SENDING, RECEIVING, DONE };

struct fifo {
    char vector[FIFO][32];
    signed char sender[FIFO];
    int first, count;
};

struct cpe {
    ucontext_t context;
    char *stack;
    enum state state;
    struct place at; /* of the call in which it blocks */
    struct transfer pending[MOST_PENDING];
    int count;
    int scope, mask; /* of athread_syn; scope 0 or 1 of a bus */
    struct fifo received[2];
};

extern struct cpe *cpes; /* of the core group that runs */
extern int current;     /* the CPE that runs; -1 while the MPE does */
extern int spawns;      /* kernels so far */
extern uint32_t epoch;  /* from a spawn or athread_syn of all CPEs to the next */
extern long progress;   /* counts what CPEs get done */
extern int depth;       /* vectors that a CPE's end of a bus holds */
extern int run_ahead;   /* whether it holds more in the run, and lists are played with `depth` */
extern FILE *trace;

/* Of the thread that asks: the core group to which it is bound, -1 for a program of one; how many
   times all core groups have met. */
extern __thread int group;
extern __thread uint32_t meetings;

/* shim.c */
__attribute__((noreturn, format(printf, 2, 3))) void fail(struct place at, const char *format, ...);
void block(enum state state, struct place at); /* lets others run, until the CPE's turn again */
__attribute__((noreturn)) void fail_waiting(void);
int same_scope(int a, int b, int scope);

/* memory.c */
struct memory {
    char *data;
    size_t bytes;
    uint32_t *writers, *readers; /* of each word: epoch << 8 | CPE + 1, or SEVERAL */
    uint32_t *writing, *reading; /* meetings << 8 | core group + 1, or SEVERAL */
};
void open_ldm(void);
void map_ldm(int cpe);
void spoil_ldm(void);
void enter_kernel(char *frame);
const struct memory *memory_of(const char *start, long bytes);
int number_of(const struct memory *memory);
int in_main_memory(const char *start, long bytes);
int in_ldm(const char *start, long bytes);
long ldm_offset(const char *place);
void mark_written(struct place by, const char *start, long bytes);
void mark_read(struct place by, const char *start, long bytes);

/* count.c */
void open_count(void);
void count_transfer(const struct transfer *dma, int of_program);
void count_wait(const volatile int *reply);
void count_synchronisation(int scope);
void count_vector(int sent, int column, int target);
void end_count(void);
void close_count(void);
void *grown(void *data, long *room, long count, size_t size);

/* buses.c, replay.c: what CPEs leave in their lists */
enum { SEND, RECEIVE, MEET, BROADCAST };
int reached(int from, int to, int column, int target); /* by what a CPE sends */
void note_step(int kind, int scope, int target, struct place from);
void replay(int last);

/* dma.c */
void poison(char *data, long bytes);

#endif
