/* Plays the lists that CPEs left (count.c) in the order of time.

   One memory serves all CPEs. In each direction those that have a command there are served at the
   same time and get equal parts of the rate that blocks of their length reach, as swATOP's Eq. 1
   says (a CPE has a 64th of the bandwidth). Short blocks take as much of memory's time as they are
   slow, so both directions together get no more than memory has: with equal rates, half each.
   A CPE's own commands of a direction are served in their order, so many in flight as the machine
   says: the next begins when one before it is done, latency and all. */
#include <math.h>

#include "count.h"

static double now;

/* Whether all commands of a reply word that were not waited for are done; and when that was. */
static int done(struct track *own, const struct event *wait, double *when)
{
    for (int way = 0; way < 2; way++) {
        struct queue *queue = &own->queues[way];
        for (long i = queue->settled; i < queue->count; i++)
            if (queue->commands[i].event->reply == wait->reply && i >= queue->served)
                return 0;
    }
    for (int way = 0; way < 2; way++) {
        struct queue *queue = &own->queues[way];
        for (long i = queue->settled; i < queue->served; i++) {
            struct command *command = &queue->commands[i];
            if (command->event->reply != wait->reply || command->settled)
                continue;
            command->settled = 1;
            *when = command->done > *when ? command->done : *when;
        }
        while (queue->settled < queue->served && queue->commands[queue->settled].settled)
            queue->settled++;
    }
    return 1;
}

static void send(int from, const struct event *event)
{
    struct track *own = &tracks[from];
    int column = event->column;
    own->time += bus_cycles * (double)event->count;
    for (int to = 0; to < SHIM_CPES; to++) {
        int lane = column ? to / SHIM_SIDE : to % SHIM_SIDE;
        if (to == from || !same_scope(from, to, column)
            || (event->target != SHIM_SIDE && event->target != lane))
            continue;
        struct track *other = &tracks[to];
        other->arrivals[column] = grown(other->arrivals[column], &other->arrival_room[column],
                                        other->last[column], sizeof *other->arrivals[column]);
        other->arrivals[column][other->last[column]].count = event->count;
        other->arrivals[column][other->last[column]++].time = own->time + bus_latency;
        other->blocked = 0;
    }
}

/* Takes what has arrived; 0 where more is needed. */
static int receive(struct track *own, struct event *event)
{
    int column = event->column;
    while (event->count && own->first[column] < own->last[column]) {
        struct arrival *arrival = &own->arrivals[column][own->first[column]];
        long taken = event->count < arrival->count ? event->count : arrival->count;
        double time = own->time + bus_cycles * (double)taken;
        if (arrival->time > time) {
            own->idle += arrival->time - time;
            time = arrival->time;
        }
        own->time = time;
        event->count -= taken;
        arrival->count -= taken;
        own->first[column] += !arrival->count;
    }
    return !event->count;
}

/* Lets all CPEs of a scope go on that have come to athread_syn; 0 where some have not. */
static int synchronise(int first, int scope)
{
    double latest = 0;
    for (int other = 0; other < SHIM_CPES; other++) {
        const struct track *its = &tracks[other];
        if (!same_scope(first, other, scope))
            continue;
        if (its->next == its->count || its->events[its->next].kind != SYNCHRONISE)
            return 0;
        latest = its->time > latest ? its->time : latest;
    }
    for (int other = 0; other < SHIM_CPES; other++)
        if (same_scope(first, other, scope)) {
            tracks[other].idle += latest - tracks[other].time;
            tracks[other].time = latest;
            tracks[other].next++;
            tracks[other].blocked = 0;
        }
    return 1;
}

