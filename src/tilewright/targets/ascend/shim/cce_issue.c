/* What a kernel's calls become: checked commands in the pipes' queues, flags and barriers. */
#include <stdlib.h>
#include <string.h>

#include "cce_core.h"
#include "queues.h"

#define EVENTS 8
#define WAITING 64 /* sets of one flag that wait, at most */

struct set {
    uint32_t known[PIPES], ticket;
    int line;
};

struct flag {
    struct set sets[WAITING];
    int first, count;
    uint32_t waited; /* number, in the waiting pipe, of the last wait */
    int line;        /* of that wait */
};

int cce_barrier_blocks = 10;

static const uint64_t aligned[CCE_MEMORIES] = {1, BLOCK, FRACTAL, FRACTAL, 2 * FRACTAL, BLOCK, BLOCK};
static uint32_t known[PIPES][PIPES], numbers[PIPES], tickets[PIPES];
static uint32_t before[PIPES]; /* numbers of earlier blocks end here */
static unsigned issue_order;
static struct flag flags[PIPES][PIPES][EVENTS];
static int counting, events = 4;
static int *lines[PIPES];
static size_t line_room[PIPES];
static uint64_t mask[2], fmatrix, padding;
static uint64_t va[VA_REGISTERS][8];

void cce_flags(int event_count, int count_flags)
{
    events = event_count;
    counting = count_flags;
}

void cce_begin_issue(unsigned order)
{
    memset(numbers, 0, sizeof numbers);
    issue_order = order;
    cce_next_issue();
}

/* The next block: numbers go on, so that those of earlier blocks are told apart. */
void cce_next_issue(void)
{
    memcpy(before, numbers, sizeof before);
    memset(known, 0, sizeof known);
    memset(tickets, 0, sizeof tickets);
    memset(flags, 0, sizeof flags);
    memset(va, 0, sizeof va);
    mask[0] = mask[1] = ~(uint64_t)0;
    queues_order(PIPES, issue_order);
}

void cce_end_issue(void)
{
    queues_finish();
    for (int from = 0; from < PIPES; from++)
        for (int to = 0; to < PIPES; to++)
            for (int event = 0; event < EVENTS; event++) {
                const struct flag *flag = &flags[from][to][event];
                if (flag->count)
                    cce_report(flag->sets[flag->first].line,
                               "set_flag(%s, %s, %d) is never waited for", CCE_PIPE[from],
                               CCE_PIPE[to], event);
            }
}

int cce_elsewhere(int pipe, uint32_t number)
{
    return number && number <= before[pipe];
}

int cce_line_of(int pipe, uint32_t number)
{
    return number < line_room[pipe] ? lines[pipe][number] : 0;
}

static uint32_t take_number(int pipe, int line)
{
    uint32_t number = ++numbers[pipe];
    if (number >= line_room[pipe]) {
        line_room[pipe] = 2 * line_room[pipe] + 1024;
        lines[pipe] = realloc(lines[pipe], line_room[pipe] * sizeof(int));
        if (!lines[pipe])
            abort();
    }
    lines[pipe][number] = line;
    return number;
}

static void run(const void *record)
{
    static void (*const functions[])(const struct cce_command *) = {
        cce_run_copy, cce_run_load, cce_run_mad, cce_run_cc_to_ub, cce_run_scatter, cce_run_vector,
        cce_run_img2col, cce_run_compare, cce_run_cmpmask,
    };
    const struct cce_command *command = record;
    functions[command->operation](command);
}

static int in_range(int line, const char *what, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return 1;
    cce_report(line, "%s is %lld, but must be from %lld to %lld", what, (long long)value,
               (long long)least, (long long)most);
    return 0;
}

static int at_block(int line, const char *what, int memory, uint64_t at)
{
    if (at % aligned[memory] == 0)
        return 1;
    cce_report(line, "%s is 0x%llx, no multiple of %s's %llu bytes", what, (unsigned long long)at,
               CCE_MEMORY[memory], (unsigned long long)aligned[memory]);
    return 0;
}

void cce_issue(struct cce_command *command)
{
    int pipe = command->pipe;
    command->number = take_number(pipe, command->line);
    memcpy(command->known, known[pipe], sizeof command->known);
    cce_counts.commands++;
    tickets[pipe] = queues_issue(pipe, run, command, sizeof *command);
}

