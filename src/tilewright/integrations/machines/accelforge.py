"""AccelForge's architectures (``arch``): nodes from main memory inwards.

What has a fanout multiplies all nodes after it. Sizes are in bits, energies in joules, rates in
actions a second; a memory's operands are sets of tensors, combined by ``~ | & -``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.errors import TilewrightError, refuse
from tilewright.integrations.machines.hierarchy import (
    OPERANDS,
    Hardware,
    Level,
    identifier,
    name_of_file,
)
from tilewright.integrations.machines.reading import CODE, TAG, listed, number, table, times, whole
from tilewright.machine.checks import shown

_SETS = {
    "All": OPERANDS,
    "Nothing": frozenset[str](),
    "Intermediates": frozenset[str](),
    **{name: frozenset(name[0].upper()) for name in ("input", "weight", "output")},
}
_REUSED = {"input": "co", "output": "ci", "weight": "oh"}
"""A tensor that all units share -> the dim that is unrolled over them."""

_KINDS = ("Memory", "Container", "Compute", "Toll")


@dataclass
class _Reader:
    """Goes through the nodes; ``fan`` is how many instances a node has."""

    lost: list[str] = field(default_factory=list[str])
    levels: list[Level] = field(default_factory=list[Level])
    sets: dict[str, frozenset[str]] = field(default_factory=lambda: dict(_SETS))
    unrolled: dict[str, int] = field(default_factory=dict[str, int])
    fan: int = 1
    compute: Mapping[str, Any] | None = None

    def node(self, part: Mapping[str, Any], where: str) -> None:
        """Read the next node."""
        kind, name = str(part.get(TAG, "")), shown(part.get("name", "?"))
        if kind not in _KINDS:
            help = f"kinds are {', '.join(_KINDS)}"
            raise refuse(CODE, f"!{kind} {name}: only nodes in one row are read", where, help)
        if part.get("enabled", True) is not True:
            self.lost.append(f"{name}.enabled: its condition; it is always there")
        for entry in listed(part.get("spatial") or [], f"{where}: {name}.spatial"):
            self._fanout(table(entry, f"{where}: {name}.spatial"), name, where)
        if kind == "Compute":
            if self.compute is not None:
                self.lost.append("only the last unit that computes is the array")
            self.compute = part
        elif kind == "Memory":
            self._memory(part, name)
        elif kind == "Toll":
            self.lost.append(f"{name}: what only passes values on")

    def _fanout(self, entry: Mapping[str, Any], name: str, where: str) -> None:
        size = whole(entry.get("fanout", 1), f"{where}: {name}.fanout")
        dim = _REUSED.get(str(entry.get("reuse")))
        if dim is None and size > 1:
            dim = "co"
            self.lost.append(f"{name}: its {size} instances are assumed to share out co")
        if dim is not None:
            self.unrolled[dim] = self.unrolled.get(dim, 1) * size
        self.fan = times(self.fan, size, f"{where}: {name}.fanout")

    def figure(self, part: Mapping[str, Any], key: str, name: str) -> float | None:
        """A figure; an expression of what the file does not say is told as lost."""
        if part.get(key) is None:
            return None
        try:
            return number(part[key], f"{name}.{key}")
        except TilewrightError as error:
            if not isinstance(part[key], str):
                raise
            self.lost.append(f"{name}.{key}: {error.problems[0].reason}")
            return None

    def _memory(self, part: Mapping[str, Any], name: str) -> None:
        bits = self.figure(part, "size", name)
        if bits is None and "inf" not in str(part.get("size", "inf")):
            self.lost.append(f"{name}: a memory whose size is not known is left out")
            return
        size = None if bits is None else max(int(bits * self.fan) // 8, 1)
        holds = self._tensors(table(part.get("tensors") or {}, name), name)
        taken = {level.name for level in self.levels}
        level = Level(identifier(part.get("name"), taken), size, holds, self.fan > 1)
        self.sets[str(part.get("name"))] = holds
        for action in listed(part.get("actions") or [], name):
            given = table(action, f"{name}.actions")
            wide = self.figure({"bits": given.get("bits_per_action", 1)}, "bits", name) or 1.0
            rate, joules = (self.figure(given, key, name) for key in ("throughput", "energy"))
            way = str(given.get("name"))
            if way in ("read", "write"):
                setattr(level, way, None if rate is None else rate * wide / 8 * self.fan)
                setattr(level, f"{way}_pj", None if joules is None else joules * 8e12 / wide)
        for key in ("component_class", "total_latency", "leak_power", "area"):
            if part.get(key):
                self.lost.append(f"{name}.{key}: {shown(part[key])}")
        self.levels.append(level)

    def _tensors(self, tensors: Mapping[str, Any], name: str) -> frozenset[str]:
        found: frozenset[str] = frozenset()
        for key in ("keep", "may_keep"):
            text = str(tensors.get(key, "Nothing" if tensors else "All"))[:500]
            try:
                found |= self._set(ast.parse(text.strip(), mode="eval").body)
            except (SyntaxError, ValueError, KeyError, RecursionError, MemoryError):
                self.lost.append(f"{name}.tensors.{key}: {shown(text)} is not known; all are held")
                return OPERANDS
        return found

    def _set(self, node: ast.expr) -> frozenset[str]:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return OPERANDS - self._set(node.operand)
        if isinstance(node, ast.BinOp):
            left, right = self._set(node.left), self._set(node.right)
            if isinstance(node.op, ast.BitOr):
                return left | right
            if isinstance(node.op, ast.BitAnd | ast.Sub):
                return left & right if isinstance(node.op, ast.BitAnd) else left - right
        if isinstance(node, ast.Attribute) and node.attr == "tensors":
            return self._set(node.value)
        return self.sets[node.id if isinstance(node, ast.Name) else ""]


def accelforge_hardware(data: Mapping[str, Any], where: str) -> Hardware:
    """The hardware of an architecture's file."""
    reader = _Reader()
    arch = table(data["arch"], f"{where}: arch")
    for node in listed(arch.get("nodes"), f"{where}: arch.nodes"):
        reader.node(table(node, f"{where}: arch.nodes"), where)
    if reader.compute is None:
        raise refuse(CODE, "no node computes", where, "it needs a !Compute")
    actions = listed(reader.compute.get("actions") or [{}], f"{where}: actions")
    action = table(next(iter(actions), {}), f"{where}: actions")
    clock, joules = (reader.figure(action, key, "compute") for key in ("throughput", "energy"))
    if not clock:
        reader.lost.append("clock: no throughput of the unit that computes; 1 GHz is assumed")
    hertz = max(clock or 1e9, 1.0)
    for level in reader.levels:
        level.read = None if level.read is None else level.read / hertz
        level.write = None if level.write is None else level.write / hertz
    for other in sorted(map(str, (set(data) | set(arch)) - {"arch", "nodes"})):
        reader.lost.append(f"{shown(other)}: only the nodes of the architecture are read")
    return Hardware(
        name=name_of_file(where),
        tool="AccelForge",
        levels=reader.levels,
        unrolled=reader.unrolled,
        multipliers=reader.fan,
        lanes=reader.unrolled.get("co", 1),
        clock_hz=hertz,
        mac_pj=None if joules is None else joules * 1e12,
        lost=reader.lost,
    )
