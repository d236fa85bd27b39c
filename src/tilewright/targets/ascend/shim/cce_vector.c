/* Vector operations: repeats of eight blocks with strides and a mask, and transposes by address
   registers. */
#include "cce_core.h"

#include <math.h>
#include <string.h>

static const size_t WIDTH[] = {2, 4, 4, 2, 2, 1, 1};

static double number_at(const void *from, int type)
{
    switch (type) {
    case CCE_HALF: return cce_float_of(*(const uint16_t *)from);
    case CCE_FLOAT: return *(const float *)from;
    case CCE_S32: return *(const int32_t *)from;
    case CCE_S16: return *(const int16_t *)from;
    case CCE_U8: return *(const uint8_t *)from;
    case CCE_S8: return *(const int8_t *)from;
    default: return *(const uint16_t *)from;
    }
}

static double whole(double value, double least, double most)
{
    return value != value ? 0 : value < least ? least : value > most ? most : nearbyint(value);
}

static void put(void *to, int type, double value)
{
    switch (type) {
    case CCE_HALF: *(uint16_t *)to = cce_half_of(value); break;
    case CCE_FLOAT: *(float *)to = (float)value; break;
    case CCE_S32: *(int32_t *)to = (int32_t)whole(value, -2147483648.0, 2147483647.0); break;
    case CCE_S16: *(int16_t *)to = (int16_t)whole(value, -32768, 32767); break;
    case CCE_U8: *(uint8_t *)to = (uint8_t)whole(value, 0, 255); break;
    case CCE_S8: *(int8_t *)to = (int8_t)whole(value, -128, 127); break;
    default: *(uint16_t *)to = (uint16_t)whole(value, 0, 65535); break;
    }
}

/* Integers wrap around; bits are combined as they are. */
static int put_integer(void *to, int type, int function, const void *a, const void *b)
{
    if (function == CCE_VAND || function == CCE_VOR || function == CCE_VNOT) {
        uint16_t x = *(const uint16_t *)a, y = b ? *(const uint16_t *)b : 0;
        *(uint16_t *)to = (uint16_t)(function == CCE_VAND  ? x & y
                                     : function == CCE_VOR ? x | y
                                                           : ~x);
        return 1;
    }
    if (type != CCE_S32 || function > CCE_VMUL)
        return 0;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    *(uint32_t *)to = function == CCE_VADD ? x + y : function == CCE_VSUB ? x - y : x * y;
    return 1;
}

/* What the core looks up: 12 bits are right. */
static double estimate(double value)
{
    int exponent;
    double part = frexp(value, &exponent);
    return isfinite(value) ? ldexp(nearbyint(part * 4096) / 4096, exponent) : value;
}

static double value_of(const struct cce_command *c, double a, double b)
{
    switch (c->function) {
    case CCE_VADD: return a + b;
    case CCE_VSUB: return a - b;
    case CCE_VMUL: return a * b;
    case CCE_VDIV: return a / b;
    case CCE_VMAX: return a > b || a != a ? a : b;
    case CCE_VMIN: return a < b || a != a ? a : b;
    case CCE_VABS: return fabs(a);
    case CCE_VRELU: return a > 0 || a != a ? a : 0;
    case CCE_VEXP: return exp(a);
    case CCE_VLN: return log(a);
    case CCE_VREC: return estimate(1 / a);
    case CCE_VRSQRT: return estimate(1 / sqrt(a));
    case CCE_VSQRT: return sqrt(a);
    case CCE_VADDS: return a + c->scalar;
    case CCE_VMULS: return a * c->scalar;
    case CCE_DUP: return c->scalar;
    default: return a;
    }
}

static int legal(const struct cce_command *c)
{
    int bits = c->function == CCE_VAND || c->function == CCE_VOR || c->function == CCE_VNOT;
    int short_type = c->to == CCE_S16 || c->to == CCE_U16;
    int slow = c->function == CCE_VDIV || (c->function >= CCE_VEXP && c->function <= CCE_VSQRT);
    int byte = c->to >= CCE_U8 || c->from >= CCE_U8;
    if ((byte && (c->function != CCE_CONVERT || (c->to != CCE_HALF && c->from != CCE_HALF)))
        || (c->function == CCE_VSEL && c->to != CCE_HALF) || (bits && !short_type) || (short_type && !bits && c->function != CCE_DUP)
        || (slow && c->to == CCE_S32) || (c->function != CCE_CONVERT && c->to != c->from)) {
        cce_report(c->line, "vector function %d has no form for these types", c->function);
        return 0;
    }
    return 1;
}

/* Cycles of a repeat. */
static uint64_t cycles_of(const struct cce_command *c)
{
    int slow = c->function == CCE_VDIV || c->function == CCE_VEXP || c->function == CCE_VLN
               || c->function == CCE_VSQRT;
    return slow ? (c->to == CCE_HALF ? 4 : 2) : 1;
}

