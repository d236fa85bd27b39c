/* One convolution layer through DLPlib: the program of figure 3.5 of the thesis.
 *
 *   tilewright dlplib -o dlp
 *   gcc -Wall -Wextra -Werror examples/dlplib/convolution.c -Idlp -Ldlp -ldlplib \
 *       -Wl,-rpath,'$ORIGIN/dlp' -o convolution
 *   ./convolution cambricon-x
 *
 * The same layer in Python is convolution.py; both print the same numbers.
 */
#include <dlplib.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1, CI = 3, H = 8, W = 8, CO = 4, K = 3, INPUT = N * CI * H * W, WEIGHT = CO * CI * K * K,
       OUTPUT = N * CO * H * W };

static dlpHandle handle;

static void need(dlpStatus status)
{
    if (status != DLP_SUCCESS) {
        fprintf(stderr, "status %d: %s\n", (int)status, dlpGetErrorString(handle));
        exit(1);
    }
}

/* Small numbers that repeat after 17 elements. */
static void fill(float *values, int count, float unit)
{
    for (int i = 0; i < count; i++)
        values[i] = (float)(i * 7 % 17 - 8) * unit;
}

int main(int argc, char **argv)
{
    const char *target = argc > 1 ? argv[1] : "cambricon-x";
    dlpTensorDescriptor x, y, bias;
    dlpFilterDescriptor w;
    dlpConvolutionDescriptor convolution;
    dlpAddress x_data, w_data, bias_data, y_data;
    float values[OUTPUT], sum = 0.0f, biases[CO] = {0.5f, -0.5f, 0.25f, 0.0f};
    int16_t elements[OUTPUT];
    int32_t wide[CO];
    uint64_t cycles;

    /* device handle */
    need(dlpCreate(&handle, target));

    /* descriptors of data: 16-bit fixed point, 12 bits behind the point; biases where sums are */
    need(dlpCreateTensorDescriptor(handle, &x));
    need(dlpSetTensorDescriptor(handle, x, DLP_NCHW, DLP_FIXED16, 12, N, CI, H, W));
    need(dlpCreateFilterDescriptor(handle, &w));
    need(dlpSetFilterDescriptor(handle, w, DLP_NCHW, DLP_FIXED16, 12, CO, CI, K, K));
    need(dlpCreateTensorDescriptor(handle, &bias));
    need(dlpSetTensorDescriptor(handle, bias, DLP_NCHW, DLP_FIXED32, 24, 1, CO, 1, 1));
    need(dlpCreateTensorDescriptor(handle, &y));
    need(dlpSetTensorDescriptor(handle, y, DLP_NCHW, DLP_FIXED16, 11, N, CO, H, W));

    /* data */
    need(dlpMalloc(handle, &x_data, INPUT * sizeof(int16_t)));
    fill(values, INPUT, 0.25f);
    need(dlpEncode(values, INPUT, DLP_FIXED16, 12, elements));
    need(dlpMemcpyToDevice(handle, x_data, elements, INPUT * sizeof(int16_t)));
    need(dlpMalloc(handle, &w_data, WEIGHT * sizeof(int16_t)));
    fill(values, WEIGHT, 0.0625f);
    need(dlpEncode(values, WEIGHT, DLP_FIXED16, 12, elements));
    need(dlpMemcpyToDevice(handle, w_data, elements, WEIGHT * sizeof(int16_t)));
    need(dlpMalloc(handle, &bias_data, sizeof wide));
    need(dlpEncode(biases, CO, DLP_FIXED32, 24, wide));
    need(dlpMemcpyToDevice(handle, bias_data, wide, sizeof wide));
    need(dlpMalloc(handle, &y_data, OUTPUT * sizeof(int16_t)));

    /* descriptor of the convolution: stride 1, pads of 1, then ReLU */
    need(dlpCreateConvolutionDescriptor(handle, &convolution));
    need(dlpSetConvolutionDescriptor(handle, convolution, 1, 1, 1, 1, 1, 1, 1, DLP_RELU));

    /* execute */
    need(dlpConvolutionForward(handle, convolution, x, x_data, w, w_data, bias, bias_data, y,
                               y_data));
    need(dlpMemcpyToHost(handle, elements, y_data, OUTPUT * sizeof(int16_t)));
    need(dlpDecode(elements, OUTPUT, DLP_FIXED16, 11, values));
    need(dlpGetCycles(handle, &cycles));
    for (int i = 0; i < OUTPUT; i++)
        sum += values[i];
    printf("first %.6f last %.6f sum %.6f cycles %llu\n", (double)values[0],
           (double)values[OUTPUT - 1], (double)sum, (unsigned long long)cycles);

    /* release */
    need(dlpFree(handle, x_data));
    need(dlpFree(handle, w_data));
    need(dlpFree(handle, bias_data));
    need(dlpFree(handle, y_data));
    need(dlpDestroyTensorDescriptor(handle, x));
    need(dlpDestroyTensorDescriptor(handle, y));
    need(dlpDestroyTensorDescriptor(handle, bias));
    need(dlpDestroyFilterDescriptor(handle, w));
    need(dlpDestroyConvolutionDescriptor(handle, convolution));
    need(dlpDestroy(handle));
    return 0;
}
