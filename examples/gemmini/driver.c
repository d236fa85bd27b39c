/* The functions that gemmini.toml names, by Gemmini's commands.

   Buffers of the scratchpad have 16 bytes a row: a pixel with its channels takes one or more rows,
   and 16 output channels of one weight take one. Buffers of the accumulators have 16 sums of 32 bits
   a row. Biases and scales stay in main memory: `tile_know` keeps where they lie.

   Gemmini scales sums and applies ReLU as they leave (mvout), so a compute that ends a sum notes
   with which scale its rows are to leave. What hardware orders by itself needs no waits. */
#include "tile.h"

#include <stdio.h>
#include <stdlib.h>

#include "gemmini.h"

#define ROW 16           /* bytes of a row of the scratchpad */
#define ACC_ROW 64       /* bytes of a row of the accumulators */
#define ACCUMULATOR 0x80000000u
#define ADDED 0x40000000u /* to what the accumulator holds */
#define FULL 0x20000000u  /* sums themselves leave, not scaled */
#define KNOWN 8192        /* bytes of the memory `known` */

static void need(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "gemmini: %s\n", what);
        abort();
    }
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Waiting. */

static tile_ticket tickets;

void tile_wait(enum tile_engine engine, enum tile_engine other, tile_ticket ticket)
{
    (void)engine, (void)other, (void)ticket;
}

void tile_finish(void)
{
    gemmini_fence();
    tickets = 0;
}

/* Biases and scales. */

static const void *known[KNOWN / 4];

tile_ticket tile_know(const struct tile_know *c)
{
    need(c->element == 4, "biases and scales have 4 bytes");
    for (uint64_t a = 0; a < c->size0; a++)
    for (uint64_t b = 0; b < c->size1; b++)
    for (uint64_t d = 0; d < c->size2; d++)
    for (uint64_t e = 0; e < c->size3; e++) {
        uint64_t from = a * c->source_stride0 + b * c->source_stride1 + d * c->source_stride2
                        + e * c->source_stride3;
        uint64_t to = a * c->target_stride0 + b * c->target_stride1 + d * c->target_stride2
                      + e * c->target_stride3;
        known[(c->target_address + to) / 4] = (const void *)(uintptr_t)(c->source_address + from);
    }
    return ++tickets;
}

static const void *known_at(uint32_t address)
{
    need(address < KNOWN && known[address / 4], "a bias or a scale that is not known");
    return known[address / 4];
}

/* Loads. */

/* An axis of a box: how many elements, and bytes from one to the next on both sides. */
struct axis {
    uint64_t size, main, local;
};

/* Sorts axes of more than one element to the front, the one with the smallest step on the chip last
   of them; gives how many there are. */
static int sorted(struct axis *axes)
{
    int count = 0;
    for (int i = 0; i < 4; i++)
        if (axes[i].size > 1)
            axes[count++] = axes[i];
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++)
            if (axes[j].local > axes[i].local) {
                struct axis held = axes[i];
                axes[i] = axes[j], axes[j] = held;
            }
    for (int i = count; i < 4; i++)
        axes[i] = (struct axis){1, 0, 0};
    return count;
}

/* `count` rows of `bytes` bytes each, which follow one another in the scratchpad. */
static void load_rows(uint64_t from, uint64_t stride, uint64_t to, uint64_t bytes, uint64_t count)
{
    need(to % ROW == 0, "a buffer does not begin with a row");
    gemmini_extended3_config_ld((size_t)stride, MVIN_SCALE_IDENTITY, false, 0);
    for (uint64_t row = 0; row < count; row += DIM)
        gemmini_extended_mvin((const void *)(uintptr_t)(from + row * stride),
                              (uint32_t)(to / ROW + row), (size_t)bytes,
                              least((size_t)(count - row), DIM));
}

/* `bytes` bytes that are contiguous on both sides. */
static void load_run(uint64_t from, uint64_t to, uint64_t bytes)
{
    if (bytes >= ROW)
        load_rows(from, ROW, to, ROW, bytes / ROW);
    if (bytes % ROW)
        load_rows(from + bytes / ROW * ROW, ROW, to + bytes / ROW * ROW, bytes % ROW, 1);
}

