"""Base classes of the operations: attributes with defaults, checks, and the making of stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from tilewright.graph.dialect import GraphOperation
from tilewright.ir import (
    Attribute,
    IntegerType,
    PythonValue,
    SSAValue,
    TensorType,
    VerifyException,
    bf16,
    f16,
    f32,
    f64,
    i1,
    irdl_op_definition,
    opt_prop_def,
)
from tilewright.ir.types import (
    Array,
    FixedType,
    element_dtype,
    element_name,
    fraction_of,
    layout_of,
    tensor,
    tensor_type,
)
from tilewright.numerics.element_types import ELEMENTS
from tilewright.planning.domain import Affine, Dim, Operand, Role, Stage, Value

MAXIMUM_ELEMENTS = 2**31 - 1
"""Elements of the largest tensor."""

MAXIMUM_RANK = 8

FLOATS: tuple[Attribute, ...] = (f32, f64, f16, bf16)
"""Element types of floats."""

SHORT_FLOATS: tuple[Attribute, ...] = (f16, bf16)
"""Element types that are computed on in float32."""

MAXIMUM_STEP = 2**24
"""Largest kernel size, stride, dilation or padding."""

Type = TensorType[Any]

NARROW = (8, 16)
"""Bits of fixed-point values; sums and products of them have 32."""


class Operation(GraphOperation):
    """A graph operation whose attributes have defaults.

    ``DEFAULTS`` names every attribute and its value when absent; an attribute whose default is
    None may be absent.
    """

    DEFAULTS: ClassVar[Mapping[str, PythonValue | None]] = {}
    ARITY: ClassVar[tuple[int, int]] = (1, 1)
    """Fewest and most operands."""
    FIXED_POINT: ClassVar[bool] = True
    """True if operands may be fixed point."""
    RESULT_CHOSEN: ClassVar[bool] = False
    """True if the builder chooses the result's binary point (checked by ``verify_element``)."""

    def get(self, name: str, default: PythonValue = 0) -> Any:
        """The plain value of a property, or ``default``; raises VerifyException if not plain."""
        try:
            return super().get(name, default)
        except TypeError:
            raise VerifyException(f"{self.name}: {name} is no plain value") from None

    @property
    def operation(self) -> str:
        """The name without the dialect: ``conv``."""
        return self.name.removeprefix("graph.")

    @property
    def values(self) -> dict[str, PythonValue]:
        """Every attribute as a plain value, defaults filled in, absent ones left out."""
        values: dict[str, PythonValue] = {}
        for key, default in self.DEFAULTS.items():
            value = self.get(key, cast(PythonValue, default))
            if value is not None:
                values[key] = value
        return values

    @property
    def fractions(self) -> tuple[int, ...]:
        """Binary points of the operands; 0 for those that are not fixed point."""
        return tuple(fraction_of(value) for value in self.inputs)

    @property
    def result_fraction(self) -> int:
        """Binary point of the result; 0 if it is not fixed point."""
        return fraction_of(self.result)

    @property
    def how(self) -> str:
        """The text by which `tilewright explain` tells of the form that a pass gave it; "" for
        none."""
        return ""

    @property
    def is_fixed(self) -> bool:
        """True if the first operand holds fixed-point integers."""
        return isinstance(tensor_type(self.inputs[0]).element_type, FixedType)

    def need(self, condition: bool, message: str) -> None:
        """Raise VerifyException with the operation's and the node's name unless ``condition``."""
        if not condition:
            raise self.wrong(message)

    def wrong(self, message: str) -> VerifyException:
        """Return the error that ``need`` raises; for messages with types, which take long to
        print."""
        place = f" (node {self.node_name!r})" if self.node_name else ""
        return VerifyException(f"{self.name}{place}: {message}")

    def integers(
        self, name: str, count: int | None = None, low: int = -MAXIMUM_STEP
    ) -> tuple[int, ...]:
        """The integers of a tuple attribute, checked for their number and range."""
        value = self.get(name, cast(PythonValue, self.DEFAULTS.get(name)))
        self.need(
            isinstance(value, tuple)
            and all(type(item) is int for item in cast("tuple[object, ...]", value)),
            f"{name} must be a list of integers",
        )
        items = cast("tuple[int, ...]", value)
        self.need(
            count is None or len(items) == count, f"{name} needs {count} entries, has {len(items)}"
        )
        self.need(
            all(low <= item <= MAXIMUM_STEP for item in items),
            f"{name} {list(items)}: every entry must lie in [{low}, {MAXIMUM_STEP}]",
        )
        return items

    def integer(self, name: str, low: int, high: int) -> int:
        """An integer attribute, checked for its range."""
        value = self.get(name, cast(PythonValue, self.DEFAULTS.get(name)))
        self.need(
            type(value) is int and low <= value <= high,
            f"{name} must be an integer in [{low}, {high}], is {value}",
        )
        return cast(int, value)

    def number(self, name: str) -> float:
        """A finite number attribute."""
        value = self.get(name, cast(PythonValue, self.DEFAULTS.get(name)))
        self.need(
            isinstance(value, (int, float)) and abs(value) < float("inf"),
            f"{name} must be a finite number, is {value}",
        )
        return float(value)

    def check_operands(self, types: Sequence[Type]) -> None:
        """Check the number of operands and that their shapes are static and sane."""
        low, high = self.ARITY
        if not low <= len(types) <= high:
            span = str(low) if low == high else f"{low} to {high}"
            raise self.wrong(f"takes {span} operands, has {len(types)}")
        for index, kind in enumerate(types):
            self.check_shape(kind.get_shape(), "operand", index)
            fixed_point = isinstance(kind.element_type, FixedType)
            self.need(self.FIXED_POINT or not fixed_point, "is not defined on fixed point")

    def check_shape(self, shape: Sequence[int], subject: str, number: int | None = None) -> None:
        """Check that a shape is static, of bounded rank and of bounded size; messages call it
        ``subject`` with its number."""
        deep = len(shape) > MAXIMUM_RANK
        if not deep and min(shape, default=0) >= 0 and prod(shape) <= MAXIMUM_ELEMENTS:
            return
        subject = subject if number is None else f"{subject} {number}"
        if deep:
            raise self.wrong(f"{subject} has rank {len(shape)} > {MAXIMUM_RANK}")
        raise self.wrong(
            f"{subject} has shape {list(shape)}: extents must be known and at most "
            f"{MAXIMUM_ELEMENTS} elements in all"
        )

    def result_of(self, shape: Sequence[int], element: Attribute) -> Type:
        """The inferred type, its size checked."""
        self.check_shape(shape, "the result")
        return tensor(shape, element)

    def common_element(self, types: Sequence[Type]) -> Attribute:
        """The element type that all operands share."""
        element = types[0].element_type
        if any(kind.element_type != element for kind in types):
            every = ", ".join(str(kind.element_type) for kind in types)
            raise self.wrong(f"operands differ in element type: {every}")
        return element

    def computed_element(self, types: Sequence[Type]) -> Attribute:
        """The element type that all operands share, or float32 of floats of 16 bits beside it."""
        elements = {kind.element_type for kind in types}
        if f32 in elements and len(elements) == 2 and elements & set(SHORT_FLOATS):
            return f32
        return self.common_element(types)

    def as_result(self, values: Array) -> Array:
        """Return results that were computed in float32 as the result's elements, of 16 bits
        perhaps."""
        dtype = element_dtype(tensor_type(self.result).element_type)
        if values.dtype == np.float32 and tensor_type(self.result).element_type in SHORT_FLOATS:
            return values.astype(dtype)
        return values

    def narrow(self, kind: Type) -> FixedType:
        """The element of an operand that must be fixed point of 8 or 16 bits."""
        element = kind.element_type
        if not isinstance(element, FixedType) or element.bits.data not in NARROW:
            raise self.wrong(f"takes fixed point of 8 or 16 bits, found {element}")
        return element

    def fixed16(self, kind: Type) -> FixedType:
        """The element of an operand that must be 16-bit fixed point."""
        element = kind.element_type
        if not isinstance(element, FixedType) or element.bits.data != 16:
            raise self.wrong(f"takes 16-bit fixed point, found {element}")
        return element

    def need_float(self, kind: Type) -> None:
        """Check that an operand holds floats."""
        element = kind.element_type
        if element not in FLOATS:
            raise self.wrong(f"takes floats, found {element}")

    def need_integer(self, kind: Type) -> None:
        """Check that an operand holds integers."""
        element = kind.element_type
        if not isinstance(element, IntegerType) or element == i1:
            raise self.wrong(f"takes integers, found {element}")

    def verify_(self) -> None:
        """Check the operands, the attributes, and the result's shape and element type."""
        if self.attributes:
            raise self.wrong(f"has no attribute {next(iter(self.attributes))!r}")
        inferred = self.infer([tensor_type(value) for value in self.inputs])
        result_type = tensor_type(self.result)
        shape, wanted = result_type.get_shape(), inferred.get_shape()
        if shape != wanted:
            text = f"result has shape {list(shape)}, the shape rule gives {list(wanted)}"
            raise self.wrong(text)
        self.verify_element(inferred.element_type, result_type.element_type)

    def verify_element(self, inferred: Attribute, element: Attribute) -> None:
        """Check the result's element type against the inferred one.

        What is computed of floats of 16 bits may stay in float32, in which it is computed.
        """
        if self.RESULT_CHOSEN and isinstance(inferred, FixedType):
            if not isinstance(element, FixedType) or element.bits != inferred.bits:
                bits = inferred.bits.data
                raise self.wrong(f"result has elements {element}, needs {bits}-bit fixed point")
        elif inferred != element and not (inferred in SHORT_FLOATS and element == f32):
            raise self.wrong(f"result has elements {element}, the rule gives {inferred}")

    def make_stage(
        self,
        dims: Sequence[Dim],
        operands: Sequence[str],
        accesses: Sequence[tuple[Sequence[Affine], Role]],
        result: str,
        target: Sequence[Affine],
        operation: str = "",
    ) -> Stage | None:
        """A stage over the named operands with one access and role each.

        None if planning has no such element type. ``operation`` is this operation's name unless
        given.
        """
        kinds = [tensor_type(value) for value in (*self.inputs, self.result)]
        if any(element_name(kind.element_type) not in ELEMENTS for kind in kinds):
            return None
        inputs = tuple(
            make_operand(name, value, access, role)
            for name, value, (access, role) in zip(operands, self.inputs, accesses, strict=True)
        )
        return Stage(
            operation or self.operation,
            tuple(dims),
            inputs,
            make_operand(result, self.result, target, "output"),
            tuple((key, cast(Value, value)) for key, value in self.values.items()),
            self.node_name,
        )


