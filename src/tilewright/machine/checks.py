"""Checks between the parts of a machine, beyond the type of each field."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from tilewright.errors import Problem, TilewrightError, nearest
from tilewright.machine.c_interface import c_problems
from tilewright.machine.dims import DIMS, dims_of
from tilewright.machine.expression import parse_expression
from tilewright.machine.fusions import fusion_problems
from tilewright.machine.numbers import number_problems
from tilewright.machine.synchronisation import synchronisation_problems
from tilewright.numerics.element_types import ELEMENTS
from tilewright.numerics.operators import operators

if TYPE_CHECKING:
    from tilewright.machine.model import Machine, Primitive

MAX_ENGINES = 8
"""Engines that a machine may have."""

MAX_PARTS = 64
"""Memories, moves, primitives or fusions that a machine may have."""

ROLES = ("input", "weight", "bias", "residual", "scratch", "output")
"""The roles of a primitive's operands."""

MAX_EXTENT = 1 << 31
"""Largest granule or limit of a dim: no tensor has more elements."""

MIN_FRACTION = 1e-6
"""Least part of a move's bandwidth that blocks of any length may reach."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def shown(name: object) -> str:
    """A name as it can stand in a message: printable, and not long."""
    return "".join(c if c.isprintable() else "?" for c in str(name)[:200])


class MachineError(ValueError):
    """Everything that is wrong with a machine, each with its key (``move.load-weights.target``)."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.where}: {problem.reason}" for problem in problems))


def check(machine: Machine) -> None:
    """Raise MachineError with every problem found."""
    findings = _Findings()
    _check_names(machine, findings)
    if not findings.problems:
        _check_memories(machine, findings)
        _check_moves(machine, findings)
        for primitive in machine.primitives:
            _check_primitive(machine, primitive, findings)
        for key, reason, help in machine.own.findings(machine):
            findings.add(f"own.{machine.own.family}.{key}", reason, help)
        of_engines = synchronisation_problems(
            machine.synchronisation, [engine.name for engine in machine.engines]
        )
        for where, reason, help in (
            *c_problems(machine),
            *fusion_problems(machine),
            *number_problems(machine),
            *of_engines,
        ):
            findings.add(where, reason, help)
    if findings.problems:
        raise MachineError(findings.problems)


class _Findings:
    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, where: str, reason: str, help: str = "") -> None:
        self.problems.append(Problem("machine-invalid", reason, where, help))


def _check_names(machine: Machine, findings: _Findings) -> None:
    if not _NAME.fullmatch(machine.name):
        findings.add("name", f"{shown(machine.name)!r} is not a name (letters, digits, - and _)")
    groups = {
        "memory": [part.name for part in machine.memories],
        "move": [part.name for part in machine.moves],
        "engine": [part.name for part in machine.engines],
        "primitive": [part.name for part in machine.primitives],
        "fusion": [part.name for part in machine.fusions],
    }
    for kind, names in groups.items():
        for name, count in Counter(names).items():
            if not _NAME.fullmatch(name):
                findings.add(f"{kind}.{shown(name)}", "is not a name (letters, digits, - and _)")
            if count > 1:
                findings.add(f"{kind}.{shown(name)}", f"is given {count} times")
        most = MAX_ENGINES if kind == "engine" else MAX_PARTS
        if len(names) > most:
            findings.add(kind, f"{len(names)} are given; at most {most} are possible")
    if not machine.engines:
        findings.add("engine", "at least one engine is needed")
    if machine.main not in groups["memory"]:
        findings.add("main", f"there is no memory {machine.main!r}")
    sums = machine.number.accumulator
    if machine.accumulator != sums:
        findings.add(
            "accumulator", f"sums of {machine.element} are {sums}, not {machine.accumulator}"
        )
    if machine.overflow != "infinity" and not machine.number.is_short_float:
        findings.add(
            "overflow",
            f"is of floats of 16 bits, and elements are {machine.element}",
            "leave it out; integers saturate, and float32 becomes infinite",
        )


def _check_memories(machine: Machine, findings: _Findings) -> None:
    for memory in machine.memories:
        where = f"memory.{memory.name}"
        if memory.name != machine.main and memory.bytes is None:
            findings.add(f"{where}.bytes", "is needed for every memory but the main memory")
        for key, reason, help in memory.own.findings(memory, machine):
            findings.add(f"{where}.own.{memory.own.family}.{key}", reason, help)
        if memory.bytes is not None and memory.reserved >= memory.bytes:
            findings.add(f"{where}.reserved", "leaves no bytes for buffers")
        if memory.bytes is not None and memory.granule > memory.bytes:
            findings.add(f"{where}.granule", "is more than the memory's bytes")


