/* CCE C on the host: the intrinsics of a DaVinci core, as the emitted kernels call them.

   A kernel includes this where the compiler is no CCE compiler. Every intrinsic becomes a command
   in its pipe's queue (queues.h) with the line that it stands on; on-chip pointers are offsets into
   their memory. Meanings, units and limits of fields: the vendor's manual, and README.md. */
#ifndef TILEWRIGHT_CCE_H
#define TILEWRIGHT_CCE_H

#include <stddef.h>
#include <stdint.h>

#define __global__
#define __aicore__
#define __gm__
#define __cbuf__
#define __ca__
#define __cb__
#define __cc__
#define __ubuf__

/* Which block of a launch runs, and how many there are. */
extern int64_t cce_block, cce_blocks;
#define block_idx cce_block
#define block_num cce_blocks

typedef _Float16 half;
typedef enum { PIPE_S, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_ALL } pipe_t;
typedef enum {
    EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7
} event_t;
typedef enum { PAD_NONE } pad_t;
typedef enum { inc, dec } addr_cal_mode_t;
typedef enum {
    CRMODE_NONE, CRMODE_F32toF16_NONE, CRMODE_F32toF16_RELU, CRMODE_S32toF16_NONE,
    CRMODE_F16toF32_NONE, CRMODE_NONE_RELU
} ConvRelu_t;
enum { VA0, VA1, VA2, VA3, VA_REGISTERS };

/* CCE_CMPMASK is a register of the vector unit, 128 bits. */
enum cce_memory { CCE_GM, CCE_CBUF, CCE_CA, CCE_CB, CCE_CC, CCE_UB, CCE_CMPMASK, CCE_MEMORIES };

enum cce_operation {
    CCE_COPY, CCE_LOAD, CCE_MAD, CCE_CC_TO_UB, CCE_SCATTER, CCE_VECTOR, CCE_IMG2COL, CCE_COMPARE,
    CCE_SET_CMPMASK, CCE_OPERATIONS
};

enum cce_function {
    CCE_VADD, CCE_VSUB, CCE_VMUL, CCE_VDIV, CCE_VMAX, CCE_VMIN, CCE_VAND, CCE_VOR, CCE_VSEL,
    CCE_VABS, CCE_VRELU, CCE_VEXP, CCE_VLN, CCE_VREC, CCE_VRSQRT, CCE_VSQRT, CCE_VNOT,
    CCE_VADDS, CCE_VMULS, CCE_DUP, CCE_CONVERT, CCE_EQ, CCE_NE, CCE_LT, CCE_LE, CCE_GT, CCE_GE,
    CCE_FUNCTIONS
};

enum cce_type { CCE_HALF, CCE_FLOAT, CCE_S32, CCE_S16, CCE_U16, CCE_U8, CCE_S8 };

#define CCE_TYPE(pointer) _Generic((pointer), \
    half *: CCE_HALF, float *: CCE_FLOAT, int32_t *: CCE_S32, int16_t *: CCE_S16, \
    uint16_t *: CCE_U16, uint8_t *: CCE_U8, int8_t *: CCE_S8)
#define CCE_ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))

void cce_copy(int line, pipe_t pipe, int to, int from, uint64_t dst, uint64_t src, int64_t bursts,
              int64_t length, int64_t src_gap, int64_t dst_gap);
void cce_load(int line, int to, uint64_t dst, uint64_t src, int64_t base, int64_t repeat,
              int64_t stride, int transpose);
void cce_img2col(int line, uint64_t dst, uint64_t src, const int64_t fields[15]);
void cce_fmatrix(int line, uint64_t value);
void cce_padding(int line, uint64_t value);
void cce_mad(int line, enum cce_type sums, enum cce_type factors, uint64_t c, uint64_t a,
             uint64_t b, int64_t m, int64_t k, int64_t n, int first);
void cce_cc_to_ub(int line, uint64_t dst, uint64_t src, int64_t bursts, int64_t length,
                  int64_t src_gap, int64_t dst_gap, ConvRelu_t mode);
