/* athread.h for the host: what MPE programs include. */
#ifndef ATHREAD_H
#define ATHREAD_H

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "shim.h"

#define SLAVE_FUN(name) name

#define athread_init() shim_init()
#define athread_spawn(function, argument) shim_spawn(function, (void *)(argument), SHIM_HERE)
#define athread_join() shim_join(SHIM_HERE)
#define athread_halt() shim_halt()
#define athread_set_num_threads(count) ((void)(count))

/* A thread for each core group: the MPEs are processors 0, 4, 8 and 12. */
#define pthread_setaffinity_np(thread, bytes, processors) shim_bind(bytes, processors)
#define pthread_barrier_wait(barrier) shim_meet(barrier)

/* DMA reaches what the MPE has allocated, and its stack. */
#define malloc(bytes) shim_malloc(bytes)
#define calloc(count, bytes) shim_calloc(count, bytes)
#define free(memory) shim_free(memory)

#endif
