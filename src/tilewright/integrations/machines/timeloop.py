"""Timeloop's architectures: nodes in a row (version 0.4), or trees of them (earlier ones).

What has a mesh multiplies all nodes after it, or in its tree. A storage has ``depth`` entries of
``width`` bits, and rates in words of ``datawidth`` bits a cycle. In earlier versions a name such as
``PE[0..167]`` says how many instances there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.errors import refuse
from tilewright.integrations.machines.hierarchy import (
    OPERANDS,
    Hardware,
    Level,
    identifier,
    name_of_file,
)
from tilewright.integrations.machines.reading import CODE, TAG, listed, number, table, times, whole
from tilewright.machine.checks import shown

_RANGE = re.compile(r"(.*?)\[\s*(\d{1,9})\s*\.\.\s*(\d{1,9})\s*\]")
_SPACES = {
    "input": "I",
    "inputs": "I",
    "weight": "W",
    "weights": "W",
    "output": "O",
    "outputs": "O",
}
_SIZE = ("depth", "width", "entries", "memory_depth", "memory_width", "sizeKB", "block-size")
_MESH = ("meshX", "meshY")
_DEEPEST = 32
"""Subtrees within each other that are read."""


@dataclass
class _Reader:
    """Goes through the nodes; ``fan`` is how many instances a node has."""

    where: str
    lost: list[str] = field(default_factory=list[str])
    levels: list[Level] = field(default_factory=list[Level])
    unrolled: dict[str, int] = field(default_factory=dict[str, int])
    fan: int = 1
    seconds: float | None = None
    """Seconds of a cycle."""
    multiplier: str = ""

    def row(self, nodes: list[Any]) -> None:
        """Read the nodes of version 0.4, from main memory inwards."""
        for node in nodes:
            part = table(node, f"{self.where}: nodes")
            kind = str(part.get(TAG, ""))
            if kind == "Hierarchical":
                self.row(listed(part.get("nodes"), f"{self.where}: nodes"))
            elif kind in ("Container", "Component"):
                self._spread(table(part.get("spatial") or {}, self.where), _name(part))
                self._settings(part)
                if kind == "Component":
                    self._component(part)
            else:
                help = "kinds are Container, Component, Hierarchical"
                raise refuse(CODE, f"!{kind}: only nodes in one row are read", self.where, help)

    def tree(self, part: Mapping[str, Any], deep: int = 0) -> None:
        """Read a tree of earlier versions: what is local to it, then the trees within."""
        if deep > _DEEPEST:
            raise refuse(CODE, "nested too deeply", self.where)
        self._settings(part)
        self._instances(part)
        for node in listed(part.get("local") or [], f"{self.where}: local"):
            component = table(node, f"{self.where}: local")
            before = self.fan
            self._instances(component)
            self._component(component)
            if not _computes(component):
                self.fan = before
        subtrees = listed(part.get("subtree") or [], f"{self.where}: subtree")
        if len(subtrees) > 1:
            raise refuse(CODE, "two subtrees beside each other; one row is read", self.where)
        for subtree in subtrees:
            self.tree(table(subtree, f"{self.where}: subtree"), deep + 1)

    def _settings(self, part: Mapping[str, Any]) -> None:
        attributes = table(part.get("attributes") or {}, _name(part))
        if attributes.get("global_cycle_seconds") is not None:
            self.seconds = number(attributes["global_cycle_seconds"], "global_cycle_seconds")

    def _instances(self, part: Mapping[str, Any]) -> None:
        match = _RANGE.fullmatch(str(part.get("name", "")))
        if match is not None:
            count = int(match[3]) - int(match[2]) + 1
            self._spread({"meshX": count}, shown(match[1]))

    def _spread(self, spatial: Mapping[str, Any], name: str) -> None:
        """Count the instances of a mesh: its first side shares out channels of the result, the
        second those of the input."""
        for side in _MESH:
            size = whole(spatial.get(side, 1), f"{self.where}: {name}.{side}")
            if size > 1:
                dim = next((d for d in ("co", "ci") if d not in self.unrolled), "oh")
                self.lost.append(f"{name}: its {size} instances are assumed to share out {dim}")
                self.unrolled[dim] = self.unrolled.get(dim, 1) * size
                self.fan = times(self.fan, size, f"{self.where}: {name}.{side}")

    def _component(self, part: Mapping[str, Any]) -> None:
        name = _name(part)
        attributes = table(part.get("attributes") or {}, name)
        if _computes(part):
            if self.multiplier:
                self.lost.append("only the last unit that computes is the array")
            self.multiplier = name
        elif "DRAM" in str(part.get("class", "")) or any(key in attributes for key in _SIZE):
            self._memory(part, attributes, name)
        else:
            self.lost.append(f"{name}: neither a storage nor a multiplier")

    def _memory(self, part: Mapping[str, Any], attributes: Mapping[str, Any], name: str) -> None:
        def figure(*keys: str) -> float | None:
            key = next((key for key in keys if attributes.get(key) is not None), None)
            return None if key is None else number(attributes[key], f"{name}.{key}")

        width = figure("width", "memory_width")
        depth, kilobytes = figure("depth", "memory_depth"), figure("sizeKB")
        word = figure("datawidth", "word-bits", "word_bits") or 8.0
        if depth is not None and width is not None:
            bits = depth * width
        elif (entries := figure("entries")) is not None:
            bits = entries * word
        else:
            bits = None if kilobytes is None else kilobytes * 8192
        if bits is None and "DRAM" not in str(part.get("class", "")):
            self.lost.append(f"{name}: a storage whose size is not known is left out")
            return
        banks = figure("n_banks") or 1.0
        size = None if bits is None else max(int(bits * self.fan) // 8, 1)
        taken = {level.name for level in self.levels}
        plain = _RANGE.sub(r"\1", str(part.get("name", "memory")))
        level = Level(identifier(plain, taken), size, self._holds(part, name), self.fan > 1)
        shared = figure("shared_bandwidth")
        rates = {way: figure(f"{way}_bandwidth") or shared for way in ("read", "write")}
        level.one_port = shared is not None
        for way, rate in rates.items():
            setattr(level, way, None if rate is None else rate * word / 8 * self.fan)
        if banks > 1:
            self.lost.append(f"{name}.n_banks: {shown(banks)}")
        self.lost.append(f"{name}: energies of its class {shown(part.get('class'))}")
        self.levels.append(level)

    def _holds(self, part: Mapping[str, Any], name: str) -> frozenset[str]:
        """The operands that a storage keeps: all but those that its constraints bypass."""
        constraints = table(part.get("constraints") or {}, name)
        spaces = table(constraints.get("dataspace") or {}, f"{name}.constraints.dataspace")
        keep, bypass = (self._letters(spaces.get(key), name) for key in ("keep", "bypass"))
        kept = keep - bypass if keep else OPERANDS - bypass
        for other in sorted(map(str, (set(constraints) - {"dataspace"}))):
            self.lost.append(f"{name}.constraints.{shown(other)}: limits of schedules")
        return kept

    def _letters(self, names: Any, name: str) -> frozenset[str]:
        if names is None:
            return frozenset()
        known = [_SPACES.get(str(each).lower()) for each in listed(names, f"{name}: data spaces")]
        if None in known:
            self.lost.append(f"{name}: data spaces {shown(names)} are not all known")
        return frozenset(letter for letter in known if letter is not None)


def _name(part: Mapping[str, Any]) -> str:
    """A node's name, for messages."""
    return shown(part.get("name", "?"))


