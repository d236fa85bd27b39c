/* What the derived instructions do, on the memories of this process, in fixed point.

   The meaning is that of the functional simulator, bit for bit (docs/machine-file.md: "The derived
   instruction set"). Records of a machine's functions become these structures; see the file of the
   machine's functions beside this one. */
#ifndef TILEWRIGHT_FAMILIES_H
#define TILEWRIGHT_FAMILIES_H

#include <stdint.h>

#define FAMILY_AXES 7
#define FAMILY_STEPS 8

/* An operand: elements of 8, 16 or 32 bits, at an address and strides in bytes. */
struct operand {
    const char *name;  /* of the memory, for messages */
    uint8_t *memory;   /* null where addresses are those of this process */
    uint64_t bytes;    /* of the memory */
    uint64_t address;
    int64_t stride[FAMILY_AXES];
    int bits;
    int64_t circle, turn; /* of a circular buffer: its rows, and the place of the first one */
    int rows;             /* the axis along which they turn */
};

enum function {
    FUNCTION_NONE, FUNCTION_ADD, FUNCTION_SUB, FUNCTION_MUL, FUNCTION_MAX, FUNCTION_MIN,
    FUNCTION_PRELU, FUNCTION_RELU, FUNCTION_NEG, FUNCTION_ABS, FUNCTION_CLIP, FUNCTION_LEAKY_RELU,
    FUNCTION_REQUANTISE, FUNCTION_TABLE, FUNCTION_TRANSPOSE
};

/* A function of one element or two, and its parameters. */
struct step {
    enum function function;
    int32_t x, y;
    struct operand table; /* 257 entries of 16 bits */
};

/* The steps behind an anchor. */
struct steps {
    int count;
    struct step step[FAMILY_STEPS];
    struct operand residual;
    int narrow; /* bits of the machine's elements */
};

/* The window over an input: see the machine's header. */
struct window {
    int64_t stride_h, stride_w, dilation_h, dilation_w, row, rows, column, columns;
};

struct transfer {
    int64_t size[4], element, extra_bytes;
    struct operand source, target, extra_source, extra_target;
};

/* Sums of 32 bits to elements of the target's, shifted right. */
struct convert {
    int64_t size[4], shift;
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

void family_transfer(const struct transfer *t);
void family_convert(const struct convert *p);
void family_img2col(const struct img2col *p);
void family_product(const struct product *p);
void family_depthwise(const struct depthwise *p);
void family_pool(const struct pool *p);
void family_points(const struct points *p);
void family_softmax(const struct softmax *p);

#endif