void cce_scatter(int line, int to, int from, int64_t repeat, int64_t dst_stride,
                 int64_t src_stride);
void cce_vector(int line, enum cce_function function, enum cce_type dst_type,
                enum cce_type src_type, uint64_t dst, uint64_t src0, uint64_t src1, double scalar,
                int64_t repeat, const int64_t strides[6]);
void cce_compare(int line, enum cce_function function, enum cce_type type, uint64_t dst, uint64_t src0,
                 uint64_t src1, int64_t repeat, const int64_t strides[4]);
void cce_cmpmask(int line, uint64_t src);
void cce_mask(int line, uint64_t high, uint64_t low);
void cce_va(int line, int number, const uint64_t addresses[8]);
void cce_set_flag(int line, pipe_t from, pipe_t to, int event);
void cce_wait_flag(int line, pipe_t from, pipe_t to, int event);
void cce_barrier(int line, pipe_t pipe);

/* Copies in blocks of 32 bytes; gaps run from the end of one burst to the start of the next. */
#define copy_gm_to_ubuf(dst, src, sid, bursts, length, src_gap, dst_gap) \
    ((void)(sid), cce_copy(__LINE__, PIPE_MTE2, CCE_UB, CCE_GM, CCE_ADDRESS(dst), \
                           CCE_ADDRESS(src), bursts, length, src_gap, dst_gap))
#define copy_gm_to_cbuf(dst, src, sid, bursts, length, src_gap, dst_gap, pad) \
    ((void)(sid), (void)(pad), cce_copy(__LINE__, PIPE_MTE2, CCE_CBUF, CCE_GM, CCE_ADDRESS(dst), \
                                        CCE_ADDRESS(src), bursts, length, src_gap, dst_gap))
#define copy_ubuf_to_gm(dst, src, sid, bursts, length, src_gap, dst_gap) \
    ((void)(sid), cce_copy(__LINE__, PIPE_MTE3, CCE_GM, CCE_UB, CCE_ADDRESS(dst), \
                           CCE_ADDRESS(src), bursts, length, src_gap, dst_gap))
#define copy_ubuf_to_cbuf(dst, src, sid, bursts, length, src_gap, dst_gap) \
    ((void)(sid), cce_copy(__LINE__, PIPE_MTE3, CCE_CBUF, CCE_UB, CCE_ADDRESS(dst), \
                           CCE_ADDRESS(src), bursts, length, src_gap, dst_gap))
#define copy_cbuf_to_ubuf(dst, src, sid, bursts, length, src_gap, dst_gap) \
    ((void)(sid), cce_copy(__LINE__, PIPE_MTE1, CCE_UB, CCE_CBUF, CCE_ADDRESS(dst), \
                           CCE_ADDRESS(src), bursts, length, src_gap, dst_gap))
#define copy_ubuf_to_ubuf(dst, src, sid, bursts, length, src_gap, dst_gap) \
    ((void)(sid), cce_copy(__LINE__, PIPE_V, CCE_UB, CCE_UB, CCE_ADDRESS(dst), \
                           CCE_ADDRESS(src), bursts, length, src_gap, dst_gap))

/* Fractals of 512 bytes, one behind the other in the target, stride apart (head to head) in L1. */
#define load_cbuf_to_ca(dst, src, base, repeat, stride, sid, transpose, mode) \
    ((void)(sid), (void)(mode), cce_load(__LINE__, CCE_CA, CCE_ADDRESS(dst), CCE_ADDRESS(src), \
                                         base, repeat, stride, transpose))
#define load_cbuf_to_cb(dst, src, base, repeat, stride, sid, transpose, mode) \
    ((void)(sid), (void)(mode), cce_load(__LINE__, CCE_CB, CCE_ADDRESS(dst), CCE_ADDRESS(src), \
                                         base, repeat, stride, transpose))

/* Fractals of a product's left operand from an image in L1, [c1][h][w][16]: 16 positions of a window
   by 16 channels. set_fmatrix has its width, height (16 bits each), and padding left, right, above
   and below (8 bits each); taps that fall on padding give 0. The first position begins at (leftW,
   leftH); positions run along a row, then to the next. Each further fractal lies jump fractals on,
   and has the next 16 positions (mode 1), or the next tap, kernel columns first (mode 0). */
