"""One convolution layer through DLPlib: the program of figure 3.5 of the thesis.

python examples/dlplib/convolution.py cambricon-x

The same layer in C is convolution.c; both print the same numbers.
"""

from __future__ import annotations

import sys

import numpy as np

from tilewright.integrations.dlplib import (
    ConvolutionDescriptor,
    FilterDescriptor,
    Handle,
    Operand,
    TensorDescriptor,
    convolution_forward,
    fixed16,
    fixed32,
)


def ramp(count: int, unit: float) -> np.ndarray:
    """Small numbers that repeat after 17 elements."""
    return (np.arange(count) * 7 % 17 - 8) * unit


def main(target: str) -> None:
    # device handle
    handle = Handle(target)

    # descriptors of data: 16-bit fixed point, 12 bits behind the point; biases where sums are
    x = TensorDescriptor()
    x.set((1, 3, 8, 8), fixed16(12))
    w = FilterDescriptor()
    w.set((4, 3, 3, 3), fixed16(12))
    bias = TensorDescriptor()
    bias.set((1, 4, 1, 1), fixed32(24))
    y = TensorDescriptor()
    y.set((1, 4, 8, 8), fixed16(11))

    # data
    x_data = handle.malloc(x.get().bytes)
    handle.memcpy_to_device(x_data, x.get().type.encode(ramp(192, 0.25)))
    w_data = handle.malloc(w.get().bytes)
    handle.memcpy_to_device(w_data, w.get().type.encode(ramp(108, 0.0625)))
    bias_data = handle.malloc(bias.get().bytes)
    handle.memcpy_to_device(bias_data, bias.get().type.encode(np.array([0.5, -0.5, 0.25, 0])))
    y_data = handle.malloc(y.get().bytes)

    # descriptor of the convolution
    convolution = ConvolutionDescriptor()
    convolution.set(strides=(1, 1), pads=(1, 1), activation="relu")

    # execute
    convolution_forward(
        handle,
        convolution,
        Operand(x, x_data),
        Operand(w, w_data),
        Operand(y, y_data),
        Operand(bias, bias_data),
    )
    elements = np.frombuffer(handle.memcpy_to_host(y_data, y.get().bytes), np.int16)
    values = y.get().type.decode(elements)
    print(
        f"first {values[0]:.6f} last {values[-1]:.6f} sum {values.sum():.6f} cycles {handle.cycles}"
    )

    # release
    for address in (x_data, w_data, bias_data, y_data):
        handle.free(address)
    for descriptor in (x, w, bias, y, convolution):
        descriptor.destroy()
    handle.destroy()


if __name__ == "__main__":
    main(*sys.argv[1:] or ["cambricon-x"])
