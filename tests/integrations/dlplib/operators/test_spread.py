import pytest

from tilewright.integrations.dlplib.operators.spread import phase_of


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_phases_meet_what_the_convolution_read(stride: int, dilation: int, kernel: int) -> None:
    for pad in range(4):
        for extent in range((kernel - 1) * dilation + 1, 14):
            results = (extent + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1
            read = {
                (o * stride + k * dilation - pad, k, o)
                for o in range(results)
                for k in range(kernel)
            }
            read = {found for found in read if 0 <= found[0] < extent}
            pixels, met = -(-extent // stride), set()
            for a in range(stride):
                phase = phase_of(a, pixels, results, kernel, stride, dilation, pad)
                for t in range(pixels):
                    for m in range(phase.count):
                        o = t + m * phase.dilation - phase.before
                        k = phase.first + (phase.count - 1 - m) * phase.step
                        if 0 <= o < results and a + t * stride < extent:
                            met.add((a + t * stride, k, o))
                if phase.count:
                    padded = results + phase.before + phase.after
                    assert padded - (phase.count - 1) * phase.dilation == pixels
            assert met == read
