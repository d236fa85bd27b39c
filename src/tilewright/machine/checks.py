"""Checks between the parts of a machine, beyond the type of each field."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from tilewright.errors import Problem, TilewrightError, nearest
from tilewright.machine.c_interface import c_problems
from tilewright.machine.dims import DIMS, dims_of
from tilewright.machine.energy import figure_problems
from tilewright.machine.expression import parse_expression
from tilewright.machine.fusions import fusion_problems
from tilewright.machine.numbers import number_problems
from tilewright.machine.synchronisation import synchronisation_problems
from tilewright.numerics.element_types import ELEMENTS
from tilewright.numerics.operators import operators

if TYPE_CHECKING:
    from tilewright.machine.model import Machine, Memory, Move, Primitive
    from tilewright.machine.records import Finding

MAX_ENGINES = 8
"""Engines that a machine may have."""

MAX_PARTS = 64
"""Memories, moves, primitives or fusions that a machine may have."""

ROLES = ("input", "weight", "bias", "residual", "scratch", "output")
"""The roles of a primitive's operands."""

CONSTANT = ("weight", "bias")
"""The roles of operands that are constants, unless a network computes them."""

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
    found = list(_names(machine)) or [*_parts(machine)]
    if found:
        raise MachineError(
            [Problem("machine-invalid", reason, where, help) for where, reason, help in found]
        )


def _names(machine: Machine) -> Iterator[Finding]:
    """Yield what is wrong with names, and with the numbers of the whole machine."""
    if not _NAME.fullmatch(machine.name):
        yield "name", f"{shown(machine.name)!r} is not a name (letters, digits, - and _)", ""
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
                yield f"{kind}.{shown(name)}", "is not a name (letters, digits, - and _)", ""
            if count > 1:
                yield f"{kind}.{shown(name)}", f"is given {count} times", ""
        most = MAX_ENGINES if kind == "engine" else MAX_PARTS
        if len(names) > most:
            yield kind, f"{len(names)} are given; at most {most} are possible", ""
    if not machine.engines:
        yield "engine", "at least one engine is needed", ""
    yield from _unknown("main", "memory", [machine.main], groups["memory"])
    sums = machine.number.accumulator
    if machine.accumulator != sums:
        reason = f"sums of {machine.element} are {sums}, not {machine.accumulator}"
        yield "accumulator", reason, ""
    if machine.overflow != "infinity" and not machine.number.is_short_float:
        reason = f"is of floats of 16 bits, and elements are {machine.element}"
        yield "overflow", reason, "leave it out; integers saturate, and float32 becomes infinite"


def _parts(machine: Machine) -> Iterator[Finding]:
    """Yield what is wrong with the parts of a machine whose names are right."""
    memories = {memory.name for memory in machine.memories}
    engines = {engine.name: None for engine in machine.engines}
    yield from _memories(machine)
    yield from _moves(machine, memories, engines)
    for primitive in machine.primitives:
        where = f"primitive.{primitive.name}"
        yield from _unknown(f"{where}.engine", "engine", [primitive.engine], engines)
        yield from _primitive(machine, primitive, where, memories)
    yield from _own("", machine.own.family, machine.own.findings(machine))
    yield from c_problems(machine)
    yield from fusion_problems(machine)
    yield from number_problems(machine)
    yield from synchronisation_problems(machine.synchronisation, engines)
    yield from figure_problems(machine)
    for name in () if machine.host is None else machine.host.cycles:
        if name not in DIMS:
            reason = f"there is no operation {shown(name)!r}"
            yield f"host.cycles.{shown(name)}", reason, nearest(name, DIMS, 1)


