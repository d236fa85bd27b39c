"""Patterns of operations that a machine may compute as one kernel, as data with a text form.

    conv -> pool[window<=8]                a chain: each reads the result of the one before
    {conv, conv}                           siblings: they read one tensor
    left: conv -> sum: add; conv -> sum    several clauses; a name stands for the same vertex
    conv -[readers=1]-> add|mul            a condition on the tensor between; one kind of several

A vertex is one kind or several (``KINDS``, or an operation of machine/dims.py), with conditions on
its properties in brackets. ``parse_pattern`` reads the text, ``str`` of a template prints it, and
each gives back what the other took. The patterns are the templates of DNNVM (section 4.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from tilewright.machine.dims import DIMS
from tilewright.numerics.operators import operators

MOST_VERTICES = 8
"""Vertices that a pattern may have."""

MOST_TEXT = 1000
"""Characters that the text of a pattern may have."""

_UNARY = (*operators("function"), "identity")

KINDS: dict[str, tuple[str, ...]] = {
    "conv": ("conv",),
    "depthwise": ("depthwise_conv",),
    "pool": operators("window"),
    "product": ("matmul",),
    "norm": ("layer_norm", "lrn", "softmax"),
    "map": (*_UNARY, *operators("arithmetic")),
    "any": tuple(DIMS),
}
"""Kind of a vertex -> the operations that are of it; every operation is a kind of its own, too."""

ONE_INPUT = frozenset((*KINDS["pool"], *_UNARY, "softmax", "lrn"))
"""Operations that read one computed tensor."""

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

EDGE_PROPERTIES = ("channels", "bytes", "readers")
"""The properties that conditions of an edge name: those of the tensor between, or of the shared
one."""

Relation = Literal["produces", "shares input"]


class PatternError(ValueError):
    """A reason why a text is no pattern, or why a pattern matches nothing."""

    def __init__(self, reason: str, help: str = "") -> None:
        super().__init__(reason)
        self.reason, self.help = reason, help


@dataclass(frozen=True)
class Predicate:
    """A condition on one property: ``window<=8``."""

    property: str
    relation: Literal["=", "<=", ">="]
    value: int

    def holds(self, value: int) -> bool:
        """Return True if a property of this value meets the condition."""
        if self.relation == "=":
            return value == self.value
        return value <= self.value if self.relation == "<=" else value >= self.value

    def __str__(self) -> str:
        return f"{self.property}{self.relation}{self.value}"


@dataclass(frozen=True)
class Vertex:
    """An operation of a pattern: what it may be, and what must hold of it."""

    kinds: tuple[str, ...]
    predicates: tuple[Predicate, ...] = ()

    @property
    def operations(self) -> frozenset[str]:
        """The operations of its kinds."""
        return frozenset(name for kind in self.kinds for name in KINDS.get(kind, (kind,)))

    def __str__(self) -> str:
        return "|".join(self.kinds) + _conditions(self.predicates)


@dataclass(frozen=True)
class Edge:
    """Two vertices, by number: the target reads the source's result, or both read one tensor."""

    source: int
    target: int
    relation: Relation = "produces"
    predicates: tuple[Predicate, ...] = ()


