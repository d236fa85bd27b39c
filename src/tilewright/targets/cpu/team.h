/* Threads that share the work of a run: OpenMP's where the compiler has it, else our own.
 *
 * A piece of work is called once by every thread of a team, with its number and how many there are;
 * it may call team_meet, at which each waits for all others. NULL is a team of the caller alone.
 */
#ifndef TILEWRIGHT_TEAM_H
#define TILEWRIGHT_TEAM_H

#include <sched.h>
#include <stdlib.h>

#define TEAM_MOST 1024

struct team;
typedef void team_work(void *job, struct team *team, long part, long parts);

/* Looks of a waiting thread before it gives way to others. */
#define TEAM_LOOKS 4000

/* Where threads wait for each other. */
struct meeting {
    long parts;
    long arrived;
    long number;
};

static long team_read(long *value) { return __atomic_load_n(value, __ATOMIC_ACQUIRE); }

static void meet(struct meeting *meeting)
{
    const long number = team_read(&meeting->number);
    if (__atomic_add_fetch(&meeting->arrived, 1, __ATOMIC_ACQ_REL) == meeting->parts) {
        __atomic_store_n(&meeting->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&meeting->number, number + 1, __ATOMIC_RELEASE);
        return;
    }
    for (long looks = 1; team_read(&meeting->number) == number; looks++)
        if (looks % TEAM_LOOKS == 0)
            sched_yield();
}

#ifdef _OPENMP

#include <omp.h>

struct team {
    struct meeting meeting;
    int threads;
};

static struct team *team_start(int threads)
{
    struct team *team = calloc(1, sizeof *team);
    if (team)
        team->threads = threads < 1 ? 1 : threads > TEAM_MOST ? TEAM_MOST : threads;
    return team;
}

static void team_stop(struct team *team) { free(team); }

static void team_meet(struct team *team) { meet(&team->meeting); }

static void team_run(struct team *team, team_work *work, void *job)
{
    if (!team || team->threads == 1) {
        work(job, NULL, 0, 1);
        return;
    }
#pragma omp parallel num_threads(team->threads)
    {
        /* There may be fewer than were asked for. */
#pragma omp single
        team->meeting.parts = omp_get_num_threads();
        work(job, team, omp_get_thread_num(), team->meeting.parts);
    }
}

#else

#include <pthread.h>

/* Turns of looking before a thread that has no work sleeps. */
#define TEAM_TURNS 50

struct team {
    pthread_mutex_t lock;
    pthread_cond_t work_came;
    team_work *work;
    void *job;
    struct meeting meeting;
    long started; /* runs so far; -1 to end */
    struct member {
        pthread_t thread;
        struct team *team;
        long part;
    } members[];
};

static void team_meet(struct team *team) { meet(&team->meeting); }

static void *team_member(void *argument)
{
    struct member *me = argument;
    struct team *team = me->team;
    for (long done = 0;; done++) {
        for (long looks = 1; team_read(&team->started) == done; looks++) {
            if (looks % TEAM_LOOKS == 0)
                sched_yield();
            if (looks == TEAM_LOOKS * TEAM_TURNS)
                break;
        }
        pthread_mutex_lock(&team->lock);
        while (team->started == done)
            pthread_cond_wait(&team->work_came, &team->lock);
        pthread_mutex_unlock(&team->lock);
        if (team->started < 0)
            return NULL;
        team->work(team->job, team, me->part, team->meeting.parts);
        team_meet(team);
    }
}

static void team_call(struct team *team, long started)
{
    pthread_mutex_lock(&team->lock);
    __atomic_store_n(&team->started, started, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&team->work_came);
    pthread_mutex_unlock(&team->lock);
}

static void team_stop(struct team *team)
{
    if (!team)
        return;
    team_call(team, -1);
    for (long part = 1; part < team->meeting.parts; part++)
        pthread_join(team->members[part].thread, NULL);
    pthread_cond_destroy(&team->work_came);
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
    if (pthread_cond_init(&team->work_came, NULL)) {
        pthread_mutex_destroy(&team->lock);
        free(team);
        return NULL;
    }
    team->meeting.parts = 1;
    for (long part = 1; part < parts; part++) {
        struct member *member = &team->members[part];
        member->team = team;
        member->part = part;
        if (pthread_create(&member->thread, NULL, team_member, member)) {
            team_stop(team);
            return NULL;
        }
        team->meeting.parts = part + 1;
    }
    return team;
}

static void team_run(struct team *team, team_work *work, void *job)
{
    if (!team || team->meeting.parts == 1) {
        work(job, NULL, 0, 1);
        return;
    }
    team->work = work;
    team->job = job;
    team_call(team, team->started + 1);
    work(job, team, 0, team->meeting.parts);
    team_meet(team);
}

#endif

#endif
