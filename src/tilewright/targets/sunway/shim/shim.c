/* Core groups on the host: each has 64 CPEs as coroutines, and each of these an LDM of its own.

   CPEs run one at a time, from one blocking call to the next, in the order of their numbers or, with
   SHIM_ORDER=SEED in the environment, in a random one. SHIM_FIFO=N is the depth of the buses'
   buffers. Whatever misuses the interface ends the program with the place and the CPE.

   A program of several core groups has a thread for each, bound to the processor of its MPE. Their
   kernels run one after the other, each as a whole, in the order in which the threads come to
   athread_join; two that touch the same word of memory, one to write it, without a barrier between
   them, are found in any order. */
#include "internal.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

static struct cpe groups[SHIM_GROUPS][SHIM_CPES];
struct cpe *cpes = groups[0];
__thread int group = -1;
__thread uint32_t meetings;
int current = -1, spawns, depth = 4, run_ahead = 1;
uint32_t epoch;
long progress;
FILE *trace;

static const char *const states[] = {"runs", "waits in athread_syn", "waits to send",
                                     "waits to receive", "is done"};

static int turns[SHIM_CPES]; /* the order in which CPEs run */
static ucontext_t mpe;
static __thread void (*function)(void *);
static __thread void *argument;
static __thread struct place spawned;
static __thread int initialised, running;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* whose kernel runs */
static int users, bound; /* threads that have called athread_init; a bit for each group in use */

static void report(int cpe, struct place at, const char *format, va_list more)
{
    fflush(stdout);
    fprintf(stderr, "shim: %s:%d: ", at.file ? at.file : "?", at.line);
    if (group >= 0)
        fprintf(stderr, "core group %d: ", group);
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

void fail_waiting(void)
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
        if (progress == before) {
            replay(1); /* says so if smaller buffers were the reason */
            fail_waiting();
        }
    }
}

int shim_bind(size_t bytes, const void *processors)
{
    struct place here = {"pthread_setaffinity_np", 0};
    const unsigned long *words = processors, bits = 8 * sizeof *words;
    for (size_t number = 0; number < 8 * bytes; number++)
        if (words[number / bits] >> number % bits & 1) {
            if (number % 4 || number / 4 >= SHIM_GROUPS)
                fail(here, "processor %d is no MPE: these are 0, 4, 8 and 12", (int)number);
            pthread_mutex_lock(&turn);
            if (bound >> number / 4 & 1)
                fail(here, "two threads are bound to processor %d", (int)number);
            bound |= 1 << number / 4;
            pthread_mutex_unlock(&turn);
            group = (int)number / 4;
            return 0;
        }
    fail(here, "no processor is named");
}

int shim_meet(void *barrier)
{
    int result = pthread_barrier_wait(barrier);
    meetings++;
    return result;
}

static void open_all(void)
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
    if ((text = getenv("SHIM_FIFO")) && *text) {
        depth = atoi(text);
        run_ahead = 0;
    }
    if (depth < 1 || depth > DEEPEST)
        fail(here, "SHIM_FIFO is from 1 to %d", DEEPEST);
    if ((text = getenv("SHIM_TRACE")) && *text && !(trace = fopen(text, "w")))
        fail(here, "%s cannot be written", text);
    open_count();
    open_ldm();
}

int shim_init(void)
{
    struct place here = {"athread_init", 0};
    pthread_mutex_lock(&turn);
    if (!users++)
        open_all();
    else if (group < 0)
        fail(here, "another thread has called it, and this one is bound to no MPE");
    struct cpe *own = groups[group < 0 ? 0 : group];
    for (int number = 0; number < SHIM_CPES && !own[number].stack; number++) {
        long page = sysconf(_SC_PAGESIZE);
        char *stack = mmap(NULL, (size_t)(STACK_BYTES + page), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED || mprotect(stack, (size_t)page, PROT_NONE))
            fail(here, "the system gives no memory for stacks");
        own[number].stack = stack + page;
    }
    pthread_mutex_unlock(&turn);
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
}

void shim_join(const char *file, int line)
{
    struct place here = {file, line};
    if (!running)
        fail(here, "nothing was spawned");
    pthread_mutex_lock(&turn);
    cpes = groups[group < 0 ? 0 : group];
    spawns++;
    epoch++;
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
    replay(1);
    end_count();
    for (int number = 0; number < SHIM_CPES; number++)
        for (int bus = 0; bus < 2; bus++)
            if (cpes[number].received[bus].count)
                fail(here, "CPE %d has not received %d of what was sent to it", number,
                     cpes[number].received[bus].count);
    pthread_mutex_unlock(&turn);
    running = 0;
}

void shim_halt(void)
{
    pthread_mutex_lock(&turn);
    if (!--users) {
        if (trace)
            fclose(trace);
        trace = NULL;
        close_count();
    }
    pthread_mutex_unlock(&turn);
    initialised = 0;
}

void shim_misplaced(const void *place, size_t bytes, const char *file, int line)
{
    struct place here = {file, line};
    fail(here, "a vector of %d bytes is loaded or stored %d bytes behind a multiple of them",
         (int)bytes, (int)((size_t)place % bytes));
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
    note_step(MEET, scope, own->mask, here);
    block(SYNCHRONISING, here);
}
