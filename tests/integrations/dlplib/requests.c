/* Calls every function that makes a request, with numbers that tell its arguments apart. */
#include <dlplib.h>

#define T(n) ((dlpTensorDescriptor){n}), (n) + 1000
#define F(n) ((dlpFilterDescriptor){n}), (n) + 1000

int main(void)
{
    dlpHandle h;
    dlpTensorDescriptor t = {1};
    dlpFilterDescriptor f = {2};
    dlpConvolutionDescriptor c = {3};
    dlpPoolingDescriptor p = {4};
    dlpLrnDescriptor l = {5};
    dlpActivationDescriptor a = {6};
    dlpBatchNormDescriptor b = {7};
    dlpTensorDescriptor parts[2] = {{11}, {12}};
    dlpAddress addresses[2] = {1011, 1012};
    dlpAddress address;
    uint64_t cycles;
    int bad = dlpCreate(&h, "somewhere");

    bad |= dlpMalloc(h, &address, 77);
    bad |= address != 1234;
    bad |= dlpFree(h, address);
    bad |= dlpMemcpyToDevice(h, 99, "abc", 3);
    bad |= dlpMemcpyOnDevice(h, 1, 2, 3);
    bad |= dlpGetCycles(h, &cycles);
    bad |= cycles != 1234;
    bad |= dlpCreateTensorDescriptor(h, &t) | dlpCreateFilterDescriptor(h, &f);
    bad |= dlpCreateConvolutionDescriptor(h, &c) | dlpCreatePoolingDescriptor(h, &p);
    bad |= dlpCreateLrnDescriptor(h, &l) | dlpCreateActivationDescriptor(h, &a);
    bad |= dlpCreateBatchNormDescriptor(h, &b);
    bad |= t.id != 1234;
    t.id = 1, f.id = 2, c.id = 3, p.id = 4, l.id = 5, a.id = 6, b.id = 7;
    bad |= dlpSetTensorDescriptor(h, t, DLP_NHWC, DLP_FIXED16, -3, 21, 22, 23, 24);
    bad |= dlpSetFilterDescriptor(h, f, DLP_NCHW, DLP_FIXED32, 20, 21, 22, 23, 24);
    bad |= dlpSetConvolutionDescriptor(h, c, 21, 22, 23, 24, 25, 26, 27, DLP_TANH);
    bad |= dlpSetPoolingDescriptor(h, p, DLP_AVERAGE, 21, 22, 23, 24, 25, 26, 1, 0);
    bad |= dlpSetLrnDescriptor(h, l, 5, 0.5, 0.75, 2.0);
    bad |= dlpSetActivationDescriptor(h, a, DLP_SIGMOID);
    bad |= dlpSetBatchNormDescriptor(h, b, 1);
    bad |= dlpConvolutionForward(h, c, T(11), F(12), T(13), T(14));
    bad |= dlpConvolutionForward(h, c, T(11), F(12), t, 0, T(14));
    bad |= dlpConvolutionBackwardData(h, c, F(11), T(12), T(13));
    bad |= dlpConvolutionBackwardFilter(h, c, T(11), T(12), F(13));
    bad |= dlpBiasBackward(h, T(11), T(12));
    bad |= dlpPoolingForward(h, p, T(11), T(12));
    bad |= dlpPoolingBackward(h, p, T(11), T(12), T(13), T(14));
    bad |= dlpLrnForward(h, l, T(11), T(12));
    bad |= dlpLrnBackward(h, l, T(11), T(12), T(13));
    bad |= dlpActivationForward(h, a, T(11), T(12));
    bad |= dlpActivationBackward(h, a, T(11), T(12), T(13));
    bad |= dlpFullyConnectedForward(h, T(11), F(12), T(13), T(14), DLP_RELU);
    bad |= dlpFullyConnectedBackwardData(h, F(11), T(12), T(13));
    bad |= dlpFullyConnectedBackwardFilter(h, T(11), T(12), F(13));
    bad |= dlpBatchNormForward(h, T(11), T(12), T(13), T(14), T(15), T(16));
    bad |= dlpBatchNormBackward(h, b, T(11), T(12), T(13), T(14), T(15), T(16), T(17), T(18));
    bad |= dlpLstmForward(h, T(11), F(12), F(13), T(14), T(15), T(16), T(17), T(18), T(19));
    bad |= dlpLstmBackward(h, F(11), T(12), T(13), T(14), T(15));
    bad |= dlpMatrixMultiply(h, T(11), T(12), T(13), 1, 0);
    bad |= dlpVector(h, DLP_MUL, T(11), T(12), T(13));
    bad |= dlpSoftmaxForward(h, T(11), T(12));
    bad |= dlpConcat(h, 2, 2, parts, addresses, T(13));
    bad |= dlpReshape(h, T(11), T(12));
    bad |= dlpTransform(h, T(11), T(12));
    bad |= dlpDestroyTensorDescriptor(h, t) | dlpDestroyFilterDescriptor(h, f);
    bad |= dlpDestroyConvolutionDescriptor(h, c) | dlpDestroyPoolingDescriptor(h, p);
    bad |= dlpDestroyLrnDescriptor(h, l) | dlpDestroyActivationDescriptor(h, a);
    bad |= dlpDestroyBatchNormDescriptor(h, b);
    bad |= dlpConcat(h, 2, 65, parts, addresses, T(13)) != DLP_ERROR_PARAMETER;
    bad |= dlpDestroy(h);
    return bad;
}
