"""The base class of operations: attributes with defaults, checks, and the making of stages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, cast

import numpy as np

from tilewright.graph.names import value_hint
from tilewright.ir import (
    ArrayAttr,
    Attribute,
    IntegerType,
    IRDLOperation,
    ParsePropInAttrDict,
    PythonValue,
    SSAValue,
    StringAttr,
    TensorType,
    UnitAttr,
    VerifyException,
    bf16,
    f16,
    f32,
    f64,
    from_attribute,
    give_type,
    i1,
    opt_prop_def,
    result_def,
    to_attribute,
    var_operand_def,
)
from tilewright.ir.types import (
    Array,
    CodeType,
    FixedType,
    dtype_of,
    element_name,
    fraction_of,
    layout_of,
    shape_of,
    tensor,
    tensor_type,
)
from tilewright.numerics.element_types import ELEMENTS
from tilewright.numerics.operators import has
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

Attributes = Mapping[str, PythonValue | None]
"""The attributes of an operation with their defaults; None for those that may be absent."""

NARROW = (8, 16)
"""Bits of fixed-point values; sums and products of them have 32."""


class Operation(IRDLOperation):
    """Base of the operations that compute: any number of tensors in, one tensor out.

    A subclass states four things side by side: its definition (``name`` and ``DEFAULTS``: every
    attribute and its value when absent, None where it has none then, or ``STATED``), its shape rule
    (``infer``), its meaning (``evaluate``) and its domain (``stage``).
    """

    inputs = var_operand_def(TensorType)
    result = result_def(TensorType)
    node = opt_prop_def(StringAttr)
    merged = opt_prop_def(ArrayAttr)
    """Further nodes of the model that passes made part of this operation, in order.

    The result is then that of the last of them (a normalisation folded into a convolution's
    weights, say), so that values can be compared with the model's own."""
    engine = opt_prop_def(StringAttr)
    """``accelerator`` or ``host``, as partition decided; a kernel's engine overrides it."""
    reason = opt_prop_def(StringAttr)
    """The reason why the operation is on the host."""
    placement = opt_prop_def(ArrayAttr)
    """The result's location in memory, once plan-memory has run (graph/placement.py)."""
    begins = opt_prop_def(UnitAttr)
    """In a kernel: the operation is the first of a further compute (``KernelOp``)."""
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format: ClassVar[str | None] = (
        "($inputs^)? attr-dict `:` functional-type($inputs, $result)"
    )

    DEFAULTS: ClassVar[Attributes] = {}
    ARITY: ClassVar[tuple[int, int]] = (1, 1)
    """Fewest and most operands."""
    FIXED_POINT: ClassVar[bool] = True
    """True if operands may be fixed point."""
    ROLES: ClassVar[tuple[Role, ...]] = ()
    """Planning's roles of the operands in order; further ones are inputs."""
    RESULT_CHOSEN: ClassVar[bool] = False
    """True if the builder chooses the result's binary point (checked by ``verify_element``)."""

    @classmethod
    def build_from(
        cls,
        inputs: Sequence[SSAValue],
        attributes: dict[str, PythonValue] | None = None,
        *,
        node: str = "",
        result_type: Attribute | None = None,
    ) -> Operation:
        """Make an operation; its result type is inferred unless ``result_type`` is given.

        Raises VerifyException if the operands or attributes are not what the operation takes.
        """
        properties = {key: to_attribute(value) for key, value in (attributes or {}).items()}
        if node:
            properties["node"] = StringAttr(node)
        placeholder = result_type or tensor(())
        # One list of operands and one result: nothing is to be sorted, for which ``build`` takes as
        # long as for all the rest here.
        op = cls.create(operands=list(inputs), result_types=[placeholder], properties=properties)
        if result_type is None:
            try:
                inferred = op.inferred([tensor_type(value) for value in inputs])
            except VerifyException:
                op.erase()  # or else it would go on using its operands
                raise
            give_type(op.result, inferred)  # the result has no users yet
        if node:
            op.result.name_hint = value_hint(node)
        return op

    def get(self, name: str, default: PythonValue = 0) -> Any:
        """The plain value of a property, or ``default``; raises VerifyException if not plain."""
        attribute = self.properties.get(name)
        try:
            return default if attribute is None else from_attribute(attribute)
        except TypeError:
            raise VerifyException(f"{self.name}: {name} is no plain value") from None

    @property
    def node_name(self) -> str:
        """Name of the model's node this comes from, or ""."""
        return self.node.data if self.node is not None else ""

    @property
    def merged_nodes(self) -> tuple[str, ...]:
        """Names of the nodes in ``merged``."""
        if self.merged is None:
            return ()
        return tuple(item.data for item in self.merged.data if isinstance(item, StringAttr))

    @property
    def result_node(self) -> str:
        """Name of the model's node whose result this operation's result is, or ""."""
        # Of a chain that became one operation this is asked at every step: no walk of its names.
        last = self.merged.data[-1] if self.merged is not None and self.merged.data else None
        return last.data if isinstance(last, StringAttr) else self.node_name

    def inferred(self, types: Sequence[Type]) -> Type:
        """The result's type for operands of these types; raises VerifyException."""
        self.check_operands(types)
        return self.infer(types)

    def infer(self, types: Sequence[Type]) -> Type:
        """Shape rule: the result's type from the operands', whose number and shapes are checked.

        The first operand's unless a subclass says otherwise. Raises VerifyException.
        """
        return self.result_of(types[0].get_shape(), types[0].element_type)

    @abstractmethod
    def evaluate(self, *arrays: Array) -> Array:
        """Meaning: the result for operand arrays of the operands' dtypes.

        On fixed-point types arrays hold the integers, and the result is exact.
        """

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Domain: this operation as a planning stage over the named operands.

        None if it is not a loop nest of its own (a view, or a fold at compile time).
        """
        return None

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
    def counted_axis(self) -> int:
        """The attribute ``axis``, counted from the first axis of the result; checked."""
        rank = len(shape_of(self.result))
        return self.integer("axis", -rank, rank - 1) % rank

    @property
    def result_fraction(self) -> int:
        """Binary point of the result; 0 if it is not fixed point."""
        return fraction_of(self.result)

    @property
    def how(self) -> str:
        """The words of `tilewright explain` about the form that a pass gave it; "" for none."""
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
        """The error that ``need`` raises; for messages with types, which take long to print."""
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
            span = low if low == high else f"{low} to {high}"
            raise self.wrong(f"takes {span} operands, has {len(types)}")
        for index, kind in enumerate(types):
            self.check_shape(kind.get_shape(), "operand", index)
            fixed_point = isinstance(kind.element_type, FixedType)
            self.need(self.FIXED_POINT or not fixed_point, "is not defined on fixed point")
            if isinstance(kind.element_type, CodeType) and not has(self.operation, "coded"):
                raise self.wrong(f"is not defined on {kind.element_type}")

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
        """Results computed in float32 as the result's elements, of 16 bits perhaps."""
        if values.dtype == np.float32 and tensor_type(self.result).element_type in SHORT_FLOATS:
            return values.astype(dtype_of(self.result))
        return values

    def fixed(self, kind: Type, bits: Sequence[int] = NARROW) -> FixedType:
        """The element of an operand that must be fixed point with one of ``bits`` as its width."""
        element = kind.element_type
        if not isinstance(element, FixedType) or element.bits.data not in bits:
            these = " or ".join(map(str, bits))
            raise self.wrong(f"takes fixed point of {these} bits, found {element}")
        return element

    def need_shapes(self, wanted: Mapping[str, Sequence[int]], types: Sequence[Type]) -> None:
        """Check the shapes of operands, which messages call by these names; those at the end may
        be absent."""
        for (name, shape), kind in zip(wanted.items(), types, strict=False):
            if kind.get_shape() != tuple(shape):
                have = list(kind.get_shape())
                raise self.wrong(f"{name} must have shape {list(shape)}, has {have}")

    def need_float(self, kind: Type) -> None:
        """Check that an operand holds floats."""
        if kind.element_type not in FLOATS:
            raise self.wrong(f"takes floats, found {kind.element_type}")

    def need_integer(self, kind: Type) -> None:
        """Check that an operand holds integers."""
        if not isinstance(kind.element_type, IntegerType) or kind.element_type == i1:
            raise self.wrong(f"takes integers, found {kind.element_type}")

    def verify_(self) -> None:
        """Check the operands, the attributes, and the result's shape and element type."""
        if self.attributes:
            raise self.wrong(f"has no attribute {next(iter(self.attributes))!r}")
        inferred = self.inferred([tensor_type(value) for value in self.inputs])
        result_type = tensor_type(self.result)
        shape, wanted = result_type.get_shape(), inferred.get_shape()
        if shape != wanted:
            raise self.wrong(f"result has shape {list(shape)}, the shape rule gives {list(wanted)}")
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

    def nest(
        self,
        operands: Sequence[str],
        result: str,
        notation: str,
        extents: Mapping[str, int] | None = None,
        operation: str = "",
        order: str = "",
    ) -> Stage | None:
        """The stage that index notation states, as ``n ci, co ci, co -> n co`` of a product.

        Each operand, and after the arrow the result, has an index for every axis: a dim, 0, or an
        affine expression of dims (``oh*2+kh-1``). Dims of the result are parallel, the others
        reductions; they extend as the tensors do along their axes, or as ``extents`` says. An
        operand of extent 1 along a longer dim is read at 0 there. What is stated of operands at the
        end that the operation does not have is left out. Dims stand in the order of their first use
        in the result and then in the operands, unless ``order`` lists all that there may be.
        """
        reads, _, writes = notation.partition("->")
        texts = [*reads.split(",")[: len(self.inputs)], writes]
        tensors = [
            list(zip(text.split(), shape_of(value), strict=True))
            for text, value in zip(texts, (*self.inputs, self.result), strict=True)
        ]
        sizes = dict(extents or {})
        for word, extent in (pair for axes in tensors for pair in axes):
            if word.isidentifier() and word not in (extents or {}):
                sizes[word] = max(sizes.get(word, 0), extent)
        accesses = [
            [_index("0" if extent == 1 < sizes.get(word, 1) else word) for word, extent in axes]
            for axes in tensors
        ]
        *sources, target = accesses
        written = dict.fromkeys(dim for index in target for dim in index.dims)
        read = [dim for access in sources for index in access for dim in index.dims]
        dims = [Dim(name, sizes[name]) for name in written]
        summed = dict.fromkeys(name for name in (*read, *sizes) if name not in written)
        dims += [Dim(name, sizes[name], "reduction") for name in summed]
        if order:
            dims.sort(key=lambda dim: order.split().index(dim.name))
        return self.make_stage(dims, operands, sources, result, target, operation)

    def mapped(self, operands: Sequence[str], result: str) -> Stage | None:
        """The stage of a map: dims d0.. of the result, to which operands broadcast."""
        names = [f"d{axis}" for axis in range(len(shape_of(self.result)))]
        reads = [" ".join(names[len(names) - len(shape_of(value)) :]) for value in self.inputs]
        return self.nest(operands, result, f"{', '.join(reads)} -> {' '.join(names)}")

    def rows(self, operands: Sequence[str], result: str, axis: int) -> Stage | None:
        """The stage of whole rows along an axis: dims d0.. of the others, and the reduction
        ``axis``, which further operands have alone."""
        shape = shape_of(self.result)
        names = ["axis" if i == axis else f"d{i}" for i in range(len(shape))]
        dims = [Dim(name, e) for name, e in zip(names, shape, strict=True) if name != "axis"]
        dims.append(Dim("axis", shape[axis], "reduction"))
        access = tuple(map(_index, names))
        reads = [access, *[(_index("axis"),)] * (len(self.inputs) - 1)]
        return self.make_stage(dims, operands, reads, result, access)

    def make_stage(
        self,
        dims: Sequence[Dim],
        operands: Sequence[str],
        accesses: Sequence[Sequence[Affine]],
        result: str,
        target: Sequence[Affine],
        operation: str = "",
    ) -> Stage | None:
        """A stage over the named operands with one access each.

        None if planning has no such element type. ``operation`` is this operation's name unless
        given.
        """
        kinds = [tensor_type(value) for value in (*self.inputs, self.result)]
        if any(element_name(kind.element_type) not in ELEMENTS for kind in kinds):
            return None
        inputs = tuple(
            make_operand(name, value, access, self.ROLES[n] if n < len(self.ROLES) else "input")
            for n, (name, value, access) in enumerate(
                zip(operands, self.inputs, accesses, strict=True)
            )
        )
        return Stage(
            operation or self.operation,
            tuple(dims),
            inputs,
            make_operand(result, self.result, target, "output"),
            tuple((key, cast(Value, value)) for key, value in self.values.items()),
            self.node_name,
        )


@lru_cache(maxsize=4096)
def _index(text: str) -> Affine:
    """An index of the notation that ``Operation.nest`` takes."""
    return Affine.parse(text)


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
