/* DLPlib: a library over simulated deep-learning accelerators.
 *
 * A handle is a device with memory of its own; operators run on it one after the other, each when
 * it is called. Descriptors say what memory holds and what an operator does. Every call returns a
 * status; dlpGetErrorString tells what was wrong with the last call on a handle. Handles and
 * descriptors are small values, and a destroyed one is refused.
 *
 * The device is a process of Tilewright's Python package that dlpCreate starts: the interpreter is
 * the one with which this library was built, or the one that the environment variable
 * DLPLIB_PYTHON names. A handle may be used by one thread at a time.
 */
#ifndef DLPLIB_H
#define DLPLIB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    DLP_SUCCESS = 0,
    DLP_ERROR_HANDLE = 1,     /* destroyed, or there are too many */
    DLP_ERROR_DESCRIPTOR = 2, /* not set, destroyed, or of another kind */
    DLP_ERROR_PARAMETER = 3,  /* out of bounds */
    DLP_ERROR_SHAPE = 4,      /* operands do not fit */
    DLP_ERROR_TYPE = 5,       /* numbers that the device or the operator does not take */
    DLP_ERROR_MEMORY = 6,     /* not allocated, freed, out of bounds, overlapping */
    DLP_ERROR_CAPACITY = 7,   /* the device's memory is full */
    DLP_ERROR_MISMATCH = 8,
    DLP_ERROR_REFUSED = 9,    /* an unknown target, or a layer that it cannot run */
    DLP_ERROR_LOST = 10       /* the device's process could not be started, or has ended */
} dlpStatus;

typedef enum { DLP_NCHW = 0, DLP_NHWC = 1 } dlpFormat;
/* Fixed point means integer / 2**fraction; the accelerators compute in it, cpu in float32. */
typedef enum { DLP_FLOAT32 = 0, DLP_FIXED16 = 1, DLP_FIXED32 = 2 } dlpType;
typedef enum { DLP_NONE = 0, DLP_RELU = 1, DLP_SIGMOID = 2, DLP_TANH = 3 } dlpActivation;
typedef enum { DLP_MAX = 0, DLP_AVERAGE = 1 } dlpPoolingMode;
typedef enum { DLP_ADD = 0, DLP_SUB = 1, DLP_MUL = 2 } dlpVectorOperation;

typedef struct { int id; } dlpHandle;
typedef struct { int64_t id; } dlpTensorDescriptor;
typedef struct { int64_t id; } dlpFilterDescriptor;
typedef struct { int64_t id; } dlpConvolutionDescriptor;
typedef struct { int64_t id; } dlpPoolingDescriptor;
typedef struct { int64_t id; } dlpLrnDescriptor;
typedef struct { int64_t id; } dlpActivationDescriptor;
typedef struct { int64_t id; } dlpBatchNormDescriptor;
typedef int64_t dlpAddress; /* of device memory; 0 is never one */

/* Handles. Targets are tilewright's: "cambricon-x", "shidiannao", "cpu". All memory must have been
 * freed before a handle is destroyed. */
dlpStatus dlpCreate(dlpHandle *handle, const char *target);
dlpStatus dlpDestroy(dlpHandle handle);
const char *dlpGetErrorString(dlpHandle handle);
dlpStatus dlpGetCycles(dlpHandle handle, uint64_t *cycles); /* of all operators so far */

/* Device memory: new memory holds zeros; ranges must lie in one allocation. */
dlpStatus dlpMalloc(dlpHandle handle, dlpAddress *address, size_t bytes);
dlpStatus dlpFree(dlpHandle handle, dlpAddress address);
dlpStatus dlpMemcpyToDevice(dlpHandle handle, dlpAddress to, const void *from, size_t bytes);
dlpStatus dlpMemcpyToHost(dlpHandle handle, void *to, dlpAddress from, size_t bytes);
dlpStatus dlpMemcpyOnDevice(dlpHandle handle, dlpAddress to, dlpAddress from, size_t bytes);

/* Real numbers to elements (rounded half to even, saturated; NaN gives 0 in fixed point) and back. */
dlpStatus dlpEncode(const float *values, size_t count, dlpType type, int fraction, void *elements);
dlpStatus dlpDecode(const void *elements, size_t count, dlpType type, int fraction, float *values);

/* Tensors: samples, channels, height, width; a bias of c channels is 1 x c x 1 x 1.
 * Filters: output channels, input channels of one group, kernel height and width. */
dlpStatus dlpCreateTensorDescriptor(dlpHandle handle, dlpTensorDescriptor *descriptor);
dlpStatus dlpSetTensorDescriptor(dlpHandle handle, dlpTensorDescriptor descriptor,
                                 dlpFormat format, dlpType type, int fraction, int n, int c, int h,
                                 int w);
