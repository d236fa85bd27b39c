/* DMA: data move when the program waits, as late as the machine may. Until then the target in LDM
   holds a pattern (floats that are not numbers), and what a command reads is remembered by a
   checksum.

   SHIM_TRACE=FILE writes one line for each command: kernel, CPE, direction, number of the
   allocation, offset there, bytes, stride, block, file, line. */
#include "internal.h"

enum { BCAST = 1 };
static const uint32_t POISON = 0x7fbadbadu;

static uint64_t checksum(const char *data, long bytes, uint64_t sum)
{
    for (long at = 0; at < bytes; at += 4) {
        uint32_t word;
        memcpy(&word, data + at, 4);
        sum = (sum ^ word) * 0x100000001b3ull;
    }
    return sum;
}

void poison(char *data, long bytes)
{
    for (long at = 0; at < bytes; at += 4)
        memcpy(data + at, &POISON, 4);
}

static int poisoned(const char *data, long bytes)
{
    for (long at = 0; at < bytes; at += 4)
        if (memcmp(data + at, &POISON, 4))
            return 0;
    return 1;
}

static void check_memory(const struct transfer *one, const char *start)
{
    long step = one->block + one->stride, count = one->bytes / one->block;
    const char *low = start, *high = start + (count - 1) * step;
    if (step < 0) {
        low = high;
        high = start;
    }
    if (!in_main_memory(low, high - low + one->block))
        fail(one->from, "DMA of %ld bytes, blocks of %ld with gaps of %ld, leaves main memory",
             one->bytes, one->block, one->stride);
}

static void check(struct transfer *one)
{
    const char *kind = one->get ? "get" : "put";
    char *ldm = one->get ? one->target : (char *)(uintptr_t)one->source;
    const char *main_memory = one->get ? one->source : one->target;
    struct cpe *own = &cpes[current];
    if (one->bytes <= 0 || one->bytes >= 1 << 24)
        fail(one->from, "a %s of %ld bytes: a descriptor takes 1 to 16777215", kind, one->bytes);
    if (one->block == 0) {
        if (one->stride)
            fail(one->from, "a stride of %ld without blocks", one->stride);
        one->block = one->bytes;
    }
    if (one->block < 0 || (one->block >= 1 << 20 && one->block != one->bytes))
        fail(one->from, "blocks of %ld bytes: a descriptor takes up to 1048575", one->block);
    if (one->bytes % one->block)
        fail(one->from, "%ld bytes are no whole number of blocks of %ld", one->bytes, one->block);
    if (one->stride != (long)(int32_t)one->stride)
        fail(one->from, "a gap of %ld bytes: a descriptor has 32 bits for it", one->stride);
    if ((one->block | one->stride) & 3 || ((uintptr_t)ldm | (uintptr_t)main_memory) & 3)
        fail(one->from, "a %s of what does not lie at multiples of 4 bytes", kind);
    if (!in_ldm(ldm, one->bytes))
        fail(one->from, "the LDM of a %s lies outside of LDM", kind);
    if (!in_ldm((const char *)(uintptr_t)one->reply, sizeof(int)))
        fail(one->from, "the reply word lies outside of LDM");
    if (own->count == MOST_PENDING)
        fail(one->from, "more than %d DMA commands at once", MOST_PENDING);
    check_memory(one, main_memory);
    for (int number = 0; number < own->count; number++) {
        const struct transfer *other = &own->pending[number];
        const char *its = other->get ? other->target : other->source;
        if ((one->get || other->get) && ldm < its + other->bytes && its < ldm + one->bytes)
            fail(one->from, "the LDM of this %s is that of the DMA of %s:%d, not waited for", kind,
                 other->from.file, other->from.line);
    }
}

static uint64_t source_sum(const struct transfer *one)
{
    if (!one->get)
        return checksum(one->source, one->bytes, 1);
    uint64_t sum = 1;
    for (long done = 0, at = 0; done < one->bytes; done += one->block) {
        sum = checksum(one->source + at, one->block, sum);
        at += one->block + one->stride;
    }
    return sum;
}

