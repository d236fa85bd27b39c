/* DMA: data move when the program waits, as late as the machine may. Until then the target in LDM
   holds a pattern (floats that are not numbers), and what a command reads is remembered by a
   checksum.

   SHIM_TRACE=FILE writes one line for each command: kernel, CPE, direction, number of the
   allocation, offset there, bytes, stride, block, file, line, offset in LDM. */
#include "internal.h"

enum { BCAST = 1 };
/* What memories hold before anybody writes them: not-a-number, or SHIM_POISON in hexadecimal. */
static uint32_t poison_word(void)
{
    static uint32_t word;
    if (!word) {
        const char *text = getenv("SHIM_POISON");
        word = text && *text ? (uint32_t)strtoul(text, NULL, 16) : 0x7fbadbadu;
    }
    return word;
}

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
    uint32_t word = poison_word();
    for (long at = 0; at < bytes; at += 4)
        memcpy(data + at, &word, 4);
}

static int poisoned(const char *data, long bytes)
{
    uint32_t word = poison_word();
    for (long at = 0; at < bytes; at += 4)
        if (memcmp(data + at, &word, 4))
            return 0;
    return 1;
}

static void check_memory(const struct transfer *dma, const char *start)
{
    long step = dma->block + dma->stride, count = dma->bytes / dma->block;
    const char *low = start, *high = start + (count - 1) * step;
    if (step < 0) {
        low = high;
        high = start;
    }
    if (!in_main_memory(low, high - low + dma->block))
        fail(dma->from, "DMA of %ld bytes, blocks of %ld with gaps of %ld, leaves main memory",
             dma->bytes, dma->block, dma->stride);
}

static void check(struct transfer *dma)
{
    const char *kind = dma->get ? "get" : "put";
    char *ldm = dma->get ? dma->target : (char *)(uintptr_t)dma->source;
    const char *main_memory = dma->get ? dma->source : dma->target;
    struct cpe *own = &cpes[current];
    if (dma->bytes <= 0 || dma->bytes >= 1 << 24)
        fail(dma->from, "a %s of %ld bytes: a descriptor takes 1 to 16777215", kind, dma->bytes);
    if (dma->block == 0) {
        if (dma->stride)
            fail(dma->from, "a stride of %ld without blocks", dma->stride);
        dma->block = dma->bytes;
    }
    if (dma->block < 0 || (dma->block >= 1 << 20 && dma->block != dma->bytes))
        fail(dma->from, "blocks of %ld bytes: a descriptor takes up to 1048575", dma->block);
    if (dma->bytes % dma->block)
        fail(dma->from, "%ld bytes are no whole number of blocks of %ld", dma->bytes, dma->block);
    if (dma->stride != (long)(int32_t)dma->stride)
        fail(dma->from, "a gap of %ld bytes: a descriptor has 32 bits for it", dma->stride);
    if ((dma->block | dma->stride) & 3 || ((uintptr_t)ldm | (uintptr_t)main_memory) & 3)
        fail(dma->from, "a %s of what does not lie at multiples of 4 bytes", kind);
    if (!in_ldm(ldm, dma->bytes))
        fail(dma->from, "the LDM of a %s lies outside of LDM", kind);
    if (!in_ldm((const char *)(uintptr_t)dma->reply, sizeof(int)))
        fail(dma->from, "the reply word lies outside of LDM");
    if (own->count == MOST_PENDING)
        fail(dma->from, "more than %d DMA commands at once", MOST_PENDING);
    check_memory(dma, main_memory);
    for (int number = 0; number < own->count; number++) {
        const struct transfer *other = &own->pending[number];
        const char *its = other->get ? other->target : other->source;
        if ((dma->get || other->get) && ldm < its + other->bytes && its < ldm + dma->bytes)
            fail(dma->from, "the LDM of this %s is that of the DMA of %s:%d, not waited for", kind,
                 other->from.file, other->from.line);
    }
}

static uint64_t source_sum(const struct transfer *dma)
{
    if (!dma->get)
        return checksum(dma->source, dma->bytes, 1);
    uint64_t sum = 1;
    for (long done = 0, at = 0; done < dma->bytes; done += dma->block) {
        sum = checksum(dma->source + at, dma->block, sum);
        at += dma->block + dma->stride;
    }
    return sum;
}

static void add(const struct transfer *dma)
{
    cpes[current].pending[cpes[current].count++] = *dma;
    count_transfer(dma, memory_of(dma->get ? dma->source : dma->target, 1) != NULL);
    if (trace) {
        const char *memory = dma->get ? dma->source : dma->target;
        const struct memory *block = memory_of(memory, 1);
        fprintf(trace, "%d %d %s %ld %ld %ld %ld %ld %s %d %ld\n", spawns,
                current,
                dma->get ? "get" : "put", block ? (long)number_of(block) : -1L,
                block ? (long)(memory - block->data) : 0L, dma->bytes, dma->stride, dma->block,
                dma->from.file, dma->from.line,
                ldm_offset(dma->get ? dma->target : dma->source));
    }
}