@dataclass(frozen=True)
class Template:
    """A pattern: vertices, and the edges between them, both in the order of the text."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]

    def __str__(self) -> str:
        return _printed(self)


def parse_pattern(text: str) -> Template:
    """The template of a text; raises PatternError where it is none, or can match nothing."""
    if len(text) > MOST_TEXT:
        raise PatternError(f"has {len(text)} characters; at most {MOST_TEXT} are possible")
    template = _Parser(text).template()
    reason = _never(template)
    if reason:
        raise PatternError(reason)
    return template


def _conditions(predicates: tuple[Predicate, ...]) -> str:
    return f"[{', '.join(map(str, predicates))}]" if predicates else ""


_TOKEN = re.compile(r"\s*(->|-\[|\]->|<=|>=|[A-Za-z_][A-Za-z_0-9]*|\d+|[{}\[\],;:|=])")


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise PatternError(f"{text[position:].strip()[:20]!r} is not expected here")
            self.tokens.append(match[1])
            position = match.end()
        self.at = 0
        self.vertices: list[Vertex] = []
        self.edges: list[Edge] = []
        self.names: dict[str, int] = {}

    def template(self) -> Template:
        """Parse all clauses of the pattern."""
        self.clause()
        while self.taken(";"):
            self.clause()
        if self.peek():
            raise PatternError(f"{self.peek()!r} is not expected here")
        return Template(tuple(self.vertices), tuple(self.edges))

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def taken(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.at += 1
        return True

    def want(self, token: str) -> None:
        if not self.taken(token):
            lookahead = repr(self.peek()) if self.peek() else "the end"
            raise PatternError(f"{token!r} is expected, not {lookahead}")

    def clause(self) -> None:
        if self.taken("{"):
            members = [self.vertex()]
            while self.taken(","):
                members.append(self.vertex())
            self.want("}")
            predicates = self.predicates(EDGE_PROPERTIES) if self.taken("[") else ()
            for first, other in combinations(members, 2):
                self.edge(first, other, "shares input", predicates)
            return
        last = self.vertex()
        while self.peek() in ("->", "-["):
            predicates = ()
            if self.taken("-["):
                predicates = self.predicates(EDGE_PROPERTIES, "]->")
            else:
                self.want("->")
            reader = self.vertex()
            self.edge(last, reader, "produces", predicates)
            last = reader

    def edge(
        self, source: int, target: int, relation: Relation, predicates: tuple[Predicate, ...]
    ) -> None:
        if source == target and relation == "shares input":
            raise PatternError("a vertex is given twice among siblings")
        ends = {(edge.source, edge.target) for edge in self.edges if edge.relation == relation}
        if (source, target) in ends:
            raise PatternError("an edge is given twice")
        self.edges.append(Edge(source, target, relation, predicates))

    def vertex(self) -> int:
        name = self.word()
        if self.taken(":"):
            if name in KINDS or name in DIMS:
                raise PatternError(f"{name!r} is a kind, and no name for a vertex")
            if name in self.names:
                raise PatternError(f"the name {name!r} is given twice")
            self.names[name] = len(self.vertices)
            name = self.word()
        elif name in self.names:
            return self.names[name]
        kinds = [self.kind(name)]
        while self.taken("|"):
            kinds.append(self.kind(self.word()))
        if len(self.vertices) == MOST_VERTICES:
            raise PatternError(f"at most {MOST_VERTICES} vertices are possible")
        predicates = self.predicates(tuple(PROPERTIES)) if self.taken("[") else ()
        self.vertices.append(Vertex(tuple(kinds), predicates))
        return len(self.vertices) - 1

    def word(self) -> str:
        token = self.peek()
        if not re.match(r"[A-Za-z_]", token):
            lookahead = repr(token) if token else "the end"
            raise PatternError(f"a kind of operation is expected, not {lookahead}")
        self.at += 1
        return token

    def kind(self, name: str) -> str:
        if name not in KINDS and name not in DIMS:
            known = ", ".join(KINDS)
            raise PatternError(
                f"there is no kind {name!r}", f"kinds are {known}, and every operation's name"
            )
        return name

    def predicates(self, known: tuple[str, ...], end: str = "]") -> tuple[Predicate, ...]:
        predicates: list[Predicate] = []
        while True:
            name = self.word()
            if name not in known:
                raise PatternError(f"there is no property {name!r}", f"it has {', '.join(known)}")
            relation = self.peek()
            if relation not in ("=", "<=", ">="):
                raise PatternError(f"'=', '<=' or '>=' is expected behind {name!r}")
            self.at += 1
            number = self.peek()
            if not number.isdigit() or len(number) > 15:
                raise PatternError(f"a number is expected behind {name + relation!r}")
            self.at += 1
            predicates.append(Predicate(name, relation, int(number)))
            if not self.taken(","):
                self.want(end)
                return tuple(predicates)


def _never(template: Template) -> str:
    """Why a template matches no operations whatever, or ""."""
    if _cyclic(template):
        return "is cyclic: an operation would read its own result"
    if len(template.vertices) < 2:
        return "one operation alone is nothing to fuse: give at least two"
    reached = {0}
    for _ in template.vertices:
        for edge in template.edges:
            if reached & {edge.source, edge.target}:
                reached |= {edge.source, edge.target}
    if len(reached) < len(template.vertices):
        return "its clauses have no vertex in common; name one, and refer to it"
    for number, vertex in enumerate(template.vertices):
        before = [e for e in template.edges if e.relation == "produces" and e.target == number]
        if len(before) > 1 and vertex.operations <= ONE_INPUT:
            return f"never matches: {vertex} reads one tensor, and is given {len(before)}"
        outgoing = [e for e in template.edges if e.relation == "produces" and e.source == number]
        for predicates in (vertex.predicates, *(edge.predicates for edge in outgoing)):
            empty = _empty(predicates, {"readers": len(outgoing), "inputs": len(before)})
            if empty:
                return f"never matches: no {empty} of {vertex} meets all conditions"
    for edge in template.edges:
        if empty := _empty(edge.predicates, {"readers": 2 if "shares" in edge.relation else 1}):
            return f"never matches: no {empty} of a tensor meets all conditions"
    return ""


def _cyclic(template: Template) -> bool:
    left = set(range(len(template.vertices)))
    produces = [e for e in template.edges if e.relation == "produces"]
    while left:
        free = {v for v in left if not any(e.target == v and e.source in left for e in produces)}
        if not free:
            return True
        left -= free
    return False


def _empty(predicates: tuple[Predicate, ...], least: dict[str, int]) -> str:
    """A property for which no number meets all predicates, or ""; ``least`` has what it has."""
    for name in dict.fromkeys(predicate.property for predicate in predicates):
        own = [predicate for predicate in predicates if predicate.property == name]
        low = max([least.get(name, 0), *(p.value for p in own if p.relation != "<=")])
        if not all(predicate.holds(low) for predicate in own):
            return name
        if name not in ("readers", "inputs") and any(
            p.value < 1 for p in own if p.relation != ">="
        ):
            return name
    return ""


def _printed(template: Template) -> str:
    """The text of a template, clause by clause in the order of its edges."""
    clauses = list(_clauses(template))
    seen: dict[int, int] = {}
    for members, _ in clauses:
        for number in members:
            seen[number] = seen.get(number, 0) + 1
    names: dict[int, str] = {}
    mentions = set[int]()

    def vertex(number: int) -> str:
        if number in mentions:
            return names[number]
        mentions.add(number)
        if seen[number] < 2:
            return str(template.vertices[number])
        names[number] = f"v{len(names)}"
        return f"{names[number]}: {template.vertices[number]}"

    texts: list[str] = []
    for members, edges in clauses:
        if edges[0].relation == "shares input":
            inside = ", ".join(vertex(number) for number in members)
            texts.append(f"{{{inside}}}{_conditions(edges[0].predicates)}")
            continue
        text = vertex(members[0])
        for number, edge in zip(members[1:], edges, strict=True):
            conditions = _conditions(edge.predicates)
            text += (f" -{conditions}-> " if conditions else " -> ") + vertex(number)
        texts.append(text)
    return "; ".join(texts)


def _clauses(template: Template) -> Iterator[tuple[list[int], list[Edge]]]:
    """The vertices and edges of each clause: the longest chains and the largest sets."""
    edges = list(template.edges)
    while edges:
        first = edges[0]
        members = [first.source, first.target]
        taken = 1
        if first.relation == "produces":
            while taken < len(edges) and (
                edges[taken].relation == "produces" and edges[taken].source == members[-1]
            ):
                members.append(edges[taken].target)
                taken += 1
        else:
            # The pairs of a set of n stand together, those of its first member before all others.
            wanted = [first]
            for count in range(len(edges), 1, -1):
                if count * (count - 1) // 2 > len(edges):
                    continue
                chosen = [first.source, *(edge.target for edge in edges[: count - 1])]
                wanted = [
                    Edge(a, b, "shares input", first.predicates) for a, b in combinations(chosen, 2)
                ]
                if len(set(chosen)) == count and edges[: len(wanted)] == wanted:
                    members, taken = chosen, len(wanted)
                    break
        yield members, edges[:taken]
        edges = edges[taken:]
