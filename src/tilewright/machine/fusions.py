"""What must hold of a machine's patterns of fusion (patterns.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilewright.machine.patterns import PatternError, Template, parse_pattern

if TYPE_CHECKING:
    from tilewright.machine.model import Machine, Primitive


def fusion_problems(machine: Machine) -> Iterator[tuple[str, str, str]]:
    """Key, reason and help of everything that is wrong with a machine's fusions."""
    memories = {memory.name for memory in machine.memories}
    for fusion in machine.fusions:
        where = f"fusion.{fusion.name}"
        try:
            template = parse_pattern(fusion.query)
        except PatternError as error:
            yield f"{where}.query", str(error), error.help
        else:
            if unserved := unserved_vertex(machine, template):
                yield f"{where}.query", unserved, ""
        if fusion.between and fusion.between not in memories:
            yield f"{where}.between", f"there is no memory {fusion.between!r}", ""
        if fusion.residency == "whole" and not fusion.between:
            yield f"{where}.between", "is needed: the memory that holds the tensors whole", ""


def unserved_vertex(machine: Machine, template: Template) -> str:
    """Why a template never matches what the machine computes, or ""."""
    computed = {
        name for primitive in machine.primitives for group in _groups(primitive) for name in group
    }
    if any(primitive.epilogue_any for primitive in machine.primitives):
        return ""
    for vertex in template.vertices:
        if not vertex.operations & computed:
            return f"never matches: no primitive of {machine.name} computes {vertex}"
    return ""


def _groups(primitive: Primitive) -> Iterator[tuple[str, ...]]:
    """Operations that a primitive computes, and those that may follow."""
    own = primitive.own
    yield from (primitive.operations, own.pools_within_tiles(), own.norms_behind_rows())
    yield from primitive.epilogue
