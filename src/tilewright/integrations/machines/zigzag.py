"""ZigZag's accelerators (``memories`` and ``operational_array``) and mappings.

Sizes and ports are in bits, costs in pJ for an access as wide as the port. Memories are listed from
the array outwards; ``served_dimensions`` are those along which one instance serves all units.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from math import prod
from typing import Any

from tilewright.errors import refuse
from tilewright.integrations.machines.hierarchy import LOOPS, Hardware, Level, identifier
from tilewright.integrations.machines.reading import CODE, listed, number, table, times, whole
from tilewright.machine.checks import shown

_OPERANDS = {"I1": "I", "I2": "W", "O": "O"}
_ARRAY_KEYS = {"unit_energy", "unit_area", "dimensions", "sizes", "input_precision"}
_USUAL = ("co", "ci", "oh", "ow")
"""Dims that the array's dimensions unroll, in this order, if no mapping says it."""

_CONVOLUTION = ("default", "Conv", "conv")
"""Names of the entry of a mapping that is the array's unrolling."""


def zigzag_hardware(data: Mapping[str, Any], mapping: list[Any] | None, where: str) -> Hardware:
    """The hardware of an accelerator's file, unrolled as the mapping's default says."""
    array = table(data["operational_array"], f"{where}: operational_array")
    names = [str(name) for name in listed(array.get("dimensions"), f"{where}: dimensions")]
    sizes = [whole(size, f"{where}: sizes") for size in listed(array.get("sizes"), where)]
    if len(names) != len(sizes) or not names:
        raise refuse(CODE, "dimensions and sizes differ in number", f"{where}: operational_array")
    units = reduce(lambda left, right: times(left, right, f"{where}: sizes"), sizes)
    extents = dict(zip(names, sizes, strict=True))
    lost = ["clock and areas: ZigZag's files have no units of them; 1 GHz is assumed"]
    for key in sorted(map(str, set(array) - _ARRAY_KEYS)):
        lost.append(f"operational_array.{shown(key)}: a machine file has no such property")
    taken: set[str] = set()
    levels = [
        _level(identifier(name, taken), table(part, f"{where}: {shown(name)}"), extents, where)
        for name, part in table(data["memories"], f"{where}: memories").items()
    ]
    if levels and levels[-1].holds == frozenset("IWO"):
        levels[-1].inside = False  # Main memory, whatever dimensions it is said to serve.
    unrolled, lanes = _unrolled(extents, mapping, lost, where)
    cost = array.get("unit_energy")
    return Hardware(
        name=identifier(data.get("name", "zigzag"), set()),
        tool="ZigZag",
        levels=levels[::-1],
        unrolled=unrolled,
        multipliers=units,
        lanes=lanes,
        mac_pj=None if cost is None else number(cost, f"{where}: unit_energy"),
        lost=lost,
    )


def _level(name: str, part: Mapping[str, Any], extents: Mapping[str, int], where: str) -> Level:
    """One memory of the file."""
    place = f"{where}: {name}"
    holds = frozenset(_OPERANDS.get(str(o), "") for o in listed(part.get("operands"), place))
    served = {str(dim) for dim in listed(part.get("served_dimensions", []), place)}
    instances = prod(size for dim, size in extents.items() if dim not in served)
    size = number(part.get("size"), f"{place}.size")
    latency = number(part.get("latency", 0), f"{place}.latency")
    ports = [table(port, f"{place}.ports") for port in listed(part.get("ports", []), place)]
    level = Level(name, None, holds - {""}, instances > 1, one_port=len(ports) == 1)
    level.bytes = None if size is None else max(int(size * instances) // 8, 1)
    level.latency = int(min(latency or 0, 1 << 20))
    for way, key in (("read", "r_cost"), ("write", "w_cost")):
        matching = [port for port in ports if way in str(port.get("type"))]
        bits = [number(p.get("bandwidth_max"), f"{place}.bandwidth_max") or 0 for p in matching]
        cost = number(part.get(key) or 0, f"{place}.{key}")
        if any(bits):
            setattr(level, way, sum(bits) * instances / 8)
            setattr(level, f"{way}_pj", cost * 8 / max(bits) if cost else None)
    return level


def _unrolled(
    extents: Mapping[str, int], mapping: list[Any] | None, lost: list[str], where: str
) -> tuple[dict[str, int], int]:
    """The number of indices of each dim that the array computes at once, and the lanes of pools."""
    entries = {str(e.get("name")): e for e in mapping or () if isinstance(e, dict)}
    entry = next((entries[name] for name in _CONVOLUTION if name in entries), None)
    if entry is None:
        found = dict(zip(_USUAL, extents.values(), strict=False))
        lost.append(f"no mapping is given: the array's dimensions are taken for {', '.join(found)}")
        return found, found["co"]
    found: dict[str, int] = {}
    for loop, size in _spatial(entry, where):
        if loop not in LOOPS:
            lost.append(f"loop {shown(loop)} of the mapping is not known: it is not unrolled")
            continue
        found[LOOPS[loop]] = times(found.get(LOOPS[loop], 1), size, f"{where}: {loop}")
    if any("temporal_ordering" in e for e in entries.values()):
        lost.append("temporal orders of the mapping: tilewright plan chooses schedules")
    if set(entries) - {*_CONVOLUTION, "Add", "Pooling"}:
        lost.append("mappings of single layers: one primitive has one unrolling")
    lanes = 1 if "Pooling" in entries else next(iter(extents.values()))
    for _, size in _spatial(entries.get("Pooling", {}), where):
        lanes = times(lanes, size, where)
    return found, lanes


def _spatial(entry: Mapping[str, Any], where: str) -> list[tuple[str, int]]:
    """The loops that a mapping's entry unrolls, and their sizes."""
    place = f"{where}: spatial_mapping"
    result: list[tuple[str, int]] = []
    for loops in table(entry.get("spatial_mapping", {}), place).values():
        for loop in listed(loops, place):
            pair = [p.strip() for p in loop.split(",")] if isinstance(loop, str) else loop
            if not isinstance(pair, list) or len(pair) != 2:
                raise refuse(CODE, f"must be a loop and a size, not {shown(loop)}", place)
            result.append((str(pair[0]), whole(pair[1], place)))
    return result
