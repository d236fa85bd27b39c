"""Values of a program while it is imported: tensors, constants, and views of either.

XLA's programs write every broadcast and many transposes out, and keep images in NHWC. A value here
is a tensor of the network together with the order of its axes and the shape that it broadcasts to,
so that neither moves an element before an operation needs it: biases stay rows, ``max(x, 0)`` stays
a ReLU, and between convolutions images stay in NCHW.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import SSAValue
from tilewright.ir.types import Array, dtype_of, shape_of


@dataclass(frozen=True)
class View:
    """A tensor seen with its axes in another order and broadcast.

    Axis p of ``core`` is the value's axis ``axes[p]``; it has that axis' extent in ``shape``, or 1.
    """

    core: SSAValue | Array
    """A tensor of the network, or an array that is known at import."""
    axes: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, core: SSAValue | Array, axes: Sequence[int] | None = None) -> View:
        """A tensor that is not broadcast; its axes in order unless ``axes`` says otherwise."""
        sizes = extents_of(core)
        order = tuple(range(len(sizes))) if axes is None else tuple(axes)
        return cls(core, order, tuple(sizes[order.index(i)] for i in range(len(sizes))))

    @property
    def rank(self) -> int:
        """The number of axes of the view."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the elements."""
        return dtype_of(self.core) if isinstance(self.core, SSAValue) else self.core.dtype

    @property
    def known(self) -> Array | None:
        """The array in the order of the value's axes, not yet broadcast; None if it is computed."""
        if isinstance(self.core, SSAValue):
            return None
        return self.core.transpose([self.axes.index(i) for i in range(self.rank)])

    @property
    def array(self) -> Array | None:
        """The whole array if it is known at import; what is broadcast takes no memory."""
        known = self.known
        return None if known is None else np.broadcast_to(known, self.shape)

    @property
    def number(self) -> Any:
        """The one value that all elements have, as a NumPy scalar; None if it is not known."""
        if isinstance(self.core, SSAValue) or self.core.size != 1:
            return None
        return self.core.reshape(())[()]

    def extent(self, axis: int) -> int:
        """The extent that the tensor itself has on one of the value's axes: its own, or 1."""
        return extents_of(self.core)[self.axes.index(axis)]

    def transposed(self, order: Sequence[int]) -> View:
        """The value whose axis i is this one's axis ``order[i]``."""
        axes = tuple(list(order).index(axis) for axis in self.axes)
        return View(self.core, axes, tuple(self.shape[axis] for axis in order))

    def placed(self, places: Mapping[int, int], shape: Sequence[int]) -> tuple[View, list[int]]:
        """The value with some axes at other places in another shape, and its core's new extents.

        ``places`` gives kept axes their new place; the others must have extent 1 in the core. The
        core of the result is still to be reshaped to the extents.
        """
        kept = [(places[a], e) for a, e in self._pairs() if a in places]
        order = [place for place, _ in kept]
        sizes = dict(kept)
        rank = len(shape)
        if order == sorted(order):
            axes = list(range(rank))
        else:
            axes = [*order, *(i for i in range(rank) if i not in sizes)]
        return View(self.core, tuple(axes), tuple(shape)), [sizes.get(i, 1) for i in axes]

    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.axes, extents_of(self.core), strict=True))


Entry = View | tuple["Entry", ...]
"""A tensor, or a tuple of such."""


def extents_of(core: SSAValue | Array) -> tuple[int, ...]:
    """Shape of a tensor or an array."""
    return shape_of(core) if isinstance(core, SSAValue) else core.shape