dlpStatus dlpGetTensorDescriptor(dlpHandle handle, dlpTensorDescriptor descriptor,
                                 dlpFormat *format, dlpType *type, int *fraction, int *n, int *c,
                                 int *h, int *w, size_t *bytes);
dlpStatus dlpDestroyTensorDescriptor(dlpHandle handle, dlpTensorDescriptor descriptor);
dlpStatus dlpCreateFilterDescriptor(dlpHandle handle, dlpFilterDescriptor *descriptor);
dlpStatus dlpSetFilterDescriptor(dlpHandle handle, dlpFilterDescriptor descriptor,
                                 dlpFormat format, dlpType type, int fraction, int oc, int ic,
                                 int kh, int kw);
dlpStatus dlpGetFilterDescriptor(dlpHandle handle, dlpFilterDescriptor descriptor,
                                 dlpFormat *format, dlpType *type, int *fraction, int *oc, int *ic,
                                 int *kh, int *kw, size_t *bytes);
dlpStatus dlpDestroyFilterDescriptor(dlpHandle handle, dlpFilterDescriptor descriptor);

/* Operators' descriptors. */
dlpStatus dlpCreateConvolutionDescriptor(dlpHandle handle, dlpConvolutionDescriptor *descriptor);
dlpStatus dlpSetConvolutionDescriptor(dlpHandle handle, dlpConvolutionDescriptor descriptor,
                                      int stride_h, int stride_w, int pad_h, int pad_w,
                                      int dilation_h, int dilation_w, int groups,
                                      dlpActivation activation);
dlpStatus dlpDestroyConvolutionDescriptor(dlpHandle handle, dlpConvolutionDescriptor descriptor);
/* count_pads: an average counts pads as zeros; round_up: as Caffe rounds the number of windows. */
dlpStatus dlpCreatePoolingDescriptor(dlpHandle handle, dlpPoolingDescriptor *descriptor);
dlpStatus dlpSetPoolingDescriptor(dlpHandle handle, dlpPoolingDescriptor descriptor,
                                  dlpPoolingMode mode, int window_h, int window_w, int stride_h,
                                  int stride_w, int pad_h, int pad_w, int count_pads,
                                  int round_up);
dlpStatus dlpDestroyPoolingDescriptor(dlpHandle handle, dlpPoolingDescriptor descriptor);
/* x / (k + alpha/size * sum of squares over size channels)**beta */
dlpStatus dlpCreateLrnDescriptor(dlpHandle handle, dlpLrnDescriptor *descriptor);
dlpStatus dlpSetLrnDescriptor(dlpHandle handle, dlpLrnDescriptor descriptor, int size,
                              double alpha, double beta, double k);
dlpStatus dlpDestroyLrnDescriptor(dlpHandle handle, dlpLrnDescriptor descriptor);
dlpStatus dlpCreateActivationDescriptor(dlpHandle handle, dlpActivationDescriptor *descriptor);
dlpStatus dlpSetActivationDescriptor(dlpHandle handle, dlpActivationDescriptor descriptor,
                                     dlpActivation mode);
dlpStatus dlpDestroyActivationDescriptor(dlpHandle handle, dlpActivationDescriptor descriptor);
/* of_batch: gradients go through the statistics of the batch, instead of given ones. */
dlpStatus dlpCreateBatchNormDescriptor(dlpHandle handle, dlpBatchNormDescriptor *descriptor);
dlpStatus dlpSetBatchNormDescriptor(dlpHandle handle, dlpBatchNormDescriptor descriptor,
                                    int of_batch);
dlpStatus dlpDestroyBatchNormDescriptor(dlpHandle handle, dlpBatchNormDescriptor descriptor);

/* Operators; a tensor or filter is a descriptor and an address. The bias of a layer in fixed point
 * is DLP_FIXED32 at the sum of the fractions of input and weights; address 0 stands for none. */
#define DLP_TENSOR(name) dlpTensorDescriptor name##_descriptor, dlpAddress name
#define DLP_FILTER(name) dlpFilterDescriptor name##_descriptor, dlpAddress name

dlpStatus dlpConvolutionForward(dlpHandle handle, dlpConvolutionDescriptor convolution,
                                DLP_TENSOR(x), DLP_FILTER(w), DLP_TENSOR(bias), DLP_TENSOR(y));
dlpStatus dlpConvolutionBackwardData(dlpHandle handle, dlpConvolutionDescriptor convolution,
                                     DLP_FILTER(w), DLP_TENSOR(dy), DLP_TENSOR(dx));
