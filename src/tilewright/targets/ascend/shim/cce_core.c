/* The host core: memories, who touches them, and what is wrong with a program. See cce.h. */
#include "cce_core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGIONS 64
#define MESSAGES 20

struct shadow { /* of a block of a memory on the chip */
    uint32_t written, pipe;
    uint32_t read[PIPES];
};

struct gm_shadow { /* of two bytes of main memory, which MTE2 reads and MTE3 writes */
    uint32_t written;
    uint32_t read : 31, read_elsewhere : 1; /* last, and whether an earlier block did */
};

struct region {
    char name[32];
    uint64_t at, bytes;
    struct gm_shadow *shadow;
};

struct cce_counts cce_counts;
int64_t cce_block, cce_blocks = 1;
const char *const CCE_MEMORY[] = {"gm", "cbuf", "ca", "cb", "cc", "ub", "the mask of vsel"};
const char *const CCE_PIPE[] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "ALL"};

static uint64_t sizes[CCE_MEMORIES] = {0, 1 << 20, 64 << 10, 64 << 10, 256 << 10, 256 << 10, BLOCK};
static uint8_t *bytes[CCE_MEMORIES];
static struct shadow *shadows[CCE_MEMORIES];
static struct region regions[REGIONS];
static int region_count;
static char messages[MESSAGES][240];
static int message_count;
static float floats[1 << 16];

void cce_report(int line, const char *format, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (message_count < MESSAGES)
        snprintf(messages[message_count], sizeof messages[0], "line %d: %s", line, text);
    message_count++;
}

float cce_float_of(uint16_t bits)
{
    return floats[bits];
}

uint16_t cce_half_of(double value)
{
    _Float16 rounded = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return bits;
}

static void *allocate(size_t count, size_t size)
{
    void *found = calloc(count ? count : 1, size);
    if (!found) {
        fputs("cce: out of memory\n", stderr);
        abort();
    }
    return found;
}

/* A core with memories of these bytes (cbuf, ca, cb, cc, ub) and so many events per pair. */
void cce_core(const uint64_t memory_sizes[5], int event_count, int count_flags, int barrier_blocks)
{
    for (int memory = CCE_CBUF; memory <= CCE_UB; memory++) {
        sizes[memory] = memory_sizes[memory - 1];
        free(bytes[memory]);
        free(shadows[memory]);
        bytes[memory] = NULL;
        shadows[memory] = NULL;
    }
    cce_flags(event_count, count_flags);
    cce_barrier_blocks = barrier_blocks;
}

/* What memories hold before anybody writes them: NaN, unless who runs kernels sets another byte. */
unsigned char cce_poison = 0xFF;

static void poison(void)
{
    for (int memory = CCE_CBUF; memory < CCE_MEMORIES; memory++) {
        size_t blocks = sizes[memory] / BLOCK;
        if (!bytes[memory]) {
            bytes[memory] = allocate(sizes[memory], 1);
            shadows[memory] = allocate(blocks, sizeof(struct shadow));
        }
        memset(bytes[memory], cce_poison, sizes[memory]);
        memset(shadows[memory], 0, blocks * sizeof(struct shadow));
    }
}

/* Begins a run of one block: memories hold cce_poison, no flag is up. See queues_order for orders. */
void cce_begin(unsigned order)
{
    poison();
    cce_block = 0;
    cce_blocks = 1;
    for (int number = 0; number < region_count; number++)
        free(regions[number].shadow);
    region_count = 0;
    message_count = 0;
    memset(&cce_counts, 0, sizeof cce_counts);
    for (int number = 0; number < 1 << 16; number++) {
        uint16_t bits = (uint16_t)number;
        _Float16 value;
        memcpy(&value, &bits, sizeof value);
        floats[number] = value;
    }
    cce_begin_issue(order);
}

/* Goes on to a block of the run. Whatever others touched of main memory is unordered with it. */
void cce_next(int64_t block, int64_t blocks)
{
    if (block) {
        cce_end_issue();
        poison();
        cce_next_issue();
    }
    cce_block = block;
    cce_blocks = blocks;
}

/* Memory that the kernel may touch. */
void cce_region(const char *name, void *at, uint64_t size)
{
    if (region_count == REGIONS) {
        cce_report(0, "more than %d regions", REGIONS);
        return;
    }
    struct region *region = &regions[region_count++];
    snprintf(region->name, sizeof region->name, "%s", name);
    region->at = CCE_ADDRESS(at);
    region->bytes = size;
    region->shadow = allocate(size / 2 + 1, sizeof(struct gm_shadow));
}

/* Ends a run; how many things were wrong. */
int cce_end(void)
{
    cce_end_issue();
    return message_count;
}

const char *cce_message(int number)
{
    return number < message_count && number < MESSAGES ? messages[number] : "";
}

