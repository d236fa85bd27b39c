"""The layers Convolution and Deconvolution, with their parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.frontends.caffe.limits import MAX_EXTENT
from tilewright.frontends.caffe.lowering import Lowering
from tilewright.frontends.caffe.operators.windows import Pair, pair
from tilewright.frontends.phases import MAX_PHASES, axis_of, by_phases, mirrored, spread_out
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of


class _Window:
    """The sizes, groups and channels of both layers, checked."""

    def __init__(self, at: Lowering) -> None:
        settings = at.settings("convolution_param")
        self.channels = at.images()[1]
        self.outputs, self.group = int(settings.num_output), int(settings.group)
        self.kernel = pair(at, settings, "kernel_size", None)
        self.strides = pair(at, settings, "stride", 1)
        self.pads = pair(at, settings, "pad", 0, low=0)
        self.dilations = pair(at, settings, "dilation", 1)
        self.bias = bool(settings.bias_term)
        if at.axis(settings.axis, 4) != 1:
            raise at.refuse(f"axis {settings.axis} is not that of the channels, 1")
        if not 1 <= self.outputs < MAX_EXTENT:
            raise at.refuse(f"num_output {self.outputs} must lie in [1, {MAX_EXTENT})")
        if self.group < 1 or self.channels % self.group or self.outputs % self.group:
            raise at.misfit(
                f"{self.channels} channels and {self.outputs} outputs do not divide into "
                f"{self.group} groups"
            )
        if len(at.layer.tops) != len(at.layer.bottoms):
            raise at.refuse(
                f"it has {len(at.layer.bottoms)} bottoms and {len(at.layer.tops)} tops; "
                "it makes one of each other"
            )
        for value in at.values[1:]:
            if len(shape_of(value)) != 4 or shape_of(value)[1] != self.channels:
                raise at.misfit("its bottoms differ in their channels")

    @property
    def spans(self) -> Pair:
        """Rows and columns that a window reaches over."""
        (kh, kw), (dh, dw) = self.kernel, self.dilations
        return (kh - 1) * dh + 1, (kw - 1) * dw + 1


def convolution(at: Lowering) -> Sequence[SSAValue]:
    """Cross-correlation, rounding sizes down; all bottoms share the weights [co, ci/group, ...]."""
    window = _Window(at)
    fan_in = window.channels // window.group * math.prod(window.kernel)
    shape = (window.outputs, window.channels // window.group, *window.kernel)
    operands = [at.parameter(shape, "weight", fan_in)]
    if window.bias:
        operands.append(at.parameter((window.outputs,), "bias"))
    return [
        at.emit(
            "conv",
            value,
            *operands,
            strides=window.strides,
            pads=(*window.pads, *window.pads),
            dilations=window.dilations,
            group=window.group,
        )
        for value in at.values
    ]


def deconvolution(at: Lowering) -> Sequence[SSAValue]:
    """The transpose of a convolution, with weights [ci, co/group, ...].

    It is one convolution for all phases of its strides, where that saves products, or one with
    mirrored weights of the image with zeros between its pixels.
    """
    window = _Window(at)
    for index, span in enumerate(window.spans):
        pad, stride = window.pads[index], window.strides[index]
        if any(stride * (shape_of(x)[2 + index] - 1) + span <= 2 * pad for x in at.values):
            raise at.misfit("its pads leave nothing of the result")
    inputs, outputs, group = window.channels, window.outputs, window.group
    fan_in = max(inputs // group * math.prod(window.kernel) // math.prod(window.strides), 1)
    shape = (inputs, outputs // group, *window.kernel)
    stored = at.parameter_array(shape, "weight", fan_in)
    bias = at.parameter_array((outputs,), "bias") if window.bias else None
    if stored is None or (window.bias and bias is None):
        return [_refused(at, window, value) for value in at.values]
    results: list[SSAValue] = []
    for value in at.values:
        result = _by_phases(at, window, value, stored, bias)
        results.append(_spread(at, window, value, stored, bias) if result is None else result)
    return results


def _refused(at: Lowering, window: _Window, image: SSAValue) -> SSAValue:
    """Return zeros in place of a deconvolution whose parameters are refused."""
    sizes = [
        (size - 1) * stride + span - 2 * pad
        for size, stride, span, pad in zip(
            shape_of(image)[2:], window.strides, window.spans, window.pads, strict=True
        )
    ]
    shape = (shape_of(image)[0], window.outputs, *sizes)
    at.check_size(shape)
    return at.placeholder(shape)


def _by_phases(
    at: Lowering, window: _Window, image: SSAValue, weights: Array, bias: Array | None
) -> SSAValue | None:
    if not 1 < math.prod(window.strides) <= MAX_PHASES:
        return None
    axes = [
        axis_of(size, kernel, stride, dilation, pad, cropped=2 * pad)
        for size, kernel, stride, dilation, pad in zip(
            shape_of(image)[2:], window.kernel, window.strides, window.dilations, window.pads,
            strict=True,
        )
    ]  # fmt: skip

    def convolve(x: SSAValue, merged: Array, repeated: SSAValue | None) -> SSAValue:
        operands = [at.constant(merged, "weight"), *([] if repeated is None else [repeated])]
        return at.emit("conv", x, *operands, group=window.group)

    return by_phases(at, image, axes, weights, bias, window.group, convolve)


def _spread(
    at: Lowering, window: _Window, image: SSAValue, stored: Array, bias: Array | None
) -> SSAValue:
    operands = [at.constant(mirrored(stored, window.group), "weight")]
    if bias is not None:
        operands.append(at.constant(bias, "bias"))
    pads = [(pad, pad) for pad in window.pads]
    apart = spread_out(at, image, window.strides, window.spans, pads, (0, 0))
    return at.emit("conv", apart, *operands, dilations=window.dilations, group=window.group)
