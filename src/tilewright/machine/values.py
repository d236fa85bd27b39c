"""Variants of a machine: values by key, such as ``memory.sb.bytes``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.errors import Problem, TilewrightError, nearest
from tilewright.machine.checks import shown
from tilewright.machine.forms import GROUPS, machine_of

if TYPE_CHECKING:
    from tilewright.machine.model import Machine

_TOP = (
    *("clock_hz", "issue_cycles", "cores", "instruction_bytes", "memory_growth"),
    *("leakage_mw", "area_mm2"),
    *("element", "accumulator", "overflow", "synchronisation"),
)
_FIELDS = {
    "memory": (
        *("bytes", "banks", "granule", "bytes_per_cycle", "reserved"),
        *("read_pj", "write_pj", "leakage_mw", "area_mm2"),
    ),
    "move": ("bytes_per_cycle", "latency", "in_flight", "transaction", "curve", "byte_pj"),
    "engine": ("queue", "leakage_mw", "area_mm2"),
    "primitive": ("cycles", "peak", "tile_pj"),
    "fusion": ("gain",),
}
_HOST = ("clock_hz", "cpu", "cycles_per_operation", "cycles_per_element")
_SYNCHRONISATION = ("style", "ids", "depth")
_TABLES = ("limits", "multiples")
_TEXT = (
    *("element", "accumulator", "overflow", "synchronisation"),
    *("cycles", "peak", "tile_pj", "curve", "style", "cpu"),
)


def value_tables(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every key that ``with_values`` knows, but for dims that have no limit or granule yet, and the
    table of a machine's JSON in which its last part stands."""
    tables = dict.fromkeys(_TOP, data)
    tables |= {f"synchronisation.{field}": data["synchronisation"] for field in _SYNCHRONISATION}
    tables |= {f"host.{field}": data["host"] for field in _HOST if data.get("host")}
    tables |= _own_tables("", data)
    for kind, field in GROUPS.items():
        for part in data[field]:
            place = f"{kind}.{part['name']}."
            tables |= {f"{place}{name}": part for name in _FIELDS[kind]}
            tables |= _own_tables(place, part)
            for table in _TABLES if kind == "primitive" else ():
                tables |= {f"{place}{table}.{dim}": part[table] for dim in part[table]}
    return tables


def _own_tables(place: str, part: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The keys of the scalar values of a family's own record, if there is one."""
    return {
        f"{place}own.{family}.{name}": record
        for family, record in part.get("own", {}).items()
        for name, value in record.items()
        if not isinstance(value, dict | list)
    }


def _of_the_same_name(field: str, known: Iterable[str]) -> str:
    """Ask for a key that ends with ``field``; empty where several or none do."""
    ends = [key for key in known if key.rpartition(".")[2] == field]
    return f"did you mean {ends[0]}?" if len(ends) == 1 else ""


def with_values(machine: Machine, values: Mapping[str, Any]) -> Machine:
    """The machine with other values; see ``Machine.with_values``."""
    data = machine.to_json()
    switches = ["fusion", *(f"fusion.{fusion.name}" for fusion in machine.fusions)]
    problems: list[Problem] = []
    switched = {key: value for key, value in values.items() if key in switches}
    for key, value in switched.items():
        if value != "off":
            reason = f"{shown(value)} is no state of a fusion"
            problems.append(Problem("machine-invalid", reason, shown(key), "off takes it away"))
    data["fusions"] = [
        fusion
        for fusion in data["fusions"]
        if "fusion" not in switched and f"fusion.{fusion['name']}" not in switched
    ]
    tables = value_tables(data)
    known = (*tables, *(key for key in switches if key not in switched))
    # Dims may have no limit or granule yet.
    dims = {
        f"primitive.{p['name']}.{table}": p[table] for p in data["primitives"] for table in _TABLES
    }
    # The style comes first: the fields beside it are of that style.
    for key, value in sorted(values.items(), key=lambda item: item[0] != "synchronisation"):
        if key in switched:
            continue
        around, _, field = key.rpartition(".")
        place = tables.get(key, dims.get(around))
        if place is None:
            reason = f"{machine.name} has no such value"
            hint = nearest(key, known) or _of_the_same_name(field, known)
            if key.startswith("fusion."):
                hint += "; fusion=off takes all fusions away"
            problems.append(Problem("machine-key", reason, shown(key), hint))
            continue
        text = field in _TEXT or (".own." in f".{key}" and isinstance(place[field], str))
        if key == "synchronisation":
            value = {"style": value} if isinstance(value, str) else value
        place[field] = value if text else _plain(value)
        if key == "synchronisation":
            tables = value_tables(data)
    if problems:
        raise TilewrightError(problems)
    return machine_of(data)


def _plain(value: Any) -> Any:
    """A value from the command line as a number, or ``none``, where it reads as one."""
    if not isinstance(value, str):
        return value.item() if hasattr(value, "item") else value
    text = value.strip()
    if text.lower() == "none":
        return None
    if re.fullmatch(r"[+-]?[0-9_]{1,30}", text):
        return int(text.replace("_", "") or "0") if any(c.isdigit() for c in text) else text
    if re.fullmatch(r"[+-]?[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?", text):
        return float(text)
    return value
