#include "dlplib.h"
#include "wire.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* A request without bytes, and one whose answer is one number. */
#define ASK(handle, ...) dlpWireAsk((handle).id, NULL, 0, NULL, 0, NULL, 0, __VA_ARGS__)
#define ASK_ONE(handle, number, ...) \
    dlpWireAsk((handle).id, NULL, 0, NULL, 0, number, 1, __VA_ARGS__)

/* An operand in a request. */
#define PAIR " %" PRId64 " %" PRId64
#define OF(name) name##_descriptor.id, name

dlpStatus dlpCreate(dlpHandle *handle, const char *target)
{
    dlpStatus status;

    if (handle == NULL || target == NULL)
        return DLP_ERROR_PARAMETER;
    status = dlpWireOpen(&handle->id);
    if (status != DLP_SUCCESS)
        return status;
    return ASK(*handle, "open %.200s\n", target);
}

dlpStatus dlpDestroy(dlpHandle handle)
{
    dlpStatus status = ASK(handle, "close\n");

    /* Where there never was a device, or there is none any more, its process goes all the same. */
    if (status == DLP_SUCCESS || status == DLP_ERROR_HANDLE || status == DLP_ERROR_LOST)
        dlpWireClose(handle.id);
    return status;
}

const char *dlpGetErrorString(dlpHandle handle)
{
    return dlpWireMessage(handle.id);
}

dlpStatus dlpGetCycles(dlpHandle handle, uint64_t *cycles)
{
    int64_t found = 0;
    dlpStatus status = ASK_ONE(handle, &found, "cycles\n");

    *cycles = (uint64_t)found;
    return status;
}

dlpStatus dlpMalloc(dlpHandle handle, dlpAddress *address, size_t bytes)
{
    *address = 0;
    return ASK_ONE(handle, address, "malloc %zu\n", bytes);
}

dlpStatus dlpFree(dlpHandle handle, dlpAddress address)
{
    return ASK(handle, "free %" PRId64 "\n", address);
}

dlpStatus dlpMemcpyToDevice(dlpHandle handle, dlpAddress to, const void *from, size_t bytes)
{
    return dlpWireAsk(handle.id, from, bytes, NULL, 0, NULL, 0, "write %" PRId64 " %zu\n", to,
                      bytes);
}

dlpStatus dlpMemcpyToHost(dlpHandle handle, void *to, dlpAddress from, size_t bytes)
{
    return dlpWireAsk(handle.id, NULL, 0, to, bytes, NULL, 0, "read %" PRId64 " %zu\n", from,
                      bytes);
}

dlpStatus dlpMemcpyOnDevice(dlpHandle handle, dlpAddress to, dlpAddress from, size_t bytes)
{
    return ASK(handle, "copy" PAIR " %zu\n", to, from, bytes);
}

