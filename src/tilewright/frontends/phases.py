"""Transposed convolutions by phases: ordinary convolutions, and no zeros between elements.

Along an axis of stride s, the elements of the result at s q + r, for one phase r, hang on those
taps alone that the stride lets meet them, and each tap reads the input at q plus an offset of its
own. So all phases are one convolution of stride 1 with s times the channels, whose result is
interleaved (Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.frontends.emitter import Emitter
from tilewright.frontends.limits import MAX_RANK
from tilewright.frontends.moves import cut, padded, spread
from tilewright.frontends.windows import Window, convolve
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of
from tilewright.memory.alignment import ceil_div

MAX_PHASES = 64
"""Phases up to which strides multiply the channels of a convolution; one alone has no zeros."""


@dataclass(frozen=True)
class Axis:
    """The stride and taps of a transposed convolution along one spatial axis."""

    extent: int
    """The extent of the input along the axis."""
    result: int
    """Extent of the result."""
    stride: int
    taps: tuple[tuple[int, int, int], ...]
    """(phase, tap, offset): the phase's element q takes the tap with the input at q + offset."""

    @property
    def offsets(self) -> tuple[int, int]:
        """The least and the greatest offset."""
        offsets = [offset for _, _, offset in self.taps]
        return min(offsets), max(offsets)

    @property
    def kernel(self) -> int:
        """Taps of the convolution, those of all phases."""
        least, greatest = self.offsets
        return greatest - least + 1

    @property
    def count(self) -> int:
        """Elements of a phase; the last may lie beyond the result."""
        return ceil_div(self.result, self.stride)

    @property
    def pads(self) -> tuple[int, int]:
        """Zeros before and after the input; negative where it is cut."""
        least, greatest = self.offsets
        return -least, self.count + greatest - self.extent


