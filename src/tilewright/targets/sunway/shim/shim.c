/* A core group on the host: 64 CPEs as coroutines, each with an LDM of its own.

   CPEs run one at a time, from one blocking call to the next, in the order of their numbers or, with
   SHIM_ORDER=SEED in the environment, in a random one. SHIM_FIFO=N is the depth of the buses'
   buffers. Whatever misuses the interface ends the program with the place and the CPE. */
#include "internal.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

struct cpe cpes[SHIM_CPES];
int current = -1, spawns, depth = 4;
uint32_t epoch;
long progress;
FILE *trace;

static const char *const states[] = {"runs", "waits in athread_syn", "waits to send",
                                     "waits to receive", "is done"};

static int turns[SHIM_CPES]; /* the order in which CPEs run */
static ucontext_t mpe;
static void (*function)(void *);
static void *argument;
static struct place spawned;
static int initialised, running;

static void report(int cpe, struct place at, const char *format, va_list more)
{
    fflush(stdout);
    fprintf(stderr, "shim: %s:%d: ", at.file ? at.file : "?", at.line);
    if (cpe >= 0)
        fprintf(stderr, "CPE %d (row %d, column %d): ", cpe, cpe / SHIM_SIDE, cpe % SHIM_SIDE);
    vfprintf(stderr, format, more);
    fputc('\n', stderr);
}

void fail(struct place at, const char *format, ...)
{
    va_list more;
    va_start(more, format);
    report(current, at, format, more);
    va_end(more);
    if (trace)
        fflush(trace);
    _Exit(3);
}

static uint64_t seed;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

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
void block(enum state state, struct place at)
{
    struct cpe *own = &cpes[current];
    own->state = state;
    own->at = at;
    swapcontext(&own->context, &mpe);
}

int same_scope(int a, int b, int scope)
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
        epoch += scope == 2;
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
    open_count();
    open_ldm();
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
    enter_kernel(__builtin_frame_address(0));
    running = 1;
    spawns++;
    epoch++;
}

void shim_join(const char *file, int line)
{
    struct place here = {file, line};
    if (!running)
        fail(here, "nothing was spawned");
    for (int number = 0; number < SHIM_CPES; number++) {
        struct cpe *own = &cpes[number];
        /* Nothing of a spawn before is left, in LDM either. */
        own->state = READY;
        own->count = 0;
        own->received[0].count = own->received[1].count = 0;
        map_ldm(number);
        spoil_ldm();
        getcontext(&own->context);
        own->context.uc_stack.ss_sp = own->stack;
        own->context.uc_stack.ss_size = STACK_BYTES;
        own->context.uc_link = &mpe;
        makecontext(&own->context, enter, 0);
    }
    run_all();
    end_count();
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
    close_count();
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
    count_synchronisation(scope);
    own->scope = scope;
    own->mask = scope == 2 ? 0xff : mask;
    block(SYNCHRONISING, here);
}
