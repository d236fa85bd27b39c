"""Memories around an array of multipliers, as readers of other tools' files describe them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

OPERANDS = frozenset("IWO")
"""Letters of operands: inputs, weights, outputs."""

LOOPS = {
    "N": "n",
    "G": "g",
    "B": "n",
    "K": "co",
    "C": "ci",
    "OY": "oh",
    "OX": "ow",
    "FY": "kh",
    "FX": "kw",
}
"""Names of loops in ZigZag's files -> dims of machine files."""


@dataclass
class Level:
    """One memory of the hierarchy; sizes and rates are those of all its instances together."""

    name: str
    bytes: int | None
    """Capacity in bytes; None: no limit."""
    holds: frozenset[str]
    inside: bool
    """True if units of the array have instances of their own."""
    read: float | None = None
    """Bytes that it gives in a cycle; None: no limit."""
    write: float | None = None
    one_port: bool = False
    """True if reads and writes share a port."""
    latency: int = 0
    read_pj: float | None = None
    """Picojoules to read a byte; ``write_pj``: to write one."""
    write_pj: float | None = None


@dataclass
class Hardware:
    """An array of multipliers and the memories around it, outermost first."""

    name: str
    tool: str
    levels: list[Level]
    unrolled: dict[str, int]
    """Dim of machine files -> how many of its indices are computed at once."""
    multipliers: int
    lanes: int
    """Elements that pools and pointwise operations compute at once."""
    clock_hz: float = 1e9
    mac_pj: float | None = None
    lost: list[str] = field(default_factory=list[str])
    """Facts that a machine file cannot say, and assumptions made for it, in words."""


def name_of_file(where: str) -> str:
    """A machine's name by the file that it is read from, as messages show it."""
    return identifier(where.strip("'\"").rpartition("/")[2].partition(".")[0], set())


def identifier(name: object, taken: set[str]) -> str:
    """A name that machine files allow, and that is not ``taken``, which it then is."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", str(name))[:48].strip("-")
    plain = plain if re.match("[A-Za-z]", plain) else f"m-{plain}".rstrip("-")
    result, count = plain, 1
    while result in taken:
        count += 1
        result = f"{plain}-{count}"
    taken.add(result)
    return result