def axis_of(extent: int, window: Window, index: int, more: int) -> Axis:
    """One axis of an input; the result has ``more`` elements at its end beside those that the
    window's pads leave."""
    kernel, stride, dilation = (
        sizes[index] for sizes in (window.kernel, window.strides, window.dilations)
    )
    begin, cropped = window.begins[index], window.begins[index] + window.ends[index] - more
    result = (extent - 1) * stride + (kernel - 1) * dilation + 1 - cropped
    taps = [
        (phase, tap, (begin + phase - tap * dilation) // stride)
        for phase in range(stride)
        for tap in range(kernel)
        if (begin + phase - tap * dilation) % stride == 0
    ]
    return Axis(extent, result, stride, tuple(taps))


ONE = Axis(1, 1, 1, ((0, 0, 0),))
"""An axis of one element."""


def by_phases(
    at: Emitter,
    x: SSAValue,
    weights: Array,
    bias: Array | SSAValue | None,
    window: Window,
    extra: Sequence[int],
    group: int,
    name: str,
) -> SSAValue | None:
    """The transposed convolution of ``x``, [n, ci, places...], as one convolution of all phases.

    None where that would take as many products as with zeros between, as ``spread_out`` gives, or
    too many channels. Weights are [ci, co / group, taps...], the bias [co]; ``name`` is that of
    the weights that are made.
    """
    if not 1 < math.prod(window.strides) <= MAX_PHASES:
        return None
    axes = [axis_of(e, window, i, extra[i]) for i, e in enumerate(shape_of(x)[2:])]
    return _by_axes(at, x, axes, weights, bias, group, name)


def _by_axes(
    at: Emitter,
    x: SSAValue,
    axes: Sequence[Axis],
    weights: Array,
    bias: Array | SSAValue | None,
    group: int,
    name: str,
) -> SSAValue | None:
    ci, co = weights.shape[0], weights.shape[1] * group
    phases = math.prod(axis.stride for axis in axes)
    if any(axis.result < 1 for axis in axes):
        return None
    if math.prod(axis.kernel for axis in axes) >= math.prod(weights.shape[2:]):
        return None
    if any(max(0, -b) >= axis.extent - max(0, -e) for axis in axes for b, e in (axis.pads,)):
        return None
    if len(_parts(1, co, axes, group)) > MAX_RANK:
        return None
    if len(axes) == 1:
        # As an image, whose padding joins the convolution.
        image = at.reshape(x, (*shape_of(x)[:2], 1, shape_of(x)[2]))
        taps = weights.reshape(*weights.shape[:2], 1, -1)
        y = _by_axes(at, image, (ONE, *axes), taps, bias, group, name)
        return None if y is None else at.reshape(y, (*shape_of(y)[:2], shape_of(y)[3]))
    merged = merged_phases(axes, weights.reshape(group, ci // group, -1, *weights.shape[2:]))
    repeated = None
    if bias is not None and not isinstance(bias, SSAValue):
        each = np.broadcast_to(bias.reshape(group, 1, -1), (group, phases, co // group))
        repeated = at.weight(np.ascontiguousarray(each.reshape(-1)), f"{at.title}.bias")
    x = padded(at, x, {2 + i: axis.pads for i, axis in enumerate(axes)})
    window = Window.plain(merged.shape[2:])

    def kernel(shape: Sequence[int]) -> SSAValue:
        return at.weight(merged.reshape(shape), name)

    y = convolve(at, x, merged.shape, kernel, repeated, window, group)
    y = _interleaved(at, y, axes, group)
    y = cut(at, y, {2 + i: (0, axis.result, 1) for i, axis in enumerate(axes)})
    if not isinstance(bias, SSAValue):
        return y
    return at.emit("add", y, at.reshape(bias, (co, *(1,) * len(axes))))


def spread_out(at: Emitter, x: SSAValue, window: Window, extra: Sequence[int]) -> SSAValue:
    """The input of a transposed convolution with zeros between its elements and around them.

    A convolution by mirrored weights then gives the result: the window's pads are cut off it
    before and after each axis, and ``extra`` elements added at its end.
    """
    outside: dict[int, tuple[int, int]] = {}
    for i, span in enumerate(window.spans):
        x = spread(at, x, 2 + i, window.strides[i])
        outside[2 + i] = (span - 1 - window.begins[i], span - 1 - window.ends[i] + extra[i])
    x = padded(at, x, outside)
    if any(have < span for have, span in zip(shape_of(x)[2:], window.spans, strict=True)):
        raise at.misfit("its pads leave nothing")
    return x


def mirrored(weights: Array, group: int) -> Array:
    """Weights [ci, co / group, taps...] as those of the convolution, [co, ci / group, taps...]."""
    ci, outputs, *taps = weights.shape
    split = weights.reshape(group, ci // group, outputs, *taps).swapaxes(1, 2)
    merged = split.reshape(group * outputs, ci // group, *taps)
    return np.ascontiguousarray(np.flip(merged, tuple(range(2, merged.ndim))))


def _parts(batch: int, co: int, axes: Sequence[Axis], group: int) -> dict[str, int]:
    """Return the factors of the result's axes by name, outermost first; phases of 1 are left
    out."""
    phases = {f"phase {i}": axis.stride for i, axis in enumerate(axes)}
    split = {name: extent for name, extent in {"group": group, **phases}.items() if extent > 1}
    counts = {f"place {i}": axis.count for i, axis in enumerate(axes)}
    return {"batch": batch, **split, "channel": co // group, **counts}


def _interleaved(at: Emitter, y: SSAValue, axes: Sequence[Axis], group: int) -> SSAValue:
    """[n, group phases co, places...] as [n, co, places phases...]."""
    phases = math.prod(axis.stride for axis in axes)
    batch, co = shape_of(y)[0], shape_of(y)[1] // phases
    parts = _parts(batch, co, axes, group)
    places = [f"{part} {i}" for i in range(len(axes)) for part in ("place", "phase")]
    order = [name for name in ("batch", "group", "channel", *places) if name in parts]
    at_axis = {name: index for index, name in enumerate(parts)}
    y = at.transpose(at.reshape(y, tuple(parts.values())), tuple(at_axis[name] for name in order))
    return at.reshape(y, (batch, co, *(axis.count * axis.stride for axis in axes)))


def merged_phases(axes: Sequence[Axis], weights: Array) -> Array:
    """[group, ci / group, co / group, taps...] as [group phases co, ci / group, taps...]."""
    group, inputs, outputs = weights.shape[:3]
    strides, kernel = [axis.stride for axis in axes], [axis.kernel for axis in axes]
    merged = np.zeros((group, *strides, outputs, inputs, *kernel), weights.dtype)
    turned = np.swapaxes(weights, 1, 2)
    for taps in itertools.product(*(axis.taps for axis in axes)):
        phase, tap = [t[0] for t in taps], [t[1] for t in taps]
        place = [t[2] - axis.offsets[0] for t, axis in zip(taps, axes, strict=True)]
        merged[(slice(None), *phase, slice(None), slice(None), *place)] = turned[
            (slice(None), slice(None), slice(None), *tap)
        ]
    return merged.reshape(group * math.prod(strides) * outputs, inputs, *kernel)