uint64_t cce_count(const char *name)
{
#define COUNT(field) \
    if (!strcmp(name, #field)) \
        return cce_counts.field
    COUNT(commands); COUNT(mads); COUNT(cube_cycles); COUNT(vector_commands);
    COUNT(vector_cycles); COUNT(scatters); COUNT(loads); COUNT(gm_reads); COUNT(gm_writes);
    COUNT(gm_read_bursts); COUNT(gm_write_bursts); COUNT(cbuf_reads); COUNT(ub_copies);
    COUNT(sets); COUNT(waits); COUNT(barriers);
#undef COUNT
    return ~(uint64_t)0;
}

static void race(const struct cce_command *command, int memory, uint64_t at, const char *what,
                 int pipe, uint32_t number, const char *done)
{
    const int elsewhere = memory == CCE_GM && cce_elsewhere(pipe, number);
    cce_report(command->line, "%s %s %s at 0x%llx, which %s%s, line %d, may not have %s",
               CCE_PIPE[command->pipe], what, CCE_MEMORY[memory], (unsigned long long)at,
               CCE_PIPE[pipe], elsewhere ? " of another block" : "", cce_line_of(pipe, number),
               done);
}

static void *touch_gm(const struct cce_command *command, uint64_t at, size_t size, int writes)
{
    static uint8_t nowhere[1 << 21];
    for (int number = 0; number < region_count; number++) {
        struct region *region = &regions[number];
        if (at < region->at || at + size > region->at + region->bytes)
            continue;
        uint64_t first = (at - region->at) / 2, last = (at - region->at + size - 1) / 2;
        for (uint64_t pair = first; pair <= last; pair++) {
            struct gm_shadow *shadow = &region->shadow[pair];
            if (shadow->written != command->number || command->pipe != PIPE_MTE3)
                if (shadow->written > command->known[PIPE_MTE3]
                    || cce_elsewhere(PIPE_MTE3, shadow->written)) {
                    race(command, CCE_GM, 2 * pair, writes ? "writes" : "reads", PIPE_MTE3,
                         shadow->written, "written");
                    break;
                }
            if (writes && (shadow->read > command->known[PIPE_MTE2] || shadow->read_elsewhere
                           || cce_elsewhere(PIPE_MTE2, shadow->read))) {
                race(command, CCE_GM, 2 * pair, "writes", PIPE_MTE2, shadow->read, "read");
                break;
            }
        }
        for (uint64_t pair = first; pair <= last; pair++) {
            struct gm_shadow *shadow = &region->shadow[pair];
            if (writes) {
                shadow->written = command->number;
            } else {
                shadow->read_elsewhere |= cce_elsewhere(PIPE_MTE2, shadow->read);
                shadow->read = command->number & 0x7fffffffu;
            }
        }
        return (void *)(uintptr_t)at;
    }
    cce_report(command->line, "%s %s %zu bytes of main memory that are no argument's",
               CCE_PIPE[command->pipe], writes ? "writes" : "reads", size);
    return nowhere;
}

static int unordered(const struct cce_command *command, const struct shadow *shadow)
{
    if (!shadow->written || command->known[shadow->pipe] >= shadow->written)
        return 0;
    if ((int)shadow->pipe != (int)command->pipe)
        return 1;
    return shadow->written != command->number && !command->spaced;
}

void *cce_touch(const struct cce_command *command, int memory, uint64_t at, size_t size, int writes)
{
    static uint8_t nowhere[1 << 21];
    if (memory == CCE_GM)
        return touch_gm(command, at, size, writes);
    if (at > sizes[memory] || size > sizes[memory] - at) {
        cce_report(command->line, "%s %s 0x%llx of %s, which has %llu bytes",
                   CCE_PIPE[command->pipe], writes ? "writes" : "reads",
                   (unsigned long long)(at + size - 1),
                   CCE_MEMORY[memory], (unsigned long long)sizes[memory]);
        return nowhere;
    }
    for (uint64_t block = at / BLOCK; block <= (at + size - 1) / BLOCK; block++) {
        struct shadow *shadow = &shadows[memory][block];
        if (unordered(command, shadow)) {
            race(command, memory, block * BLOCK, writes ? "writes" : "reads", (int)shadow->pipe,
                 shadow->written, "written");
            break;
        }
        if (!writes && command->operation == CCE_VECTOR && command->strides[3]
            && shadow->written == command->number && shadow->pipe == (uint32_t)command->pipe) {
            cce_report(command->line, "a repeat reads what an earlier one wrote, at 0x%llx of ub",
                       (unsigned long long)block * BLOCK);
            break;
        }
        if (!writes && !shadow->written) {
            cce_report(command->line, "%s reads %s at 0x%llx, which nothing wrote",
                       CCE_PIPE[command->pipe], CCE_MEMORY[memory],
                       (unsigned long long)block * BLOCK);
            break;
        }
        for (int pipe = 0; writes && pipe < PIPES; pipe++)
            if (pipe != (int)command->pipe && shadow->read[pipe] > command->known[pipe]) {
                race(command, memory, block * BLOCK, "writes", pipe, shadow->read[pipe], "read");
                block = ~(uint64_t)0 - 1;
                break;
            }
    }
    for (uint64_t block = at / BLOCK; block <= (at + size - 1) / BLOCK; block++) {
        struct shadow *shadow = &shadows[memory][block];
        if (writes) {
            shadow->written = command->number;
            shadow->pipe = command->pipe;
        } else if (shadow->read[command->pipe] < command->number) {
            shadow->read[command->pipe] = command->number;
        }
    }
    return bytes[memory] + at;
}
