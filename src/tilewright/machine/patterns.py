"""Patterns of operations that a machine may compute as one kernel, as data with a text form.

    conv -> pool[window<=8]                each reads the result of the one before
    conv|depthwise -> add                  one kind of several

A pattern is a chain, as only chains become one kernel (network/fusion/forms.py). A vertex of it is
one kind or several (``KINDS``, or an operation of machine/dims.py), with conditions on its
properties in brackets. The patterns are the templates of DNNVM (section 4.1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tilewright.machine.dims import DIMS
from tilewright.numerics.operators import operators

MOST_VERTICES = 8
"""Vertices that a pattern may have."""

MOST_TEXT = 1000
"""Characters that the text of a pattern may have."""

KINDS: dict[str, tuple[str, ...]] = {
    "conv": ("conv",),
    "depthwise": ("depthwise_conv",),
    "pool": operators("window"),
    "product": ("matmul",),
    "norm": ("layer_norm", "lrn", "softmax"),
    "map": (*operators("function"), "identity", *operators("arithmetic")),
    "any": tuple(DIMS),
}
"""Kind of a vertex -> the operations that are of it; every operation is a kind of its own, too."""

PROPERTIES: dict[str, str] = {
    "window": "longest side of its window, 1 without one",
    "stride": "longest stride of its window",
    "dilation": "longest dilation of its window",
    "channels": "extent of axis 1 of its result",
    "bytes": "bytes of its result",
    "inputs": "computed tensors that it reads",
    "readers": "operations that read its result, the network's outputs included",
}
"""The properties that conditions of a vertex name, with their meaning."""


class PatternError(ValueError):
    """A reason why a text is no pattern, or why a pattern matches nothing."""

    def __init__(self, reason: str, help: str = "") -> None:
        super().__init__(reason)
        self.reason, self.help = reason, help


@dataclass(frozen=True)
class Predicate:
    """A condition on one property: ``window<=8``."""

    property: str
    relation: str
    """``=``, ``<=`` or ``>=``."""
    value: int

    def holds(self, value: int) -> bool:
        """Return True if a property of this value meets the condition."""
        if self.relation == "=":
            return value == self.value
        return value <= self.value if self.relation == "<=" else value >= self.value


@dataclass(frozen=True)
class Vertex:
    """An operation of a pattern: what it may be, and what must hold of it."""

    kinds: tuple[str, ...]
    predicates: tuple[Predicate, ...] = ()

    @cached_property
    def operations(self) -> frozenset[str]:
        """The operations of its kinds."""
        return frozenset(name for kind in self.kinds for name in KINDS.get(kind, (kind,)))

    def matches(self, operation: str, properties: Mapping[str, int]) -> bool:
        """Return True for an operation of its kinds that meets its conditions; a property that the
        operation does not have counts as 1."""
        return operation in self.operations and all(
            predicate.holds(properties.get(predicate.property, 1)) for predicate in self.predicates
        )

    def __str__(self) -> str:
        return "|".join(self.kinds)


Pattern = tuple[Vertex, ...]
"""Operations, each of which reads the result of the one before."""

_VERTEX = re.compile(r"([^\[\]]*)(?:\[([^\[\]]*)\])?\s*")
_CONDITION = re.compile(r"\s*([a-z]+)\s*(=|<=|>=)\s*(\d{1,15})\s*")


def parse_pattern(text: str) -> Pattern:
    """The pattern of a text; raises PatternError for invalid text."""
    if len(text) > MOST_TEXT:
        raise PatternError(f"has {len(text)} characters; at most {MOST_TEXT} are possible")
    pattern = tuple(_vertex(part) for part in text.split("->"))
    if len(pattern) < 2:
        raise PatternError("one operation alone is nothing to fuse: give at least two")
    if len(pattern) > MOST_VERTICES:
        raise PatternError(f"at most {MOST_VERTICES} vertices are possible")
    return pattern


def _vertex(text: str) -> Vertex:
    match = _VERTEX.fullmatch(text)
    if match is None:
        raise PatternError(f"{text.strip()[:40]!r} is no operation", "such as conv[window<=8]")
    kinds = tuple(kind.strip() for kind in match[1].split("|"))
    for kind in kinds:
        if kind not in KINDS and kind not in DIMS:
            raise PatternError(
                f"there is no kind {kind[:40]!r}",
                f"kinds are {', '.join(KINDS)}, and every operation's name",
            )
    conditions = [] if match[2] is None else match[2].split(",")
    vertex = Vertex(kinds, tuple(map(_predicate, conditions)))
    for name in {predicate.property: None for predicate in vertex.predicates}:
        mine = [predicate for predicate in vertex.predicates if predicate.property == name]
        # The least value that meets all lower bounds meets the rest, if any value does.
        floor = 0 if name in ("inputs", "readers") else 1
        least = max([floor, *(each.value for each in mine if each.relation != "<=")])
        if not all(each.holds(least) for each in mine):
            raise PatternError(f"never matches: no {name} of {vertex} meets all conditions")
    return vertex


def _predicate(text: str) -> Predicate:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise PatternError(f"{text.strip()[:40]!r} is no condition", "such as window<=8")
    name, relation, value = match.groups()
    if name not in PROPERTIES:
        raise PatternError(f"there is no property {name!r}", f"it has {', '.join(PROPERTIES)}")
    return Predicate(name, relation, int(value))