void cce_copy(int line, pipe_t pipe, int to, int from, uint64_t dst, uint64_t src, int64_t bursts,
              int64_t length, int64_t src_gap, int64_t dst_gap)
{
    if (!in_range(line, "nBurst", bursts, 1, 4095) || !in_range(line, "lenBurst", length, 1, 65535)
        || !in_range(line, "srcGap", src_gap, 0, 65535)
        || !in_range(line, "dstGap", dst_gap, 0, 65535) || !at_block(line, "dst", to, dst)
        || !at_block(line, "src", from, src))
        return;
    struct cce_command command = {.operation = CCE_COPY, .pipe = pipe, .line = line, .to = to,
                                  .from = from, .dst = dst, .src = src, .bursts = bursts,
                                  .length = length, .src_gap = src_gap, .dst_gap = dst_gap};
    cce_issue(&command);
}

void cce_load(int line, int to, uint64_t dst, uint64_t src, int64_t base, int64_t repeat,
              int64_t stride, int transpose)
{
    if (!in_range(line, "baseIdx", base, 0, 65535) || !in_range(line, "repeat", repeat, 1, 255)
        || !in_range(line, "srcStride", stride, 0, 65535) || !at_block(line, "dst", to, dst)
        || !at_block(line, "src", CCE_CBUF, src))
        return;
    struct cce_command command = {.operation = CCE_LOAD, .pipe = PIPE_MTE1, .line = line, .to = to,
                                  .from = CCE_CBUF, .dst = dst, .src = src + base * FRACTAL,
                                  .bursts = repeat, .src_gap = stride, .mode = transpose};
    cce_issue(&command);
}

void cce_fmatrix(int line, uint64_t value)
{
    (void)line;
    fmatrix = value;
}

void cce_padding(int line, uint64_t value)
{
    if (value > 0xFFFF)
        cce_report(line, "padding has two bytes");
    padding = value & 0xFFFF;
}

void cce_img2col(int line, uint64_t dst, uint64_t src, const int64_t fields[15])
{
    static const struct {
        const char *name;
        int64_t least, most;
    } limits[15] = {
        {"fetchW", 0, 254}, {"fetchH", 0, 254}, {"leftTopW", -255, 32767},
        {"leftTopH", -255, 32767}, {"c1", 0, 4095}, {"strideW", 1, 63}, {"strideH", 1, 63},
        {"the kernel's width", 1, 255}, {"the kernel's height", 1, 255}, {"dilationW", 1, 255},
        {"dilationH", 1, 255}, {"jumpStride", 1, 127}, {"the mode", 0, 1}, {"repeat", 1, 255},
        {"cSize", 0, 0},
    };
    for (int number = 0; number < 15; number++)
        if (!in_range(line, limits[number].name, fields[number], limits[number].least,
                      limits[number].most))
            return;
    if (!at_block(line, "dst", CCE_CA, dst) || !at_block(line, "src", CCE_CBUF, src))
        return;
    struct cce_command command = {.operation = CCE_IMG2COL, .pipe = PIPE_MTE1, .line = line,
                                  .dst = dst, .src = src, .other = fmatrix,
                                  .length = (int64_t)padding};
    memcpy(command.window, fields, sizeof command.window);
    cce_issue(&command);
}

void cce_mad(int line, enum cce_type sums, enum cce_type factors, uint64_t c, uint64_t a,
             uint64_t b, int64_t m, int64_t k, int64_t n, int first)
{
    if (!(sums == CCE_FLOAT && factors == CCE_HALF) && !(sums == CCE_S32 && factors == CCE_S8)) {
        cce_report(line, "mad takes halves into floats, or int8 into int32");
        return;
    }
    if (!in_range(line, "m", m, 0, 4095) || !in_range(line, "k", k, 0, 4095)
        || !in_range(line, "n", n, 0, 4095) || !at_block(line, "c", CCE_CC, c)
        || !at_block(line, "a", CCE_CA, a) || !at_block(line, "b", CCE_CB, b))
        return;
    if (!m || !k || !n)
        return;
    struct cce_command command = {.operation = CCE_MAD, .pipe = PIPE_M, .line = line, .dst = c,
                                  .src = a, .other = b, .strides = {m, k, n}, .mode = first,
                                  .from = (int)factors};
    command.spaced = ((m + 15) / 16) * ((n + 15) / 16) >= cce_barrier_blocks;
    cce_issue(&command);
}