tile_ticket tile_mvin(const struct tile_mvin *c)
{
    struct axis axes[4] = {
        {c->size0, c->source_stride0, c->target_stride0},
        {c->size1, c->source_stride1, c->target_stride1},
        {c->size2, c->source_stride2, c->target_stride2},
        {c->size3, c->source_stride3, c->target_stride3},
    };
    int count = sorted(axes), channels = count && axes[count - 1].local == 1;
    need(c->element == 1 && !c->extra_bytes, "the scratchpad holds bytes");
    /* The last axis is that of channels, the one before it that of rows. */
    struct axis inner = {1, 1, 1}, rows = {1, 0, ROW};
    if (channels)
        inner = axes[--count];
    need(inner.main == 1, "channels are contiguous in main memory");
    if (count && axes[count - 1].local == ROW && inner.size <= ROW)
        rows = axes[--count];
    for (int i = count; i < 4; i++)
        axes[i] = (struct axis){1, 0, 0};
    for (uint64_t a = 0; a < axes[0].size; a++)
    for (uint64_t b = 0; b < axes[1].size; b++)
    for (uint64_t d = 0; d < axes[2].size; d++)
    for (uint64_t e = 0; e < axes[3].size; e++) {
        uint64_t from = c->source_address + a * axes[0].main + b * axes[1].main + d * axes[2].main
                        + e * axes[3].main;
        uint64_t to = c->target_address + a * axes[0].local + b * axes[1].local
                      + d * axes[2].local + e * axes[3].local;
        if (rows.size > 1)
            load_rows(from, rows.main, to, inner.size, rows.size);
        else
            load_run(from, to, inner.size);
    }
    return ++tickets;
}

/* How rows of the accumulators leave. */
struct leaving {
    const float *scale; /* null: as sums */
    int apart;          /* whether each channel has a scale of its own */
    int activation;
};

static struct leaving leaving[ACC_ROWS];

/* Products. */

/* A convolution, or a product whose rows are those of one column of pixels. */
struct product {
    uint32_t n, g, co, oh, ow, ci, kh, kw, stride_h, stride_w, dilation_h, dilation_w;
    int32_t row, column;
    uint32_t rows, columns;
    uint32_t input, input_n, input_g, input_h, input_w;
    uint32_t weight, weight_g, weight_co, weight_kh, weight_kw, weight_ci;
    uint32_t bias, bias_address, bias_c;
    uint32_t output, output_n, output_g, output_h, output_w, output_c;
    uint32_t first, last, scaled, residual, residual_c;
    int32_t zero, minimum, maximum;
};

static uint32_t acc_row(uint32_t address)
{
    need(address % ACC_ROW == 0 && address / ACC_ROW < ACC_ROWS, "no row of the accumulators");
    return address / ACC_ROW;
}

/* Rows of the accumulators from one pixel of a row to the next; commands write rows that follow one
   another, so where that is not 1 each pixel takes a command. */
static uint32_t pixel_rows(const struct product *p)
{
    return p->ow == 1 ? 1 : p->output_w / ACC_ROW;
}

/* The bias in every row of the sums: the array adds to it. */
static void start_sums(const struct product *p, uint32_t row)
{
    uint32_t step = pixel_rows(p), most = step == 1 ? DIM : 1;
    static const acc_t zeros[DIM];
    const void *bias = p->bias ? known_at(p->bias_address) : zeros;
    need(!p->bias || p->co == 1 || p->bias_c == 4, "a bias for each channel");
    gemmini_extended3_config_ld(0, MVIN_SCALE_IDENTITY, false, 1);
    for (uint32_t done = 0; done < p->ow; done += most)
        gemmini_extended_mvin2(bias, ACCUMULATOR | (row + done * step), p->co,
                               least(p->ow - done, most));
}

/* Notes how rows are to leave once their sums are complete. */
static void end_sums(const struct product *p, uint32_t row)
{
    struct leaving how = {0, 0, NO_ACTIVATION};
    if (p->scaled) {
        need(!p->zero && p->maximum == 127 && (p->minimum == -128 || !p->minimum),
             "results are int8 with a zero point of 0, all of them or from 0 on");
        how.scale = known_at(p->residual);
        how.apart = p->co > 1 && p->residual_c;
        how.activation = p->minimum ? NO_ACTIVATION : RELU;
    }
    for (uint32_t done = 0; done < p->ow; done++)
        leaving[row + done * pixel_rows(p)] = how;
}