def _check_moves(machine: Machine, findings: _Findings) -> None:
    memories = {memory.name for memory in machine.memories}
    engines = {engine.name for engine in machine.engines}
    ends: dict[tuple[str, str], str] = {}
    for move in machine.moves:
        where = f"move.{move.name}"
        for key, name, names in (
            ("source", move.source, memories),
            ("target", move.target, memories),
            ("engine", move.engine, engines),
        ):
            if name not in names:
                kind = "engine" if key == "engine" else "memory"
                findings.add(f"{where}.{key}", f"there is no {kind} {name!r}")
        if move.source == move.target:
            findings.add(f"{where}.target", "is the same memory as the source")
        first = ends.setdefault((move.source, move.target), move.name)
        if first != move.name:
            findings.add(where, f"move {first} has the same source and target")
        if (move.curve or move.curves) and move.curve not in move.curves:
            names = ", ".join(move.curves) or "none"
            findings.add(f"{where}.curve", f"there is no curve {shown(move.curve)!r}", names)
        lengths = [length for length, _ in move.efficiency]
        if lengths != sorted(set(lengths)) or (lengths and lengths[0] < 1):
            findings.add(f"{where}.efficiency", "block lengths must be positive and ascending")
        if any(not MIN_FRACTION <= fraction <= 1 for _, fraction in move.efficiency):
            findings.add(f"{where}.efficiency", f"fractions must be from {MIN_FRACTION:g} to 1")


def _check_primitive(machine: Machine, primitive: Primitive, findings: _Findings) -> None:
    where = f"primitive.{primitive.name}"
    if primitive.engine not in {engine.name for engine in machine.engines}:
        findings.add(f"{where}.engine", f"there is no engine {primitive.engine!r}")
    if not primitive.operations:
        findings.add(f"{where}.operations", "at least one operation is needed")
    _check_operations(f"{where}.operations", primitive.operations, findings)
    for number, group in enumerate(primitive.epilogue):
        _check_operations(f"{where}.epilogue.{number}", group, findings)
    dims = dims_of(primitive.operations)
    for key in ("cycles", "peak", "issue"):
        try:
            if _of_one(getattr(primitive, key)) < 0:
                findings.add(f"{where}.{key}", "is negative for a tile of one element")
            names = parse_expression(getattr(primitive, key)).names
        except TilewrightError as error:
            findings.add(f"{where}.{key}", error.problems[0].reason)
        else:
            _check_dims(f"{where}.{key}", names, dims, findings)
    _check_operands(machine, primitive, where, dims, findings)
    for key, table in (("limits", primitive.limits), ("multiples", primitive.multiples)):
        _check_granules(f"{where}.{key}", table, dims, findings)
    for dim, limit in primitive.limits.items():
        if 0 < limit < primitive.multiples.get(dim, 1):
            findings.add(
                f"{where}.limits.{shown(dim)}", f"is below its granule {primitive.multiples[dim]}"
            )
    for name, size in primitive.reserved.items():
        if name not in {memory.name for memory in machine.memories}:
            findings.add(f"{where}.reserved", f"there is no memory {shown(name)!r}")
        elif size < 0:
            findings.add(f"{where}.reserved.{name}", "is negative")
    for dim, (least, most) in primitive.extents.items():
        if not 0 < least <= most:
            findings.add(f"{where}.extents.{shown(dim)}", "must be a positive range")
    for key in ("whole", "blocks", "extents"):
        _check_dims(f"{where}.{key}", getattr(primitive, key), dims, findings)
    for key, reason, help in primitive.own.findings(primitive, dims):
        findings.add(f"{where}.own.{primitive.own.family}.{key}", reason, help)


@lru_cache(maxsize=1024)
def _of_one(text: str) -> int | float:
    """An expression's value for a tile of one element; raises TilewrightError.

    The planner tries many variants of one machine, whose expressions are the same.
    """
    return parse_expression(text).evaluate({})


def _check_operations(where: str, names: Iterable[str], findings: _Findings) -> None:
    for name in names:
        if name not in DIMS:
            reason = f"there is no operation {shown(name)!r}"
            findings.add(where, reason, nearest(name, DIMS, 1))