dlpStatus dlpConvolutionBackwardFilter(dlpHandle handle, dlpConvolutionDescriptor convolution,
                                       DLP_TENSOR(x), DLP_TENSOR(dy), DLP_FILTER(dw));
dlpStatus dlpBiasBackward(dlpHandle handle, DLP_TENSOR(dy), DLP_TENSOR(db));
dlpStatus dlpPoolingForward(dlpHandle handle, dlpPoolingDescriptor pooling, DLP_TENSOR(x),
                            DLP_TENSOR(y));
dlpStatus dlpPoolingBackward(dlpHandle handle, dlpPoolingDescriptor pooling, DLP_TENSOR(x),
                             DLP_TENSOR(y), DLP_TENSOR(dy), DLP_TENSOR(dx));
dlpStatus dlpLrnForward(dlpHandle handle, dlpLrnDescriptor lrn, DLP_TENSOR(x), DLP_TENSOR(y));
dlpStatus dlpLrnBackward(dlpHandle handle, dlpLrnDescriptor lrn, DLP_TENSOR(x), DLP_TENSOR(dy),
                         DLP_TENSOR(dx));
dlpStatus dlpActivationForward(dlpHandle handle, dlpActivationDescriptor activation,
                               DLP_TENSOR(x), DLP_TENSOR(y));
dlpStatus dlpActivationBackward(dlpHandle handle, dlpActivationDescriptor activation,
                                DLP_TENSOR(y), DLP_TENSOR(dy), DLP_TENSOR(dx));
dlpStatus dlpFullyConnectedForward(dlpHandle handle, DLP_TENSOR(x), DLP_FILTER(w),
                                   DLP_TENSOR(bias), DLP_TENSOR(y), dlpActivation activation);
dlpStatus dlpFullyConnectedBackwardData(dlpHandle handle, DLP_FILTER(w), DLP_TENSOR(dy),
                                        DLP_TENSOR(dx));
dlpStatus dlpFullyConnectedBackwardFilter(dlpHandle handle, DLP_TENSOR(x), DLP_TENSOR(dy),
                                          DLP_FILTER(dw));
/* deviation is 1 / sqrt(variance + epsilon); all but x and y are 1 x c x 1 x 1. */
dlpStatus dlpBatchNormForward(dlpHandle handle, DLP_TENSOR(x), DLP_TENSOR(mean),
                              DLP_TENSOR(deviation), DLP_TENSOR(scale), DLP_TENSOR(shift),
                              DLP_TENSOR(y));
dlpStatus dlpBatchNormBackward(dlpHandle handle, dlpBatchNormDescriptor batch_norm, DLP_TENSOR(x),
                               DLP_TENSOR(mean), DLP_TENSOR(deviation), DLP_TENSOR(scale),
                               DLP_TENSOR(dy), DLP_TENSOR(dx), DLP_TENSOR(dscale),
                               DLP_TENSOR(dshift));
/* Matrices of h rows and w columns, for every n and c. */
dlpStatus dlpLstmForward(dlpHandle handle, DLP_TENSOR(x), DLP_FILTER(w), DLP_FILTER(u),
                         DLP_TENSOR(bias), DLP_TENSOR(h0), DLP_TENSOR(c0), DLP_TENSOR(h),
                         DLP_TENSOR(c), DLP_TENSOR(gates));
dlpStatus dlpLstmBackward(dlpHandle handle, DLP_FILTER(u), DLP_TENSOR(c), DLP_TENSOR(gates),
                          DLP_TENSOR(dh), DLP_TENSOR(dgates));
dlpStatus dlpMatrixMultiply(dlpHandle handle, DLP_TENSOR(a), DLP_TENSOR(b), DLP_TENSOR(y),
                            int transpose_a, int transpose_b);
dlpStatus dlpVector(dlpHandle handle, dlpVectorOperation operation, DLP_TENSOR(a), DLP_TENSOR(b),
                    DLP_TENSOR(y));
dlpStatus dlpSoftmaxForward(dlpHandle handle, DLP_TENSOR(x), DLP_TENSOR(y)); /* over channels */
/* Axis 0 to 3 for n, c, h, w; at most 64 parts. */
dlpStatus dlpConcat(dlpHandle handle, int axis, int count, const dlpTensorDescriptor *descriptors,
                    const dlpAddress *parts, DLP_TENSOR(y));
dlpStatus dlpReshape(dlpHandle handle, DLP_TENSOR(x), DLP_TENSOR(y));
dlpStatus dlpTransform(dlpHandle handle, DLP_TENSOR(x), DLP_TENSOR(y)); /* format, fraction */

#ifdef __cplusplus
}
#endif
#endif
