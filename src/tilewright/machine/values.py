"""Variants of a machine: values by key, such as ``memory.sb.bytes``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.errors import Problem, TilewrightError, nearest
from tilewright.machine.checks import shown
from tilewright.machine.forms import GROUPS, machine_of

if TYPE_CHECKING:
    from tilewright.machine.model import Machine
    from tilewright.machine.records import Record

_TOP = (
    *("clock_hz", "issue_cycles", "cores", "instruction_bytes", "memory_growth"),
    *("element", "accumulator", "overflow", "synchronisation"),
)
_FIELDS = {
    "memory": ("bytes", "banks", "granule", "bytes_per_cycle", "reserved"),
    "move": ("bytes_per_cycle", "latency", "in_flight", "transaction", "curve"),
    "engine": ("queue",),
    "primitive": ("cycles", "peak"),
    "fusion": ("gain",),
}
_SYNCHRONISATION = ("style", "ids", "depth")
_TABLES = ("limits", "multiples")
_TEXT = (
    *("element", "accumulator", "overflow", "synchronisation"),
    *("cycles", "peak", "curve", "style"),
)


def value_keys(machine: Machine) -> tuple[str, ...]:
    """Every key that ``with_values`` knows, but for dims that have no limit or granule yet."""
    keys = [*_TOP, *(f"synchronisation.{field}" for field in _SYNCHRONISATION)]
    keys += _own_keys("", machine.own)
    for kind, field in GROUPS.items():
        for part in getattr(machine, field):
            keys += [f"{kind}.{part.name}.{name}" for name in _FIELDS[kind]]
            keys += _own_keys(f"{kind}.{part.name}.", getattr(part, "own", None))
            if kind == "primitive":
                keys += [
                    f"primitive.{part.name}.{table}.{dim}"
                    for table in _TABLES
                    for dim in getattr(part, table)
                ]
    return tuple(keys)


def _switches(machine: Machine) -> list[str]:
    """Return the keys that ``off`` switches off: all fusions, or one of them."""
    return ["fusion", *(f"fusion.{fusion.name}" for fusion in machine.fusions)]


def _own_keys(place: str, record: Record | None) -> list[str]:
    """The keys of the scalar values of a family's own record, if there is one."""
    if record is None or not record.family:
        return []
    values = record.model_dump(mode="json").items()
    names = [name for name, value in values if not isinstance(value, dict | list)]
    return [f"{place}own.{record.family}.{name}" for name in names]


def with_values(machine: Machine, values: Mapping[str, Any]) -> Machine:
    """The machine with other values; see ``Machine.with_values``."""
    data = machine.to_json()
    known = (*value_keys(machine), *_switches(machine))
    problems: list[Problem] = []
    switched = {key: value for key, value in values.items() if key in _switches(machine)}
    for key, value in switched.items():
        if value != "off":
            reason = f"{shown(value)} is no state of a fusion"
            problems.append(Problem("machine-invalid", reason, shown(key), "off takes it away"))
    data["fusions"] = [
        fusion
        for fusion in data["fusions"]
        if "fusion" not in switched and f"fusion.{fusion['name']}" not in switched
    ]
    values = {key: value for key, value in values.items() if key not in switched}
    known = tuple(key for key in known if not any(f"{key}.".startswith(f"{s}.") for s in switched))
    # The style comes first: the fields beside it are of that style.
    for key, value in sorted(values.items(), key=lambda item: item[0] != "synchronisation"):
        place = _place(data, key, known)
        if place is None:
            reason = f"{machine.name} has no such value"
            problems.append(Problem("machine-key", reason, shown(key), nearest(key, known)))
        else:
            field = key.rpartition(".")[2]
            text = field in _TEXT or (".own." in f".{key}" and isinstance(place[field], str))
            place[field] = value if text else _plain(value)
            if key == "synchronisation" and isinstance(value, str):
                place[field] = {"style": value}
    if problems:
        raise TilewrightError(problems)
    return machine_of(data)


def _place(data: dict[str, Any], key: str, known: tuple[str, ...]) -> dict[str, Any] | None:
    """The table in which the last part of a key stands, or None for an unknown key."""
    parts = key.split(".")
    dim_of_primitive = len(parts) == 4 and parts[0] == "primitive" and parts[2] in _TABLES
    if key not in known and not dim_of_primitive:
        return None
    if len(parts) == 1:
        return data
    if parts[0] == "synchronisation":
        return data["synchronisation"]
    if parts[0] == "own":
        return data["own"][parts[1]]
    for part in data[GROUPS[parts[0]]]:
        if part["name"] == parts[1]:
            if parts[2] == "own":
                return part["own"][parts[3]]
            return part if len(parts) == 3 else part[parts[2]]
    return None


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