static double limited(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

dlpStatus dlpEncode(const float *values, size_t count, dlpType type, int fraction, void *elements)
{
    size_t i;

    if (type != DLP_FLOAT32 && type != DLP_FIXED16 && type != DLP_FIXED32)
        return DLP_ERROR_PARAMETER;
    for (i = 0; i < count; i++) {
        double scaled = isnan(values[i]) ? 0.0 : rint(ldexp((double)values[i], fraction));
        if (type == DLP_FLOAT32)
            ((float *)elements)[i] = values[i];
        else if (type == DLP_FIXED16)
            ((int16_t *)elements)[i] = (int16_t)limited(scaled, -32768.0, 32767.0);
        else
            ((int32_t *)elements)[i] = (int32_t)limited(scaled, -2147483648.0, 2147483647.0);
    }
    return DLP_SUCCESS;
}

dlpStatus dlpDecode(const void *elements, size_t count, dlpType type, int fraction, float *values)
{
    size_t i;

    if (type != DLP_FLOAT32 && type != DLP_FIXED16 && type != DLP_FIXED32)
        return DLP_ERROR_PARAMETER;
    for (i = 0; i < count; i++) {
        if (type == DLP_FLOAT32)
            values[i] = ((const float *)elements)[i];
        else if (type == DLP_FIXED16)
            values[i] = (float)ldexp((double)((const int16_t *)elements)[i], -fraction);
        else
            values[i] = (float)ldexp((double)((const int32_t *)elements)[i], -fraction);
    }
    return DLP_SUCCESS;
}

#define LIFE(Name, word)                                                                         \
    dlpStatus dlpCreate##Name##Descriptor(dlpHandle handle, dlp##Name##Descriptor *descriptor)   \
    {                                                                                            \
        descriptor->id = 0;                                                                      \
        return ASK_ONE(handle, &descriptor->id, "create " word "\n");                            \
    }                                                                                            \
    dlpStatus dlpDestroy##Name##Descriptor(dlpHandle handle, dlp##Name##Descriptor descriptor)   \
    {                                                                                            \
        return ASK(handle, "destroy " word " %" PRId64 "\n", descriptor.id);                     \
    }

LIFE(Tensor, "tensor")
LIFE(Filter, "filter")
LIFE(Convolution, "convolution")
LIFE(Pooling, "pooling")
LIFE(Lrn, "lrn")
LIFE(Activation, "activation")
LIFE(BatchNorm, "batch_norm")

#define SHAPE(Name, word)                                                                        \
    dlpStatus dlpSet##Name##Descriptor(dlpHandle handle, dlp##Name##Descriptor descriptor,       \
                                       dlpFormat format, dlpType type, int fraction, int n,      \
                                       int c, int h, int w)                                      \
    {                                                                                            \
        return ASK(handle, "set " word " %" PRId64 " %d %d %d %d %d %d %d\n", descriptor.id,     \
                   (int)format, (int)type, fraction, n, c, h, w);                                \
    }                                                                                            \
    dlpStatus dlpGet##Name##Descriptor(dlpHandle handle, dlp##Name##Descriptor descriptor,       \
                                       dlpFormat *format, dlpType *type, int *fraction, int *n,  \
                                       int *c, int *h, int *w, size_t *bytes)                    \
    {                                                                                            \
        int64_t got[8] = {0};                                                                    \
        dlpStatus status = dlpWireAsk(handle.id, NULL, 0, NULL, 0, got, 8,                       \
                                      "get " word " %" PRId64 "\n", descriptor.id);              \
        *format = (dlpFormat)got[0];                                                             \
        *type = (dlpType)got[1];                                                                 \
        *fraction = (int)got[2];                                                                 \
        *n = (int)got[3];                                                                        \
        *c = (int)got[4];                                                                        \
        *h = (int)got[5];                                                                        \
        *w = (int)got[6];                                                                        \
        *bytes = (size_t)got[7];                                                                 \
        return status;                                                                           \
    }

SHAPE(Tensor, "tensor")
SHAPE(Filter, "filter")

dlpStatus dlpSetConvolutionDescriptor(dlpHandle handle, dlpConvolutionDescriptor descriptor,
                                      int stride_h, int stride_w, int pad_h, int pad_w,
                                      int dilation_h, int dilation_w, int groups,
                                      dlpActivation activation)
{
    return ASK(handle, "set convolution %" PRId64 " %d %d %d %d %d %d %d %d\n", descriptor.id,
               stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, (int)activation);
}

dlpStatus dlpSetPoolingDescriptor(dlpHandle handle, dlpPoolingDescriptor descriptor,
                                  dlpPoolingMode mode, int window_h, int window_w, int stride_h,
                                  int stride_w, int pad_h, int pad_w, int count_pads, int round_up)
{
    return ASK(handle, "set pooling %" PRId64 " %d %d %d %d %d %d %d %d %d\n", descriptor.id,
               (int)mode, window_h, window_w, stride_h, stride_w, pad_h, pad_w, count_pads,
               round_up);
}

dlpStatus dlpSetLrnDescriptor(dlpHandle handle, dlpLrnDescriptor descriptor, int size,
                              double alpha, double beta, double k)
{
    return ASK(handle, "set lrn %" PRId64 " %d %.17g %.17g %.17g\n", descriptor.id, size, alpha,
               beta, k);
}

dlpStatus dlpSetActivationDescriptor(dlpHandle handle, dlpActivationDescriptor descriptor,
                                     dlpActivation mode)
{
    return ASK(handle, "set activation %" PRId64 " %d\n", descriptor.id, (int)mode);
}

dlpStatus dlpSetBatchNormDescriptor(dlpHandle handle, dlpBatchNormDescriptor descriptor,
                                    int of_batch)
{
    return ASK(handle, "set batch_norm %" PRId64 " %d\n", descriptor.id, of_batch);
}

#define HEAD " %" PRId64

