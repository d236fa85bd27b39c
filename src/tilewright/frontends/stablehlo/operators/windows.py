"""reduce_window: pools over one to three axes, and running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.frontends import moves
from tilewright.frontends.limits import MAX_TABLE
from tilewright.frontends.stablehlo.lowering import Lowering
from tilewright.frontends.stablehlo.operators.movement import padded
from tilewright.frontends.stablehlo.operators.reductions import (
    fold_here,
    folded,
    neutral,
)
from tilewright.frontends.stablehlo.values import View
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


@dataclass(frozen=True)
class _Axis:
    """The size, stride, dilation and padding of the window along one axis."""

    size: int
    stride: int
    dilation: int
    low: int
    high: int

    @property
    def idle(self) -> bool:
        """True if nothing happens along the axis."""
        return (self.size, self.stride, self.low, self.high) == (1, 1, 0, 0)


def reduce_window(at: Lowering) -> View:
    """Elements of each window folded; padding counts as the value that the fold starts from."""
    if len(at.views) != 2:
        raise at.unsupported("several reductions in one")
    x, start = at.views
    fold = fold_here(at, x.dtype)
    if not neutral(fold, x.dtype, start.number) and not _lowest(fold, x, start):
        raise at.unsupported("a start that is not the neutral element")
    window = _window(at, x)
    gaps = at.integers("base_dilations", (1,) * x.rank)
    if any(gap != 1 for gap in gaps):
        x = padded(at, x, [(0, 0, gap - 1) for gap in gaps], float(start.number))
    active = [axis for axis, slide in enumerate(window) if not slide.idle]
    if not active:
        return x
    running = _running(at, x, fold, window, active)
    if running is not None:
        return running
    whole = [axis for axis in active if _is_whole(x.shape[axis], window[axis])]
    if whole == active:
        # One window: a reduction whose axes stay.
        rest = [axis for axis in range(x.rank) if axis not in active]
        shape = tuple(1 if axis in active else x.shape[axis] for axis in range(x.rank))
        return at.placed(folded(at, x, active, fold), dict(enumerate(rest)), shape)
    if x.dtype == np.bool_:
        pooled = _pooled(at, at.converted(x, np.float32), fold, window, active)
        return at.converted(pooled, np.bool_)
    return _pooled(at, x, fold, window, active)


def _lowest(fold: str, x: View, start: View) -> bool:
    """Return True if a pool starts from the lowest number there is: as good as infinity."""
    if x.dtype.kind != "f" or start.number is None or fold not in ("max", "min"):
        return False
    lowest = np.finfo(x.dtype).min
    return bool(start.number == (lowest if fold == "max" else -lowest))


def _window(at: Lowering, x: View) -> list[_Axis]:
    ones = (1,) * x.rank
    pads = at.integers("padding", (0,) * (2 * x.rank))
    lists = (
        at.integers("window_dimensions"),
        at.integers("window_strides", ones),
        at.integers("window_dilations", ones),
        pads[::2],
        pads[1::2],
    )
    if any(len(items) != x.rank for items in lists):
        raise at.refuse(f"the window does not fit {x.rank} axes")
    window = [_Axis(*values) for values in zip(*lists, strict=True)]
    if any(min(slide.size, slide.stride, slide.dilation) < 1 for slide in window):
        raise at.refuse("an entry of the window is not positive")
    return window


def _is_whole(extent: int, slide: _Axis) -> bool:
    return slide.size == extent and slide.dilation == 1 and slide.low == slide.high == 0


def _running(
    at: Lowering, x: View, fold: str, window: Sequence[_Axis], active: Sequence[int]
) -> View | None:
    """Sums or products of all elements up to each one, or from each one on."""
    if len(active) != 1 or fold not in ("add", "mul"):
        return None
    axis = active[0]
    extent, slide = x.shape[axis], window[axis]
    pads = (slide.low, slide.high)
    if (slide.size, slide.stride, slide.dilation) != (extent, 1, 1) or extent == 1:
        return None
    if pads not in ((extent - 1, 0), (0, extent - 1)):
        return None
    x = at.filled(x, [axis])
    place, core = x.axes.index(axis), at.arranged(x, x.axes)
    backwards = pads[0] == 0
    if backwards:
        core = moves.reversed_along(at, core, place)
    core = at.emit("running_sum" if fold == "add" else "running_product", core, axis=place)
    if backwards:
        core = moves.reversed_along(at, core, place)
    return View(core, x.axes, x.shape)


def _pooled(
    at: Lowering, x: View, fold: str, window: Sequence[_Axis], active: Sequence[int]
) -> View:
    """Pools over two axes at a time: folding boxes is folding along one axis after another."""
    if x.dtype.kind != "f" and fold != "max":
        raise at.unsupported(f"windows of integers folded by {fold}")
    if len(active) == 1:
        idle = [axis for axis in range(x.rank) if axis not in active]
        active = [*idle[-1:], *active]
    if len(active) == 1:
        x = at.reshaped(x, (1, *x.shape))
        idle_axis = _Axis(1, 1, 1, 0, 0)
        pooled = _pooled(at, x, fold, [idle_axis, *window], [0, 1])
        return at.reshaped(pooled, pooled.shape[1:])
    for first in range(0, len(active), 2):
        pair = active[first : first + 2]
        if len(pair) == 1:
            pair = [active[0], *pair]
            window = [_Axis(1, 1, 1, 0, 0) if i == pair[0] else w for i, w in enumerate(window)]
        x = _pool(at, x, fold, (window[pair[0]], window[pair[1]]), pair)
    return x


def _pool(
    at: Lowering, x: View, fold: str, slides: tuple[_Axis, _Axis], pair: Sequence[int]
) -> View:
    others = [axis for axis in x.axes if axis not in pair]
    value = at.full(x, (*others, *pair))
    sizes = shape_of(value)
    rows = sizes[0] if len(others) > 1 else 1
    image = (rows, math.prod(sizes[:-2]) // rows, *sizes[-2:])
    value = _fold(at, at.reshape(value, image), fold, slides)
    value = at.reshape(value, (*sizes[:-2], *shape_of(value)[2:]))
    return View.of(value, (*others, *pair))


def _fold(at: Lowering, x: SSAValue, fold: str, slides: tuple[_Axis, _Axis]) -> SSAValue:
    rows, columns = slides
    kernel, strides = (rows.size, columns.size), (rows.stride, columns.stride)
    edges = (rows.low, columns.low, rows.high, columns.high)
    if any(edge < 0 for edge in edges):
        cuts = {2 + i: (min(s.low, 0), min(s.high, 0)) for i, s in enumerate(slides)}
        x = moves.padded(at, x, cuts)
        edges = tuple(max(edge, 0) for edge in edges)
    dilations = (rows.dilation, columns.dilation)
    if fold in ("max", "min"):
        if fold == "min":
            x = at.emit("neg", x)
        x = at.emit("max_pool", x, kernel=kernel, strides=strides, pads=edges, dilations=dilations)
        return at.emit("neg", x) if fold == "min" else x
    if fold != "add":
        raise at.unsupported(f"windows folded by {fold}")
    if dilations != (1, 1):
        channels = shape_of(x)[1]
        if channels * math.prod(kernel) > MAX_TABLE:
            raise at.refuse("a dilated window is too large", code="stablehlo-too-large")
        ones = at.weight(np.ones((channels, 1, *kernel), np.float32), f"{at.label}.ones")
        return at.emit(
            "conv", x, ones, strides=strides, pads=edges, dilations=dilations, group=channels
        )
    mean = at.emit("average_pool", x, kernel=kernel, strides=strides, pads=edges, counted=edges)
    return at.apply("mul", mean, float(math.prod(kernel)))