def _own(place: str, family: str, found: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings of a family's own record of a part."""
    for key, reason, help in found:
        yield f"{place}own.{family}.{key}", reason, help


def _unknown(
    where: str, kind: str, names: Iterable[str], known: Container[str]
) -> Iterator[Finding]:
    """Yield the names of what the machine does not have."""
    for name in names:
        if name not in known:
            yield where, f"there is no {kind} {shown(name)!r}", ""


def _memories(machine: Machine) -> Iterator[Finding]:
    for memory in machine.memories:
        where = f"memory.{memory.name}"
        if memory.name not in machine.homes and memory.bytes is None:
            yield f"{where}.bytes", "is needed for every memory but those that hold values", ""
        if memory.holds:
            yield from _holds(machine, memory, where)
        yield from _own(f"{where}.", memory.own.family, memory.own.findings(memory, machine))
        if memory.bytes is not None and memory.reserved >= memory.bytes:
            yield f"{where}.reserved", "leaves no bytes for buffers", ""
        if memory.bytes is not None and memory.granule > memory.bytes:
            yield f"{where}.granule", "is more than the memory's bytes", ""


def _holds(machine: Machine, memory: Memory, where: str) -> Iterator[Finding]:
    """Problems of ``holds``: one memory beside main memory may hold values, and no buffers."""
    others = [other.name for other in machine.memories if other.holds]
    if memory.name == machine.main:
        yield f"{where}.holds", "main memory holds what no other memory does", "leave it out"
    elif others[0] != memory.name:
        yield f"{where}.holds", f"{others[0]} holds the weights already", "one memory for them"
    if machine.c is not None:
        yield f"{where}.holds", "does not go with functions in C, which know one main memory", ""
    for primitive in machine.primitives:
        for role, storage in primitive.operands.items():
            if memory.name in storage.places:
                key = f"primitive.{primitive.name}.operands.{shown(role)}.memory"
                yield key, f"{memory.name} holds the network's weights, and no buffers", ""
    for move in machine.moves:
        if move.target == memory.name:
            yield f"move.{move.name}.target", f"{memory.name} holds weights: a run reads it", ""


def _moves(
    machine: Machine, memories: Container[str], engines: Container[str]
) -> Iterator[Finding]:
    ends: dict[tuple[str, str], str] = {}
    for move in machine.moves:
        where = f"move.{move.name}"
        yield from _unknown(f"{where}.source", "memory", [move.source], memories)
        yield from _unknown(f"{where}.target", "memory", [move.target], memories)
        yield from _unknown(f"{where}.engine", "engine", [move.engine], engines)
        if move.source == move.target:
            yield f"{where}.target", "is the same memory as the source", ""
        first = ends.setdefault((move.source, move.target), move.name)
        if first != move.name:
            yield where, f"move {first} has the same source and target", ""
        if (move.curve or move.curves) and move.curve not in move.curves:
            names = ", ".join(move.curves) or "none"
            yield f"{where}.curve", f"there is no curve {shown(move.curve)!r}", names
        lengths = [length for length, _ in move.efficiency]
        if lengths != sorted(set(lengths)) or (lengths and lengths[0] < 1):
            yield f"{where}.efficiency", "block lengths must be positive and ascending", ""
        if any(not MIN_FRACTION <= fraction <= 1 for _, fraction in move.efficiency):
            yield f"{where}.efficiency", f"fractions must be from {MIN_FRACTION:g} to 1", ""


def _primitive(
    machine: Machine, primitive: Primitive, where: str, memories: Container[str]
) -> Iterator[Finding]:
    if not primitive.operations:
        yield f"{where}.operations", "at least one operation is needed", ""
    groups = {"operations": primitive.operations}
    groups |= {f"epilogue.{number}": group for number, group in enumerate(primitive.epilogue)}
    for key, names in groups.items():
        for name in names:
            if name not in DIMS:
                reason = f"there is no operation {shown(name)!r}"
                yield f"{where}.{key}", reason, nearest(name, DIMS, 1)
    dims = dims_of(primitive.operations) | machine.own.formed_dims
    for key in ("cycles", "peak", "issue", "tile_pj"):
        text = getattr(primitive, key)
        if text is None:
            continue
        try:
            if _of_one(text) < 0:
                yield f"{where}.{key}", "is negative for a tile of one element", ""
            names = parse_expression(text).names
        except TilewrightError as error:
            yield f"{where}.{key}", error.problems[0].reason, ""
        else:
            yield from _dims(f"{where}.{key}", names, dims)
    yield from _operands(machine, primitive, where, dims, memories)
    for key, table in (("limits", primitive.limits), ("multiples", primitive.multiples)):
        yield from _granules(f"{where}.{key}", table, dims)
    for dim, limit in primitive.limits.items():
        if 0 < limit < primitive.multiples.get(dim, 1):
            reason = f"is below its granule {primitive.multiples[dim]}"
            yield f"{where}.limits.{shown(dim)}", reason, ""
    for name, size in primitive.reserved.items():
        yield from _unknown(f"{where}.reserved", "memory", [name], memories)
        if name in memories and size < 0:
            yield f"{where}.reserved.{name}", "is negative", ""
    for dim, (least, most) in primitive.extents.items():
        if not 0 < least <= most:
            yield f"{where}.extents.{shown(dim)}", "must be a positive range", ""
    for name, taken in primitive.parameters.items():
        place = f"{where}.parameters.{shown(name)}"
        if not any(name in group for group in groups.values()):
            yield place, "is no operation of the primitive, nor of its epilogue", ""
        for attribute, values in taken.items():
            if not values:
                yield f"{place}.{shown(attribute)}", "takes no number at all", "at least one"
    for key in ("whole", "blocks", "extents"):
        yield from _dims(f"{where}.{key}", getattr(primitive, key), dims)
    yield from _own(f"{where}.", primitive.own.family, primitive.own.findings(primitive, dims))


@lru_cache(maxsize=1024)
def _of_one(text: str) -> int | float:
    """An expression's value for a tile of one element; raises TilewrightError.

    The planner tries many variants of one machine, whose expressions are the same.
    """
    return parse_expression(text).evaluate({})


def _operands(
    machine: Machine,
    primitive: Primitive,
    where: str,
    dims: frozenset[str],
    memories: Container[str],
) -> Iterator[Finding]:
    if "output" not in primitive.operands:
        yield f"{where}.operands", "there is no output", ""
    for role, storage in primitive.operands.items():
        key = f"{where}.operands.{shown(role)}"
        if role not in ROLES:
            yield key, f"is not a role (roles are {', '.join(ROLES)})", ""
        if storage.memory not in memories:
            yield from _unknown(f"{key}.memory", "memory", [storage.memory], memories)
            continue
        yield from _unknown(f"{key}.alternatives", "memory", storage.alternatives, memories)
        yield from _granules(f"{key}.multiples", storage.multiples, dims)
        if storage.fills:
            yield from _fills(primitive, role, f"{key}.fills")
        if storage.padded and any(
            "results" in machine.memory(m).resident or "inputs" in machine.memory(m).resident
            for m in storage.places
            if m in memories
        ):
            yield (
                f"{key}.padded",
                "operands that stay on the chip lie side by side",
                f"memory.{storage.memory}.resident = []",
            )
        if storage.gathered:
            yield from _gathered(machine, primitive, role, f"{key}.gathered")
        if storage.converted:
            yield from _converted(machine, storage.memory, role, f"{key}.converted")
        for element in storage.elements:
            if element not in ELEMENTS:
                known = ", ".join(ELEMENTS)
                yield f"{key}.elements", f"there are no elements {shown(element)!r}", known
        if storage.circular and (role not in ("input", "output") or "oh" not in dims):
            yield f"{key}.circular", "only inputs and outputs that are images have rows", ""
        yield from _dims(f"{key}.along", storage.along, dims)
        yield from _own(f"{key}.", storage.own.family, storage.own.findings(dims))
        ends = (machine.home(constant=role in CONSTANT), storage.memory)
        source, target = ends[::-1] if role == "output" else ends
        if _path(machine, source, target) is None:
            yield f"{key}.memory", f"no move leads from {source} to {target}", ""
        if storage.joined is not None:
            other = primitive.operands.get(storage.joined)
            if other is None:
                yield f"{key}.joined", f"the primitive has no operand {storage.joined!r}", ""
            elif other.joined is not None or other.memory != storage.memory:
                reason = "must name an operand in the same memory, itself not joined"
                yield f"{key}.joined", reason, ""


def _fills(primitive: Primitive, role: str, key: str) -> Iterator[Finding]:
    """Padding is that of the images of products."""
    if role != "input" or set(primitive.operations) - set(operators("product")):
        yield key, "is of the input of conv, matmul and depthwise_conv alone", ""


def _gathered(machine: Machine, primitive: Primitive, role: str, key: str) -> Iterator[Finding]:
    """Windows are those of a product's input, and a move gathers them last."""
    storage = primitive.operands[role]
    if role != "input" or set(primitive.operations) - {"conv", "matmul"}:
        yield key, "is of the input of conv and matmul alone", ""
    if storage.circular or storage.alternatives or storage.joined is not None:
        yield key, "does not go with circular, alternatives and joined", ""
    # That no moves lead there is a problem of its own.
    for last in (_path(machine, machine.main, storage.memory) or ())[-1:]:
        if "img2col" not in last.transforms:
            reason = f"{last.name}, the last move on the way there, gathers no windows"
            yield key, reason, f'transforms = ["img2col"] of {last.name}'


def _converted(machine: Machine, memory: str, role: str, key: str) -> Iterator[Finding]:
    """Results are converted by the first move that leads on from where they lie."""
    if role != "output":
        yield key, "is of outputs alone", ""
        return
    if not machine.number.is_short_float and not machine.fixed_bits:
        reason = f"sums become 16-bit floats or fixed point on their way, not {machine.element}"
        yield key, reason, 'element = "float16", "bfloat16", "fixed16" or "fixed8"'
    for first in (_path(machine, memory, machine.main) or ())[:1]:
        if "convert" not in first.transforms:
            reason = f"{first.name}, the first move on their way, converts nothing"
            yield key, reason, f'transforms = ["convert"] of {first.name}'


def _granules(where: str, table: Mapping[str, int], dims: frozenset[str]) -> Iterator[Finding]:
    yield from _dims(where, table, dims)
    for dim, value in table.items():
        if not 0 < value <= MAX_EXTENT:
            yield f"{where}.{shown(dim)}", f"is {value}, but must be from 1 to {MAX_EXTENT}", ""


def _dims(where: str, names: Iterable[str], dims: frozenset[str]) -> Iterator[Finding]:
    """Refuse dims that no operation of the primitive has.

    Those of unknown operations are not known, and no second problem.
    """
    for name in names if dims else ():
        if name not in dims:
            known = f"dims are {' '.join(sorted(dims))}" if len(dims) <= 16 else ""
            yield where, f"no operation of the primitive has a dim {shown(name)!r}", known


def _path(machine: Machine, source: str, target: str) -> tuple[Move, ...] | None:
    """The moves that lead from one memory to another; None if none do."""
    try:
        return machine.path(source, target)
    except KeyError:
        return None