void cce_run_vector(const struct cce_command *c)
{
    if (!legal(c))
        return;
    size_t out = WIDTH[c->to], in = WIDTH[c->from], wide = out > in ? out : in;
    int lanes = (int)(256 / wide), operands = c->function <= CCE_VSEL ? 2 : c->function != CCE_DUP;
    const uint8_t *chosen = c->function == CCE_VSEL ? cce_touch(c, CCE_CMPMASK, 0, 16, 0) : NULL;
    uint64_t sources[2] = {c->src, c->other};
    for (int64_t repeat = 0; repeat < c->bursts; repeat++) {
        uint8_t inputs[2][256], result[256];
        const void *known[2][8] = {{0}};
        for (int lane = 0; lane < lanes; lane++) {
            if (!(c->mask[lane / 64] >> lane % 64 & 1))
                continue;
            size_t byte = (size_t)lane * in;
            for (int operand = 0; operand < operands; operand++) {
                size_t block = byte / BLOCK;
                uint64_t at = sources[operand]
                              + (uint64_t)(repeat * c->strides[4 + operand]
                                           + (int64_t)block * c->strides[1 + operand])
                                    * BLOCK;
                if (!known[operand][block])
                    known[operand][block] = cce_touch(c, CCE_UB, at, BLOCK, 0);
                const uint8_t *source = known[operand][block];
                memcpy(&inputs[operand][byte], source + byte % BLOCK, in);
            }
            const void *a = &inputs[0][byte], *b = &inputs[1][byte];
            void *to = &result[(size_t)lane * out];
            if (chosen)
                memcpy(to, chosen[lane / 8] >> lane % 8 & 1 ? a : b, out);
            else if (!put_integer(to, c->to, c->function, a, operands == 2 ? b : NULL))
                put(to, c->to,
                    value_of(c, operands ? number_at(a, c->from) : 0,
                             operands == 2 ? number_at(b, c->from) : 0));
        }
        void *targets[8] = {0};
        for (int lane = 0; lane < lanes; lane++) {
            if (!(c->mask[lane / 64] >> lane % 64 & 1))
                continue;
            size_t byte = (size_t)lane * out, block = byte / BLOCK;
            if (!targets[block])
                targets[block] =
                    cce_touch(c, CCE_UB,
                              c->dst + (uint64_t)(repeat * c->strides[3]
                                                  + (int64_t)block * c->strides[0])
                                           * BLOCK,
                              BLOCK, 1);
            memcpy((uint8_t *)targets[block] + byte % BLOCK, &result[byte], out);
        }
    }
    cce_counts.vector_commands++;
    cce_counts.vector_cycles += (uint64_t)c->bursts * cycles_of(c);
}

void cce_run_compare(const struct cce_command *c)
{
    const int lanes = 128;
    uint64_t sources[2] = {c->src, c->other};
    for (int64_t repeat = 0; repeat < c->bursts; repeat++) {
        double values[2][128];
        uint8_t bits[16] = {0};
        for (int operand = 0; operand < 2; operand++)
            for (int block = 0; block < 8; block++) {
                uint64_t at = sources[operand]
                              + (uint64_t)(repeat * c->strides[2 + operand]
                                           + block * c->strides[operand])
                                    * BLOCK;
                const uint16_t *from = cce_touch(c, CCE_UB, at, BLOCK, 0);
                for (int lane = 0; lane < 16; lane++)
                    values[operand][block * 16 + lane] = number_at(from + lane, c->from);
            }
        for (int lane = 0; lane < lanes; lane++) {
            double a = values[0][lane], b = values[1][lane];
            int holds = c->function == CCE_EQ   ? a == b
                        : c->function == CCE_NE ? a != b
                        : c->function == CCE_LT ? a < b
                        : c->function == CCE_LE ? a <= b
                        : c->function == CCE_GT ? a > b
                                                : a >= b;
            bits[lane / 8] |= (uint8_t)(holds << lane % 8);
        }
        memcpy(cce_touch(c, CCE_UB, c->dst + (uint64_t)repeat * sizeof bits, sizeof bits, 1), bits,
               sizeof bits);
    }
    cce_counts.vector_commands++;
    cce_counts.vector_cycles += (uint64_t)c->bursts;
}

void cce_run_cmpmask(const struct cce_command *c)
{
    uint8_t bits[16];
    memcpy(bits, cce_touch(c, CCE_UB, c->src, sizeof bits, 0), sizeof bits);
    memcpy(cce_touch(c, CCE_CMPMASK, 0, sizeof bits, 1), bits, sizeof bits);
    cce_counts.vector_commands++;
    cce_counts.vector_cycles++;
}

void cce_run_scatter(const struct cce_command *c)
{
    for (int64_t repeat = 0; repeat < c->bursts; repeat++) {
        uint16_t block[16][16];
        for (int row = 0; row < 16; row++) {
            uint64_t at = c->va[1][row] + (uint64_t)(repeat * c->src_gap) * BLOCK;
            memcpy(block[row], cce_touch(c, CCE_UB, at, BLOCK, 0), BLOCK);
        }
        for (int row = 0; row < 16; row++) {
            uint64_t at = c->va[0][row] + (uint64_t)(repeat * c->dst_gap) * BLOCK;
            uint16_t *target = cce_touch(c, CCE_UB, at, BLOCK, 1);
            for (int column = 0; column < 16; column++)
                target[column] = block[column][row];
        }
    }
    cce_counts.scatters++;
    cce_counts.vector_commands++;
    cce_counts.vector_cycles += (uint64_t)c->bursts * 2;
}