/* Whether a broadcast is for a CPE other than this dma. */
static int takes(const struct transfer *dma, int other)
{
    return other != current && dma->mask >> (other / SHIM_SIDE) & 1;
}

/* Waits until those that take a broadcast wait in athread_syn: the latest that it may arrive. */
static void await_takers(const struct transfer *dma)
{
    for (int other = 0; other < SHIM_CPES; other++) {
        while (takes(dma, other) && cpes[other].state != SYNCHRONISING) {
            if (cpes[other].state == DONE)
                fail(dma->from, "CPE %d does not wait in athread_syn for this broadcast", other);
            block(SENDING, dma->from);
        }
    }
}

/* The other CPEs' LDM at the place of an address of this dma's: the data, or the pattern. */
static void broadcast(const struct transfer *dma, int data)
{
    for (int other = 0; other < SHIM_CPES; other++) {
        if (!takes(dma, other))
            continue;
        map_ldm(other);
        if (!data)
            poison(dma->target, dma->bytes);
        for (long done = 0, at = 0; data && done < dma->bytes; done += dma->block) {
            memcpy(dma->target + done, dma->source + at, (size_t)dma->block);
            at += dma->block + dma->stride;
        }
    }
    map_ldm(current);
}

/* Broadcasts that have arrived: CPEs read them once all have met, and may do so until all have met
   again. */
enum { MOST_ARRIVED = 1024 };
static struct {
    const char *target;
    long bytes;
    uint32_t epoch;
    int spawn;
    struct place from;
} arrived[MOST_ARRIVED];
static int arrived_count;

static void check_unused(const struct transfer *dma)
{
    int left = 0;
    for (int number = 0; number < arrived_count; number++) {
        if (arrived[number].spawn != spawns || epoch - arrived[number].epoch >= 2)
            continue;
        if (dma->target < arrived[number].target + arrived[number].bytes
            && arrived[number].target < dma->target + dma->bytes)
            fail(dma->from, "CPEs may still use what the broadcast of %s:%d brought: all must meet "
                 "in athread_syn before they read it, and again before this one",
                 arrived[number].from.file, arrived[number].from.line);
        arrived[left++] = arrived[number];
    }
    arrived_count = left;
}

static void note_arrived(const struct transfer *dma)
{
    if (arrived_count == MOST_ARRIVED)
        fail(dma->from, "more than %d broadcasts between two athread_syn", MOST_ARRIVED);
    arrived[arrived_count].target = dma->target;
    arrived[arrived_count].bytes = dma->bytes;
    arrived[arrived_count].epoch = epoch;
    arrived[arrived_count].spawn = spawns;
    arrived[arrived_count++].from = dma->from;
}

int shim_get(int mode, const void *source, void *target, long bytes, volatile void *reply,
             int mask, long stride, long block, const char *file, int line)
{
    struct transfer dma = {.get = 1, .mode = mode, .mask = mask, .source = source,
                           .target = target, .bytes = bytes, .stride = stride, .block = block,
                           .reply = reply, .from = {file, line}};
    if (mode != 0 && mode != BCAST)
        fail(dma.from, "mode %d of DMA is not modelled", mode);
    check(&dma);
    if (mode == BCAST)
        check_unused(&dma);
    poison(target, bytes);
    if (mode == BCAST)
        broadcast(&dma, 0);
    dma.sum = source_sum(&dma);
    add(&dma);
    return 0;
}

int shim_put(int mode, const void *source, void *target, long bytes, volatile void *reply,
             long stride, long block, const char *file, int line)
{
    struct transfer dma = {.mode = mode, .source = source, .target = target, .bytes = bytes,
                           .stride = stride, .block = block, .reply = reply, .from = {file, line}};
    if (mode != 0)
        fail(dma.from, "mode %d of DMA is not modelled", mode);
    check(&dma);
    dma.sum = source_sum(&dma);
    add(&dma);
    return 0;
}

static void complete(struct transfer *dma)
{
    if (dma->mode == BCAST) {
        note_step(BROADCAST, 2, dma->mask, dma->from);
        await_takers(dma);
    }
    if (source_sum(dma) != dma->sum)
        fail(dma->from, "what this DMA reads was written before it was waited for");
    if (dma->get && !poisoned(dma->target, dma->bytes))
        fail(dma->from, "the LDM of this get was written before it was waited for");
    long at = 0;
    for (long done = 0; done < dma->bytes; done += dma->block) {
        if (dma->get) {
            mark_read(dma->from, dma->source + at, dma->block);
            memcpy(dma->target + done, dma->source + at, (size_t)dma->block);
        } else {
            mark_written(dma->from, dma->target + at, dma->block);
            memcpy(dma->target + at, dma->source + done, (size_t)dma->block);
        }
        at += dma->block + dma->stride;
    }
    if (dma->get && dma->mode == BCAST) {
        broadcast(dma, 1);
        note_arrived(dma);
    }
    ++*dma->reply;
}

void shim_wait(volatile void *word, int count, const char *file, int line)
{
    struct place here = {file, line};
    struct cpe *own = &cpes[current];
    volatile int *reply = word;
    int left = 0;
    count_wait(reply);
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
