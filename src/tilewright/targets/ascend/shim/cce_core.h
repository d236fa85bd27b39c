/* What the parts of the host core share; kernels include cce.h alone. */
#ifndef TILEWRIGHT_CCE_CORE_H
#define TILEWRIGHT_CCE_CORE_H

#include "cce.h"

#define PIPES 6
#define BLOCK 32
#define FRACTAL 512

struct cce_command {
    enum cce_operation operation;
    pipe_t pipe;
    int line;
    uint32_t number;       /* of the pipe's commands, waits and barriers, from 1 */
    uint32_t known[PIPES]; /* how many of each pipe's are known to be complete when it starts */
    int spaced;            /* a mad that needs no barrier behind the one before */
    int to, from;          /* memories, types or registers */
    uint64_t dst, src, other;
    int64_t bursts, length, src_gap, dst_gap; /* or repeat and the like */
    int64_t strides[6];
    int function, mode;
    double scalar;
    uint64_t mask[2];
    uint64_t va[2][16];
    int64_t window[15]; /* of img2col, in the order of its arguments */
};

/* Where bytes of a memory lie, after checks: bounds, races, whether they were written. */
void *cce_touch(const struct cce_command *command, int memory, uint64_t at, size_t bytes,
                int writes);
int cce_line_of(int pipe, uint32_t number);
/* Whether a command is one of an earlier block, which nothing orders with those of this one. */
int cce_elsewhere(int pipe, uint32_t number);
void cce_flags(int event_count, int count_flags);
void cce_begin_issue(unsigned order);
void cce_next_issue(void);
void cce_end_issue(void);
void cce_report(int line, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cce_issue(struct cce_command *command);
float cce_float_of(uint16_t bits);
uint16_t cce_half_of(double value);

void cce_run_copy(const struct cce_command *command);
void cce_run_load(const struct cce_command *command);
void cce_run_mad(const struct cce_command *command);
void cce_run_cc_to_ub(const struct cce_command *command);
void cce_run_scatter(const struct cce_command *command);
void cce_run_vector(const struct cce_command *command);
void cce_run_img2col(const struct cce_command *command);
void cce_run_compare(const struct cce_command *command);
void cce_run_cmpmask(const struct cce_command *command);

/* What was executed; read by name with cce_count. */
struct cce_counts {
    uint64_t commands, mads, cube_cycles, vector_commands, vector_cycles, scatters, loads;
    uint64_t gm_reads, gm_writes, gm_read_bursts, gm_write_bursts;
    uint64_t cbuf_reads, ub_copies, sets, waits, barriers;
};
extern struct cce_counts cce_counts;
extern int cce_barrier_blocks;
extern const char *const CCE_MEMORY[], *const CCE_PIPE[];

#endif
