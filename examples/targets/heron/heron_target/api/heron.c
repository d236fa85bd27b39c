/* The vendor's API on the host: commands run when they must, copies last of all, so that a wait that
   is missing gives wrong numbers. heron_races counts what no wait orders, whatever ran first. */
#include "heron.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCAL (1 << 20)
#define RING 4096
#define COMMANDS (1 << 16) /* between two finishes */

struct entry { int queue, wait, other; heron_ticket ticket; int copies;
               struct heron_copy_async copy; struct heron_nest nest; };

static uint8_t local[LOCAL];
static struct entry ring[RING];
static size_t next[3], count;
static heron_ticket issued[3], ended[3];
/* Of each queue, the commands of every other that are known to have ended; and what was known when
   each command ended. */
static heron_ticket known[3][3], then[3][COMMANDS + 1][3];
static struct { uint8_t written, queue; heron_ticket write, read[3]; } shadow[LOCAL];
static unsigned races;
static int ahead = HERON_CORE; /* the queue that runs ahead of the others */

unsigned heron_races(void) { return races; }

static void touch(uint64_t at, int bytes, int write, int me)
{
    if (at + bytes > LOCAL) {
        fprintf(stderr, "heron: local memory ends before byte %llu\n", (unsigned long long)at);
        abort();
    }
    for (uint64_t i = at; i < at + bytes; i++) {
        int by = shadow[i].queue;
        races += !shadow[i].written && !write;
        races += by != me && shadow[i].write > known[me][by];
        for (int q = 0; write && q < 3; q++)
            races += q != me && shadow[i].read[q] > known[me][q];
        if (write)
            shadow[i].written = 1, shadow[i].queue = me, shadow[i].write = ended[me] + 1;
        else
            shadow[i].read[me] = ended[me] + 1;
    }
}

static void copy(const struct heron_copy_async *c)
{
    for (uint32_t a = 0; a < c->size[0]; a++)
    for (uint32_t b = 0; b < c->size[1]; b++)
    for (uint32_t d = 0; d < c->size[2]; d++)
    for (uint32_t e = 0; e < c->size[3]; e++) {
        const struct heron_end *s = &c->source, *t = &c->target;
        uint64_t from = s->address + a * s->stride[0] + b * s->stride[1] + d * s->stride[2] + e * s->stride[3];
        uint64_t to = t->address + a * t->stride[0] + b * t->stride[1] + d * t->stride[2] + e * t->stride[3];
        touch(c->out ? from : to, c->element, !c->out, c->out ? HERON_OUT : HERON_IN);
        memcpy(c->out ? (uint8_t *)(uintptr_t)to : local + to,
               c->out ? local + from : (const uint8_t *)(uintptr_t)from, c->element);
    }
}

static uint64_t place(const struct heron_operand *o, const uint32_t *i)
{
    uint64_t at = o->address;
    for (int loop = 0; loop < 8; loop++)
        at += i[loop] * o->step[loop];
    return at;
}

static int64_t load(uint64_t at, int bytes)
{
    int16_t narrow;
    int32_t wide;
    touch(at, bytes, 0, HERON_CORE);
    memcpy(bytes == 2 ? (void *)&narrow : (void *)&wide, local + at, bytes);
    return bytes == 2 ? narrow : wide;
}

static void store(uint64_t at, int bytes, int64_t value)
{
    int16_t narrow = (int16_t)value;
    int32_t wide = (int32_t)value;
    touch(at, bytes, 1, HERON_CORE);
    memcpy(local + at, bytes == 2 ? (void *)&narrow : (void *)&wide, bytes);
}

/* The next of the loops that `moves` names; 0 after the last. */
static int advance(const struct heron_nest *c, uint32_t *i, const int *moves)
{
    for (int loop = 7; loop >= 0; loop--)
        if (moves[loop]) {
            if (++i[loop] < c->n[loop])
                return 1;
            i[loop] = 0;
        }
    return 0;
}

