/* Elements of a number format in a memory of this process, and numbers on their way between them. */
#ifndef TILEWRIGHT_ELEMENTS_H
#define TILEWRIGHT_ELEMENTS_H

#include <stdint.h>

#define FAMILY_AXES 7

enum element {
    ELEMENT_NONE, ELEMENT_INT8, ELEMENT_INT16, ELEMENT_INT32,
    ELEMENT_FLOAT16, ELEMENT_BFLOAT16, ELEMENT_FLOAT32
};

/* Fixed point has binary points, integers have scales of any size. */
enum kind { KIND_FIXED, KIND_INTEGER, KIND_FLOAT };

/* What a machine, or one of its primitives, computes on. */
struct numbers {
    enum kind kind;
    enum element narrow, sum; /* of operands and results, and of sums */
    int saturate; /* 16-bit floats beyond the largest one become that, not infinity */
};

/* An operand: elements at an address and strides in bytes. */
struct operand {
    const char *name;  /* of the memory, for messages */
    uint8_t *memory;   /* null where addresses are those of this process */
    uint64_t bytes;    /* of the memory */
    uint64_t address;
    int64_t stride[FAMILY_AXES];
    enum element element;
    int64_t circle, turn; /* of a circular buffer: its rows, and the place of the first one */
    int rows;             /* the axis along which they turn */
};

/* A number, and the element type that it has: an integer or a float32. */
struct value {
    enum element element;
    int64_t whole;
    float real;
};

int element_bytes(enum element element);
int element_is_real(enum element element);

/* The low bits of an integer. */
int64_t wrapped(int64_t value, enum element element);
int64_t saturated(int64_t value, enum element element);

struct value whole_value(enum element element, int64_t whole);
struct value real_value(float real);

/* The number of the element at an address of this process; 16-bit floats become float32. */
struct value value_at(const uint8_t *from, enum element element);

/* The place of so many bytes; ends the process where they are outside their memory. */
uint8_t *operand_place(const struct operand *o, int64_t offset, uint64_t bytes);

/* Bytes from the operand's address to an element. */
int64_t operand_offset(const struct operand *o, const int64_t *at);

struct value operand_load(const struct operand *o, int64_t offset);

/* Floats are rounded to the nearest element, of two to the even one; integers keep their low bits. */
void operand_store(const struct operand *o, int64_t offset, struct value value, int saturate);

/* The operand with elements of another type. */
struct operand as_element(struct operand o, enum element element);

#endif
