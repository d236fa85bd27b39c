/* Transfers: boxes, boxes of sums that are rounded on their way, and windows of images. */
#include "families.h"

#include <string.h>

void family_transfer(const struct transfer *t)
{
    for (int64_t a = 0; a < t->size[0]; a++)
    for (int64_t b = 0; b < t->size[1]; b++)
    for (int64_t c = 0; c < t->size[2]; c++)
    for (int64_t d = 0; d < t->size[3]; d++) {
        int64_t at[FAMILY_AXES] = {a, b, c, d, 0};
        uint64_t bytes = (uint64_t)t->element;
        const uint8_t *from = operand_place(&t->source, operand_offset(&t->source, at), bytes);
        memmove(operand_place(&t->target, operand_offset(&t->target, at), bytes), from, bytes);
    }
    if (t->extra_bytes) {
        uint64_t bytes = (uint64_t)t->extra_bytes;
        const uint8_t *from = operand_place(&t->extra_source, 0, bytes);
        memmove(operand_place(&t->extra_target, 0, bytes), from, bytes);
    }
}

void family_convert(const struct convert *p)
{
    for (int64_t a = 0; a < p->size[0]; a++)
    for (int64_t b = 0; b < p->size[1]; b++)
    for (int64_t c = 0; c < p->size[2]; c++)
    for (int64_t d = 0; d < p->size[3]; d++) {
        int64_t at[FAMILY_AXES] = {a, b, c, d, 0};
        struct value sum = operand_load(&p->source, operand_offset(&p->source, at));
        if (p->numbers.kind == KIND_FIXED)
            sum = whole_value(p->target.element,
                              requantised(sum.whole, p->shift, p->target.element));
        operand_store(&p->target, operand_offset(&p->target, at), sum, p->numbers.saturate);
    }
}

int window_inside(const struct window *w, int64_t oh, int64_t ow, int64_t kh, int64_t kw,
                  int64_t *row, int64_t *column)
{
    *row = w->row + oh * w->stride_h + kh * w->dilation_h;
    *column = w->column + ow * w->stride_w + kw * w->dilation_w;
    return *row >= 0 && *row < w->rows && *column >= 0 && *column < w->columns;
}

void family_img2col(const struct img2col *p)
{
    for (int64_t n = 0; n < p->n; n++)
    for (int64_t g = 0; g < p->g; g++)
    for (int64_t oh = 0; oh < p->oh; oh++)
    for (int64_t ow = 0; ow < p->ow; ow++)
    for (int64_t kh = 0; kh < p->kh; kh++)
    for (int64_t kw = 0; kw < p->kw; kw++)
    for (int64_t ci = 0; ci < p->ci; ci++) {
        int64_t row, column, to[FAMILY_AXES] = {n, g, oh, ow, kh, kw, ci};
        uint64_t bytes = (uint64_t)p->element;
        uint8_t *into = operand_place(&p->target, operand_offset(&p->target, to), bytes);
        if (window_inside(&p->window, oh, ow, kh, kw, &row, &column)) {
            int64_t from[FAMILY_AXES] = {n, g, row, column, ci};
            memcpy(into, operand_place(&p->source, operand_offset(&p->source, from), bytes), bytes);
        } else {
            for (uint64_t byte = 0; byte < bytes; byte++)
                into[byte] = (uint8_t)((uint64_t)p->window.fill >> 8 * byte);
        }
    }
}
