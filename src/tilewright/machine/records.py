"""Records of one family of machines: its own keys beside the fields of the shared models.

Every part of a machine has a field ``own``. A target that knows more of a part than the shared
fields say derives a record from one of the classes here, in the module ``capabilities`` of its
own folder::

    class CambriconMove(MoveRecord):
        family: ClassVar[str] = "cambricon"
        linear: bool = False

        def block_by_block(self) -> bool:
            return self.linear

Shared code never names such a class: it asks the questions that the classes here answer for
machines that have nothing of their own. Questions that need more than this folder, or that one
family alone has reason to answer, are in planning/own.py and graph/passes/own.py. Files and JSON
name the family, ``own = { cambricon = { linear = true } }``, and a machine with records of another
family is refused by a target (``Target.check_machine``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, SerializationInfo
from pydantic import ValidationError as _ValidationError

from tilewright.machine.rounding import Rounding
from tilewright.system.choices import target_points

if TYPE_CHECKING:
    from tilewright.machine.model import Machine, Memory, Primitive

Finding = tuple[str, str, str]
"""Key within a record, reason, and what would help."""


class Record(BaseModel):
    """The keys of a target for a part of its machines, beyond the shared fields. Frozen and
    closed."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    family: ClassVar[str] = ""
    """The folder of the targets that implement it; "" for parts with nothing of their own."""


class MachineRecord(Record):
    """The record of a whole machine."""

    formed_dims: ClassVar[frozenset[str]] = frozenset()
    """The dims by which kernels are planned beside those of their operations."""

    def rounding_rules(self) -> Rounding:
        """Return how fixed point computes otherwise than exactly with one rounding."""
        return Rounding()

    def findings(self, machine: Machine) -> Iterator[Finding]:
        """Yield the problems of this record on a machine."""
        del machine
        yield from ()


class MemoryRecord(Record):
    """The record of a memory."""

    def findings(self, memory: Memory, machine: Machine) -> Iterator[Finding]:
        """Yield the problems of this record on a memory of a machine."""
        del memory, machine
        yield from ()


class MoveRecord(Record):
    """The record of a move."""

    def block_by_block(self) -> bool:
        """Return True if a transfer is one contiguous block: a box takes as many, one after the
        other, as it has blocks, each with its latency."""
        return False


class PrimitiveRecord(Record):
    """The record of a primitive."""

    def skips_padding(self) -> bool:
        """Return True if positions of a window outside of the image take no time; the bounds leave
        them out. Every window meets the image then."""
        return False

    def weights_in_words(self) -> bool:
        """Return True if it takes weights in words of several, which a layout has to say."""
        return False

    def findings(self, primitive: Primitive, dims: frozenset[str]) -> Iterator[Finding]:
        """Yield the problems of this record on a primitive, whose operations have these dims."""
        del primitive, dims
        yield from ()


class OperandRecord(Record):
    """The record of a primitive's operand."""

    def keeps_sums_along(self) -> tuple[str, ...]:
        """For the output, return the dims along which sums of several tiles may wait in its memory
        for the rest of their reduction while other operands there are loaded anew for each tile."""
        return ()

    def windows_apart(self) -> tuple[str, ...]:
        """For an input, return the dims of a window along which each window is moved by itself,
        including elements that the one before it has moved already. The buffer has room for the
        windows along that axis, and along others for what their multiples say that one takes."""
        return ()

    def findings(self, dims: frozenset[str]) -> Iterator[Finding]:
        """Yield the problems of this record, where the primitive's operations have these dims."""
        del dims
        yield from ()


class RecordError(ValueError):
    """An error within a table of a target's own keys."""

    def __init__(self, family: str, error: _ValidationError) -> None:
        self.family = family
        self.error = error
        super().__init__(str(error))


def record_class(kind: type[Record], family: str) -> type[Record] | None:
    """The record of a kind that a family has; targets are loaded until one of them has it."""
    record = _defined(kind, family)
    # Targets of the family's own folder first: others need not be loaded then.
    points = sorted(target_points().values(), key=lambda point: family not in point.value)
    while record is None and points:
        _load_records(points.pop(0))
        record = _defined(kind, family)
    return record


def _load_records(point: EntryPoint) -> None:
    """Load a target, and the module ``capabilities`` of its folder, where its records stand: a
    target may leave its planners, and with them its records, to the first machine that it makes."""
    try:
        point.load()
    except (ImportError, AttributeError):
        return  # ``find_target`` says what is broken, where it is asked for.
    package = import_module(point.module).__package__
    name = f"{package}.capabilities"
    if package and find_spec(name) is not None:
        import_module(name)


def families(kind: type[Record]) -> list[str]:
    """The families of all installed targets that have a record of a kind."""
    record_class(kind, "\0")
    return sorted({known.family for known in _derived(kind) if known.family})


def _defined(kind: type[Record], family: str) -> type[Record] | None:
    return next((known for known in _derived(kind) if known.family == family), None)


def _derived(kind: type[Record]) -> Iterator[type[Record]]:
    for known in kind.__subclasses__():
        yield known
        yield from _derived(known)


def _read(kind: type[Record], value: object) -> object:
    """The record of a table ``{family: {keys}}``; other values as they are."""
    if not isinstance(value, Mapping):
        return value
    tables: dict[str, Any] = {str(family): table for family, table in value.items()}
    if not tables:
        return kind()
    if len(tables) > 1:
        raise ValueError(f"is of one family of targets, not of {', '.join(tables)}"[:200])
    ((family, table),) = tables.items()
    known = record_class(kind, family) if family else None
    if known is None:
        reason = f"no target has keys {family[:80]!r} of its own here"
        raise ValueError(f"{reason} (known: {', '.join(families(kind)) or 'none'})")
    try:
        return known.model_validate_json(json.dumps(table), strict=True)
    except _ValidationError as error:
        raise RecordError(family, error) from None


def _written(record: Record, info: SerializationInfo) -> dict[str, Any]:
    """The table that ``_read`` reads."""
    if not record.family:
        return {}
    fields = record.model_dump(mode="json", exclude_defaults=bool(info.exclude_defaults))
    return {record.family: fields}


OwnMachine = Annotated[
    MachineRecord, BeforeValidator(partial(_read, MachineRecord)), PlainSerializer(_written)
]
OwnMemory = Annotated[
    MemoryRecord, BeforeValidator(partial(_read, MemoryRecord)), PlainSerializer(_written)
]
OwnMove = Annotated[
    MoveRecord, BeforeValidator(partial(_read, MoveRecord)), PlainSerializer(_written)
]
OwnPrimitive = Annotated[
    PrimitiveRecord, BeforeValidator(partial(_read, PrimitiveRecord)), PlainSerializer(_written)
]
OwnOperand = Annotated[
    OperandRecord, BeforeValidator(partial(_read, OperandRecord)), PlainSerializer(_written)
]
