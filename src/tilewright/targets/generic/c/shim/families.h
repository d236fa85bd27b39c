/* What the derived instructions do, on the memories of this process, in every number format.

   The meaning is that of the functional simulator: bit for bit on integers, and on floats but for
   the order of sums (docs/machine-file.md: "The derived instruction set"). Records of a machine's
   functions become these structures; see the file of the machine's functions beside this one. */
#ifndef TILEWRIGHT_FAMILIES_H
#define TILEWRIGHT_FAMILIES_H

#include "elements.h"
#include "steps.h"

/* The window over an input: see the machine's header. */
struct window {
    int64_t stride_h, stride_w, dilation_h, dilation_w, row, rows, column, columns;
    int64_t fill; /* what padding holds */
};

/* Where row and column of a window lie in the input; 0 in the padding. */
int window_inside(const struct window *w, int64_t oh, int64_t ow, int64_t kh, int64_t kw,
                  int64_t *row, int64_t *column);

struct transfer {
    int64_t size[4], element, extra_bytes;
    struct operand source, target, extra_source, extra_target;
};

/* Sums to elements of the target's: fixed point shifted right, floats rounded. */
struct convert {
    int64_t size[4], shift;
    struct numbers numbers;
    struct operand source, target;
};

/* Windows of an image, axes n, g, h, w, c, to axes n, g, oh, ow, kh, kw, ci. */
struct img2col {
    int64_t n, g, oh, ow, kh, kw, ci, element;
    struct window window;
    struct operand source, target;
};

struct product {
    int64_t n, g, co, oh, ow, ci, kh, kw;
    int gathered; /* the input has the axes of img2col's target, and no window */
    struct window window;
    struct operand input, weight, bias, output;
    int has_bias, first, last;
    struct steps steps;
};

struct depthwise {
    int64_t n, c, oh, ow, kh, kw;
    struct window window;
    struct operand input, weight, bias, output;
    int has_bias, first, last;
    struct steps steps;
};

struct pool {
    int64_t n, c, oh, ow, kh, kw;
    int average;
    struct window window;
    int64_t window_h, window_w, window_row, window_column;
    int64_t count_top, count_bottom, count_left, count_right;
    struct operand input, output;
    int first, last;
    struct steps steps;
};

struct points {
    int64_t size[4];
    struct step function;
    struct operand input, other, output;
    struct steps steps;
};

struct softmax {
    int64_t size[4], axis, point_in, point_out;
    struct operand input, output;
    struct steps steps;
};

struct layer_norm {
    int64_t size[4], axis;
    float epsilon;
    int centred, others; /* whether the mean is taken off; how many of weight and bias there are */
    struct operand input, weight, bias, output;
    struct steps steps;
};

struct lrn {
    int64_t n, c, h, w, j, point_in, point_out;
    int64_t alpha, bias;                 /* of fixed point, with the tables of the power */
    float real_alpha, real_bias, beta;   /* of floats */
    struct operand table, input, output;
    struct steps steps;
};

/* A product with weights compressed by step indexing: streams of counts, steps and weights. */
struct sparse {
    int64_t n, co, oh, ow, ci, kh, kw, blocks, segments, words, lanes;
    struct window window;
    struct operand input, weight, bias, output;
    int has_bias, first, last;
    struct steps steps;
};

void family_transfer(const struct transfer *t);
void family_convert(const struct convert *p);
void family_img2col(const struct img2col *p);
void family_product(const struct product *p);
void family_depthwise(const struct depthwise *p);
void family_pool(const struct pool *p);
void family_points(const struct points *p);
void family_softmax(const struct softmax *p);
void family_layer_norm(const struct layer_norm *p);
void family_lrn(const struct lrn *p);
void family_sparse(const struct sparse *p);

#endif
