"""Pooling: sizes round up, and averages count the padding but not what lies beyond it."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontends.caffe.limits import MAX_EXTENT
from tilewright.frontends.caffe.lowering import Lowering
from tilewright.frontends.caffe.operators.windows import Pair, pair
from tilewright.ir import SSAValue
from tilewright.memory.alignment import ceil_div


def pooling(at: Lowering) -> Sequence[SSAValue]:
    """MAX or AVE over windows, or over the whole image."""
    at.needs(1)
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
    return [pool(at, at.x, method, kernel, strides, pads, ends)]


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
