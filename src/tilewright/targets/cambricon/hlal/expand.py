"""Preprocessing: macros and blocks are replaced by their statements, names by their values.

Every call is an instance of its own: its labels, constants, registers (REG) and on-chip arrays
(VOA, MOA) are its own, and the registers and the scratchpad are free again after it. What names
stand for is looked up in the block or macro and then in the program's data, never in the caller;
a macro that a block defines for itself knows the names of the block.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.memory import align_up
from tilewright.targets.cambricon.formats import REGISTERS
from tilewright.targets.cambricon.hlal import syntax
from tilewright.targets.cambricon.hlal.declare import DataSegment, scalar_value
from tilewright.targets.cambricon.hlal.rules import Sizes, allowed_in
from tilewright.targets.cambricon.hlal.segments import SegmentedArray
from tilewright.targets.cambricon.hlal.syntax import Node, Operand, Place
from tilewright.targets.cambricon.hlal.values import (
    Address,
    LocalMacro,
    OnChipArray,
    ScalarWord,
    Scope,
    Value,
    evaluate,
    problem,
    whole,
)
from tilewright.targets.cambricon.isa import BY_MNEMONIC, Immediate, Register, encode
from tilewright.targets.cambricon.statements import MAX_PROBLEMS, Label, Part, Statement

MAX_DEPTH = 64
"""The deepest nesting of calls within calls."""

MAX_CALLS = 1 << 17
"""Calls of macros and blocks in one program."""

MAX_STATEMENTS = 1 << 20
"""Statements of one program after all expansion."""


@dataclass
class Definitions:
    """Macros and blocks by name: the program's own and the built-in ones."""

    macros: dict[str, syntax.Macro] = field(default_factory=dict[str, syntax.Macro])
    blocks: dict[str, syntax.Block] = field(default_factory=dict[str, syntax.Block])


@dataclass
class Expansion:
    """The statements of a program after preprocessing, and what they take."""

    statements: list[Statement] = field(default_factory=list[Statement])
    places: list[tuple[Place, ...]] = field(default_factory=list[tuple[Place, ...]])
    """The places of every instruction in the text: its own line, then the calls that led to it."""
    relocations: list[int] = field(default_factory=list[int])
    """Instructions that have an address in main memory."""
    most_vsm: int = 0
    most_msm: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])


@dataclass
class _Frame:
    """One instance of a body: its names, its labels, what is taken when it begins."""

    scope: Scope
    labels: dict[str, str]
    calls: tuple[Place, ...]
    taken: int = 0
    vsm: int = 0
    msm: int = 0
    kinds: tuple[str, ...] = ()
    """The kinds of the macros around: each must allow a statement."""


def expand(
    code: Iterable[Node],
    definitions: Definitions,
    data: DataSegment,
    sizes: Sizes,
    *,
    base: int,
    barriers: bool,
) -> Expansion:
    """The statements of ``code``; what is wrong is in ``problems``, up to ``MAX_PROBLEMS``.

    Data begin at ``base`` in main memory. Without ``barriers`` no instruction is made of
    ``@barrier``.
    """
    code = list(code)
    used: set[int] = set()
    _registers_of(code, used)
    for macro in definitions.macros.values():
        _registers_of(macro.body, used)
    for block in definitions.blocks.values():
        _registers_of(block.body, used)
    pool = [n for n in range(63, -1, -1) if n not in used]
    walker = _Expander(definitions, data, sizes, pool, base, barriers)
    frame = _Frame(Scope(outer=data.scope), {}, ())
    walker.labels(code, frame)
    walker.body(code, frame)
    walker.check_labels()
    return walker.expansion


