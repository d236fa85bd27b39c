/* Threads of main.c, one for the MPE of each core group: where they run, and how they meet. */
#ifndef CORE_GROUPS_H
#define CORE_GROUPS_H

#include <pthread.h>
#include <sched.h>

#include "save.h"

static pthread_barrier_t all;

/* Runs this thread on the MPE of a core group: processors 0, 4, 8, 12. */
static void bind(long group)
{
    cpu_set_t processors;
    CPU_ZERO(&processors);
    CPU_SET(4 * group, &processors);
    if (pthread_setaffinity_np(pthread_self(), sizeof processors, &processors)) {
        fprintf(stderr, "core group %ld of the chip has no MPE\n", group);
        exit(1);
    }
}

/* Waits until all core groups have done a layer. */
static void done(long group, const char *layer, const char *data, size_t bytes)
{
    pthread_barrier_wait(&all);
    if (!layers)
        return;
    if (group == 0)
        save(layer, data, bytes);
    pthread_barrier_wait(&all);
}

#endif
