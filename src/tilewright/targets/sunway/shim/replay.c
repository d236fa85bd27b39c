/* Whether buses whose buffers hold `depth` vectors would have let the CPEs go on.

   Without SHIM_FIFO the buffers of the run hold as much as LDM (buses.c), so that CPEs seldom wait
   for one another: each has an LDM that must be mapped. What they do then does not depend on the
   depth, as each receives from one queue, in an order that is checked here; whether they all come
   to the end does. So every CPE leaves a list of what it sends, receives and meets, without the
   data, and the lists are played with buffers of `depth`. */
#include "internal.h"

enum { KEPT = 1 << 16 }; /* steps of a CPE before what is left behind is dropped */

struct step {
    int kind;
    int scope;  /* 0 or 1 of a bus; of athread_syn */
    int target; /* of what is sent; who sent what is received; CPEs of a broadcast or a meeting */
    long count;
    struct place from;
};

/* Vectors of one sender, side by side in the buffer of a bus. */
struct run {
    int sender;
    long count;
};

struct list {
    struct step *steps;
    long count, room, next;
    long limit; /* steps before the list is played */
    struct run runs[2][FIFO];
    int first[2], last[2];
    long held[2]; /* vectors in the buffers */
};

static struct list lists[SHIM_CPES];

void note_step(int kind, int scope, int target, struct place from)
{
    struct list *own = &lists[current];
    struct step *last = own->count > own->next ? &own->steps[own->count - 1] : NULL;
    if (!run_ahead)
        return;
    if (last && kind <= RECEIVE && last->kind == kind && last->scope == scope
        && last->target == target && last->from.line == from.line && last->from.file == from.file) {
        last->count++;
        return;
    }
    if (own->count >= (own->limit ? own->limit : KEPT)) {
        replay(0);
        memmove(own->steps, own->steps + own->next,
                (size_t)(own->count - own->next) * sizeof *own->steps);
        own->count -= own->next;
        own->next = 0;
        own->limit = own->count + KEPT;
    }
    own->steps = grown(own->steps, &own->room, own->count, sizeof *own->steps);
    own->steps[own->count++] = (struct step){.kind = kind, .scope = scope, .target = target,
                                             .count = 1, .from = from};
}

static int meets(int cpe)
{
    const struct list *own = &lists[cpe];
    return own->next < own->count && own->steps[own->next].kind == MEET;
}

static long sent(int from, struct step *step)
{
    long room = step->count;
    for (int to = 0; to < SHIM_CPES; to++)
        if (reached(from, to, step->scope, step->target) && depth - lists[to].held[step->scope] < room)
            room = depth - lists[to].held[step->scope];
    for (int to = 0; to < SHIM_CPES && room; to++) {
        struct list *own = &lists[to];
        if (!reached(from, to, step->scope, step->target))
            continue;
        own->runs[step->scope][own->last[step->scope]++ % FIFO] = (struct run){from, room};
        own->held[step->scope] += room;
    }
    return room;
}

static long received(int cpe, struct step *step)
{
    struct list *own = &lists[cpe];
    struct run *run = &own->runs[step->scope][own->first[step->scope] % FIFO];
    if (!own->held[step->scope])
        return 0;
    if (run->sender != step->target)
        fail(step->from, "whether CPE %d receives from CPE %d or CPE %d depends on how many vectors "
             "the buses' buffers hold", cpe, step->target, run->sender);
    long count = run->count < step->count ? run->count : step->count;
    run->count -= count;
    own->first[step->scope] += !run->count;
    own->held[step->scope] -= count;
    return count;
}

/* Lets all go on that wait in athread_syn of a scope; 0 where others have not come. */
static int met(int cpe, const struct step *step)
{
    int scope = step->scope, mask = step->target;
    for (int other = 0; other < SHIM_CPES; other++) {
        int lane = scope == 0 ? other % SHIM_SIDE : other / SHIM_SIDE;
        if (same_scope(cpe, other, scope) && (mask >> lane & 1)
            && !(meets(other) && lists[other].steps[lists[other].next].scope == scope))
            return 0;
    }
    for (int other = 0; other < SHIM_CPES; other++)
        if (same_scope(cpe, other, scope) && meets(other))
            lists[other].next++;
    return 1;
}

/* Plays a CPE's list as far as it goes; whether it went on. */
static int play(int cpe)
{
    struct list *own = &lists[cpe];
    int moved = 0;
    while (own->next < own->count) {
        struct step *step = &own->steps[own->next];
        if (step->kind == MEET) {
            if (!met(cpe, step))
                break;
        } else if (step->kind == BROADCAST) {
            for (int other = 0; other < SHIM_CPES; other++)
                if (other != cpe && (step->target >> (other / SHIM_SIDE) & 1) && !meets(other))
                    return moved;
            own->next++;
        } else {
            long count = step->kind == SEND ? sent(cpe, step) : received(cpe, step);
            step->count -= count;
            if (!count)
                break;
            own->next += !step->count;
        }
        moved = 1;
    }
    return moved;
}

void replay(int last)
{
    int moved, left = 0;
    if (!run_ahead)
        return;
    do {
        moved = 0;
        for (int cpe = 0; cpe < SHIM_CPES; cpe++)
            moved |= play(cpe);
    } while (moved);
    for (int cpe = 0; cpe < SHIM_CPES && last; cpe++) {
        const struct list *own = &lists[cpe];
        if (own->next == own->count)
            continue;
        const struct step *step = &own->steps[own->next];
        cpes[cpe].at = step->from;
        cpes[cpe].state = step->kind == MEET ? SYNCHRONISING
                        : step->kind == RECEIVE ? RECEIVING : SENDING;
        left = 1;
    }
    if (left)
        fail_waiting();
    for (int cpe = 0; cpe < SHIM_CPES && last; cpe++) {
        struct list *own = &lists[cpe];
        own->count = own->next = own->limit = 0;
        memset(own->first, 0, sizeof own->first);
        memset(own->last, 0, sizeof own->last);
        memset(own->held, 0, sizeof own->held);
    }
}
