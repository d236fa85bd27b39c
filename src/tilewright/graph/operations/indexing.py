"""Elements chosen by indices that are known only at run time, and orders along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.graph.operations.base import STATED, define, definition
from tilewright.ir import i1, i64
from tilewright.ir.types import Array, shape_of
from tilewright.numerics.operators import operators
from tilewright.planning.domain import Stage


@definition
class GatherOp(Operation):
    """The parts of x along ``axis`` that the indices, a second operand of any shape, name.

    A negative index counts from the end; one out of range is cut to the nearest in range.
    """

    name = "graph.gather"
    DEFAULTS: ClassVar[Attributes] = {"axis": STATED}
    ARITY: ClassVar[tuple[int, int]] = (2, 2)
    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape of x with that of the indices in place of the axis."""
        shape, places = types[0].get_shape(), types[1].get_shape()
        axis = self.integer("axis", 0, len(shape) - 1)
        self.need(shape[axis] >= 1, f"axis {axis} of {list(shape)} is empty")
        self.need_integer(types[1])
        element = types[0].element_type
        return self.result_of((*shape[:axis], *places, *shape[axis + 1 :]), element)

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, which is exact."""
        x, places = arrays
        axis = self.integer("axis", 0, x.ndim - 1)
        return np.take(x, wrapped(places, x.shape[axis]), axis=axis)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """The loop nest: dims d0..dk of the result, and a reduction over v, the values that an
        index may have."""
        axis, rank = self.get("axis"), len(shape_of(self.inputs[1]))
        dims = [f"d{i}" for i in range(len(shape_of(self.result)))]
        source = [*dims[:axis], "v", *dims[axis + rank :]]
        places = dims[axis : axis + rank]
        notation = f"{' '.join(source)}, {' '.join(places)} -> {' '.join(dims)}"
        return self.nest(operands, result, notation)


def wrapped(places: Array, extent: int) -> Array:
    """Indices as int64 in [0, extent): negative ones from the end, others cut."""
    wide = places.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + extent, wide), 0, extent - 1)


FOLDS = ("none", *operators("commutative"))
"""The ways in which a scatter treats the old element: it replaces it, or combines both."""


@definition
class ScatterOp(Operation):
    """x [n, ...] with the rows that the indices [m] name replaced by the updates [m, ...].

    In order of the updates; ``reduction`` (``add``, ``mul``, ``max``, ``min``) combines a row with
    its update instead. Rows out of range are left out; negative indices count from the end.
    """

    name = "graph.scatter"
    DEFAULTS: ClassVar[Attributes] = {"reduction": "none"}
    ARITY: ClassVar[tuple[int, int]] = (3, 3)
    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """The type of x."""
        shape, places, updates = (kind.get_shape() for kind in types)
        self.need(len(shape) >= 1 and len(places) == 1, "takes rows, and a list of indices")
        self.need_integer(types[1])
        self.need(
            updates == (*places, *shape[1:]),
            f"updates {list(updates)} must have shape {[*places, *shape[1:]]}",
        )
        element = types[0].element_type
        self.need(types[2].element_type == element, "x and the updates differ in element type")
        self.need(self.get("reduction", "none") in FOLDS, f"reduction must be one of {FOLDS}")
        return self.result_of(shape, element)

    def evaluate(self, *arrays: Array) -> Array:
        """Exact but for the sums and products of floats."""
        x, places, updates = arrays
        result, wide = x.copy(), places.astype(np.int64)
        wide = np.where(wide < 0, wide + x.shape[0], wide)
        kept = (wide >= 0) & (wide < x.shape[0])
        wide, updates = wide[kept], updates[kept]
        with np.errstate(all="ignore"):
            match self.get("reduction", "none"):
                case "none":
                    for place, update in zip(wide.tolist(), updates, strict=True):
                        result[place] = update
                case "add":
                    np.add.at(result, wide, updates)
                case "mul":
                    np.multiply.at(result, wide, updates)
                case "max":
                    np.maximum.at(result, wide, updates)
                case _:
                    np.minimum.at(result, wide, updates)
        return result

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d0..dk of the result | u, the updates: each element looks for its own."""
        first, *others = (f"d{i}" for i in range(len(shape_of(self.result))))
        inner = " ".join(others)
        return self.nest(operands, result, f"{first} {inner}, u, u {inner} -> {first} {inner}")


class RowOperation(Operation):
    """An operation on whole rows along ``axis``, each row by itself."""

    DEFAULTS: ClassVar[Attributes] = {"axis": STATED}
    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the operand's type, which the result has."""
        shape, element = types[0].get_shape(), types[0].element_type
        _ = self.integer("axis", 0, len(shape) - 1)
        return self.result_of(shape, element)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d0.. of the other axes | axis, which a tile keeps whole."""
        return self.rows(operands, result, int(self.get("axis")))


class RunningOperation(RowOperation):
    """Element i is made of the elements up to i along ``axis``, in their own type."""

    ACCUMULATE: ClassVar[Callable[..., Array]]

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the operand's type, which the result has."""
        result = super().infer(types)
        self.need(result.element_type != i1, "is not defined on booleans")
        return result

    def evaluate(self, *arrays: Array) -> Array:
        """In the operand's own type."""
        with np.errstate(all="ignore"):
            axis = int(self.get("axis"))
            return type(self).ACCUMULATE(arrays[0], axis=axis, dtype=arrays[0].dtype)


for _name, _accumulate in (("sum", np.cumsum), ("product", np.cumprod)):
    define(
        RunningOperation,
        {f"running_{_name}": f"The {_name}s of the first elements along ``axis``."},
        ACCUMULATE=_accumulate,
    )


@definition
class ArgSortOp(RowOperation):
    """The indices, as int64, that sort along ``axis``; equal elements stay in order."""

    name = "graph.arg_sort"
    DEFAULTS: ClassVar[Attributes] = {"axis": STATED, "descending": False}

    def infer(self, types: Sequence[Type]) -> Type:
        """The operand's shape, of int64."""
        return self.result_of(super().infer(types).get_shape(), i64)

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, which is exact."""
        return sorted_places(arrays[0], int(self.get("axis")), bool(self.get("descending", False)))


def sorted_places(x: Array, axis: int, descending: bool) -> Array:
    """Indices that sort along an axis, the first of equal elements first."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable").astype(np.int64)
    back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - back, axis).astype(np.int64)
