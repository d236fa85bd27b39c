/* Counting: what a kernel takes on the machine, with SHIM_COUNT=FILE and SHIM_MACHINE=FILE.

   While CPEs run, each leaves a list of what it did: cycles that it was charged for computing
   (shim_charge), DMA commands, waits, registers sent and received, athread_syn. When the kernel has
   ended the lists are played in the order of time: one memory serves the commands of all CPEs, each
   direction at the rate that blocks of its length reach, both together at the memory's own. A line
   for each kernel says its cycles, its bytes of main memory read and written, the most that a CPE
   computed, waited for DMA, and waited for others, and the core group: each has a memory. Where CPEs
   compute a tile together, the registers that they exchange are part of its charge (shim_charge_all). */
#include "internal.h"

enum { CHARGE, GET, PUT, WAIT, SYNCHRONISE, SEND, RECEIVE };
enum { POINTS = 32, BUS_CYCLES = 2, BUS_LATENCY = 10 };

struct event {
    int kind, column, target; /* of a bus; column is the scope of athread_syn */
    long count;               /* vectors, or bytes */
    double value;             /* cycles */
    const volatile int *reply;
};

struct track {
    struct event *events;
    long count, room, next;
    double time, computed, waited, idle;
    struct { const volatile int *reply; double done; } *pending;
    long commands, pending_room;
    struct arrival { long count; double time; } *arrivals[2];
    long first[2], last[2], arrival_room[2];
    int blocked;
    int covered; /* Registers that are sent and received now are part of the last charge. */
};

struct direction {
    double rate, latency, sizes[POINTS], parts[POINTS], free;
    int points;
};

static struct track tracks[SHIM_CPES];
static struct direction directions[2];
static double memory_rate, memory_free, issue, spawn;
static long bytes[2];
static FILE *counted;

static void *grown(void *data, long *room, long count, size_t size)
{
    if (count < *room)
        return data;
    *room = *room ? 2 * *room : 64;
    data = realloc(data, (size_t)*room * size);
    if (!data)
        fail((struct place){"SHIM_COUNT", 0}, "no memory is left to count in");
    return data;
}

void open_count(void)
{
    struct place here = {"SHIM_COUNT", 0};
    const char *out = getenv("SHIM_COUNT"), *in = getenv("SHIM_MACHINE");
    char name[16];
    if (!out || !*out)
        return;
    FILE *file = in ? fopen(in, "r") : NULL;
    if (!file || !(counted = fopen(out, "w")))
        fail(here, "%s", file ? "the file cannot be written" : "SHIM_MACHINE names no file");
    while (fscanf(file, "%15s", name) == 1) {
        int put = !strcmp(name, "put");
        struct direction *own = &directions[put];
        int read = 0;
        if (put || !strcmp(name, "get")) {
            read = fscanf(file, "%lf %lf %d", &own->rate, &own->latency, &own->points) == 3
                && own->points >= 0 && own->points <= POINTS;
            for (int i = 0; read && i < own->points; i++)
                read = fscanf(file, "%lf %lf", &own->sizes[i], &own->parts[i]) == 2;
        } else
            read = fscanf(file, "%lf", !strcmp(name, "memory") ? &memory_rate
                                       : !strcmp(name, "issue") ? &issue : &spawn) == 1;
        if (!read)
            fail(here, "%s in SHIM_MACHINE is not understood", name);
    }
    fclose(file);
}

static struct event *added(int kind)
{
    struct track *own = &tracks[current];
    own->covered = 0;
    own->events = grown(own->events, &own->room, own->count, sizeof *own->events);
    struct event *event = &own->events[own->count++];
    memset(event, 0, sizeof *event);
    event->kind = kind;
    return event;
}

void shim_charge(double cycles)
{
    if (counted)
        added(CHARGE)->value = cycles;
}

/* The same for a tile in which registers are exchanged: until the next DMA or charge, they are part
   of it. */
void shim_charge_all(double cycles)
{
    shim_charge(cycles);
    tracks[current].covered = 1;
}

static double part_of_rate(const struct direction *own, double block)
{
    int above = 0;
    while (above < own->points && own->sizes[above] < block)
        above++;
    if (!own->points)
        return 1;
    if (!above || above == own->points)
        return own->parts[above ? above - 1 : 0];
    double left = own->sizes[above - 1], right = own->sizes[above];
    double low = own->parts[above - 1], high = own->parts[above];
    return low + (high - low) * (block - left) / (right - left);
}

void count_transfer(const struct transfer *dma, int of_program)
{
    if (!counted)
        return;
    struct event *event = added(dma->get ? GET : PUT);
    const struct direction *own = &directions[!dma->get];
    event->count = dma->bytes;
    event->value = (double)dma->bytes / (own->rate * part_of_rate(own, (double)dma->block));
    event->reply = dma->reply;
    if (of_program)
        bytes[!dma->get] += dma->bytes;
}