/* One block of weights in the array, and all pixels of a column of positions that meet it. */
static void multiply(const struct product *p, uint32_t n, uint32_t g, uint32_t k, uint32_t kh,
                     uint32_t kw)
{
    size_t depth = least(p->ci - k, DIM);
    uint32_t b = p->weight + g * p->weight_g + kh * p->weight_kh + kw * p->weight_kw
                 + k * p->weight_ci;
    int64_t most = pixel_rows(p) == 1 ? DIM : 1;
    int loaded = 0;
    for (uint32_t oh = 0; oh < p->oh; oh++) {
        int64_t row = p->row + (int64_t)oh * p->stride_h + (int64_t)kh * p->dilation_h;
        int64_t column = p->column + (int64_t)kw * p->dilation_w, step = p->stride_w;
        int64_t begin = column < 0 ? (-column + step - 1) / step : 0;
        int64_t end = ((int64_t)p->columns - column + step - 1) / step;
        end = end > p->ow ? p->ow : end;
        if (row < 0 || row >= p->rows)
            continue;
        for (int64_t ow = begin; ow < end; ow += most) {
            size_t count = least((size_t)(end - ow), (size_t)most);
            uint32_t a = p->input + n * p->input_n + g * p->input_g + k
                         + (uint32_t)row * p->input_h
                         + (uint32_t)(column + ow * step) * p->input_w;
            uint32_t c = acc_row(p->output + n * p->output_n + g * p->output_g + oh * p->output_h
                                 + (uint32_t)ow * p->output_w);
            need(a % ROW == 0 && b % ROW == 0, "operands begin with a row");
            gemmini_extended_preload(loaded ? GARBAGE_ADDR : b / ROW, ACCUMULATOR | ADDED | c,
                                     p->co, depth, p->co, count);
            if (loaded)
                gemmini_extended_compute_accumulated(a / ROW, GARBAGE_ADDR, depth, count, DIM,
                                                     count);
            else
                gemmini_extended_compute_preloaded(a / ROW, GARBAGE_ADDR, depth, count, DIM,
                                                   count);
            loaded = 1;
        }
    }
}

static tile_ticket product(const struct product *p)
{
    need(p->co <= DIM && (p->co == 1 || (p->weight_co == 1 && p->output_c == 4)),
         "16 output channels in a row");
    need(p->ow == 1 || p->output_w % ACC_ROW == 0, "sums of a pixel begin with a row");
    need(p->ci == 1 || p->weight_ci == ROW, "weights of channels in rows that follow one another");
    gemmini_extended_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0,
                               p->ow == 1 ? 1 : p->stride_w * p->input_w / ROW, false, false);
    for (uint32_t n = 0; n < p->n; n++)
    for (uint32_t g = 0; g < p->g; g++) {
        uint32_t first = p->output + n * p->output_n + g * p->output_g;
        for (uint32_t oh = 0; p->first && oh < p->oh; oh++)
            start_sums(p, acc_row(first + oh * p->output_h));
        for (uint32_t k = 0; k < p->ci; k += DIM)
        for (uint32_t kh = 0; kh < p->kh; kh++)
        for (uint32_t kw = 0; kw < p->kw; kw++)
            multiply(p, n, g, k, kh, kw);
        for (uint32_t oh = 0; p->last && oh < p->oh; oh++)
            end_sums(p, acc_row(first + oh * p->output_h));
    }
    return ++tickets;
}

tile_ticket tile_conv(const struct tile_conv *c)
{
    return product(&(struct product){
        c->n, c->g, c->co, c->oh, c->ow, c->ci, c->kh, c->kw,
        c->stride_h, c->stride_w, c->dilation_h, c->dilation_w,
        c->row, c->column, c->rows, c->columns,
        c->input_address, c->input_n, c->input_g, c->input_h, c->input_w,
        c->weight_address, c->weight_g, c->weight_co, c->weight_kh, c->weight_kw, c->weight_ci,
        c->bias, c->bias_address, c->bias_c,
        c->output_address, c->output_n, c->output_g, c->output_h, c->output_w, c->output_c,
        c->first, c->last, c->then1 == TILE_CONV_THEN1_REQUANTISE_LINEAR,
        c->residual_address, c->residual_c, c->then1_requantise_linear_zero,
        c->then1_requantise_linear_minimum, c->then1_requantise_linear_maximum,
    });
}