dlpStatus dlpConvolutionForward(dlpHandle handle, dlpConvolutionDescriptor convolution,
                                DLP_TENSOR(x), DLP_FILTER(w), DLP_TENSOR(bias), DLP_TENSOR(y))
{
    int64_t described = bias == 0 ? 0 : bias_descriptor.id;

    return ASK(handle, "run convolution_forward" HEAD PAIR PAIR PAIR PAIR "\n", convolution.id,
               OF(x), OF(w), OF(y), described, bias);
}

dlpStatus dlpConvolutionBackwardData(dlpHandle handle, dlpConvolutionDescriptor convolution,
                                     DLP_FILTER(w), DLP_TENSOR(dy), DLP_TENSOR(dx))
{
    return ASK(handle, "run convolution_backward_data" HEAD PAIR PAIR PAIR "\n", convolution.id,
               OF(w), OF(dy), OF(dx));
}

dlpStatus dlpConvolutionBackwardFilter(dlpHandle handle, dlpConvolutionDescriptor convolution,
                                       DLP_TENSOR(x), DLP_TENSOR(dy), DLP_FILTER(dw))
{
    return ASK(handle, "run convolution_backward_filter" HEAD PAIR PAIR PAIR "\n", convolution.id,
               OF(x), OF(dy), OF(dw));
}

dlpStatus dlpBiasBackward(dlpHandle handle, DLP_TENSOR(dy), DLP_TENSOR(db))
{
    return ASK(handle, "run bias_backward" PAIR PAIR "\n", OF(dy), OF(db));
}

dlpStatus dlpPoolingForward(dlpHandle handle, dlpPoolingDescriptor pooling, DLP_TENSOR(x),
                            DLP_TENSOR(y))
{
    return ASK(handle, "run pooling_forward" HEAD PAIR PAIR "\n", pooling.id, OF(x), OF(y));
}

dlpStatus dlpPoolingBackward(dlpHandle handle, dlpPoolingDescriptor pooling, DLP_TENSOR(x),
                             DLP_TENSOR(y), DLP_TENSOR(dy), DLP_TENSOR(dx))
{
    return ASK(handle, "run pooling_backward" HEAD PAIR PAIR PAIR PAIR "\n", pooling.id, OF(x),
               OF(y), OF(dy), OF(dx));
}

dlpStatus dlpLrnForward(dlpHandle handle, dlpLrnDescriptor lrn, DLP_TENSOR(x), DLP_TENSOR(y))
{
    return ASK(handle, "run lrn_forward" HEAD PAIR PAIR "\n", lrn.id, OF(x), OF(y));
}

dlpStatus dlpLrnBackward(dlpHandle handle, dlpLrnDescriptor lrn, DLP_TENSOR(x), DLP_TENSOR(dy),
                         DLP_TENSOR(dx))
{
    return ASK(handle, "run lrn_backward" HEAD PAIR PAIR PAIR "\n", lrn.id, OF(x), OF(dy), OF(dx));
}

dlpStatus dlpActivationForward(dlpHandle handle, dlpActivationDescriptor activation,
                               DLP_TENSOR(x), DLP_TENSOR(y))
{
    return ASK(handle, "run activation_forward" HEAD PAIR PAIR "\n", activation.id, OF(x), OF(y));
}

dlpStatus dlpActivationBackward(dlpHandle handle, dlpActivationDescriptor activation,
                                DLP_TENSOR(y), DLP_TENSOR(dy), DLP_TENSOR(dx))
{
    return ASK(handle, "run activation_backward" HEAD PAIR PAIR PAIR "\n", activation.id, OF(y),
               OF(dy), OF(dx));
}

dlpStatus dlpFullyConnectedForward(dlpHandle handle, DLP_TENSOR(x), DLP_FILTER(w),
                                   DLP_TENSOR(bias), DLP_TENSOR(y), dlpActivation activation)
{
    int64_t described = bias == 0 ? 0 : bias_descriptor.id;

    return ASK(handle, "run fully_connected_forward" PAIR PAIR PAIR PAIR " %d\n", OF(x), OF(w),
               OF(y), described, bias, (int)activation);
}

dlpStatus dlpFullyConnectedBackwardData(dlpHandle handle, DLP_FILTER(w), DLP_TENSOR(dy),
                                        DLP_TENSOR(dx))
{
    return ASK(handle, "run fully_connected_backward_data" PAIR PAIR PAIR "\n", OF(w), OF(dy),
               OF(dx));
}

dlpStatus dlpFullyConnectedBackwardFilter(dlpHandle handle, DLP_TENSOR(x), DLP_TENSOR(dy),
                                          DLP_FILTER(dw))
{
    return ASK(handle, "run fully_connected_backward_filter" PAIR PAIR PAIR "\n", OF(x), OF(dy),
               OF(dw));
}

