/* POSIX threads that share the work of a run.
 *
 * A piece of work is called once by every thread of a team, with its number and how many there are;
 * it may call team_meet, at which each waits for all others. NULL is a team of the caller alone.
 *
 * Who waits looks for a short time, since to sleep and to be woken takes longer than most waits, and
 * then sleeps: another program's work, or another thread of the team, may need the core.
 */
#ifndef TILEWRIGHT_TEAM_H
#define TILEWRIGHT_TEAM_H

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define TEAM_MOST 1024

/* Nanoseconds for which a thread looks before it sleeps. A team begins with the most; a look that
 * was in vain halves them for all of its threads, any other doubles them. */
#define TEAM_LONGEST 200000
#define TEAM_SHORTEST 2000

/* Looks between two readings of the clock. */
#define TEAM_LOOKS 64

#if defined(__x86_64__) || defined(__i386__)
#define TEAM_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TEAM_PAUSE() __asm__ volatile("yield")
#else
#define TEAM_PAUSE() ((void)0)
#endif

struct team;
typedef void team_work(void *job, struct team *team, long part, long parts);

struct team {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    long sleepers;
    long patience; /* nanoseconds */
    team_work *work;
    void *job;
    long parts;
    long arrived;
    long meetings; /* so far */
    long runs;     /* started so far; -1 to end */
    struct member {
        pthread_t thread;
        struct team *team;
        long part;
    } members[];
};

static long team_read(long *value) { return __atomic_load_n(value, __ATOMIC_SEQ_CST); }

static long team_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long)(t.tv_sec % 1000) * 1000000000L + t.tv_nsec;
}

/* Whether a number changes while a thread looks. */
static int team_look(struct team *team, long *value, long old)
{
    const long patience = __atomic_load_n(&team->patience, __ATOMIC_RELAXED);
    long start = 0;
    for (long looks = 0; team_read(value) == old; looks++) {
        TEAM_PAUSE();
        if (looks % TEAM_LOOKS)
            continue;
        if (!looks) {
            start = team_time();
        } else {
            const long passed = team_time() - start;
            if (passed < 0 || passed > patience) {
                const long less = patience > 2 * TEAM_SHORTEST ? patience / 2 : TEAM_SHORTEST;
                __atomic_store_n(&team->patience, less, __ATOMIC_RELAXED);
                return 0;
            }
        }
    }
    if (patience < TEAM_LONGEST)
        __atomic_store_n(&team->patience, 2 * patience, __ATOMIC_RELAXED);
    return 1;
}

/* Wait until a number is not ``old`` any more. */
static void team_wait(struct team *team, long *value, long old)
{
    if (team_look(team, value, old))
        return;
    pthread_mutex_lock(&team->lock);
    __atomic_add_fetch(&team->sleepers, 1, __ATOMIC_SEQ_CST);
    while (team_read(value) == old)
        pthread_cond_wait(&team->changed, &team->lock);
    __atomic_sub_fetch(&team->sleepers, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&team->lock);
}

/* Change a number that others wait for. Who is about to sleep has counted itself before it looks at
 * the number for the last time, and holds the lock until it sleeps: either it sees the change, or
 * it is seen here. */
static void team_change(struct team *team, long *value, long to)
{
    __atomic_store_n(value, to, __ATOMIC_SEQ_CST);
    if (!team_read(&team->sleepers))
        return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->lock);
}

static void team_meet(struct team *team)
{
    const long number = team_read(&team->meetings);
    if (__atomic_add_fetch(&team->arrived, 1, __ATOMIC_ACQ_REL) < team->parts) {
        team_wait(team, &team->meetings, number);
        return;
    }
    __atomic_store_n(&team->arrived, 0, __ATOMIC_RELAXED);
    team_change(team, &team->meetings, number + 1);
}

static void *team_member(void *argument)
{
    struct member *me = argument;
    struct team *team = me->team;
    for (long done = 0;; done++) {
        team_wait(team, &team->runs, done);
        if (team_read(&team->runs) < 0)
            return NULL;
        team->work(team->job, team, me->part, team->parts);
        team_meet(team);
    }
}

static void team_stop(struct team *team)
{
    if (!team)
        return;
    team_change(team, &team->runs, -1);
    for (long part = 1; part < team->parts; part++)
        pthread_join(team->members[part].thread, NULL);
    pthread_cond_destroy(&team->changed);
    pthread_mutex_destroy(&team->lock);
    free(team);
}

static struct team *team_start(int threads)
{
    const long parts = threads < 1 ? 1 : threads > TEAM_MOST ? TEAM_MOST : threads;
    struct team *team = calloc(1, sizeof *team + (size_t)parts * sizeof(struct member));
    if (!team)
        return NULL;
    if (pthread_mutex_init(&team->lock, NULL)) {
        free(team);
        return NULL;
    }
    if (pthread_cond_init(&team->changed, NULL)) {
        pthread_mutex_destroy(&team->lock);
        free(team);
        return NULL;
    }
    team->patience = TEAM_LONGEST;
    team->parts = 1;
    for (long part = 1; part < parts; part++) {
        struct member *member = &team->members[part];
        member->team = team;
        member->part = part;
        if (pthread_create(&member->thread, NULL, team_member, member)) {
            team_stop(team);
            return NULL;
        }
        team->parts = part + 1;
    }
    return team;
}

static void team_run(struct team *team, team_work *work, void *job)
{
    if (!team || team->parts == 1) {
        work(job, NULL, 0, 1);
        return;
    }
    team->work = work;
    team->job = job;
    team_change(team, &team->runs, team->runs + 1);
    work(job, team, 0, team->parts);
    team_meet(team);
}

#endif
