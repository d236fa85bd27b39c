/* A core group on the host: 64 CPEs as coroutines, each with an LDM of its own.

   CPEs run one at a time, from one blocking call to the next, in the order of their numbers or, with
   SHIM_ORDER=SEED in the environment, in a random one. LDM is the section "shim_ldm", which the linker
   puts apart from everything (--section-start): the pages of the CPE that runs are mapped there.

   DMA moves its data when the program waits, as late as the machine may. Until then the target in
   LDM holds a pattern (floats that are not numbers), and what a command reads is remembered by a
   checksum. Whatever misuses the interface ends the program with the place and the CPE.

   SHIM_TRACE=FILE writes one line for each DMA command: kernel, CPE, direction, address (number of
   the allocation, offset), bytes, stride, block, file, line. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "shim.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum {
    STACK_BYTES = 1 << 18,
    MOST_PENDING = 128,
    MOST_BLOCKS = 256,
    FIFO = 64, /* vectors that the largest buffer of a bus holds */
    BCAST = 1,
    ROW = 2
};
static const uint32_t POISON = 0x7fbadbadu;

struct place {
    const char *file;
    int line;
};

struct transfer {
    int get, mode, mask;
    const char *source;
    char *target;
    long bytes, stride, block;
    volatile int *reply;
    uint64_t sum;
    struct place from;
};

enum state { READY, SYNCHRONISING, SENDING, RECEIVING, DONE };
static const char *const states[] = {"runs", "waits in athread_syn", "waits to send",
                                     "waits to receive", "is done"};

struct fifo {
    char vector[FIFO][32];
    int first, count;
};

struct cpe {
    ucontext_t context;
    char *stack;
    enum state state;
    struct place at; /* of the call in which it blocks */
    struct transfer pending[MOST_PENDING];
    int count;
    int scope, mask; /* of athread_syn; scope 0 or 1 of a bus */
    struct fifo received[2];
};

static struct cpe cpes[SHIM_CPES];
static int current = -1;
static int turns[SHIM_CPES]; /* the order in which CPEs run */
static ucontext_t mpe;
static void (*function)(void *);
static void *argument;
static struct place spawned;
static int initialised, running, spawns;
static int depth = 4;
static int ldm_file = -1;
static FILE *trace;
static uint64_t seed;
static long progress; /* counts what CPEs get done */

extern char __start_shim_ldm[] __attribute__((weak)), __stop_shim_ldm[] __attribute__((weak));

/* What the MPE has allocated, and who wrote each of its words in which spawn. */
struct memory {
    char *data;
    size_t bytes;
    uint32_t *writers;
};
static struct memory blocks[MOST_BLOCKS];
static int block_count;
static char *mpe_frame;

static void report(int cpe, struct place at, const char *format, va_list more)
{
    fflush(stdout);
    fprintf(stderr, "shim: %s:%d: ", at.file ? at.file : "?", at.line);
    if (cpe >= 0)
        fprintf(stderr, "CPE %d (row %d, column %d): ", cpe, cpe / SHIM_SIDE, cpe % SHIM_SIDE);
    vfprintf(stderr, format, more);
    fputc('\n', stderr);
}

__attribute__((noreturn, format(printf, 2, 3))) static void fail(struct place at,
                                                                 const char *format, ...)
{
    va_list more;
    va_start(more, format);
    report(current, at, format, more);
    va_end(more);
    if (trace)
        fflush(trace);
    _Exit(3);
}

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* ------------------------------------------------------------------ memory */

void *shim_malloc(size_t bytes)
{
    struct place nowhere = {"malloc", 0};
    if (block_count == MOST_BLOCKS)
        fail(nowhere, "more than %d allocations", MOST_BLOCKS);
    struct memory *block = &blocks[block_count];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes + page - 1) / page * page;
    /* A page that nobody may touch lies behind each allocation. */
    char *data = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1, 0);
    if (data == MAP_FAILED)
        return NULL;
    if (size && mprotect(data + page, size, PROT_READ | PROT_WRITE))
        return NULL;
    block->data = data + page;
    block->bytes = bytes;
    block->writers = mmap(NULL, size + page, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block->writers == MAP_FAILED)
        return NULL;
    block_count++;
    return block->data;
}

void *shim_calloc(size_t count, size_t bytes)
{
    return shim_malloc(count * bytes);
}

void shim_free(void *memory)
{
    for (int number = 0; number < block_count; number++)
        if (blocks[number].data == memory)
            blocks[number].bytes = 0;
}