void cce_cc_to_ub(int line, uint64_t dst, uint64_t src, int64_t bursts, int64_t length,
                  int64_t src_gap, int64_t dst_gap, ConvRelu_t mode)
{
    if (!in_range(line, "nBurst", bursts, 1, 4095) || !in_range(line, "lenBurst", length, 1, 65535)
        || !in_range(line, "srcStride", src_gap, 0, 65535)
        || !in_range(line, "dstStride", dst_gap, 0, 65535) || !at_block(line, "dst", CCE_UB, dst)
        || !at_block(line, "src", CCE_CC, src))
        return;
    struct cce_command command = {.operation = CCE_CC_TO_UB, .pipe = PIPE_V, .line = line,
                                  .dst = dst, .src = src, .bursts = bursts, .length = length,
                                  .src_gap = src_gap, .dst_gap = dst_gap, .mode = mode};
    cce_issue(&command);
}

void cce_scatter(int line, int to, int from, int64_t repeat, int64_t dst_stride, int64_t src_stride)
{
    if (!in_range(line, "repeat", repeat, 0, 255)
        || !in_range(line, "dstStride", dst_stride, 0, 65535)
        || !in_range(line, "srcStride", src_stride, 0, 65535))
        return;
    if (!in_range(line, "the first register", to, 0, VA2)
        || !in_range(line, "the first register", from, 0, VA2))
        return;
    if (repeat == 1 && (dst_stride || src_stride)) {
        cce_report(line, "strides must be 0 where repeat is 1");
        return;
    }
    struct cce_command command = {.operation = CCE_SCATTER, .pipe = PIPE_V, .line = line,
                                  .bursts = repeat, .dst_gap = dst_stride, .src_gap = src_stride};
    memcpy(command.va[0], &va[0][0] + 8 * to, sizeof command.va[0]);
    memcpy(command.va[1], &va[0][0] + 8 * from, sizeof command.va[1]);
    cce_issue(&command);
}

void cce_vector(int line, enum cce_function function, enum cce_type dst_type,
                enum cce_type src_type, uint64_t dst, uint64_t src0, uint64_t src1, double scalar,
                int64_t repeat, const int64_t strides[6])
{
    if (!in_range(line, "repeat", repeat, 0, 255) || !at_block(line, "dst", CCE_UB, dst)
        || !at_block(line, "src0", CCE_UB, src0) || !at_block(line, "src1", CCE_UB, src1))
        return;
    for (int number = 0; number < 6; number++)
        if (!in_range(line, "a stride", strides[number], 0, 255))
            return;
    struct cce_command command = {.operation = CCE_VECTOR, .pipe = PIPE_V, .line = line,
                                  .to = (int)dst_type, .from = (int)src_type, .dst = dst,
                                  .src = src0, .other = src1, .bursts = repeat,
                                  .function = (int)function, .scalar = scalar};
    memcpy(command.strides, strides, sizeof command.strides);
    memcpy(command.mask, mask, sizeof mask);
    cce_issue(&command);
}

void cce_compare(int line, enum cce_function function, enum cce_type type, uint64_t dst, uint64_t src0,
                 uint64_t src1, int64_t repeat, const int64_t strides[4])
{
    if (!in_range(line, "repeat", repeat, 0, 255) || !at_block(line, "dst", CCE_UB, dst)
        || !at_block(line, "src0", CCE_UB, src0) || !at_block(line, "src1", CCE_UB, src1))
        return;
    for (int number = 0; number < 4; number++)
        if (!in_range(line, "a stride", strides[number], 0, 255))
            return;
    if (type != CCE_HALF) {
        cce_report(line, "vector relation %d has no form for these types", (int)function);
        return;
    }
    struct cce_command command = {.operation = CCE_COMPARE, .pipe = PIPE_V, .line = line,
                                  .from = (int)type, .dst = dst, .src = src0, .other = src1,
                                  .bursts = repeat, .function = (int)function};
    memcpy(command.strides, strides, 4 * sizeof strides[0]);
    cce_issue(&command);
}

