"""Layers of windows that slide over images: Convolution, Deconvolution, Pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.frontends.caffe.lowering import Lowering
from tilewright.frontends.limits import MAX_EXTENT
from tilewright.frontends.phases import by_phases, mirrored, spread_out
from tilewright.frontends.steps import kept
from tilewright.frontends.windows import Window
from tilewright.graph.operations.written import ConvTransposeOp
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of
from tilewright.memory.alignment import ceil_div

Pair = tuple[int, int]
"""Along rows and along columns."""


def pair(at: Lowering, settings: Any, name: str, default: int | None, low: int = 1) -> Pair:
    """One of a window's sizes: one value for both axes, one each, or the ``_h`` and ``_w`` fields.

    Refuses what has no value and no default, two spellings at once, and sizes out of range.
    """
    stem = name.removesuffix("_size")
    fields = (f"{stem}_h", f"{stem}_w")
    both: Any = getattr(settings, name)
    values: Sequence[int] = _given(settings, name) if isinstance(both, int) else list(both)
    apart = [item for item in fields if _has(settings, item)]
    if values and apart:
        raise at.refuse(f"it has {name} and {apart[0]}; one of them is enough")
    if len(apart) == 1 and default != 0:
        raise at.refuse(f"it has {apart[0]} alone; both of {fields[0]} and {fields[1]} are needed")
    if apart:
        sizes = [getattr(settings, item) if item in apart else default for item in fields]
    elif len(values) in (1, 2):
        sizes = [values[0], values[-1]]
    elif values:
        raise at.refuse(f"{name} has {len(values)} values; images have two axes")
    elif default is None:
        raise at.refuse(f"it has no {name}")
    else:
        sizes = [default, default]
    rows, columns = sizes
    if any(size is None or not low <= size < MAX_EXTENT for size in (rows, columns)):
        raise at.refuse(f"{name} {sizes} must lie in [{low}, {MAX_EXTENT})")
    assert rows is not None and columns is not None
    return rows, columns


def _has(settings: Any, name: str) -> bool:
    return name in settings.DESCRIPTOR.fields_by_name and settings.HasField(name)


def _given(settings: Any, name: str) -> list[int]:
    return [getattr(settings, name)] if settings.HasField(name) else []


def pooling(at: Lowering) -> SSAValue:
    """MAX or AVE over windows, or over the whole image."""
    settings = at.settings("pooling_param")
    extents = at.images()[2:]
    method = settings.PoolMethod.Name(settings.pool)
    if method not in ("MAX", "AVE"):
        raise at.refuse(f"pooling of the kind {method} is not deterministic; MAX and AVE are read")
    strides = pair(at, settings, "stride", 1)
    pads = pair(at, settings, "pad", 0, low=0)
    if settings.global_pooling:
        if any(settings.HasField(name) for name in ("kernel_size", "kernel_h", "kernel_w")):
            raise at.refuse("with global_pooling the kernel is the image; it has a kernel too")
        if pads != (0, 0) or strides != (1, 1):
            raise at.refuse("with global_pooling there is neither pad nor stride")
        kernel: Pair = extents
    else:
        kernel = pair(at, settings, "kernel_size", None)
    if any(pad >= size for pad, size in zip(pads, kernel, strict=True)):
        raise at.refuse(f"its pads {list(pads)} are as large as the kernel {list(kernel)}")
    ceil = settings.RoundMode.Name(settings.round_mode) == "CEIL"
    ends = [
        end_pad(at, extents[i], kernel[i], strides[i], pads[i], any(pads), ceil) for i in range(2)
    ]
    return pool(at, at.x, method, kernel, strides, pads, ends)


def pool(
    at: Lowering,
    image: SSAValue,
    method: str,
    kernel: Pair,
    strides: Pair,
    pads: Pair,
    ends: Sequence[int],
) -> SSAValue:
    """One pool; ``ends`` pads reach as far as the last window, ``pads`` of them count."""
    attributes = {"kernel": kernel, "strides": strides, "pads": (*pads, *ends)}
    if method == "MAX":
        return at.emit("max_pool", image, **attributes)
    counted = (*pads, *(min(pad, end) for pad, end in zip(pads, ends, strict=True)))
    return at.emit("average_pool", image, counted=counted, **attributes)


def end_pad(
    at: Lowering, extent: int, kernel: int, stride: int, pad: int, padded: bool, ceil: bool
) -> int:
    """Padding after an axis so that the windows are those of Caffe.

    Their number is rounded up; where there is padding on any axis, a last window that starts
    after the image and its padding's near side is left out.
    """
    if extent + pad + kernel > MAX_EXTENT:
        raise at.refuse(f"its window or image is larger than {MAX_EXTENT}", code="caffe-too-large")
    free = extent + 2 * pad - kernel
    count = (ceil_div(free, stride) if ceil else free // stride) + 1
    if padded and (count - 1) * stride >= extent + pad:
        count -= 1
    last = (count - 1) * stride - pad
    if count < 1 or last >= extent:
        raise at.misfit(
            f"a window {kernel} wide at steps of {stride} leaves the image, {extent} wide"
        )
    return max(last + kernel - extent, 0)


class _Window:
    """The sizes, groups and channels of both layers, checked."""

    def __init__(self, at: Lowering) -> None:
        settings = at.settings("convolution_param")
        self.channels = at.images()[1]
        self.outputs, self.group = int(settings.num_output), int(settings.group)
        kernel = pair(at, settings, "kernel_size", None)
        strides = pair(at, settings, "stride", 1)
        pads = pair(at, settings, "pad", 0, low=0)
        dilations = pair(at, settings, "dilation", 1)
        self.sizes = Window(kernel, strides, dilations, pads, pads, pads)
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


def convolution(at: Lowering) -> Sequence[SSAValue]:
    """Cross-correlation, rounding sizes down; all bottoms share the weights [co, ci/group, ...]."""
    window = _Window(at)
    fan_in = window.channels // window.group * math.prod(window.sizes.kernel)
    shape = (window.outputs, window.channels // window.group, *window.sizes.kernel)
    operands = [at.parameter(shape, "weight", fan_in)]
    if window.bias:
        operands.append(at.parameter((window.outputs,), "bias"))
    sizes = window.sizes.attributes(kernel=False, dilations=True)
    return [at.emit("conv", x, *operands, **sizes, group=window.group) for x in at.values]


def deconvolution(at: Lowering) -> Sequence[SSAValue]:
    """The transpose of a convolution, with weights [ci, co/group, ...].

    It is one convolution for all phases of its strides, where that saves products, or one with
    mirrored weights of the image with zeros between its pixels.
    """
    window = _Window(at)
    for index, span in enumerate(window.sizes.spans):
        pad, stride = window.sizes.begins[index], window.sizes.strides[index]
        if any(stride * (shape_of(x)[2 + index] - 1) + span <= 2 * pad for x in at.values):
            raise at.misfit("its pads leave nothing of the result")
    inputs, outputs, group = window.channels, window.outputs, window.group
    fan_in = max(
        inputs // group * math.prod(window.sizes.kernel) // math.prod(window.sizes.strides), 1
    )
    shape = (inputs, outputs // group, *window.sizes.kernel)
    stored = at.parameter_array(shape, "weight", fan_in)
    bias = at.parameter_array((outputs,), "bias") if window.bias else None
    if stored is None or (window.bias and bias is None):
        return [_refused(at, window, value) for value in at.values]
    return [_transposed(at, window, value, stored, bias) for value in at.values]


def _refused(at: Lowering, window: _Window, image: SSAValue) -> SSAValue:
    """Return zeros in place of a deconvolution whose parameters are refused."""
    of = window.sizes
    sizes = [
        (size - 1) * stride + span - 2 * pad
        for size, stride, span, pad in zip(
            shape_of(image)[2:], of.strides, of.spans, of.begins, strict=True
        )
    ]
    shape = (shape_of(image)[0], window.outputs, *sizes)
    at.check_size(shape)
    return at.network.placeholder(shape)


def _transposed(
    at: Lowering, window: _Window, image: SSAValue, stored: Array, bias: Array | None
) -> SSAValue:
    sizes = window.sizes

    def steps() -> SSAValue:
        return _transposed_steps(at, window, image, stored, bias)

    def operands() -> list[SSAValue]:
        constants = [at.constant(stored, "transposed")]
        return [image, *constants, *([] if bias is None else [at.constant(bias, "added")])]

    return kept(
        at, ConvTransposeOp, steps, operands,
        strides=sizes.strides, pads=(*sizes.begins, *sizes.ends), dilations=sizes.dilations,
        group=window.group,
    )  # fmt: skip


def _transposed_steps(
    at: Lowering, window: _Window, image: SSAValue, stored: Array, bias: Array | None
) -> SSAValue:
    sizes, group, nothing, name = window.sizes, window.group, (0, 0), f"{at.title}.weight"
    result = by_phases(at, image, stored, bias, sizes, nothing, group, name)
    if result is not None:
        return result
    operands = [at.constant(mirrored(stored, group), "weight")]
    if bias is not None:
        operands.append(at.constant(bias, "bias"))
    apart = spread_out(at, image, sizes, nothing)
    return at.emit("conv", apart, *operands, dilations=sizes.dilations, group=group)