dlpStatus dlpBatchNormForward(dlpHandle handle, DLP_TENSOR(x), DLP_TENSOR(mean),
                              DLP_TENSOR(deviation), DLP_TENSOR(scale), DLP_TENSOR(shift),
                              DLP_TENSOR(y))
{
    return ASK(handle, "run batch_norm_forward" PAIR PAIR PAIR PAIR PAIR PAIR "\n", OF(x),
               OF(mean), OF(deviation), OF(scale), OF(shift), OF(y));
}

dlpStatus dlpBatchNormBackward(dlpHandle handle, dlpBatchNormDescriptor batch_norm, DLP_TENSOR(x),
                               DLP_TENSOR(mean), DLP_TENSOR(deviation), DLP_TENSOR(scale),
                               DLP_TENSOR(dy), DLP_TENSOR(dx), DLP_TENSOR(dscale),
                               DLP_TENSOR(dshift))
{
    return ASK(handle,
               "run batch_norm_backward" HEAD PAIR PAIR PAIR PAIR PAIR PAIR PAIR PAIR "\n",
               batch_norm.id, OF(x), OF(mean), OF(deviation), OF(scale), OF(dy), OF(dx),
               OF(dscale), OF(dshift));
}

dlpStatus dlpLstmForward(dlpHandle handle, DLP_TENSOR(x), DLP_FILTER(w), DLP_FILTER(u),
                         DLP_TENSOR(bias), DLP_TENSOR(h0), DLP_TENSOR(c0), DLP_TENSOR(h),
                         DLP_TENSOR(c), DLP_TENSOR(gates))
{
    return ASK(handle, "run lstm_forward" PAIR PAIR PAIR PAIR PAIR PAIR PAIR PAIR PAIR "\n", OF(x),
               OF(w), OF(u), OF(bias), OF(h0), OF(c0), OF(h), OF(c), OF(gates));
}

dlpStatus dlpLstmBackward(dlpHandle handle, DLP_FILTER(u), DLP_TENSOR(c), DLP_TENSOR(gates),
                          DLP_TENSOR(dh), DLP_TENSOR(dgates))
{
    return ASK(handle, "run lstm_backward" PAIR PAIR PAIR PAIR PAIR "\n", OF(u), OF(c), OF(gates),
               OF(dh), OF(dgates));
}

dlpStatus dlpMatrixMultiply(dlpHandle handle, DLP_TENSOR(a), DLP_TENSOR(b), DLP_TENSOR(y),
                            int transpose_a, int transpose_b)
{
    return ASK(handle, "run matrix_multiply" PAIR PAIR PAIR " %d %d\n", OF(a), OF(b), OF(y),
               transpose_a, transpose_b);
}

dlpStatus dlpVector(dlpHandle handle, dlpVectorOperation operation, DLP_TENSOR(a), DLP_TENSOR(b),
                    DLP_TENSOR(y))
{
    return ASK(handle, "run vector %d" PAIR PAIR PAIR "\n", (int)operation, OF(a), OF(b), OF(y));
}

dlpStatus dlpSoftmaxForward(dlpHandle handle, DLP_TENSOR(x), DLP_TENSOR(y))
{
    return ASK(handle, "run softmax_forward" PAIR PAIR "\n", OF(x), OF(y));
}

dlpStatus dlpConcat(dlpHandle handle, int axis, int count, const dlpTensorDescriptor *descriptors,
                    const dlpAddress *parts, DLP_TENSOR(y))
{
    char text[64 * 2 * 21 + 1] = "";
    size_t length = 0;
    int i;

    if (count < 1 || count > 64)
        return DLP_ERROR_PARAMETER;
    for (i = 0; i < count; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, PAIR, descriptors[i].id,
                                   parts[i]);
    return ASK(handle, "concat %d%s" PAIR "\n", axis, text, OF(y));
}

dlpStatus dlpReshape(dlpHandle handle, DLP_TENSOR(x), DLP_TENSOR(y))
{
    return ASK(handle, "run reshape" PAIR PAIR "\n", OF(x), OF(y));
}

dlpStatus dlpTransform(dlpHandle handle, DLP_TENSOR(x), DLP_TENSOR(y))
{
    return ASK(handle, "run transform" PAIR PAIR "\n", OF(x), OF(y));
}
