/* Counting: what a kernel takes on the machine, with SHIM_COUNT=FILE and SHIM_MACHINE=FILE.

   While CPEs run, each leaves a list of what it did: cycles that it was charged for computing
   (shim_charge), DMA commands, waits, registers sent and received, athread_syn. When the kernel has
   ended the lists are played in the order of time (play.c). A line for each kernel says its cycles,
   its bytes of main memory read and written, the most that a CPE computed, waited for DMA, and waited
   for others, and the core group: each has a memory. Where CPEs compute a tile together, the registers
   that they exchange are part of its charge (shim_charge_all). */
#include "count.h"

struct track tracks[SHIM_CPES];
struct direction directions[2];
double memory_rate, issue, bus_cycles, bus_latency;
static double spawn;
static long bytes[2];
static FILE *counted;

void *grown(void *data, long *room, long count, size_t size)
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
            read = fscanf(file, "%lf %lf %d %d", &own->rate, &own->latency, &own->in_flight,
                          &own->points) == 4
                && own->in_flight > 0 && own->points >= 0 && own->points <= POINTS;
            for (int i = 0; read && i < own->points; i++)
                read = fscanf(file, "%lf %lf", &own->sizes[i], &own->parts[i]) == 2;
        } else if (!strcmp(name, "bus"))
            read = fscanf(file, "%lf %lf", &bus_cycles, &bus_latency) == 2;
        else
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

/* A layer's parameters lie on the MPE's stack, and come with the spawn, which its cycles hold. */
void count_transfer(const struct transfer *dma, int of_program)
{
    if (!counted || !of_program)
        return;
    struct event *event = added(dma->get ? GET : PUT);
    const struct direction *own = &directions[!dma->get];
    event->count = dma->bytes;
    event->value = (double)dma->bytes / (own->rate * part_of_rate(own, (double)dma->block));
    event->reply = dma->reply;
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

void end_count(void)
{
    double end = 0, computed = 0, waited = 0, idle = 0;
    if (!counted)
        return;
    play_all();
    for (int number = 0; number < SHIM_CPES; number++) {
        struct track *own = &tracks[number];
        end = own->time > end ? own->time : end;
        computed = own->computed > computed ? own->computed : computed;
        waited = own->waited > waited ? own->waited : waited;
        idle = own->idle > idle ? own->idle : idle;
        own->count = 0;
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