class _Expander:
    def __init__(
        self,
        definitions: Definitions,
        data: DataSegment,
        sizes: Sizes,
        pool: list[int],
        base: int,
        barriers: bool,
    ) -> None:
        self.definitions = definitions
        self.data = data
        self.sizes = sizes
        self.pool = pool
        self.expansion = Expansion()
        self.instances = 0
        self.placed: set[str] = set()
        self.names: set[str] = set()
        self.branches: list[tuple[str, Place]] = []
        """Labels that are branched to, and where."""
        self.base = base
        self.barriers = barriers
        self.last = Statement("VMOVE", (Register(0),) * 3), False
        """The last instruction that may wait for those before it; whether it has an address."""

    # Labels

    def labels(self, body: Iterable[Node], frame: _Frame) -> None:
        """Give every label of an instance a name that is its own in the program."""
        for node in body:
            if isinstance(node, syntax.Condition):
                self.labels(node.then, frame)
                self.labels(node.otherwise, frame)
            elif isinstance(node, syntax.Label) and node.name not in frame.labels:
                unique, number = node.name, self.instances
                while unique in self.names:
                    unique, number = f"{node.name}_{number}", number + 1
                frame.labels[node.name] = unique
                self.names.add(unique)

    def check_labels(self) -> None:
        """Every label that is branched to stands somewhere."""
        for name, at in self.branches:
            if name not in self.placed:
                self._note(problem(at, "is a label that stands nowhere"), ())

    # Statements

    def body(self, body: Iterable[Node], frame: _Frame) -> None:
        """Expand the statements of one instance."""
        for node in body:
            if len(self.expansion.problems) >= MAX_PROBLEMS:
                return
            try:
                self._node(node, frame)
            except TilewrightError as error:
                self._note(error, frame.calls)
            except RecursionError:
                self._note(problem(node.at, "goes too deep"), frame.calls)

    def _note(self, error: TilewrightError, calls: tuple[Place, ...]) -> None:
        """Keep a refusal, with the line of the program that led to it."""
        for refusal in error.problems:
            where = refusal.where + "".join(f" from {place}" for place in calls)
            self.expansion.problems.append(
                Problem(refusal.code, refusal.reason, where, refusal.help)
            )

    def _node(self, node: Node, frame: _Frame) -> None:
        match node:
            case syntax.Label():
                self._label(node, frame)
            case syntax.Let():
                self._name(node.name, evaluate(node.value, frame.scope), node.at, frame)
            case syntax.Scalar():
                if node.value is None:
                    raise problem(node.at, "needs a value: it is a constant here")
                self._name(node.name, scalar_value(node, frame.scope), node.at, frame)
            case syntax.Array():
                self._array(node, frame)
            case syntax.Registers():
                for register in node.names:
                    if frame.taken >= len(self.pool):
                        raise problem(register.at, "finds no register free", code="hlal-size")
                    allocated = Register(self.pool[frame.taken])
                    self._name(f"${register.name}", allocated, register.at, frame)
                    frame.taken += 1
            case syntax.Table():
                numbers = [evaluate(number, frame.scope) for number in node.numbers]
                self._name(node.name, self.data.table(node, numbers), node.at, frame)
            case syntax.Condition():
                chosen = node.then if whole(node.value, frame.scope) else node.otherwise
                self.body(chosen, frame)
            case syntax.Assertion():
                if not whole(node.value, frame.scope):
                    where = frame.calls[0] if frame.calls else node.at
                    raise problem(where, f"is refused: {node.reason}", code="hlal-block")
            case syntax.Macro():
                self._name(node.name, LocalMacro(node, frame.scope), node.at, frame)
            case syntax.Barrier():
                self._barrier((node.at, *frame.calls))
            case syntax.Invoke():
                self._invoke(node, frame)
            case syntax.Atomic():
                self._atomic(node, frame)
            case _:
                raise problem(node.at, "cannot stand here: it belongs to the program itself")

    def _name(self, name: str, value: Value, at: Place, frame: _Frame) -> None:
        if name in frame.scope.names:
            raise problem(at, "is declared twice", code="hlal-name")
        frame.scope.names[name] = value

    def _label(self, node: syntax.Label, frame: _Frame) -> None:
        unique = frame.labels[node.name]
        if unique in self.placed:
            raise problem(node.at, "is a label that stands twice", code="hlal-name")
        self.placed.add(unique)
        self.expansion.statements.append(Statement(label=unique))

    def _barrier(self, places: tuple[Place, ...]) -> None:
        """The last instruction again, with the modifier that makes it wait: a scalar one does not
        wait in the queue."""
        last, addressed = self.last
        if self.barriers:
            modifiers = {**last.modifiers, "barrier": 1}
            self._append(last.mnemonic, last.operands, modifiers, addressed, places)

    def _array(self, node: syntax.Array, frame: _Frame) -> None:
        if frame.kinds:
            raise problem(node.at, "cannot be declared in a macro", "declare it in the block")
        if node.element not in ("fix16", "fix32"):
            raise problem(node.at, f"has elements {node.element!r}", "fix16 or fix32")
        size = whole(node.size, frame.scope)
        vector = node.kind == "VOA"
        first, most = (frame.vsm, self.sizes.vsm_bytes) if vector else (
            frame.msm, self.sizes.msm_bytes)  # fmt: skip
        array = OnChipArray(node.kind, first, size, int(node.element[3:]) // 8)
        end = first + size * array.element_bytes
        self._name(node.name, array, node.at, frame)
        if size < 1 or end > most:
            memory = "vector" if vector else "matrix"
            raise problem(
                node.at, f"of {size} elements does not fit: {max(most - first, 0)} of {most} "
                f"bytes of the {memory} scratchpad are free", "choose smaller segments",
                "hlal-memory",
            )  # fmt: skip
        end = min(align_up(end), most)
        if vector:
            frame.vsm = end
            self.expansion.most_vsm = max(self.expansion.most_vsm, end)
        else:
            frame.msm = end
            self.expansion.most_msm = max(self.expansion.most_msm, end)

    def _invoke(self, node: syntax.Invoke, frame: _Frame) -> None:
        if len(frame.calls) >= MAX_DEPTH:
            raise problem(node.at, f"lies more than {MAX_DEPTH} calls deep", code="hlal-size")
        arguments = [self._argument(operand, frame) for operand in node.arguments]
        local = frame.scope.find(node.name)
        if isinstance(local, LocalMacro):
            macro, home = local.macro, local.scope
        else:
            macro, home = self.definitions.macros.get(node.name), self.data.scope
        block = self.definitions.blocks.get(node.name)
        if macro is not None:
            parameters = list(macro.parameters)
            body = macro.body
        elif block is not None:
            if frame.kinds:
                raise problem(node.at, "is a block, and a macro holds only statements")
            parameters = [parameter.name for parameter in block.parameters]
            body = block.body
        else:
            known = ", ".join(_similar(node.name, [*self.definitions.macros,
                                                   *self.definitions.blocks]))  # fmt: skip
            raise problem(node.at, "is no macro and no block", known, "hlal-name")
        if len(arguments) != len(parameters):
            raise problem(
                node.at, f"takes {len(parameters)} arguments and is given {len(arguments)}",
                ", ".join(parameters), "hlal-argument",
            )  # fmt: skip
        if block is not None and macro is None:
            for parameter, value, operand in zip(
                block.parameters, arguments, node.arguments, strict=True
            ):
                _check_argument(parameter, value, operand.at)
        self.instances += 1
        if self.instances > MAX_CALLS:
            raise problem(node.at, f"is past {MAX_CALLS} calls", code="hlal-size")
        inner = _Frame(
            Scope(dict(zip(parameters, arguments, strict=True)), home),
            {}, (node.at, *frame.calls), frame.taken, frame.vsm, frame.msm,
            frame.kinds if macro is None else (*frame.kinds, macro.kind),
        )  # fmt: skip
        self.labels(body, inner)
        self.body(body, inner)

    def _argument(self, operand: Operand, frame: _Frame) -> Value:
        if isinstance(operand, syntax.RegisterName):
            return _register(operand, frame.scope)
        if isinstance(operand, syntax.Reference) and operand.field is None:
            value = frame.scope.find(operand.name)
            if value is not None:
                return value
            macro = self.definitions.macros.get(operand.name)
            if macro is not None:
                return LocalMacro(macro, self.data.scope)
        return evaluate(operand, frame.scope)

    def _atomic(self, node: syntax.Atomic, frame: _Frame) -> None:
        mnemonic = node.mnemonic.upper()
        if mnemonic not in BY_MNEMONIC:
            similar = ", ".join(_similar(mnemonic, BY_MNEMONIC))
            raise problem(node.at, "is no instruction", similar, "hlal-name")
        for kind in frame.kinds:
            if reason := allowed_in(mnemonic, kind):
                raise problem(node.at, reason, code="hlal-macro")
        instruction = BY_MNEMONIC[mnemonic]
        modifiers: dict[str, int] = {}
        for name, value in node.modifiers:
            key, modifier = name.lower(), instruction.by_name.get(name.lower())
            if modifier is not None and not modifier.is_flag and value is None:
                raise _wrong(node, "isa-modifier", f"{key} needs a value: {key}=1")
            if key in modifiers:
                raise _wrong(node, "isa-modifier", f"{key} is given twice")
            modifiers[key] = 1 if value is None else whole(value, frame.scope)
        operands = [self._operand(operand, mnemonic, frame) for operand in node.operands]
        addressed = any(isinstance(operand, Address) for operand in operands)
        parts = [
            Immediate(part.offset + self.base) if isinstance(part, Address) else part
            for part in operands
        ]
        if mnemonic == "CB" and len(parts) == 2 and isinstance(parts[1], Register):
            if not isinstance(parts[0], Register):
                parts.reverse()  # listing 4.2 writes CB label, $R
        elif len(parts) == 2 and [o.kind for o in instruction.operands[2:]] == ["either"]:
            parts.insert(0, parts[0])  # listing 4.2 writes ssub $R4, #1
        trial = [Immediate(0) if isinstance(part, Label) else part for part in parts]
        try:
            encode(mnemonic, trial, modifiers)
        except TilewrightError as error:
            (found,) = error.problems
            raise _wrong(node, found.code, found.reason, found.help) from None
        places = (node.at, *frame.calls)
        statement = self._append(mnemonic, tuple(parts), modifiers, addressed, places)
        if "barrier" in instruction.by_name:
            self.last = statement, addressed
        if len(self.expansion.statements) > MAX_STATEMENTS:
            raise problem(node.at, f"is past {MAX_STATEMENTS} statements", code="hlal-size")

    def _append(
        self,
        mnemonic: str,
        operands: tuple[Part, ...],
        modifiers: dict[str, int],
        addressed: bool,
        places: tuple[Place, ...],
    ) -> Statement:
        """Append an instruction; one with an address in main memory is relocated."""
        statement = Statement(mnemonic, operands, modifiers, line=places[-1].line)
        if addressed:
            self.expansion.relocations.append(len(self.expansion.places))
        self.expansion.statements.append(statement)
        self.expansion.places.append(places)
        return statement

    def _operand(self, operand: Operand, mnemonic: str, frame: _Frame) -> Part | Address:
        if isinstance(operand, syntax.RegisterName):
            return _register(operand, frame.scope)
        if isinstance(operand, syntax.Reference) and operand.field is None:
            if mnemonic in ("J", "CB") and operand.name in frame.labels:
                self.branches.append((frame.labels[operand.name], operand.at))
                return Label(frame.labels[operand.name])
            target = frame.scope.find(operand.name)
            if isinstance(target, Register):
                return target
            if target is None and mnemonic in ("J", "CB"):
                raise problem(operand.at, "is a label that stands nowhere", code="hlal-name")
        value = evaluate(operand, frame.scope)
        if isinstance(value, float):
            raise problem(operand.at, f"is {value}, and an integer is needed", "fixed(x, bits)")
        number = value.offset if isinstance(value, Address) else value
        if not -(1 << 31) <= number < 1 << 31:
            raise problem(operand.at, f"is {number}, which does not fit 32 bits")
        return value if isinstance(value, Address) else Immediate(value)


def _wrong(node: syntax.Atomic, code: str, reason: str, help: str = "") -> TilewrightError:
    """The refusal of what no instruction is."""
    return refuse(code, f"{node.at.text!r}: {reason}", str(node.at), help)


def _register(operand: syntax.RegisterName, scope: Scope) -> Register:
    if (number := _numbered(operand.name)) is not None:
        if number >= REGISTERS:
            raise problem(operand.at, f"is no register: there are {REGISTERS}", code="hlal-name")
        return Register(number)
    register = scope.find(f"${operand.name}") or scope.find(operand.name)
    if not isinstance(register, Register):
        raise problem(operand.at, "is no register", "$R0 to $R63, or REG declares it", "hlal-name")
    return register


def _numbered(name: str) -> int | None:
    digits = name[1:]
    return int(digits) if name[0] in "Rr" and digits.isdecimal() and len(digits) < 9 else None


_KINDS: dict[type[Any], str] = {
    OnChipArray: "an on-chip array",
    Register: "a register",
    ScalarWord: "a scalar in memory",
    Address: "an address",
    int: "a number",
    float: "a number",
}


def _check_argument(parameter: syntax.Parameter, value: Value, at: Place) -> None:
    match parameter.kind:
        case "tensor" | "filter":
            fits = isinstance(value, SegmentedArray) and value.kind == parameter.kind
        case "array":
            fits = isinstance(value, SegmentedArray)
        case "register":
            fits = isinstance(value, Register)
        case "macro":
            fits = isinstance(value, LocalMacro)
        case _:
            fits = isinstance(value, int | float | Address)
    if not fits:
        kind = (
            value.kind if isinstance(value, SegmentedArray) else _KINDS.get(type(value), "a name")
        )
        raise problem(
            at, f"is {kind}, and {parameter.name!r} is a {parameter.kind}", code="hlal-argument"
        )


def _registers_of(body: Iterable[Node], used: set[int]) -> None:
    """Registers that a text names itself: REG leaves them alone."""
    for node in body:
        match node:
            case syntax.Atomic():
                operands = node.operands
            case syntax.Invoke():
                operands = node.arguments
            case syntax.Condition():
                _registers_of((*node.then, *node.otherwise), used)
                continue
            case syntax.Macro():
                _registers_of(node.body, used)
                continue
            case _:
                continue
        for operand in operands:
            if isinstance(operand, syntax.RegisterName):
                number = _numbered(operand.name)
                used.update(() if number is None else (number,))


def _similar(name: str, known: Iterable[str]) -> list[str]:
    return get_close_matches(name, list(known), 3)
