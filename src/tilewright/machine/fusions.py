"""Checks of a machine's fusion patterns (patterns.py)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from tilewright.machine.part import CLOSED
from tilewright.machine.patterns import Pattern, PatternError, Vertex, parse_pattern

if TYPE_CHECKING:
    from tilewright.machine.model import Fusion, Machine, Primitive

_ON_CHIP = "a memory that both use, or moves on the chip from the first one's to the second's"


class Fusion(BaseModel):
    """A pattern of kernels that the machine may compute as one (network/fusion/)."""

    model_config = CLOSED

    name: str
    query: str
    """The pattern (machine/patterns.py): ``conv -> pool[window<=8]``."""
    residency: Literal["tile", "whole"] = "tile"
    """``tile`` if tiles of the tensors between the kernels stay on the chip; ``whole`` if all of
    each tensor does."""
    between: str = ""
    """Memory that the tensors between lie in; "" where no condition is put on it."""
    gain: float = Field(default=1.0, gt=0, le=1)
    """Part of the cycles of the kernels apart that those of the one kernel must stay below."""


def fusion_problems(machine: Machine) -> Iterator[tuple[str, str, str]]:
    """Key, reason and help of everything that is wrong with a machine's fusions."""
    memories = {memory.name for memory in machine.memories}
    for fusion in machine.fusions:
        where = f"fusion.{fusion.name}"
        try:
            pattern = parse_pattern(fusion.query)
        except PatternError as error:
            yield f"{where}.query", str(error), error.help
        else:
            if unserved := unserved_vertex(machine, pattern):
                yield f"{where}.query", unserved, ""
            elif fusion.between and (apart := _pair_apart(machine, pattern)):
                yield f"{where}.query", apart, _ON_CHIP
        if fusion.between and fusion.between not in memories:
            yield f"{where}.between", f"there is no memory {fusion.between!r}", ""
        if fusion.between == machine.main:
            yield f"{where}.between", "is main memory, and what lies there has left the chip", ""
        if fusion.residency == "whole" and not fusion.between:
            yield f"{where}.between", "is needed: the memory that holds the tensors whole", ""


def fusion_of(machine: Machine, *operations: str) -> Fusion | None:
    """The machine's pattern for kernels that begin with these operations, each reading the result
    of the one before; None if it has none without a memory ``between`` them."""
    for fusion in machine.fusions:
        pattern = parse_pattern(fusion.query)
        alike = not fusion.between and len(pattern) == len(operations)
        if alike and all(o in v.operations for o, v in zip(operations, pattern, strict=True)):
            return fusion
    return None


def unserved_vertex(machine: Machine, pattern: Pattern) -> str:
    """The reason why a pattern never matches what the machine computes, or ""."""
    computed = {
        name
        for primitive in machine.primitives
        for group in (primitive.operations, *primitive.epilogue)
        for name in group
    }
    if any(primitive.epilogue_any for primitive in machine.primitives):
        return ""
    for vertex in pattern:
        if not vertex.operations & computed:
            return f"never matches: no primitive of {machine.name} computes {vertex}"
    return ""


def _pair_apart(machine: Machine, pattern: Pattern) -> str:
    """The reason why a pattern's kernels never hand on a result on the chip, or ""."""
    for source, target in pairwise(pattern):
        writers = _writers(machine, source)
        readers = [p for p in machine.primitives if target.operations & {*p.operations}]
        joined = any(target.operations & set(names) for p in writers for names in p.epilogue)
        if joined or any(p.epilogue_any for p in writers):
            continue
        if not any(hands_on(machine, writer, reader) for writer in writers for reader in readers):
            return f"never matches: {target} cannot read on the chip what {source} makes"
    return ""


def _writers(machine: Machine, vertex: Vertex) -> list[Primitive]:
    """The primitives that leave a vertex's result somewhere: it may be a map after their anchor."""
    return [
        primitive
        for primitive in machine.primitives
        if vertex.operations & {*primitive.operations, *(n for g in primitive.epilogue for n in g)}
    ]


def hands_on(machine: Machine, writer: Primitive, reader: Primitive) -> bool:
    """Return True if one primitive reads on the chip what another writes: there is a memory that
    both use, or moves on the chip lead from the first one's to the second's."""
    written, read = writer.operands.get("output"), reader.operands.get("input")
    if written is None or read is None:
        return False
    if ({*written.places} & {*read.places}) - {machine.main}:
        return True
    try:
        path = machine.path(written.memory, read.memory)
    except KeyError:
        return False
    return machine.main not in (written.memory, read.memory, *(move.target for move in path))
