"""Table 4.6's layers backward as compiled: DLPlib's calls for their gradients on ACC-C."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.papers.hlal.layers import (
    CONVOLUTIONS,
    DENSE,
    HIDDEN,
    INPUTS,
    LRN,
    OUTPUTS,
    POOLS,
    STEPS,
)

if TYPE_CHECKING:
    from tilewright.integrations.dlplib import Handle

FRACTION = 8
"""Binary point of all operands, as in the HLAL programs."""


def _lstm(handle: Handle) -> None:
    """The layer's calls: those of its outputs' weights, the cells, then the cells' weights."""
    from tilewright.integrations import dlplib
    from tilewright.integrations.dlplib import Operand, TensorDescriptor

    random, number = np.random.default_rng(4), dlplib.fixed16(FRACTION)

    def operand(*dims: int, filter: bool = False) -> Operand:
        return handle.tensor(random.standard_normal(dims) / 4, number, "NHWC", filter=filter)

    def rows(of: Operand, count: int) -> Operand:
        """The same memory as so many images."""
        shape = (count, of.descriptor.get().dims[3], 1, 1)
        return Operand(TensorDescriptor(shape, number, "NHWC"), of.address)

    gates = 4 * HIDDEN
    h, c = (operand(STEPS + 1, 1, 1, HIDDEN) for _ in "hc")
    old = handle.tensor(random.uniform(0, 1, (STEPS, 1, 1, gates)), dlplib.fixed16(14), "NHWC")
    w, u, v = (
        operand(*dims, filter=True)
        for dims in ((gates, INPUTS), (gates, HIDDEN), (OUTPUTS, HIDDEN))
    )
    dh, dgates = operand(STEPS, 1, 1, HIDDEN), operand(STEPS, 1, 1, gates)
    x, dy, hidden = operand(STEPS, INPUTS), operand(STEPS, OUTPUTS), operand(STEPS, HIDDEN)
    dlplib.fully_connected_backward_data(handle, v, dy, rows(dh, STEPS))
    dlplib.fully_connected_backward_filter(handle, hidden, dy, v)
    dlplib.bias_backward(handle, dy, operand(1, OUTPUTS))
    dlplib.lstm_backward(handle, u, c, old, dh, dgates)
    inner = rows(dgates, STEPS)
    dlplib.fully_connected_backward_filter(handle, x, inner, operand(gates, INPUTS, filter=True))
    dlplib.fully_connected_backward_filter(handle, rows(h, STEPS), inner, u)
    dlplib.bias_backward(handle, inner, operand(1, gates))
    dlplib.fully_connected_backward_data(handle, w, inner, x)


def gradients(name: str) -> tuple[float, str]:
    """Cycles of a layer's gradients, and those of each call; results are checked bit for bit."""
    from tilewright.integrations import dlplib
    from tilewright.integrations.dlplib import Handle, Operand

    handle, random = Handle("cambricon", check=True), np.random.default_rng(3)
    number = dlplib.fixed16(FRACTION)

    def operand(dims: tuple[int, ...], *, filter: bool = False) -> Operand:
        values = random.standard_normal(dims) / 4
        return handle.tensor(values, number, "NHWC", filter=filter)

    if name in CONVOLUTIONS:
        of = CONVOLUTIONS[name]
        layer = dlplib.ConvolutionDescriptor()
        layer.set(pads=(of.kernel // 2, of.kernel // 2))
        image = (1, of.inputs, of.extent, of.extent)
        weights = (of.outputs, of.inputs, of.kernel, of.kernel)
        w, dw = (operand(weights, filter=True) for _ in range(2))
        x, dx, dy = operand(image), operand(image), operand((1, of.outputs, *image[2:]))
        dlplib.convolution_backward_data(handle, layer, w, dy, dx)
        dlplib.convolution_backward_filter(handle, layer, x, dy, dw)
        dlplib.bias_backward(handle, dy, operand((1, of.outputs)))
    elif name in DENSE:
        ins, outs = DENSE[name]
        w, dw = (operand((outs, ins), filter=True) for _ in range(2))
        x, dx, dy = operand((1, ins)), operand((1, ins)), operand((1, outs))
        dlplib.fully_connected_backward_data(handle, w, dy, dx)
        dlplib.fully_connected_backward_filter(handle, x, dy, dw)
        dlplib.bias_backward(handle, dy, operand((1, outs)))
    elif name in POOLS:
        extent, channels = POOLS[name]
        pool = dlplib.PoolingDescriptor()
        pool.set("max", (2, 2), (2, 2))
        image, half = (1, channels, extent, extent), (1, channels, extent // 2, extent // 2)
        x, dx, y, dy = operand(image), operand(image), operand(half), operand(half)
        dlplib.pooling_forward(handle, pool, x, y)
        handle.runs.clear()
        dlplib.pooling_backward(handle, pool, x, y, dy, dx)
    elif name == "lstm":
        _lstm(handle)
    else:
        extent, channels = LRN
        lrn = dlplib.LrnDescriptor()
        lrn.set(5, 1e-4, 0.75, 1.0)
        x, dx, dy = (operand((1, channels, extent, extent)) for _ in range(3))
        dlplib.lrn_backward(handle, lrn, x, dy, dx)
    if any(run.host for run in handle.runs):
        raise AssertionError(f"{name}: the host computes {handle.runs}")
    parts = " + ".join(f"{run.cycles:,}" for run in handle.runs)
    return float(handle.cycles), f"{parts}; {sum(run.moves for run in handle.runs)}"