static int64_t rounded(int64_t value, int shift)
{
    return shift > 0 ? (value + ((int64_t)1 << shift >> 1)) >> shift : value * ((int64_t)1 << -shift);
}

static int64_t saturated(int64_t value)
{
    return value > INT16_MAX ? INT16_MAX : value < INT16_MIN ? INT16_MIN : value;
}

static int64_t input(const struct heron_nest *c, const uint32_t *i, int64_t padding)
{
    int64_t row = c->row + i[0] * c->stride.h + i[2] * c->dilation.h;
    int64_t column = c->column + i[1] * c->stride.w + i[3] * c->dilation.w;
    if (c->window && (row < 0 || row >= c->rows || column < 0 || column >= c->columns))
        return padding;
    return load(place(&c->x, i) + row * c->x.h + column * c->x.w, 2);
}

static int64_t apply(const struct heron_step *s, int64_t v, uint64_t other)
{
    int binary = s->function >= HERON_ADD && s->function <= HERON_MUL;
    int64_t o = binary ? load(other, 2) : 0;
    int point = s->first > s->second ? s->first : s->second;
    int64_t a = (uint64_t)v << (binary ? point - s->first : 0), b = (uint64_t)o << (binary ? point - s->second : 0);
    switch (s->function) {
    case HERON_RELU: return v > 0 ? v : 0;
    case HERON_CLIP: return v < s->first ? s->first : v > s->second ? s->second : v;
    case HERON_ADD: return (int32_t)(a + b);
    case HERON_SUB: return (int32_t)(a - b);
    case HERON_MUL: return (int32_t)(v * o);
    case HERON_REQUANTISE: return saturated(rounded(v, s->first - s->second));
    default: return v;
    }
}

static void softmax(const struct heron_nest *c, uint32_t *i)
{
    int64_t *e = calloc(c->n[7], sizeof *e), most = INT64_MIN, sum = 0;
    for (i[7] = 0; i[7] < c->n[7]; i[7]++) {
        e[i[7]] = load(place(&c->x, i), 2);
        most = e[i[7]] > most ? e[i[7]] : most;
    }
    for (uint32_t n = 0; n < c->n[7]; n++) { /* exp by halves, 16 bits after the point */
        int64_t z = rounded((most - e[n]) * 47274, c->steps[0].first - 1);
        z = z > (int64_t)48 << 16 ? (int64_t)48 << 16 : z;
        int64_t low = llrint(exp2(16 - (z >> 8 & 255) / 256.0));
        int64_t high = llrint(exp2(16 - ((z >> 8 & 255) + 1) / 256.0));
        sum += e[n] = rounded(low + (((high - low) * (z & 255) + 128) >> 8), z >> 16);
    }
    for (i[7] = 0; i[7] < c->n[7]; i[7]++)
        store(place(&c->y, i), 2, saturated((2 * rounded(e[i[7]], -c->steps[0].second) + sum) / (2 * sum)));
    i[7] = 0;
    free(e);
}

static void nest(const struct heron_nest *c)
{
    uint32_t i[8] = {0};
    int kept[8], summed[8];
    for (int loop = 0; loop < 8; loop++) {
        kept[loop] = c->y.step[loop] != 0 && !(c->kind == HERON_SOFTMAX && loop == 7);
        summed[loop] = c->y.step[loop] == 0 && c->n[loop] > 1;
    }
    do {
        if (c->kind == HERON_SOFTMAX) {
            softmax(c, i);
            continue;
        }
        int64_t value = c->kind == HERON_MAX ? INT16_MIN : 0;
        if (c->kind == HERON_MAP)
            value = input(c, i, 0);
        else if (!c->first)
            value = load(place(&c->y, i), 4);
        else if (c->bias)
            value = load(place(&c->b, i), 4);
        if (c->kind != HERON_MAP)
            do {
                int64_t x = input(c, i, c->kind == HERON_MAX ? INT16_MIN : 0);
                if (c->kind == HERON_MAX)
                    value = x > value ? x : value;
                else
                    value = (int32_t)(value + x * load(place(&c->w, i), 2));
            } while (advance(c, i, summed));
        for (int n = 0; n < 4 && c->last; n++)
            value = apply(&c->steps[n], value, place(c->kind == HERON_MAP && !n ? &c->w : &c->r, i));
        store(place(&c->y, i), c->last ? 2 : 4, value);
    } while (advance(c, i, kept));
}