void cce_cmpmask(int line, uint64_t src)
{
    if (src % 16) {
        cce_report(line, "the mask is at 0x%llx, no multiple of 16", (unsigned long long)src);
        return;
    }
    struct cce_command command = {.operation = CCE_SET_CMPMASK, .pipe = PIPE_V, .line = line,
                                  .src = src};
    cce_issue(&command);
}

void cce_mask(int line, uint64_t high, uint64_t low)
{
    (void)line;
    mask[0] = low;
    mask[1] = high;
}

void cce_va(int line, int number, const uint64_t addresses[8])
{
    if (in_range(line, "the register", number, 0, VA_REGISTERS - 1))
        memcpy(va[number], addresses, sizeof va[number]);
}

static struct flag *flag_of(int line, const char *what, pipe_t from, pipe_t to, int event)
{
    if (from <= PIPE_S || from >= PIPE_ALL || to <= PIPE_S || to >= PIPE_ALL || from == to) {
        cce_report(line, "%s(%d, %d, %d) has no such pair of pipes", what, (int)from, (int)to,
                   event);
        return NULL;
    }
    if (event < 0 || event >= events) {
        cce_report(line, "%s(%s, %s, %d): a pair has %d events", what, CCE_PIPE[from],
                   CCE_PIPE[to], event, events);
        return NULL;
    }
    return &flags[from][to][event];
}

void cce_set_flag(int line, pipe_t from, pipe_t to, int event)
{
    struct flag *flag = flag_of(line, "set_flag", from, to, event);
    if (!flag)
        return;
    uint32_t number = take_number(from, line);
    cce_counts.sets++;
    if (!counting && flag->count)
        cce_report(line, "set_flag(%s, %s, %d) again: line %d has set it, and nothing waited",
                   CCE_PIPE[from], CCE_PIPE[to], event, flag->sets[flag->first].line);
    else if (!counting && known[from][to] < flag->waited)
        cce_report(line, "set_flag(%s, %s, %d) again: the wait of line %d may be still to come",
                   CCE_PIPE[from], CCE_PIPE[to], event, flag->line);
    if (flag->count == WAITING) {
        cce_report(line, "more than %d sets of one flag", WAITING);
        return;
    }
    struct set *set = &flag->sets[(flag->first + flag->count++) % WAITING];
    memcpy(set->known, known[from], sizeof set->known);
    set->known[from] = number;
    set->ticket = tickets[from];
    set->line = line;
}

void cce_wait_flag(int line, pipe_t from, pipe_t to, int event)
{
    struct flag *flag = flag_of(line, "wait_flag", from, to, event);
    if (!flag)
        return;
    uint32_t number = take_number(to, line);
    cce_counts.waits++;
    flag->waited = number;
    flag->line = line;
    if (!flag->count) {
        cce_report(line, "wait_flag(%s, %s, %d): nothing has set it, %s stands still",
                   CCE_PIPE[from], CCE_PIPE[to], event, CCE_PIPE[to]);
        return;
    }
    struct set *set = &flag->sets[flag->first];
    flag->first = (flag->first + 1) % WAITING;
    flag->count--;
    for (int pipe = 0; pipe < PIPES; pipe++)
        if (known[to][pipe] < set->known[pipe])
            known[to][pipe] = set->known[pipe];
    queues_wait(to, from, set->ticket);
}

void cce_barrier(int line, pipe_t pipe)
{
    if (pipe <= PIPE_S || pipe > PIPE_ALL) {
        cce_report(line, "pipe_barrier(%d) has no such pipe", (int)pipe);
        return;
    }
    cce_counts.barriers++;
    if (pipe != PIPE_ALL) {
        known[pipe][pipe] = take_number(pipe, line);
        return;
    }
    for (int one = PIPE_V; one < PIPES; one++)
        take_number(one, line);
    for (int one = PIPE_V; one < PIPES; one++)
        for (int other = PIPE_V; other < PIPES; other++) {
            known[one][other] = numbers[other];
            if (one != other)
                queues_wait(one, other, tickets[other]);
        }
}
