/* See queues.h. */
#include "queues.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { COMMAND, WAIT, SET, AWAIT };

struct entry {
    enum kind kind;
    void (*run)(const void *); /* of a command */
    uint64_t age;              /* number of the entry among all */
    int other;       /* of a wait, the engine waited for */
    uint32_t ticket; /* of a wait */
    unsigned *flag;  /* of a set and an await */
    union {
        char bytes[QUEUES_RECORD_BYTES];
        int64_t aligned;
    } record;
};

struct engine {
    struct entry *ring; /* QUEUES_DEPTH entries */
    size_t first, count;
    uint32_t issued, completed;
};

static struct engine all[QUEUES_ENGINES];
static int engines = QUEUES_ENGINES;
static unsigned order;
static uint64_t age, state = 1;
static unsigned flags[QUEUES_ENGINES][QUEUES_ENGINES][QUEUES_FLAGS], depth = 1;

static void fail(const char *why)
{
    fprintf(stderr, "queues: %s\n", why);
    abort();
}

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

void queues_order(int count, unsigned chosen)
{
    if (count < 1 || count > QUEUES_ENGINES)
        fail("too many engines");
    engines = count;
    order = chosen;
    state = 0x9E3779B97F4A7C15ull * (chosen + 1);
}

/* Whether the first entry of an engine's queue may run now. */
static int ready(const struct engine *engine)
{
    const struct entry *entry;
    if (!engine->count)
        return 0;
    entry = &engine->ring[engine->first];
    if (entry->kind == WAIT)
        return all[entry->other].completed >= entry->ticket;
    return entry->kind != AWAIT || *entry->flag > 0;
}

/* The engine whose first entry runs next; -1 when none may. */
static int choose(void)
{
    int found[QUEUES_ENGINES], count = 0, best = 0;
    for (int number = 0; number < engines; number++)
        if (ready(&all[number]))
            found[count++] = number;
    if (!count)
        return -1;
    if (order > 2u * engines)
        return found[next_random() % count];
    for (int number = 0; number < count; number++) {
        int mine = found[number];
        if (order && order <= (unsigned)engines && mine == (int)order - 1)
            return mine;
        const struct engine *one = &all[mine], *other = &all[found[best]];
        int late = (int)order - engines - 1; /* the engine that comes last, if any */
        if (found[best] == late
            || (mine != late && one->ring[one->first].age < other->ring[other->first].age))
            best = number;
    }
    return found[best];
}

static void step(void)
{
    int number = choose();
    if (number < 0)
        fail("every engine waits for what no engine has been given");
    struct engine *engine = &all[number];
    struct entry *entry = &engine->ring[engine->first];
    if (entry->kind == COMMAND) {
        entry->run(entry->record.bytes);
        engine->completed++;
    } else if (entry->kind == SET) {
        if (++*entry->flag > depth)
            fail("a flag is set again before it was awaited");
    } else if (entry->kind == AWAIT) {
        --*entry->flag;
    }
    engine->first = (engine->first + 1) % QUEUES_DEPTH;
    engine->count--;
}

static struct entry *append(int number)
{
    if (number < 0 || number >= engines)
        fail("there is no such engine");
    struct engine *engine = &all[number];
    if (!engine->ring && !(engine->ring = calloc(QUEUES_DEPTH, sizeof *engine->ring)))
        fail("out of memory");
    while (engine->count == QUEUES_DEPTH)
        step();
    struct entry *entry = &engine->ring[(engine->first + engine->count++) % QUEUES_DEPTH];
    entry->age = age++;
    return entry;
}

uint32_t queues_issue(int number, void (*run)(const void *), const void *record, size_t bytes)
{
    if (bytes > QUEUES_RECORD_BYTES)
        fail("a record is too large");
    struct entry *entry = append(number);
    entry->kind = COMMAND;
    entry->run = run;
    memcpy(entry->record.bytes, record, bytes);
    return ++all[number].issued;
}

void queues_wait(int number, int other, uint32_t ticket)
{
    if (other < 0 || other >= engines || ticket > all[other].issued)
        fail("a wait for a command that was not issued");
    struct entry *entry = append(number);
    entry->kind = WAIT;
    entry->other = other;
    entry->ticket = ticket;
}

static unsigned *flag_of(int engine, int other, unsigned flag)
{
    if (engine < 0 || engine >= engines || other < 0 || other >= engines || flag >= QUEUES_FLAGS)
        fail("there is no such flag");
    return &flags[engine][other][flag];
}

void queues_flag_depth(unsigned most)
{
    depth = most;
}

void queues_set_flag(int engine, int other, unsigned flag)
{
    unsigned *place = flag_of(engine, other, flag);
    struct entry *entry = append(engine);
    entry->kind = SET;
    entry->flag = place;
}

void queues_await_flag(int engine, int other, unsigned flag)
{
    unsigned *place = flag_of(engine, other, flag);
    struct entry *entry = append(other);
    entry->kind = AWAIT;
    entry->flag = place;
}

void queues_barrier(void)
{
    for (int number = 0; number < engines; number++)
        while (all[number].count)
            step();
}

void queues_finish(void)
{
    queues_barrier();
    for (size_t number = 0; number < sizeof flags / sizeof flags[0][0][0]; number++)
        if ((&flags[0][0][0])[number])
            fail("a flag is set at the end");
    for (int number = 0; number < engines; number++)
        all[number].issued = all[number].completed = 0;
}