/* Rows of the left matrix are pixels of a row. */
tile_ticket tile_matmul(const struct tile_matmul *c)
{
    return product(&(struct product){
        1, c->g, c->co, 1, c->n, c->ci, 1, 1, 1, 1, 1, 1, 0, 0, 1, c->n,
        c->input_address, 0, c->input_g, 0, c->input_n,
        c->weight_address, c->weight_g, c->weight_co, 0, 0, c->weight_ci,
        c->bias, c->bias_address, c->bias_c,
        c->output_address, 0, c->output_g, 0, c->output_n, c->output_c,
        c->first, c->last, c->then1 == TILE_MATMUL_THEN1_REQUANTISE_LINEAR,
        c->residual_address, c->residual_c, c->then1_requantise_linear_zero,
        c->then1_requantise_linear_minimum, c->then1_requantise_linear_maximum,
    });
}

/* Stores. */

static void store(uint64_t to, uint64_t stride, uint32_t row, size_t channels, size_t count,
                  int activation, float scale)
{
    gemmini_extended_config_st((size_t)stride, activation, scale);
    gemmini_extended_mvout((void *)(uintptr_t)to, row, channels, count);
}

/* Up to 16 rows of `channels` sums each, which leave as the first one does. A store has one scale:
   where channels have their own, all up to the last one leave with its scale, then all up to the one
   before with that one's, and so on. */
static void store_rows(uint64_t to, uint64_t stride, uint32_t row, size_t channels, size_t count)
{
    const struct leaving *how = &leaving[row];
    int alike = 1;
    if (!how->scale) {
        store(to, stride, ACCUMULATOR | FULL | row, channels, count, NO_ACTIVATION,
              ACC_SCALE_IDENTITY);
        return;
    }
    for (size_t channel = 1; how->apart && channel < channels; channel++)
        alike = alike && how->scale[channel] == how->scale[0];
    if (alike) {
        store(to, stride, ACCUMULATOR | row, channels, count, how->activation, how->scale[0]);
        return;
    }
    for (size_t left = channels; left > 0; left--)
        store(to, stride, ACCUMULATOR | row, left, count, how->activation, how->scale[left - 1]);
}

/* Rows of the accumulators that follow one another, `channels` sums of each: those that leave in the
   same way together. */
static void store_all(uint64_t to, uint64_t stride, uint32_t row, size_t channels, uint64_t count,
                      uint32_t element)
{
    for (uint64_t done = 0, some; done < count; done += some) {
        const struct leaving *first = &leaving[row + done], *other;
        need(element == (first->scale ? 1 : 4), "sums leave as their compute says");
        for (some = 1; some < DIM && done + some < count; some++) {
            other = &leaving[row + done + some];
            if (other->scale != first->scale || other->activation != first->activation)
                break;
        }
        store_rows(to + done * stride, stride, row + (uint32_t)done, channels, (size_t)some);
    }
}

tile_ticket tile_mvout(const struct tile_mvout *c)
{
    struct axis axes[4] = {
        {c->size0, c->target_stride0, c->source_stride0},
        {c->size1, c->target_stride1, c->source_stride1},
        {c->size2, c->target_stride2, c->source_stride2},
        {c->size3, c->target_stride3, c->source_stride3},
    };
    int count = sorted(axes);
    struct axis inner = {1, c->element, 4}, rows = {1, 0, ACC_ROW};
    uint64_t rest = 0; /* channels of one more row, where there are more than those of whole rows */
    if (count && axes[count - 1].local == 4)
        inner = axes[--count];
    need(inner.main == c->element, "channels are contiguous in main memory");
    if (inner.size > DIM) {
        rows = (struct axis){inner.size / DIM, DIM * inner.main, ACC_ROW};
        rest = inner.size % DIM;
        inner.size = DIM;
    } else if (count && axes[count - 1].local == ACC_ROW) {
        rows = axes[--count];
    }
    for (int i = count; i < 4; i++)
        axes[i] = (struct axis){1, 0, 0};
    for (uint64_t a = 0; a < axes[0].size; a++)
    for (uint64_t b = 0; b < axes[1].size; b++)
    for (uint64_t d = 0; d < axes[2].size; d++) {
        uint64_t to = c->target_address + a * axes[0].main + b * axes[1].main + d * axes[2].main;
        uint32_t row = acc_row((uint32_t)(c->source_address + a * axes[0].local
                                          + b * axes[1].local + d * axes[2].local));
        store_all(to, rows.main, row, (size_t)inner.size, rows.size, c->element);
        if (rest)
            store_all(to + rows.size * rows.main, 0, row + (uint32_t)rows.size, (size_t)rest, 1,
                      c->element);
    }
    return ++tickets;
}
