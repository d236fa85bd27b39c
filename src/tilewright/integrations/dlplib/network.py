"""One operator of the library as a network of graph operations, with its numbers stated.

Values are in logical N, C, H, W order; what lies otherwise in memory is transposed at the border,
which is an address where the machine has that layout. In fixed point every value has a binary
point of its own, so the pipeline chooses none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.frontends import Imported
from tilewright.frontends.emitter import Emitter, NewNetwork
from tilewright.frontends.moves import cut, padded
from tilewright.graph.dialect import WeightOp
from tilewright.graph.operations import BY_NAME
from tilewright.integrations.dlplib.descriptors import FLOAT32, ORDERS, NumericType, Shape, fixed16
from tilewright.ir import ArrayAttr, PythonValue, SSAValue, VerifyException, to_attribute
from tilewright.ir.types import Array, FixedType, shape_of, tensor, tensor_type


class OperatorNetwork(Emitter):
    """A network under construction; ``fixed`` says that it computes in fixed point.

    ``constants`` are elements of some of the inputs, as they lie in memory: these become weights of
    the network.
    Refuses (``dlp-shape``) operands that the graph's shape rules do not accept.
    """

    FAMILY: ClassVar[str] = "dlp"
    TYPED: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        inputs: Mapping[str, Shape],
        fixed: bool,
        constants: Mapping[str, Array] | None = None,
    ) -> None:
        self.name, self.fixed = name, fixed
        self.values: dict[str, SSAValue] = {}
        """The operands by name, in logical order."""
        known = constants or {}
        kinds = {key: tensor(shape.stored, shape.type.element) for key, shape in inputs.items()}
        taken = [(key, kind) for key, kind in kinds.items() if key not in known]
        self._made = NewNetwork(name, taken, [])
        super().__init__(self._made, name, name, name)
        self.weights = self._made.weights
        values = dict(self._made.operator.inputs)
        for key, shape in inputs.items():
            if key in known:
                op = WeightOp.of(self.weights.add(known[key], key), kinds[key])
                self.network.block.add_op(op)
                values[key] = op.result
            order = ORDERS[shape.format]
            back = tuple(order.index(axis) for axis in range(4))
            self.values[key] = self.transpose(values[key], back)

    def refuse(self, reason: str, *, code: str = "", help: str = "") -> TilewrightError:
        """The refusal of operands that do not fit."""
        del code  # The library has one for shapes, too large ones among them.
        return refuse("dlp-shape", reason, self.name, help)

    def operand(self, name: str, dims: tuple[int, ...]) -> SSAValue:
        """An operand, which must be of these dims."""
        if shape_of(self.values[name]) != dims:
            actual = _text(shape_of(self.values[name]))
            raise self.refuse(f"{name} is {actual}, beside the others {_text(dims)}")
        return self.values[name]

    def emit(self, operation: str, *inputs: SSAValue, **attributes: PythonValue) -> SSAValue:
        """Append an operation to the network."""
        return self.typed(None, operation, *inputs, **attributes)

    def typed(
        self,
        type: NumericType | None,
        operation: str,
        *inputs: SSAValue,
        **attributes: PythonValue,
    ) -> SSAValue:
        """Append an operation whose result's type the builder chooses."""
        kind = None if type is None else tensor(shape_of(inputs[0]), type.element)
        try:
            op = BY_NAME[operation].build_from(inputs, attributes, node=self.name, result_type=kind)
            op.verify()
        except VerifyException as error:
            raise self.refuse(str(error)) from None
        self.network.block.add_op(op)
        return op.result

    def constant(self, array: Array, type: NumericType = FLOAT32) -> SSAValue:
        """A constant of the library's own, such as a row of ones."""
        elements = type.encode(np.asarray(array)) if self.fixed else np.asarray(array, np.float32)
        symbol = self.weights.add(elements, "constant")
        element = type.element if self.fixed else FLOAT32.element
        op = WeightOp.of(symbol, tensor(elements.shape, element))
        self.network.block.add_op(op)
        return op.result

    def number(self, number: float, like: SSAValue, type: NumericType = FLOAT32) -> SSAValue:
        """A number for every channel of a value, 1 x C x 1 x 1."""
        return self.constant(np.full((1, shape_of(like)[1], 1, 1), number), type)

    def to(self, value: SSAValue, type: NumericType) -> SSAValue:
        """A value as 16-bit numbers of another binary point; floats stay what they are."""
        if not self.fixed or tensor_type(value).element_type == type.element:
            return value
        return self.typed(type, "requantise", value)

    def sum(self, operation: str, a: SSAValue, b: SSAValue) -> SSAValue:
        """``add`` or ``sub`` of 16-bit values: in 32 bits at the larger binary point.

        Where points lie further apart than 14 bits the sum would overflow; the finer operand is
        rounded then, by less than the coarser one's last place.
        """
        points = self.fraction(a), self.fraction(b)
        least = fixed16(min(min(points) + 14, 30))
        if points[0] > points[1] + 14:
            a = self.to(a, least)
        if points[1] > points[0] + 14:
            b = self.to(b, least)
        return self.emit(operation, a, b)

    def function(self, name: str, value: SSAValue, type: NumericType) -> SSAValue:
        """A function by table: its result's binary point is chosen."""
        return self.typed(type if self.fixed else None, name, value)

    def copied(self, value: SSAValue) -> SSAValue:
        """A value that the machine itself moves, at the cost of its loads and stores."""
        return self.typed(self.type_of(value), "requantise", value) if self.fixed else value

    def type_of(self, value: SSAValue) -> NumericType:
        """The numeric type of a value."""
        element = tensor_type(value).element_type
        if not isinstance(element, FixedType):
            return FLOAT32
        kind = "fixed16" if element.bits.data == 16 else "fixed32"
        return NumericType(kind, element.fraction.data)

    def fraction(self, value: SSAValue) -> int:
        """The binary point of a value; 0 for floats."""
        return self.type_of(value).fraction

    def slice(self, value: SSAValue, axis: int, start: int, end: int, step: int = 1) -> SSAValue:
        """Elements start, start + step, ... before end along an axis; all of them stay a value."""
        return cut(self, value, {axis: (start, end, step)})

    def pad(self, value: SSAValue, axis: int, before: int, after: int) -> SSAValue:
        """Zeros around an axis; negative counts cut elements off."""
        return padded(self, value, {axis: (before, after)})

    def finish(self, outputs: Mapping[str, tuple[SSAValue, Shape]]) -> Imported:
        """The network, its results brought to the types and formats of their descriptors.

        Refuses (``dlp-shape``) a descriptor of another shape than the result's.
        """
        results: list[SSAValue] = []
        for key, (value, shape) in outputs.items():
            if shape_of(value) != shape.dims:
                stated, actual = _text(shape.dims), _text(shape_of(value))
                raise self.refuse(f"{key} is described as {stated}; the result has {actual}")
            results.append(self.transpose(self.to(value, shape.type), ORDERS[shape.format]))
        self._made.operator.output_names = to_attribute(list(outputs))
        if self.fixed:
            self._made.operator.numbers = ArrayAttr([])
        return Imported(self._made.finish(results), self.weights, self.name, 0, "")


def _text(dims: tuple[int, ...]) -> str:
    return "x".join(map(str, dims))