#define img2col_cbuf_to_ca(dst, src, fetchW, fetchH, leftW, leftH, c1, strideW, strideH, kW, kH, \
                           dilationW, dilationH, jump, mode, repeat, csize) \
    cce_img2col(__LINE__, CCE_ADDRESS(dst), CCE_ADDRESS(src), \
                (const int64_t[]){fetchW, fetchH, leftW, leftH, c1, strideW, strideH, kW, kH, \
                                  dilationW, dilationH, jump, mode, repeat, csize})
#define set_fmatrix(value) cce_fmatrix(__LINE__, (uint64_t)(value))
/* Two bytes that windows have where they reach into padding; 0 at first. */
#define set_padding(value) cce_padding(__LINE__, (uint64_t)(value))

/* c[m x n] (+)= a[m x k] b[k x n]: c of floats in Nz, a in Zz, b in Zn; first starts c at 0. */
#define mad(c, a, b, m, k, n, first) \
    cce_mad(__LINE__, CCE_TYPE(c), CCE_TYPE(a), CCE_ADDRESS(c), CCE_ADDRESS(a), CCE_ADDRESS(b), m, k, \
            n, first)

/* Bursts of fractals; the gap in L0C counts fractals, that in UB blocks of 32 bytes. */
#define copy_matrix_cc_to_ubuf(dst, src, sid, bursts, length, src_gap, dst_gap, mode) \
    ((void)(sid), cce_cc_to_ub(__LINE__, CCE_ADDRESS(dst), CCE_ADDRESS(src), bursts, length, \
                               src_gap, dst_gap, mode))

#define CCE_BINARY(function, dst, a, b, repeat, db, ab, bb, dr, ar, br) \
    cce_vector(__LINE__, function, CCE_TYPE(dst), CCE_TYPE(a), CCE_ADDRESS(dst), CCE_ADDRESS(a), \
               CCE_ADDRESS(b), 0, repeat, (const int64_t[]){db, ab, bb, dr, ar, br})
#define CCE_UNARY(function, dst, a, scalar, repeat, db, ab, dr, ar) \
    cce_vector(__LINE__, function, CCE_TYPE(dst), CCE_TYPE(a), CCE_ADDRESS(dst), CCE_ADDRESS(a), \
               0, scalar, repeat, (const int64_t[]){db, ab, 0, dr, ar, 0})

#define vadd(...) CCE_BINARY(CCE_VADD, __VA_ARGS__)
#define vsub(...) CCE_BINARY(CCE_VSUB, __VA_ARGS__)
#define vmul(...) CCE_BINARY(CCE_VMUL, __VA_ARGS__)
#define vdiv(...) CCE_BINARY(CCE_VDIV, __VA_ARGS__)
#define vmax(...) CCE_BINARY(CCE_VMAX, __VA_ARGS__)
#define vmin(...) CCE_BINARY(CCE_VMIN, __VA_ARGS__)
#define vand(...) CCE_BINARY(CCE_VAND, __VA_ARGS__)
#define vor(...) CCE_BINARY(CCE_VOR, __VA_ARGS__)

/* Relations of all elements of whole repeats, whatever the mask is: a bit each, those of a repeat
   behind those of the one before. set_cmpmask takes 128 of them, by which vsel chooses from a (1) or
   b (0) in every repeat, under the mask. */
#define CCE_RELATION(function, dst, a, b, repeat, db, ab, bb, dr, ar, br) \
    ((void)(db), (void)(dr), cce_compare(__LINE__, function, CCE_TYPE(a), CCE_ADDRESS(dst), \
                                         CCE_ADDRESS(a), CCE_ADDRESS(b), repeat, \
                                         (const int64_t[]){ab, bb, ar, br}))
