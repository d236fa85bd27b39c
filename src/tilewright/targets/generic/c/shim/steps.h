/* Functions of one element or two, and the steps that follow a sum as results are written. */
#ifndef TILEWRIGHT_STEPS_H
#define TILEWRIGHT_STEPS_H

#include "elements.h"

#define FAMILY_STEPS 8

enum function {
    FUNCTION_NONE, FUNCTION_ADD, FUNCTION_SUB, FUNCTION_MUL, FUNCTION_MAX, FUNCTION_MIN,
    FUNCTION_DIV, FUNCTION_POW, FUNCTION_PRELU, FUNCTION_RELU, FUNCTION_NEG, FUNCTION_ABS,
    FUNCTION_CLIP, FUNCTION_LEAKY_RELU, FUNCTION_TRANSPOSE,
    FUNCTION_REQUANTISE, /* of fixed point */
    FUNCTION_TABLE,      /* of fixed point: interpolated between 257 entries of 16 bits */
    FUNCTION_LOOK_UP,    /* of int8: one of 256 entries */
    FUNCTION_REQUANTISE_LINEAR, FUNCTION_QUANTISE_LINEAR, FUNCTION_DEQUANTISE_LINEAR,
    FUNCTION_ADD_LINEAR, FUNCTION_MUL_LINEAR,
    FUNCTION_CALLED /* of floats: `call` */
};

/* A function, and its parameters: `x` and `y` are those of fixed point. */
struct step {
    enum function function;
    int32_t x, y;
    int32_t zero, first_zero, second_zero, minimum, maximum;
    float factor, first_factor, second_factor, scale, alpha, beta, low, high;
    float (*call)(float value, float alpha, float beta);
    struct operand table;
};

struct steps {
    int count;
    struct step step[FAMILY_STEPS];
    struct operand residual;
    struct numbers numbers;
    enum element to; /* the integers that quantising makes */
};

/* Whether a function takes a second operand. */
int is_binary(enum function function);

/* The second operand of a function: factors are float32. */
struct value second_operand(enum function function, const struct operand *o, int64_t offset);

struct value apply_step(const struct step *s, struct value x, struct value y,
                        const struct numbers *numbers, enum element to);

/* All steps; `at` is the position of the result. */
struct value apply_steps(const struct steps *steps, struct value value, const int64_t *at);

/* (x + half) >> shift, saturated; a negative shift multiplies. */
int64_t requantised(int64_t value, int64_t shift, enum element narrow);

#endif