void count_wait(const volatile int *reply)
{
    if (counted)
        added(WAIT)->reply = reply;
}

void count_synchronisation(int scope)
{
    if (counted)
        added(SYNCHRONISE)->column = scope;
}

void count_vector(int sent, int column, int target)
{
    struct track *own = &tracks[current];
    struct event *before = own->count ? &own->events[own->count - 1] : NULL;
    int kind = sent ? SEND : RECEIVE;
    if (!counted || own->covered)
        return;
    if (!before || before->kind != kind || before->column != column || before->target != target) {
        before = added(kind);
        before->column = column;
        before->target = target;
    }
    before->count++;
}

static void transfer(struct track *own, const struct event *event)
{
    struct direction *way = &directions[event->kind == PUT];
    own->time += issue;
    way->free = (own->time > way->free ? own->time : way->free) + event->value;
    memory_free = (own->time > memory_free ? own->time : memory_free)
                + (double)event->count / memory_rate;
    double served = way->free > memory_free ? way->free : memory_free;
    own->pending = grown(own->pending, &own->pending_room, own->commands, sizeof *own->pending);
    own->pending[own->commands].reply = event->reply;
    own->pending[own->commands++].done = served + way->latency;
}

static void wait_for(struct track *own, const struct event *event)
{
    long left = 0;
    double until = own->time;
    for (long i = 0; i < own->commands; i++) {
        if (own->pending[i].reply != event->reply)
            own->pending[left++] = own->pending[i];
        else if (own->pending[i].done > until)
            until = own->pending[i].done;
    }
    own->commands = left;
    own->waited += until - own->time;
    own->time = until;
}

static void send(int from, const struct event *event)
{
    struct track *own = &tracks[from];
    int column = event->column;
    own->time += BUS_CYCLES * (double)event->count;
    for (int to = 0; to < SHIM_CPES; to++) {
        int lane = column ? to / SHIM_SIDE : to % SHIM_SIDE;
        if (to == from || !same_scope(from, to, column)
            || (event->target != SHIM_SIDE && event->target != lane))
            continue;
        struct track *other = &tracks[to];
        other->arrivals[column] = grown(other->arrivals[column], &other->arrival_room[column],
                                        other->last[column], sizeof *other->arrivals[column]);
        other->arrivals[column][other->last[column]].count = event->count;
        other->arrivals[column][other->last[column]++].time = own->time + BUS_LATENCY;
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
        double time = own->time + BUS_CYCLES * (double)taken;
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
        if (event->kind == GET || event->kind == PUT)
            return;
        if (event->kind == SYNCHRONISE) {
            own->blocked = !synchronise(number, event->column);
            continue;
        }
        if (event->kind == CHARGE) {
            own->time += event->value;
            own->computed += event->value;
        } else if (event->kind == WAIT)
            wait_for(own, event);
        else if (event->kind == SEND)
            send(number, event);
        else if (!receive(own, event)) {
            own->blocked = 1;
            return;
        }
        own->next++;
    }
}

static int first_command(void)
{
    int chosen = -1;
    for (int number = 0; number < SHIM_CPES; number++) {
        const struct track *own = &tracks[number];
        if (own->next < own->count && !own->blocked
            && (chosen < 0 || own->time < tracks[chosen].time))
            chosen = number;
    }
    return chosen;
}

void end_count(void)
{
    double end = 0, computed = 0, waited = 0, idle = 0;
    if (!counted)
        return;
    directions[0].free = directions[1].free = memory_free = 0;
    for (;;) {
        long before;
        do {
            before = 0;
            for (int number = 0; number < SHIM_CPES; number++) {
                long at = tracks[number].next;
                play(number);
                before += tracks[number].next - at;
            }
        } while (before);
        int chosen = first_command();
        if (chosen < 0)
            break;
        transfer(&tracks[chosen], &tracks[chosen].events[tracks[chosen].next]);
        tracks[chosen].next++;
    }
    for (int number = 0; number < SHIM_CPES; number++) {
        struct track *own = &tracks[number];
        end = own->time > end ? own->time : end;
        computed = own->computed > computed ? own->computed : computed;
        waited = own->waited > waited ? own->waited : waited;
        idle = own->idle > idle ? own->idle : idle;
        own->count = own->next = own->commands = own->blocked = 0;
        own->time = own->computed = own->waited = own->idle = 0;
        own->first[0] = own->first[1] = own->last[0] = own->last[1] = 0;
    }
    fprintf(counted, "%.0f %ld %ld %.0f %.0f %.0f %d\n", end + spawn, bytes[0], bytes[1], computed,
            waited, idle, group < 0 ? 0 : group);
    bytes[0] = bytes[1] = 0;
}

void close_count(void)
{
    if (counted)
        fclose(counted);
    counted = NULL;
}
