"""Windows that slide over images: kernel, strides, dilations and padding of convolution and pools.

ONNX describes windows for any number of spatial axes, in several spellings; here they become one
to three axes with explicit pads.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontends.limits import MAX_EXTENT
from tilewright.frontends.onnx.lowering import Lowering
from tilewright.frontends.windows import Window
from tilewright.memory.alignment import ceil_div


def spatial_rank(at: Lowering) -> int:
    """Number of spatial axes of the first operand; refuses all but one to three."""
    shape = at.shape(0)
    if len(shape) not in (3, 4, 5):
        raise at.misfit(
            f"its input has shape {list(shape)}; images of one to three spatial axes are computed"
        )
    return len(shape) - 2


def window_of(at: Lowering, kernel: Sequence[int], *, pool: bool) -> Window:
    """The window of a convolution or, with ONNX's ceil_mode, of a pool; refuses what is not one."""
    extents = at.shape(0)[2:]
    rank = len(extents)
    strides = positive(at, "strides", rank)
    dilations = positive(at, "dilations", rank)
    if len(kernel) != rank or any(not 1 <= size < MAX_EXTENT for size in kernel):
        raise at.refuse(f"kernel_shape {list(kernel)} does not fit {rank} spatial axes")
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    begins, ends = _pads(at, extents, strides, spans)
    extra = [0] * rank
    # With auto_pad VALID the specification's text has no rounding up; ONNX's shape inference and
    # ONNX Runtime have it, and so do the networks that were trained with them.
    if pool and at.integer("ceil_mode") and at.text("auto_pad", "NOTSET") in ("NOTSET", "VALID"):
        extra = [
            _ceil_pad(extents[i] + begins[i], ends[i], spans[i], strides[i]) for i in range(rank)
        ]
    for axis, (extent, span) in enumerate(zip(extents, spans, strict=True)):
        if extent + begins[axis] + ends[axis] > MAX_EXTENT:
            raise at.refuse(
                f"its padded input is larger than {MAX_EXTENT} along an axis", code="onnx-too-large"
            )
        if pool and max(begins[axis], ends[axis]) >= span:
            raise at.refuse(f"its pads are as large as the window, {spans} wide")
        if extent + begins[axis] + ends[axis] + extra[axis] < span:
            raise at.misfit(f"a window {spans} wide does not fit the input {list(extents)}")
    return Window(
        tuple(kernel),
        strides,
        dilations,
        tuple(begins),
        tuple(end + more for end, more in zip(ends, extra, strict=True)),
        tuple(ends),
    )


def positive(at: Lowering, name: str, rank: int) -> tuple[int, ...]:
    """A list of one positive integer per spatial axis; ones if absent."""
    values = at.integers(name) or (1,) * rank
    if len(values) != rank or any(not 1 <= value < MAX_EXTENT for value in values):
        raise at.refuse(f"{name} {list(values)} are not {rank} positive integers")
    return values


def _pads(
    at: Lowering, extents: Sequence[int], strides: Sequence[int], spans: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Padding before and after each axis, by ``pads`` or ``auto_pad``."""
    rank, mode = len(extents), at.text("auto_pad", "NOTSET")
    if mode == "VALID":
        return [0] * rank, [0] * rank
    if mode == "NOTSET":
        pads = at.integers("pads") or (0,) * (2 * rank)
        if len(pads) != 2 * rank or any(not 0 <= pad < MAX_EXTENT for pad in pads):
            raise at.refuse(f"pads {list(pads)} are not {2 * rank} sizes")
        return list(pads[:rank]), list(pads[rank:])
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise at.refuse(f"auto_pad {mode!r} is not known")
    begins, ends = list[int](), list[int]()
    for extent, stride, span in zip(extents, strides, spans, strict=True):
        outputs = ceil_div(extent, stride)
        total = max((outputs - 1) * stride + span - extent, 0)
        small, large = total // 2, total - total // 2
        begins.append(large if mode == "SAME_LOWER" else small)
        ends.append(small if mode == "SAME_LOWER" else large)
    return begins, ends


def _ceil_pad(start: int, end: int, span: int, stride: int) -> int:
    """Return the padding after an axis with which rounding the number of windows down rounds it up.

    ``start`` is the extent with the padding before it: the last window must start inside it.
    """
    free = start + end - span
    windows = ceil_div(free, stride) + 1
    if (windows - 1) * stride >= start:
        windows -= 1
    return max((windows - 1) * stride - free, 0)