static void add(const struct transfer *one)
{
    cpes[current].pending[cpes[current].count++] = *one;
    if (trace) {
        const char *memory = one->get ? one->source : one->target;
        const struct memory *block = memory_of(memory, 1);
        fprintf(trace, "%d %d %s %ld %ld %ld %ld %ld %s %d\n", spawns, current,
                one->get ? "get" : "put", block ? (long)number_of(block) : -1L,
                block ? (long)(memory - block->data) : 0L, one->bytes, one->stride, one->block,
                one->from.file, one->from.line);
    }
}

/* Whether a broadcast is for a CPE other than this one. */
static int takes(const struct transfer *one, int other)
{
    return other != current && one->mask >> (other / SHIM_SIDE) & 1;
}

/* Waits until those that take a broadcast wait in athread_syn: the latest that it may arrive. */
static void await_takers(const struct transfer *one)
{
    for (int other = 0; other < SHIM_CPES; other++) {
        while (takes(one, other) && cpes[other].state != SYNCHRONISING) {
            if (cpes[other].state == DONE)
                fail(one->from, "CPE %d does not wait in athread_syn for this broadcast", other);
            block(SENDING, one->from);
        }
    }
}

/* The other CPEs' LDM at the place of an address of this one's: the data, or the pattern. */
static void broadcast(const struct transfer *one, int data)
{
    for (int other = 0; other < SHIM_CPES; other++) {
        if (!takes(one, other))
            continue;
        map_ldm(other);
        if (!data)
            poison(one->target, one->bytes);
        for (long done = 0, at = 0; data && done < one->bytes; done += one->block) {
            memcpy(one->target + done, one->source + at, (size_t)one->block);
            at += one->block + one->stride;
        }
    }
    map_ldm(current);
}

int shim_get(int mode, const void *source, void *target, long bytes, volatile void *reply,
             int mask, long stride, long block, const char *file, int line)
{
    struct transfer one = {.get = 1, .mode = mode, .mask = mask, .source = source,
                           .target = target, .bytes = bytes, .stride = stride, .block = block,
                           .reply = reply, .from = {file, line}};
    if (mode != 0 && mode != BCAST)
        fail(one.from, "mode %d of DMA is not modelled", mode);
    check(&one);
    poison(target, bytes);
    if (mode == BCAST)
        broadcast(&one, 0);
    one.sum = source_sum(&one);
    add(&one);
    return 0;
}

int shim_put(int mode, const void *source, void *target, long bytes, volatile void *reply,
             long stride, long block, const char *file, int line)
{
    struct transfer one = {.mode = mode, .source = source, .target = target, .bytes = bytes,
                           .stride = stride, .block = block, .reply = reply, .from = {file, line}};
    if (mode != 0)
        fail(one.from, "mode %d of DMA is not modelled", mode);
    check(&one);
    one.sum = source_sum(&one);
    add(&one);
    return 0;
}

static void complete(struct transfer *one)
{
    if (one->mode == BCAST)
        await_takers(one);
    if (source_sum(one) != one->sum)
        fail(one->from, "what this DMA reads was written before it was waited for");
    if (one->get && !poisoned(one->target, one->bytes))
        fail(one->from, "the LDM of this get was written before it was waited for");
    long at = 0;
    for (long done = 0; done < one->bytes; done += one->block) {
        if (one->get) {
            mark_read(one->from, one->source + at, one->block);
            memcpy(one->target + done, one->source + at, (size_t)one->block);
        } else {
            mark_written(one->from, one->target + at, one->block);
            memcpy(one->target + at, one->source + done, (size_t)one->block);
        }
        at += one->block + one->stride;
    }
    if (one->get && one->mode == BCAST)
        broadcast(one, 1);
    ++*one->reply;
}

void shim_wait(volatile void *word, int count, const char *file, int line)
{
    struct place here = {file, line};
    struct cpe *own = &cpes[current];
    volatile int *reply = word;
    int left = 0;
    /* All that is under way for the reply may be done before the program looks. */
    for (int number = 0; number < own->count; number++) {
        if (own->pending[number].reply == reply)
            complete(&own->pending[number]);
        else
            own->pending[left++] = own->pending[number];
    }
    own->count = left;
    if (*reply > count)
        fail(here, "the reply is %d and goes up: a wait for %d may never end", *reply, count);
    if (*reply < count)
        fail(here, "the reply stays at %d: a wait for %d never ends", *reply, count);
}
