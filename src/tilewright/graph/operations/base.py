"""The table of operations, how they join the dialect, and the shape to which operands broadcast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

from tilewright.graph.operation import Operation
from tilewright.ir import PythonValue, irdl_op_definition, opt_prop_def, prop_def


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


STATED: PythonValue = "absent"
"""The default of an attribute that must be given; messages say where it is absent."""

Kind = TypeVar("Kind", bound=type[Operation])

OPERATIONS: list[type[Operation]] = []
"""Every operation of the dialect, in the order of its definition."""


def definition(kind: Kind) -> Kind:
    """Add an operation to the dialect; its ``DEFAULTS`` are its attributes, of which those that
    are ``STATED`` may not be absent."""
    for name, default in kind.DEFAULTS.items():
        if name not in vars(kind):
            setattr(kind, name, prop_def() if default is STATED else opt_prop_def())
    defined = irdl_op_definition(kind)
    OPERATIONS.append(defined)
    return defined


def define(kind: type[Operation], meanings: Mapping[str, str], **members: object) -> None:
    """Add operations of one kind that differ in their names and meanings, and in ``members``."""
    constants = {name: ClassVar[Any] for name in members if name.isupper()}
    for name, meaning in meanings.items():
        stated = {"name": f"graph.{name}", "__doc__": meaning, "__annotations__": constants}
        title = name.title().replace("_", "")
        _ = definition(cast("type[Operation]", type(f"{title}Op", (kind,), stated | members)))
