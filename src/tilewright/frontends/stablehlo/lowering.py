"""The interface of an operation's rule: its attributes, its operands, ways to emit and refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.frontends.emitter import Emitter, NetworkBuilder
from tilewright.frontends.limits import MAX_EXTENT, MAX_TABLE, shown
from tilewright.frontends.moves import broadcast
from tilewright.frontends.stablehlo.program import Dense, Kind, Operation
from tilewright.frontends.stablehlo.values import View, extents_of
from tilewright.ir import PythonValue, SSAValue
from tilewright.ir.types import shape_of


class Lowering(Emitter):
    """One operation on its way into the graph dialect."""

    FAMILY: ClassVar[str] = "stablehlo"

    def __init__(
        self, op: Operation, label: str, views: Sequence[View], network: NetworkBuilder
    ) -> None:
        super().__init__(network, label, label, where(op, label))
        self.op = op
        self.label = label
        """The operation's name in the model."""
        self.views = views
        """The operands of the operation, in order."""

    def unsupported(self, reason: str, help: str = "") -> TilewrightError:
        """The refusal of a form of the operation that is not computed."""
        return self.refuse(reason, code="stablehlo-unsupported", help=help)

    # Attributes

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute; refuses other types."""
        value = self.op.attributes.get(name, default)
        if not isinstance(value, int):
            raise self.refuse(f"the attribute {name!r} is not an integer")
        return int(value)

    def flag(self, name: str) -> bool:
        """A boolean attribute, false where it is absent."""
        return bool(self.op.attributes.get(name, False))

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """An attribute that lists integers, all of bounded size."""
        value = self.op.attributes.get(name, default)
        if isinstance(value, Dense):
            value = np.broadcast_to(value.array, value.shape).reshape(-1).tolist()
        if not isinstance(value, list | tuple):
            raise self.refuse(f"the attribute {name!r} is not a list")
        items = tuple(int(item) for item in cast("Sequence[Any]", value))
        if any(abs(item) > MAX_EXTENT for item in items):
            raise self.refuse(
                f"an entry of {name!r} is larger than {MAX_EXTENT}", code="stablehlo-too-large"
            )
        return items

    def text(self, name: str, default: str = "") -> str:
        """Return a string attribute, or the default."""
        value = self.op.attributes.get(name, default)
        return value if isinstance(value, str) else default

    def dimensions(self, name: str) -> dict[str, Any]:
        """The dimension numbers of an operation, by name."""
        value = self.op.attributes.get(name)
        if not isinstance(value, dict):
            raise self.refuse(f"the attribute {name!r} is missing")
        return cast("dict[str, Any]", value)

    @property
    def kind(self) -> Kind:
        """Type of the first result."""
        return self.op.kinds[0]

    # Views as tensors

    def arranged(self, view: View, axes: Sequence[int]) -> SSAValue:
        """The view's tensor with its axes in the order ``axes``, not broadcast."""
        order = [view.axes.index(axis) for axis in axes]
        if not isinstance(view.core, SSAValue):
            return self.weight(view.core.transpose(order), f"{self.label}.constant")
        sizes = shape_of(view.core)
        moving = [axis for axis in order if sizes[axis] != 1]
        if moving == sorted(moving):
            return self.reshape(view.core, [sizes[axis] for axis in order])
        return self.transpose(view.core, order)

    def full(self, view: View, axes: Sequence[int] | None = None) -> SSAValue:
        """The view's tensor with every element in place, its axes in order or in that of axes."""
        order = tuple(range(view.rank)) if axes is None else tuple(axes)
        shape = tuple(view.shape[axis] for axis in order)
        self.check_size(shape)
        # What is large only by repetition is repeated at run time.
        array = view.array if math.prod(shape) <= MAX_TABLE else None
        if array is not None or math.prod(extents_of(view.core)) == math.prod(shape):
            return self.arranged(view if array is None else View.of(array), order)
        return broadcast(self, self.arranged(view, order), shape)

    def filled(self, view: View, axes: Sequence[int]) -> View:
        """The view with its tensor broadcast along some of its axes."""
        if all(view.extent(axis) == view.shape[axis] for axis in axes):
            return view
        sizes = [
            view.shape[axis] if axis in axes else extent
            for axis, extent in zip(view.axes, extents_of(view.core), strict=True)
        ]
        if not isinstance(view.core, SSAValue):
            return View(np.broadcast_to(view.core, sizes), view.axes, view.shape)
        self.check_size(sizes)
        return View(broadcast(self, view.core, sizes), view.axes, view.shape)

    def placed(self, view: View, places: dict[int, int], shape: Sequence[int]) -> View:
        """The view with its axes at other places of a shape (``View.placed``)."""
        moved, sizes = view.placed(places, shape)
        if isinstance(moved.core, SSAValue):
            return View(self.reshape(moved.core, sizes), moved.axes, moved.shape)
        return View(moved.core.reshape(sizes), moved.axes, moved.shape)

    def reshaped(self, view: View, shape: Sequence[int]) -> View:
        """The elements in order in another shape; axes of extent 1 come and go for nothing."""
        shape = tuple(shape)
        have = [axis for axis, extent in enumerate(view.shape) if extent != 1]
        want = [axis for axis, extent in enumerate(shape) if extent != 1]
        if [view.shape[axis] for axis in have] == [shape[axis] for axis in want]:
            return self.placed(view, dict(zip(have, want, strict=True)), shape)
        if not isinstance(view.core, SSAValue):
            if view.core.size == 1:
                return View(view.core.reshape((1,) * len(shape)), tuple(range(len(shape))), shape)
            array = view.array
            assert array is not None
            self.check_size(shape)
            return View.of(array.reshape(shape))
        return View.of(self.reshape(self.full(view), shape))

    # Maps

    def common_axes(self, views: Sequence[View]) -> tuple[int, ...]:
        """The order of axes in which most elements of some views need not move."""

        def weight_of(view: View) -> int:
            known = not isinstance(view.core, SSAValue)
            return -1 if known else math.prod(extents_of(view.core))

        return max(views, key=weight_of).axes if views else ()

    def map(self, function: Callable[..., SSAValue], *views: View) -> View:
        """A function of one element of each view; tensors broadcast inside it."""
        axes = self.common_axes(views)
        tensors = [self.arranged(view, axes) for view in views]
        return View(function(*tensors), axes, views[0].shape)

    def converted(self, view: View, dtype: np.dtype[Any] | type[np.generic]) -> View:
        """A view of elements of another type."""

        def cast_one(value: SSAValue) -> SSAValue:
            return self.cast(value, dtype)

        return view if view.dtype == np.dtype(dtype) else self.map(cast_one, view)

    def pointwise(self, operation: str, *views: View, **attributes: PythonValue) -> View:
        """An operation of the graph on one element of each view."""
        return self.map(lambda *values: self.emit(operation, *values, **attributes), *views)


def where(op: Operation, label: str) -> str:
    """The place of a problem: the operation and its name in the model."""
    return f"operation {shown(label)} ({op.name[:60]})"


Rule = Callable[[Lowering], View | Sequence[View]]
"""Imports one operation: emits what it means and returns its result, or all its results.

Raises TilewrightError (a refusal).
"""
