"""Windows of one to three spatial axes: convolutions of them as those of images.

Over one axis images have height 1. Over three, the taps along the depth become channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.frontends.emitter import Emitter
from tilewright.frontends.moves import by_depth
from tilewright.ir import PythonValue, SSAValue
from tilewright.ir.types import shape_of


@dataclass(frozen=True)
class Window:
    """A window over the spatial axes, outermost first."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    """Padding before each axis."""
    ends: tuple[int, ...]
    """Padding after each axis, with what ceil_mode adds."""
    counted_ends: tuple[int, ...]
    """Padding after each axis as the model states it."""

    @classmethod
    def plain(cls, kernel: Sequence[int], dilations: Sequence[int] = ()) -> Window:
        """A window at steps of 1, without padding."""
        ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
        return cls(tuple(kernel), ones, tuple(dilations) or ones, zeros, zeros, zeros)

    @property
    def spans(self) -> tuple[int, ...]:
        """The elements over which the window reaches along each axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def flat(self, values: Sequence[int], fill: int) -> tuple[int, ...]:
        """Per-axis values as rows and columns; a lone axis is the columns."""
        return (fill, *values) if len(values) == 1 else tuple(values)

    def on(self, *axes: int | None) -> Window:
        """The window over some of its axes; None stands for an axis on which nothing happens."""

        def part(values: Sequence[int], neutral: int) -> tuple[int, ...]:
            return tuple(neutral if axis is None else values[axis] for axis in axes)

        return Window(
            part(self.kernel, 1),
            part(self.strides, 1),
            part(self.dilations, 1),
            part(self.begins, 0),
            part(self.ends, 0),
            part(self.counted_ends, 0),
        )

    def pads(self, *, counted: bool = False) -> tuple[int, ...]:
        """Pads as top, left, bottom, right; those that count in an average if ``counted``."""
        ends = self.counted_ends if counted else self.ends
        return (*self.flat(self.begins, 0), *self.flat(ends, 0))

    def attributes(self, *, kernel: bool, dilations: bool) -> dict[str, PythonValue]:
        """The attributes of a graph operation."""
        values: dict[str, PythonValue] = {
            "strides": self.flat(self.strides, 1),
            "pads": self.pads(),
        }
        if kernel:
            values["kernel"] = self.flat(self.kernel, 1)
        if dilations:
            values["dilations"] = self.flat(self.dilations, 1)
        return values


def as_image(at: Emitter, value: SSAValue) -> SSAValue:
    """A sequence [n, c, l] as an image [n, c, 1, l]; images as they are."""
    shape = shape_of(value)
    return at.reshape(value, (*shape[:2], 1, shape[2])) if len(shape) == 3 else value


def as_sequence(at: Emitter, value: SSAValue, rank: int) -> SSAValue:
    """Undoes ``as_image`` on a result for an operand with ``rank`` spatial axes."""
    n, c, _, width = shape_of(value)
    return at.reshape(value, (n, c, width)) if rank == 1 else value


Weights = Callable[[Sequence[int]], SSAValue]
"""The weights of a convolution in a shape that has as many elements."""


def convolve(
    at: Emitter,
    x: SSAValue,
    shape: Sequence[int],
    weights: Weights,
    bias: SSAValue | None,
    window: Window,
    group: int,
) -> SSAValue:
    """The convolution of ``x``, [n, c, places...], by weights of a shape [co, ci, taps...]."""
    co, ci, *taps = shape
    rank = len(taps)

    def of_images(image: SSAValue, window: Window, kernel: Sequence[int]) -> SSAValue:
        inputs = [image, weights(kernel), *([] if bias is None else [bias])]
        attributes = window.attributes(kernel=False, dilations=True)
        return at.emit("conv", *inputs, group=group, **attributes)

    if rank < 3:
        kernel = (co, ci, *window.flat(taps, 1))
        return as_sequence(at, of_images(as_image(at, x), window, kernel), rank)
    flat = (co, ci * taps[0], *taps[1:])
    sizes = taps[0], window.strides[0], window.dilations[0]
    pads = (window.begins[0], window.ends[0])
    return by_depth(at, x, *sizes, pads, lambda image: of_images(image, window.on(1, 2), flat))
