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

#define NUMBER " %" PRId64
#define OPTIONAL(name) (name == 0 ? 0 : name##_descriptor.id), name

/* The other operators are one request each: library.py writes them by their prototypes. */
#include "operators.h"