static struct memory *memory_of(const char *start, long bytes)
{
    for (int number = 0; number < block_count; number++) {
        struct memory *block = &blocks[number];
        if (start >= block->data && start + bytes <= block->data + block->bytes)
            return block;
    }
    return NULL;
}

static int on_mpe_stack(const char *start, long bytes)
{
    return start >= mpe_frame && start + bytes <= mpe_frame + (1 << 20);
}

static int in_ldm(const char *start, long bytes)
{
    const char *stack = cpes[current].stack;
    if (start >= __start_shim_ldm && start + bytes <= __start_shim_ldm + SHIM_LDM_BYTES)
        return 1;
    return start >= stack && start + bytes <= stack + STACK_BYTES;
}

/* Bytes of the program's variables in LDM. */
static long ldm_size(void)
{
    return (long)((uintptr_t)__stop_shim_ldm - (uintptr_t)__start_shim_ldm);
}

static void map_ldm(int cpe)
{
    if (!ldm_size())
        return;
    void *place = mmap(__start_shim_ldm, SHIM_LDM_BYTES, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_FIXED, ldm_file, (off_t)cpe * SHIM_LDM_BYTES);
    if (place != __start_shim_ldm) {
        perror("shim: mmap");
        _Exit(3);
    }
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

static void poison(char *data, long bytes)
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

/* ------------------------------------------------------------------ coroutines */

static void enter(void)
{
    struct cpe *own = &cpes[current];
    function(argument);
    own = &cpes[current];
    if (own->count)
        fail(own->pending[0].from, "the function ends, and this DMA was never waited for");
    own->state = DONE;
    swapcontext(&own->context, &mpe);
}

/* Lets others run until the CPE's condition may hold. */
static void block(enum state state, struct place at)
{
    struct cpe *own = &cpes[current];
    own->state = state;
    own->at = at;
    swapcontext(&own->context, &mpe);
}

static int same_scope(int a, int b, int scope)
{
    return scope == 0 ? a / SHIM_SIDE == b / SHIM_SIDE
                      : scope == 1 ? a % SHIM_SIDE == b % SHIM_SIDE : 1;
}

static int may_run(const struct cpe *own)
{
    return own->state == READY || own->state == SENDING
        || (own->state == RECEIVING && own->received[own->scope].count);
}

static void release_synchronised(void)
{
    for (int first = 0; first < SHIM_CPES; first++) {
        struct cpe *own = &cpes[first];
        if (own->state != SYNCHRONISING)
            continue;
        int all = 1;
        for (int other = 0; other < SHIM_CPES && all; other++) {
            int lane = own->scope == 0 ? other % SHIM_SIDE : other / SHIM_SIDE;
            if (same_scope(first, other, own->scope) && (own->mask >> lane & 1))
                all = cpes[other].state == SYNCHRONISING && cpes[other].scope == own->scope;
        }
        if (!all)
            continue;
        int scope = own->scope;
        for (int other = 0; other < SHIM_CPES; other++)
            if (same_scope(first, other, scope) && cpes[other].state == SYNCHRONISING)
                cpes[other].state = READY;
        progress++;
    }
}

__attribute__((noreturn)) static void fail_waiting(void)
{
    fflush(stdout);
    fprintf(stderr, "shim: %s:%d: every CPE that is not done waits:\n", spawned.file, spawned.line);
    for (int number = 0; number < SHIM_CPES; number++)
        if (cpes[number].state != DONE)
            fprintf(stderr, "shim: %s:%d: CPE %d (row %d, column %d) %s\n", cpes[number].at.file,
                    cpes[number].at.line, number, number / SHIM_SIDE, number % SHIM_SIDE,
                    states[cpes[number].state]);
    _Exit(3);
}

static void run_all(void)
{
    for (;;) {
        long before = progress;
        int done = 0;
        for (int turn = 0; turn < SHIM_CPES; turn++) {
            struct cpe *own = &cpes[turns[turn]];
            if (own->state != DONE && may_run(own)) {
                current = turns[turn];
                map_ldm(current);
                progress += own->state == READY;
                own->state = READY;
                swapcontext(&mpe, &own->context);
                current = -1;
            }
            done += own->state == DONE;
        }
        if (done == SHIM_CPES)
            return;
        release_synchronised();
        if (progress == before)
            fail_waiting();
    }
}

int shim_init(void)
{
    struct place here = {"athread_init", 0};
    const char *text = getenv("SHIM_ORDER");
    long size = ldm_size();
    if (size > SHIM_LDM_BYTES)
        fail(here, "variables in LDM take %ld bytes, and it has %d", size, SHIM_LDM_BYTES);
    for (int number = 0; number < SHIM_CPES; number++)
        turns[number] = number;
    if (text && *text) {
        seed = 0x9E3779B97F4A7C15ull * (strtoull(text, NULL, 10) + 1);
        for (int number = SHIM_CPES - 1; number > 0; number--) {
            int other = (int)(next_random() % (uint64_t)(number + 1)), kept = turns[number];
            turns[number] = turns[other];
            turns[other] = kept;
        }
    }
    if ((text = getenv("SHIM_FIFO")) && *text)
        depth = atoi(text);
    if (depth < 1 || depth > FIFO)
        fail(here, "SHIM_FIFO is from 1 to %d", FIFO);
    if ((text = getenv("SHIM_TRACE")) && *text && !(trace = fopen(text, "w")))
        fail(here, "%s cannot be written", text);
    if ((ldm_file = memfd_create("ldm", 0)) < 0
        || ftruncate(ldm_file, (off_t)SHIM_CPES * SHIM_LDM_BYTES))
        fail(here, "the system gives no memory for LDM");
    for (int number = 0; number < SHIM_CPES; number++) {
        long page = sysconf(_SC_PAGESIZE);
        char *stack = mmap(NULL, (size_t)(STACK_BYTES + page), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED || mprotect(stack, (size_t)page, PROT_NONE))
            fail(here, "the system gives no memory for stacks");
        cpes[number].stack = stack + page;
    }
    initialised = 1;
    return 0;
}

void shim_spawn(void (*called)(void *), void *given, const char *file, int line)
{
    spawned = (struct place){file, line};
    if (!initialised)
        fail(spawned, "athread_init was not called");
    if (running)
        fail(spawned, "the CPEs still run what was spawned before");
    function = called;
    argument = given;
    mpe_frame = __builtin_frame_address(0);
    running = 1;
    spawns++;
}

void shim_join(const char *file, int line)
{
    struct place here = {file, line};
    if (!running)
        fail(here, "nothing was spawned");
    for (int number = 0; number < SHIM_CPES; number++) {
        struct cpe *own = &cpes[number];
        char *stack = own->stack;
        /* Nothing of a spawn before is left, in LDM either. */
        memset(own, 0, sizeof *own);
        own->stack = stack;
        map_ldm(number);
        if (ldm_size())
            poison(__start_shim_ldm, SHIM_LDM_BYTES);
        getcontext(&own->context);
        own->context.uc_stack.ss_sp = stack;
        own->context.uc_stack.ss_size = STACK_BYTES;
        own->context.uc_link = &mpe;
        makecontext(&own->context, enter, 0);
    }
    run_all();
    for (int number = 0; number < SHIM_CPES; number++)
        for (int bus = 0; bus < 2; bus++)
            if (cpes[number].received[bus].count)
                fail(here, "CPE %d has not received %d of what was sent to it", number,
                     cpes[number].received[bus].count);
    running = 0;
}

void shim_halt(void)
{
    if (trace)
        fclose(trace);
    trace = NULL;
    initialised = 0;
}

int shim_id(void)
{
    return current;
}

void shim_syn(int scope, int mask, const char *file, int line)
{
    struct place here = {file, line};
    struct cpe *own = &cpes[current];
    if (scope < 0 || scope > 2)
        fail(here, "there is no scope %d", scope);
    if (scope == 2 && (mask & 0xffff) != 0xffff)
        fail(here, "mask 0x%x leaves CPEs out of ARRAY_SCOPE, which takes 0xffff", (unsigned)mask);
    own->scope = scope;
    own->mask = scope == 2 ? 0xff : mask;
    block(SYNCHRONISING, here);
}

/* ------------------------------------------------------------------ DMA */

static void check_memory(const struct transfer *one, const char *start)
{
    long step = one->block + one->stride, count = one->bytes / one->block;
    const char *low = start, *high = start + (count - 1) * step;
    if (step < 0) {
        low = high;
        high = start;
    }
    if (!memory_of(low, high - low + one->block) && !on_mpe_stack(low, high - low + one->block))
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

static void written(const struct transfer *one, char *start, long bytes)
{
    struct memory *block = memory_of(start, bytes);
    if (!block)
        return;
    uint32_t mark = (uint32_t)spawns << 8 | (uint32_t)(current + 1);
    uint32_t *writers = block->writers + (start - block->data) / 4;
    for (long word = 0; word < bytes / 4; word++) {
        uint32_t before = writers[word];
        if (before >> 8 == (mark >> 8) && before != mark)
            fail(one->from, "this put writes what CPE %d has written, too", (int)(before & 255) - 1);
        writers[word] = mark;
    }
}

static void read_by(const struct transfer *one, const char *start, long bytes)
{
    struct memory *block = memory_of(start, bytes);
    if (!block)
        return;
    const uint32_t *writers = block->writers + (start - block->data) / 4;
    for (long word = 0; word < bytes / 4; word++)
        if (writers[word] >> 8 == ((uint32_t)spawns & 0xffffff)
            && (writers[word] & 255) != (uint32_t)current + 1)
            fail(one->from, "this get reads what CPE %d writes", (int)(writers[word] & 255) - 1);
}

static void add(const struct transfer *one)
{
    cpes[current].pending[cpes[current].count++] = *one;
    if (trace) {
        const char *memory = one->get ? one->source : one->target;
        struct memory *block = memory_of(memory, 1);
        fprintf(trace, "%d %d %s %ld %ld %ld %ld %ld %s %d\n", spawns, current,
                one->get ? "get" : "put", block ? (long)(block - blocks) : -1L,
                block ? (long)(memory - block->data) : 0L, one->bytes, one->stride, one->block,
                one->from.file, one->from.line);
    }
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

/* The other CPEs' LDM at the place of an address of this one's. */
static void broadcast(const struct transfer *one)
{
    int own = current;
    for (int other = 0; other < SHIM_CPES; other++) {
        if (other == own || !(one->mask >> (other / SHIM_SIDE) & 1))
            continue;
        if (cpes[other].state != SYNCHRONISING)
            fail(one->from, "CPE %d does not wait in athread_syn for this broadcast", other);
        map_ldm(other);
        for (long done = 0, at = 0; done < one->bytes; done += one->block) {
            memcpy(one->target + done, one->source + at, (size_t)one->block);
            at += one->block + one->stride;
        }
    }
    map_ldm(own);
}

static void complete(struct transfer *one)
{
    if (source_sum(one) != one->sum)
        fail(one->from, "what this DMA reads was written before it was waited for");
    if (one->get && !poisoned(one->target, one->bytes))
        fail(one->from, "the LDM of this get was written before it was waited for");
    long at = 0;
    for (long done = 0; done < one->bytes; done += one->block) {
        if (one->get) {
            read_by(one, one->source + at, one->block);
            memcpy(one->target + done, one->source + at, (size_t)one->block);
        } else {
            written(one, one->target + at, one->block);
            memcpy(one->target + at, one->source + done, (size_t)one->block);
        }
        at += one->block + one->stride;
    }
    if (one->get && one->mode == BCAST)
        broadcast(one);
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

/* ------------------------------------------------------------------ register communication */

static int reaches(int from, int to, int column)
{
    return from != to && same_scope(from, to, column ? 1 : 0);
}

void shim_send(int column, const void *vector, int target, const char *file, int line)
{
    struct place here = {file, line};
    int from = current, own = column ? from / SHIM_SIDE : from % SHIM_SIDE;
    if (target < 0 || target > SHIM_SIDE || target == own)
        fail(here, "there is no CPE %d to send to", target);
    for (;;) {
        int full = 0;
        for (int to = 0; to < SHIM_CPES; to++) {
            int lane = column ? to / SHIM_SIDE : to % SHIM_SIDE;
            if (reaches(from, to, column) && (target == SHIM_SIDE || lane == target))
                full |= cpes[to].received[column].count >= depth;
        }
        if (!full)
            break;
        block(SENDING, here);
    }
    for (int to = 0; to < SHIM_CPES; to++) {
        int lane = column ? to / SHIM_SIDE : to % SHIM_SIDE;
        if (reaches(from, to, column) && (target == SHIM_SIDE || lane == target)) {
            struct fifo *fifo = &cpes[to].received[column];
            memcpy(fifo->vector[(fifo->first + fifo->count++) % FIFO], vector, 32);
        }
    }
    progress++;
}

void shim_receive(int column, void *vector, const char *file, int line)
{
    struct place here = {file, line};
    struct cpe *own = &cpes[current];
    struct fifo *fifo = &own->received[column];
    own->scope = column;
    if (!fifo->count)
        block(RECEIVING, here);
    memcpy(vector, fifo->vector[fifo->first], 32);
    fifo->first = (fifo->first + 1) % FIFO;
    fifo->count--;
    progress++;
}