def make_operand(name: str, value: SSAValue, access: Sequence[Affine], role: Role) -> Operand:
    """Planning's operand for a tensor value."""
    kind = tensor_type(value)
    return Operand(
        name,
        kind.get_shape(),
        tuple(access),
        element_name(kind.element_type),
        role,
        fraction_of(value),
        layout_of(value),
    )


def axis_dims(shape: Sequence[int]) -> tuple[Dim, ...]:
    """Parallel dims d0, d1, ... of a result of that shape."""
    return tuple(Dim(f"d{axis}", extent) for axis, extent in enumerate(shape))


def along(dim: str, coefficient: int = 1, offset: int = 0) -> Affine:
    """The affine expression ``coefficient * dim + offset``."""
    return Affine(((dim, coefficient),), offset)


def identity(rank: int) -> tuple[Affine, ...]:
    """Access d0, d1, ... of an operand that lies as the result does."""
    return tuple(along(f"d{axis}") for axis in range(rank))


def broadcast_access(shape: Sequence[int], result: Sequence[int]) -> tuple[Affine, ...]:
    """Access of an operand that broadcasts to the result: constant 0 along broadcast axes."""
    skip = len(result) - len(shape)
    return tuple(
        Affine() if extent == 1 and result[skip + axis] != 1 else along(f"d{skip + axis}")
        for axis, extent in enumerate(shape)
    )


def broadcast_shape(operation: Operation, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The shape that operands broadcast to, by NumPy's rule; raises VerifyException."""
    first = tuple(shapes[0])
    if all(tuple(shape) == first for shape in shapes[1:]):
        return first
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result: list[int] = []
    for extents in zip(*padded, strict=True):
        wide = {extent for extent in extents if extent != 1}
        operation.need(
            len(wide) <= 1, f"shapes {[list(shape) for shape in shapes]} do not broadcast"
        )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


Kind = TypeVar("Kind", bound=type[Operation])

OPERATIONS: list[type[Operation]] = []
"""Every operation of the dialect, in the order of its definition."""


def definition(kind: Kind) -> Kind:
    """Add an operation to the dialect; those of its ``DEFAULTS`` that it does not declare itself
    are attributes that may be absent."""
    for name in kind.DEFAULTS:
        if name not in vars(kind):
            setattr(kind, name, opt_prop_def())
    defined = irdl_op_definition(kind)
    OPERATIONS.append(defined)
    return defined


def is_float(element: Attribute) -> bool:
    """Return True if elements are float32."""
    return element == f32