def _computes(part: Mapping[str, Any]) -> bool:
    """Return True if a component multiplies, by its class."""
    kind = str(part.get("class", "")).lower()
    return "mac" in kind or "compute" in kind


def timeloop_hardware(data: Mapping[str, Any], where: str) -> Hardware:
    """The hardware of an architecture's file."""
    reader = _Reader(where)
    architecture = table(data["architecture"], f"{where}: architecture")
    if "nodes" in architecture:
        reader.row(listed(architecture["nodes"], f"{where}: nodes"))
    elif "subtree" in architecture:
        reader.tree(architecture)
    else:
        raise refuse(CODE, "has neither nodes nor a subtree", f"{where}: architecture")
    known = {"version", "nodes", "subtree", "name", "attributes"}
    left = map(str, (set(architecture) - known) | (set(data) - {"architecture"}))
    if not reader.multiplier:
        raise refuse(CODE, "no component multiplies", where, "a class such as intmac")
    if reader.seconds is None:
        reader.lost.append("clock: no global_cycle_seconds; 1 GHz is assumed")
    reader.lost += [f"{shown(key)}: only the architecture is read" for key in sorted(left)]
    return Hardware(
        name=name_of_file(where),
        tool="Timeloop",
        levels=reader.levels,
        unrolled=reader.unrolled,
        multipliers=reader.fan,
        lanes=reader.unrolled.get("co", 1),
        clock_hz=float(f"{1 / reader.seconds:.12g}") if reader.seconds else 1e9,
        lost=reader.lost,
    )