/* Plays a CPE up to its next DMA command, its end, or what it has to wait for. */
static void play(int number)
{
    struct track *own = &tracks[number];
    while (own->next < own->count && !own->blocked) {
        struct event *event = &own->events[own->next];
        double when = own->time;
        if (event->kind == GET || event->kind == PUT)
            return;
        if (event->kind == SYNCHRONISE) {
            own->blocked = !synchronise(number, event->column);
            continue;
        }
        if (event->kind == CHARGE) {
            own->time += event->value;
            own->computed += event->value;
        } else if (event->kind == WAIT) {
            if (!done(own, event, &when)) {
                own->blocked = 1;
                return;
            }
            own->waited += when - own->time;
            own->time = when;
        } else if (event->kind == SEND)
            send(number, event);
        else if (!receive(own, event)) {
            own->blocked = 1;
            return;
        }
        own->next++;
    }
}

/* What happens next: a CPE issues a command, memory begins to serve one, or ends. */
struct next {
    enum { NOTHING, ISSUE, BEGIN, END } what;
    int cpe, way;
    double time;
};

static void earliest(struct next *next, int what, int cpe, int way, double time)
{
    if (next->what == NOTHING || time < next->time)
        *next = (struct next){what, cpe, way, time};
}

/* Cycles of its own clock that a direction gets in one cycle, for each CPE that it serves. */
static double pace(int way)
{
    double both = 0;
    for (int each = 0; each < 2; each++)
        both += directions[each].active ? directions[each].rate : 0;
    double part = both > memory_rate ? memory_rate / both : 1;
    return directions[way].active ? part / directions[way].active : 0;
}

static struct next following(void)
{
    struct next next = {NOTHING, 0, 0, 0};
    double paces[2] = {pace(0), pace(1)};
    for (int number = 0; number < SHIM_CPES; number++) {
        const struct track *own = &tracks[number];
        if (own->next < own->count && !own->blocked)
            earliest(&next, ISSUE, number, own->events[own->next].kind == PUT, own->time + issue);
        for (int way = 0; way < 2; way++) {
            const struct queue *queue = &own->queues[way];
            if (queue->active) {
                double left = queue->end - directions[way].clock;
                earliest(&next, END, number, way, now + (left > 0 ? left / paces[way] : 0));
            } else if (queue->served < queue->count) {
                const struct command *first = &queue->commands[queue->served];
                long before = queue->served - directions[way].in_flight;
                double from = before >= 0 ? queue->commands[before].done : 0;
                earliest(&next, BEGIN, number, way, first->issued > from ? first->issued : from);
            }
        }
    }
    return next;
}

static void happen(struct next next)
{
    struct track *own = &tracks[next.cpe];
    struct queue *queue = &own->queues[next.way];
    struct direction *way = &directions[next.way];
    double paces[2] = {pace(0), pace(1)};
    double passed = next.time > now ? next.time - now : 0;
    for (int each = 0; each < 2; each++)
        directions[each].clock += passed * paces[each];
    now += passed;
    if (next.what == ISSUE) {
        queue->commands = grown(queue->commands, &queue->room, queue->count, sizeof *queue->commands);
        queue->commands[queue->count++] = (struct command){&own->events[own->next++], now, 0, 0};
        own->time = next.time;
    } else if (next.what == BEGIN) {
        queue->active = 1;
        queue->end = way->clock + queue->commands[queue->served].event->value;
        way->active++;
    } else {
        way->active--;
        queue->active = 0;
        queue->commands[queue->served++].done = now + way->latency;
        own->blocked = 0;
    }
}

void play_all(void)
{
    now = 0;
    for (int way = 0; way < 2; way++)
        directions[way].clock = directions[way].active = 0;
    for (int number = 0; number < SHIM_CPES; number++) {
        struct track *own = &tracks[number];
        own->next = own->blocked = 0;
        own->time = own->computed = own->waited = own->idle = 0;
        for (int way = 0; way < 2; way++) {
            own->first[way] = own->last[way] = 0;
            own->queues[way].count = own->queues[way].served = own->queues[way].settled = 0;
            own->queues[way].active = 0;
        }
    }
    for (;;) {
        long moved;
        do {
            moved = 0;
            for (int number = 0; number < SHIM_CPES; number++) {
                long from = tracks[number].next;
                play(number);
                moved += tracks[number].next - from;
            }
        } while (moved);
        struct next next = following();
        if (next.what == NOTHING)
            break;
        happen(next);
    }
}