#define vcmpv_eq(...) CCE_RELATION(CCE_EQ, __VA_ARGS__)
#define vcmpv_ne(...) CCE_RELATION(CCE_NE, __VA_ARGS__)
#define vcmpv_lt(...) CCE_RELATION(CCE_LT, __VA_ARGS__)
#define vcmpv_le(...) CCE_RELATION(CCE_LE, __VA_ARGS__)
#define vcmpv_gt(...) CCE_RELATION(CCE_GT, __VA_ARGS__)
#define vcmpv_ge(...) CCE_RELATION(CCE_GE, __VA_ARGS__)
#define set_cmpmask(bits) cce_cmpmask(__LINE__, CCE_ADDRESS(bits))
#define vsel(...) CCE_BINARY(CCE_VSEL, __VA_ARGS__)

#define vabs(dst, a, ...) CCE_UNARY(CCE_VABS, dst, a, 0, __VA_ARGS__)
#define vrelu(dst, a, ...) CCE_UNARY(CCE_VRELU, dst, a, 0, __VA_ARGS__)
#define vexp(dst, a, ...) CCE_UNARY(CCE_VEXP, dst, a, 0, __VA_ARGS__)
#define vln(dst, a, ...) CCE_UNARY(CCE_VLN, dst, a, 0, __VA_ARGS__)
#define vrec(dst, a, ...) CCE_UNARY(CCE_VREC, dst, a, 0, __VA_ARGS__)
#define vrsqrt(dst, a, ...) CCE_UNARY(CCE_VRSQRT, dst, a, 0, __VA_ARGS__)
#define vsqrt(dst, a, ...) CCE_UNARY(CCE_VSQRT, dst, a, 0, __VA_ARGS__)
#define vnot(dst, a, ...) CCE_UNARY(CCE_VNOT, dst, a, 0, __VA_ARGS__)
#define vadds(dst, a, scalar, ...) CCE_UNARY(CCE_VADDS, dst, a, scalar, __VA_ARGS__)
#define vmuls(dst, a, scalar, ...) CCE_UNARY(CCE_VMULS, dst, a, scalar, __VA_ARGS__)
#define vconv_f162f32(dst, a, ...) CCE_UNARY(CCE_CONVERT, dst, a, 0, __VA_ARGS__)
#define vconv_f322f16(dst, a, ...) CCE_UNARY(CCE_CONVERT, dst, a, 0, __VA_ARGS__)
#define vconv_u82f16(dst, a, ...) CCE_UNARY(CCE_CONVERT, dst, a, 0, __VA_ARGS__)
#define vconv_s82f16(dst, a, ...) CCE_UNARY(CCE_CONVERT, dst, a, 0, __VA_ARGS__)
#define vconv_f162s8(dst, a, ...) CCE_UNARY(CCE_CONVERT, dst, a, 0, __VA_ARGS__)
#define vconv_f162u8(dst, a, ...) CCE_UNARY(CCE_CONVERT, dst, a, 0, __VA_ARGS__)
#define vconv_s322f32(dst, a, ...) CCE_UNARY(CCE_CONVERT, dst, a, 0, __VA_ARGS__)
#define vconv_f322s32r(dst, a, ...) CCE_UNARY(CCE_CONVERT, dst, a, 0, __VA_ARGS__)
#define vector_dup(dst, scalar, repeat, db, ab, dr, ar) \
    cce_vector(__LINE__, CCE_DUP, CCE_TYPE(dst), CCE_TYPE(dst), CCE_ADDRESS(dst), 0, 0, scalar, \
               repeat, (const int64_t[]){db, ab, 0, dr, ar, 0})
#define set_vector_mask(high, low) cce_mask(__LINE__, high, low)

#define set_va_reg_sb(number, addresses) cce_va(__LINE__, number, addresses)
#define scatter_vnchwconv_b16(dst, src, repeat, dst_stride, src_stride) \
    cce_scatter(__LINE__, dst, src, repeat, dst_stride, src_stride)

#define set_flag(from, to, event) cce_set_flag(__LINE__, from, to, (int)(event))
#define wait_flag(from, to, event) cce_wait_flag(__LINE__, from, to, (int)(event))
#define pipe_barrier(pipe) cce_barrier(__LINE__, pipe)

#endif
