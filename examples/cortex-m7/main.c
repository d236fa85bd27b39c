/* Runs LeNet-5 (package lenet5) once on a microcontroller, on an image that it paints, and says the
 * bits of every output.
 */
#include <stdint.h>
#include <string.h>

#include "lenet5.h"

void say(const char *text);

static float image[LENET5_IN_IMAGE_ELEMENTS], digits[LENET5_OUT_PROBABILITIES_ELEMENTS];
static unsigned char workspace[LENET5_WORKSPACE_BYTES] __attribute__((aligned(64)));

int main(void)
{
    for (long i = 0; i < LENET5_IN_IMAGE_ELEMENTS; i++)
        image[i] = (float)(i * i % 251) / 251.0f;
    lenet5_run(lenet5_weights, workspace, image, digits);
    for (long i = 0; i < LENET5_OUT_PROBABILITIES_ELEMENTS; i++) {
        char text[10] = "";
        uint32_t bits;
        memcpy(&bits, &digits[i], sizeof bits);
        for (int n = 0; n < 8; n++)
            text[n] = "0123456789abcdef"[bits >> (28 - 4 * n) & 15];
        text[8] = '\n';
        say(text);
    }
    return 0;
}
