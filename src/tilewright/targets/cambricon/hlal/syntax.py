"""The syntax tree of HLAL: what ``parse`` makes of a source text and ``expand`` walks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Place:
    """A position in a source: file, line and column (both from 1), and the text there."""

    file: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Number:
    """A constant; a decimal point makes it a float, which only ``@fix16`` takes."""

    value: int | float
    at: Place


@dataclass(frozen=True)
class Reference:
    """A name, or a field of a named thing: ``x``, ``x.seg_size_c``."""

    name: str
    field: str | None
    at: Place


@dataclass(frozen=True)
class Operation:
    """An operator or a function (``function``) applied to expressions: ``a + b``, ``Q(8)``."""

    name: str
    operands: tuple[Expression, ...]
    at: Place
    function: bool = False


Expression: TypeAlias = "Number | Reference | Operation"


@dataclass(frozen=True)
class RegisterName:
    """``$R7``, or ``$name`` that a REG statement or a parameter gives."""

    name: str
    at: Place


Operand: TypeAlias = "RegisterName | Expression"
"""``#`` before an expression is optional."""


@dataclass(frozen=True)
class Section:
    """The start of a section: ``.code``, ``.static_ro`` or ``.static_rw``."""

    name: str
    at: Place


@dataclass(frozen=True)
class Label:
    """A label, ``name:``, before a statement."""

    name: str
    at: Place


@dataclass(frozen=True)
class Data:
    """``@tensor`` or ``@filter``: a name and its list of sizes, segments, layout and numbers."""

    kind: str
    name: str
    items: tuple[Operand, ...]
    at: Place


@dataclass(frozen=True)
class Scalar:
    """``@fix16 name value``: a constant in .code, a word of main memory in a data section."""

    kind: str
    name: str
    value: Operand | None
    at: Place


@dataclass(frozen=True)
class Array:
    """``VOA fix16 name[size]``: part of a scratchpad while its block lasts."""

    kind: str
    element: str
    name: str
    size: Expression
    at: Place


@dataclass(frozen=True)
class Registers:
    """``REG $a, $b``: registers that the assembler chooses, while their block or macro lasts."""

    names: tuple[RegisterName, ...]
    at: Place


@dataclass(frozen=True)
class Let:
    """``@let name = expression``: a constant of the block."""

    name: str
    value: Expression
    at: Place


@dataclass(frozen=True)
class Table:
    """``@table name = function, numbers``: the address of a table that the assembler makes."""

    name: str
    function: str
    numbers: tuple[Expression, ...]
    at: Place


@dataclass(frozen=True)
class Condition:
    """``@if expression`` ... ``@else`` ... ``@end``, decided by the assembler."""

    value: Expression
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...]
    at: Place


@dataclass(frozen=True)
class Assertion:
    """``@assert expression, "reason"``: refuses the program where the expression is 0."""

    value: Expression
    reason: str
    at: Place


@dataclass(frozen=True)
class Barrier:
    """``@barrier``: all statements before it are complete before the ones after it start."""

    at: Place


@dataclass(frozen=True)
class Invoke:
    """``@name arguments``: a macro or block is put in here."""

    name: str
    arguments: tuple[Operand, ...]
    at: Place


@dataclass(frozen=True)
class Atomic:
    """One instruction: mnemonic, modifiers with their values, operands."""

    mnemonic: str
    modifiers: tuple[tuple[str, Expression | None], ...]
    operands: tuple[Operand, ...]
    at: Place


@dataclass(frozen=True)
class Macro:
    """``@C-Macro`` (kind "C") or ``@IO-Macro`` (kind "IO") up to ``mend``."""

    kind: str
    name: str
    parameters: tuple[str, ...]
    body: tuple[Node, ...]
    at: Place


@dataclass(frozen=True)
class Parameter:
    """The declaration of a block's parameter.

    ``kind``: "tensor", "filter", "array" (either of them), "number", "register", or "macro".
    """

    kind: str
    name: str


@dataclass(frozen=True)
class Block:
    """``def_block @name(parameters) { ... }``."""

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Node, ...]
    at: Place


Node: TypeAlias = (
    Section
    | Label
    | Data
    | Scalar
    | Array
    | Registers
    | Let
    | Table
    | Condition
    | Assertion
    | Barrier
    | Invoke
    | Atomic
    | Macro
    | Block
)
