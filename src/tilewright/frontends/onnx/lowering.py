"""The interface of an operator's importer: the node, its operands, and ways to emit and refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.frontends.emitter import Emitter, NetworkBuilder
from tilewright.frontends.onnx.nodes import AttributeValue, Node
from tilewright.frontends.onnx.tensors import Constant
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, dtype_of, shape_of
from tilewright.numerics.codes import FORMATS

Value = SSAValue | Constant
"""The value of an ONNX name: a tensor of the network, or an array known at import."""

MAX_LIST = 4096
"""Entries of a constant that lists axes, sizes or indices."""


def shape_of_value(value: Value) -> tuple[int, ...]:
    """Shape of a tensor or a constant."""
    return value.array.shape if isinstance(value, Constant) else shape_of(value)


def dtype_of_value(value: Value) -> np.dtype[Any]:
    """Element type of a tensor or a constant."""
    return value.array.dtype if isinstance(value, Constant) else dtype_of(value)


class Lowering(Emitter):
    """One node on its way into the graph dialect."""

    FAMILY: ClassVar[str] = "onnx"

    def __init__(
        self,
        node: Node,
        attributes: Mapping[str, AttributeValue],
        operands: Sequence[Value | None],
        network: NetworkBuilder,
    ) -> None:
        super().__init__(network, node.origin, node.name, node.where)
        self.node = node
        self.version = node.version
        """The version of the whole operator set, not of the operator."""
        self.attributes = attributes
        self.operands = operands

    def like(self, operands: Sequence[Value | None]) -> Lowering:
        """The same node with other operands, for rules that other operators share."""
        return Lowering(self.node, self.attributes, operands, self.network)

    def within(self, network: NetworkBuilder) -> Lowering:
        """The same node as it appends to another network, the body of a loop, say."""
        return Lowering(self.node, self.attributes, self.operands, network)

    # Attributes

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer attribute; refuses other types."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise self.refuse(f"the attribute {name!r} is not an integer")
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        """An attribute that lists integers; None if it is absent."""
        value = self.attributes.get(name)
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise self.refuse(f"the attribute {name!r} is not a list")
        return tuple(int(item) for item in value)

    def number(self, name: str, default: float = 0.0) -> float:
        """A float attribute, finite."""
        value = self.attributes.get(name, default)
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.refuse(f"the attribute {name!r} is not a finite number")
        return float(value)

    def text(self, name: str, default: str = "") -> str:
        """Return a string attribute; refuses other types."""
        value = self.attributes.get(name, default)
        if not isinstance(value, str):
            raise self.refuse(f"the attribute {name!r} is not a string")
        return value

    # Operands

    def has(self, index: int) -> bool:
        """Return True if an operand is given."""
        return index < len(self.operands) and self.operands[index] is not None

    def operand(self, index: int) -> Value:
        """An operand that the operator cannot do without."""
        value = self.operands[index] if index < len(self.operands) else None
        if value is None:
            raise self.refuse(f"its input {index} is missing")
        return value

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of an operand."""
        return shape_of_value(self.operand(index))

    def dtype(self, index: int) -> np.dtype[Any]:
        """Element type of an operand."""
        return dtype_of_value(self.operand(index))

    def decoded(self, value: Value) -> Value:
        """Codes of a short format (numerics/codes.py) as the numbers that they are; else itself."""
        form = FORMATS.get(dtype_of_value(value).name)
        if form is None:
            return value
        if isinstance(value, Constant):
            return Constant(value.array.astype(form.wide), value.name)
        return self.cast(value, np.dtype(form.wide))

    def tensor(self, index: int) -> SSAValue:
        """An operand as a value of the network; constants become weights."""
        return self.stored(self.operand(index))

    def stored(self, value: Value) -> SSAValue:
        """Any value as one of the network."""
        return self.weight(value.array, value.name) if isinstance(value, Constant) else value

    def shaped(self, value: Value, shape: Sequence[int]) -> SSAValue:
        """Any value in another shape as one of the network; constants are kept in that shape."""
        return self.stored(self.reshaped(value, shape))

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """Any value in another shape."""
        if isinstance(value, Constant):
            return Constant(value.array.reshape(tuple(shape)), value.name)
        return self.reshape(value, shape)

    def joined(self, values: Sequence[Value], axis: int, *, new: bool) -> Value:
        """Values one after another along an axis, or along a ``new`` one."""
        # What is empty takes no part, whatever its other dims.
        shapes = [shape for value in values if 0 not in (shape := shape_of_value(value)) or new]
        if len({shape[:axis] + shape[axis + (not new) :] for shape in shapes}) > 1:
            raise self.misfit("its tensors do not fit together")
        arrays = [value.array for value in values if isinstance(value, Constant)]
        if len(arrays) == len(values):
            whole = np.stack(arrays, axis) if new else np.concatenate(arrays, axis)
            return Constant(whole, f"{self.node.name}.joined")
        parts = [self.stored(value) for value in values if 0 not in shape_of_value(value)]
        if new:
            shape = shape_of(parts[0])
            parts = [self.reshape(part, (*shape[:axis], 1, *shape[axis:])) for part in parts]
        return parts[0] if len(parts) == 1 else self.emit("concat", *parts, axis=axis)

    def constant(self, index: int) -> Array | None:
        """An operand's array if it is known at import, else None."""
        value = self.operands[index] if index < len(self.operands) else None
        return value.array if isinstance(value, Constant) else None

    def integers_at(self, index: int, subject: str) -> tuple[int, ...] | None:
        """An operand that lists integers (axes, a shape); None if it is absent."""
        if not self.has(index):
            return None
        array = self.constant(index)
        if array is None:
            raise self.refuse(
                f"its {subject} are computed at run time",
                help="simplify the model so that they become constants, or, where an input gives "
                "them, give it its value: --constant",
                code="onnx-shape",
            )
        if array.dtype.kind not in "iu" or array.ndim > 1 or array.size > MAX_LIST:
            raise self.refuse(f"its {subject} are not a list of integers")
        return tuple(int(item) for item in array.reshape(-1))

    def scalar_at(self, index: int, subject: str) -> float | None:
        """An operand that holds one number; None if it is absent."""
        if not self.has(index):
            return None
        array = self.constant(index)
        if array is None or array.size != 1:
            raise self.refuse(f"its {subject} is not a constant number")
        return float(array.reshape(-1)[0])

    def whole_at(self, index: int, subject: str) -> int:
        """The whole number that an operand holds; refuses any other operand."""
        number = self.scalar_at(index, subject)
        if number is None or not number.is_integer():
            raise self.refuse(f"its {subject} is not a whole number")
        return int(number)


Map = Callable[[Lowering], SSAValue]
"""Imports a node with one result, which is always a tensor of the network."""

Rule = Callable[[Lowering], Value | Sequence[Value]]
"""Imports one node: emits what it means and returns its result, or all its results.

Raises TilewrightError (a refusal).
"""