def _check_operands(
    machine: Machine, primitive: Primitive, where: str, dims: frozenset[str], findings: _Findings
) -> None:
    memories = {memory.name for memory in machine.memories}
    if "output" not in primitive.operands:
        findings.add(f"{where}.operands", "there is no output")
    for role, storage in primitive.operands.items():
        key = f"{where}.operands.{shown(role)}"
        if role not in ROLES:
            findings.add(key, f"is not a role (roles are {', '.join(ROLES)})")
        if storage.memory not in memories:
            findings.add(f"{key}.memory", f"there is no memory {storage.memory!r}")
            continue
        for name in storage.alternatives:
            if name not in memories:
                findings.add(f"{key}.alternatives", f"there is no memory {shown(name)!r}")
        _check_granules(f"{key}.multiples", storage.multiples, dims, findings)
        if storage.fills:
            _check_fills(machine, primitive, role, key, findings)
        if storage.gathered:
            _check_gathered(machine, primitive, role, key, findings)
        if storage.converted:
            _check_converted(machine, storage.memory, role, key, findings)
        for element in storage.elements:
            if element not in ELEMENTS:
                known = ", ".join(ELEMENTS)
                findings.add(f"{key}.elements", f"there are no elements {shown(element)!r}", known)
        if storage.circular and (role not in ("input", "output") or "oh" not in dims):
            findings.add(f"{key}.circular", "only inputs and outputs that are images have rows")
        _check_dims(f"{key}.along", storage.along, dims, findings)
        for key_of_own, reason, help in storage.own.findings(dims):
            findings.add(f"{key}.own.{storage.own.family}.{key_of_own}", reason, help)
        ends = (machine.main, storage.memory)
        source, target = ends[::-1] if role == "output" else ends
        if not _reaches(machine, source, target):
            findings.add(f"{key}.memory", f"no move leads from {source} to {target}")
        other = primitive.operands.get(storage.joined) if storage.joined is not None else storage
        if other is None:
            findings.add(f"{key}.joined", f"the primitive has no operand {storage.joined!r}")
        elif storage.joined is not None and (
            other.joined is not None or other.memory != storage.memory
        ):
            findings.add(
                f"{key}.joined", "must name an operand in the same memory, itself not joined"
            )


def _check_fills(
    machine: Machine, primitive: Primitive, role: str, key: str, findings: _Findings
) -> None:
    """Padding is that of the images of products."""
    others = set(primitive.operations) - set(operators("product"))
    if role != "input" or others:
        findings.add(f"{key}.fills", "is of the input of conv, matmul and depthwise_conv alone")
    if machine.c is not None:
        findings.add(f"{key}.fills", "does not go with functions in C, which pad with 0")


def _check_gathered(
    machine: Machine, primitive: Primitive, role: str, key: str, findings: _Findings
) -> None:
    """Windows are those of a product's input, and a move gathers them last."""
    storage = primitive.operands[role]
    others = set(primitive.operations) - {"conv", "matmul"}
    if role != "input" or others:
        findings.add(f"{key}.gathered", "is of the input of conv and matmul alone")
    if storage.circular or storage.alternatives or storage.joined is not None:
        findings.add(f"{key}.gathered", "does not go with circular, alternatives and joined")
    if not _reaches(machine, machine.main, storage.memory):
        return  # which is a problem of its own
    for last in machine.path(machine.main, storage.memory)[-1:]:
        if "img2col" not in last.transforms:
            findings.add(
                f"{key}.gathered",
                f"{last.name}, the last move on the way there, gathers no windows",
                f'transforms = ["img2col"] of {last.name}',
            )


def _check_converted(
    machine: Machine, memory: str, role: str, key: str, findings: _Findings
) -> None:
    """Results are converted by the first move that leads on from where they lie."""
    if role != "output":
        findings.add(f"{key}.converted", "is of outputs alone")
        return
    if not machine.number.is_short_float and not machine.fixed_bits:
        findings.add(
            f"{key}.converted",
            f"sums become 16-bit floats or fixed point on their way, not {machine.element}",
            'element = "float16", "bfloat16", "fixed16" or "fixed8"',
        )
    if not _reaches(machine, memory, machine.main):
        return  # which is a problem of its own
    for first in machine.path(memory, machine.main)[:1]:
        if "convert" not in first.transforms:
            findings.add(
                f"{key}.converted",
                f"{first.name}, the first move on their way, converts nothing",
                f'transforms = ["convert"] of {first.name}',
            )


def _check_granules(
    where: str, table: dict[str, int], dims: frozenset[str], findings: _Findings
) -> None:
    _check_dims(where, table, dims, findings)
    for dim, value in table.items():
        if not 0 < value <= MAX_EXTENT:
            findings.add(f"{where}.{shown(dim)}", f"is {value}, but must be from 1 to {MAX_EXTENT}")


def _check_dims(
    where: str, names: Iterable[str], dims: frozenset[str], findings: _Findings
) -> None:
    """Refuse dims that no operation of the primitive has.

    Those of unknown operations are not known, and no second problem.
    """
    for name in names if dims else ():
        if name not in dims:
            findings.add(
                where,
                f"no operation of the primitive has a dim {shown(name)!r}",
                f"dims are {' '.join(sorted(dims))}" if len(dims) <= 16 else "",
            )


def _reaches(machine: Machine, source: str, target: str) -> bool:
    """Return True if moves lead from one memory to another, in any number of steps."""
    reached = [source]
    for place in reached:
        for move in machine.moves:
            if move.source == place and move.target not in reached:
                reached.append(move.target)
    return target in reached