/* Runs the first entry of a queue, if it may; whether it did. */
static int step(int me)
{
    while (next[me] < count && ring[next[me]].queue != me)
        next[me]++;
    if (next[me] == count)
        return 0;
    struct entry *entry = &ring[next[me]];
    if (entry->wait) {
        if (ended[entry->other] < entry->ticket)
            return 0;
        for (int q = 0; q < 3 && entry->ticket; q++) {
            heron_ticket told = then[entry->other][entry->ticket][q];
            known[me][q] = told > known[me][q] ? told : known[me][q];
        }
    } else {
        if (entry->copies)
            copy(&entry->copy);
        else
            nest(&entry->nest);
        ended[me]++;
        known[me][me] = ended[me];
        memcpy(then[me][ended[me]], known[me], sizeof known[me]);
    }
    next[me]++;
    return 1;
}

static void drain(void)
{
    static const int order[3] = {HERON_CORE, HERON_OUT, HERON_IN};
    int more = 1;
    while (more) {
        more = step(ahead);
        for (int n = 0; n < 3 && !more; n++)
            more = step(order[n]);
    }
    for (int q = 0; q < 3; q++)
        if (ended[q] < issued[q]) {
            fprintf(stderr, "heron: queue %d waits for what was never given\n", q);
            abort();
        }
    count = next[0] = next[1] = next[2] = 0;
}

static struct entry *append(int queue)
{
    if (count == RING)
        drain();
    if (issued[queue] == COMMANDS) {
        fprintf(stderr, "heron: more than %d commands without a finish\n", COMMANDS);
        abort();
    }
    memset(&ring[count], 0, sizeof ring[count]);
    ring[count].queue = queue;
    return &ring[count++];
}

void heron_wait(enum heron_queue queue, enum heron_queue other, heron_ticket ticket)
{
    struct entry *entry = append(queue);
    entry->wait = 1, entry->other = other, entry->ticket = ticket;
}

heron_ticket heron_copy_async(const struct heron_copy_async *c)
{
    struct entry *entry = append(c->out ? HERON_OUT : HERON_IN);
    entry->copies = 1, entry->copy = *c;
    for (int n = 0; n < 4; n++)
        entry->copy.size[n] += !entry->copy.size[n];
    return ++issued[entry->queue];
}

heron_ticket heron_nest(const struct heron_nest *c)
{
    struct entry *entry = append(HERON_CORE);
    entry->nest = *c;
    for (int loop = 0; loop < 8; loop++)
        entry->nest.n[loop] += !entry->nest.n[loop];
    return ++issued[HERON_CORE];
}

void heron_finish(void)
{
    drain();
    for (uint32_t i = 0; i < LOCAL; i++)
        shadow[i].write = 0, memset(shadow[i].read, 0, sizeof shadow[i].read);
    memset(known, 0, sizeof known);
    memset(issued, 0, sizeof issued);
    memset(ended, 0, sizeof ended);
}

/* Begins a run: local memory holds nothing but a byte that shows, and one queue runs ahead. */
void heron_start(int poison, int first)
{
    memset(local, poison, sizeof local);
    memset(shadow, 0, sizeof shadow);
    races = 0;
    ahead = first;
}

/* Copies bytes of local memory. */
void heron_local(uint8_t *to, int address, int bytes)
{
    if (address >= 0 && bytes >= 0 && address + (int64_t)bytes <= LOCAL)
        memcpy(to, local + address, (size_t)bytes);
}
