"""Machine files: TOML to a machine and back. docs/machine-file.md describes every key.

A part is a table with its name as key (``[memory.weight]``, ``[move.load-weight]``,
``[engine.load]``, ``[primitive.conv]``, ``[fusion.conv-pool]``), in the order of the file; an
operand may be the bare name of its memory. All else is as in ``Machine``.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.machine.checks import shown
from tilewright.machine.forms import GROUPS, machine_of
from tilewright.machine.implied import with_implied
from tilewright.machine.model import Machine
from tilewright.system.files import need_file, reason_of

MAX_FILE = 256 << 10
"""Bytes that a machine file may have."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def load_machine(source: str | Path, *, complete: bool = False) -> Machine:
    """Read a machine file, or its text (a ``str`` with a line break); a ``complete`` machine has
    what the file leaves to the compiler, too (implied.py).

    Raises TilewrightError: ``machine-file`` when it cannot be read or is not TOML,
    ``machine-invalid`` with the key of everything that is wrong in it.
    """
    if isinstance(source, str) and "\n" in source:
        return _parse(source, "", complete)
    path = Path(source)
    try:
        need_file(path, "machine-file", where=shown(source))
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
        return _parse(content.decode(), str(source), complete)
    except (OSError, ValueError) as error:
        raise refuse("machine-file", shown(reason_of(error)), shown(source)) from None


def _parse(text: str, source: str, complete: bool) -> Machine:
    if len(text) > MAX_FILE:
        raise refuse("machine-file", f"larger than {MAX_FILE} bytes", source)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else shown(error)
        raise refuse("machine-file", f"not TOML: {reason}", source) from None
    machine = machine_of(_parts_as_lists(data, source), source)
    return with_implied(machine, data) if complete else machine


def _parts_as_lists(data: dict[str, Any], source: str) -> dict[str, Any]:
    """The file's tables of parts as the lists that ``Machine`` has."""
    before = f"{source}: " if source else ""
    problems: list[Problem] = []
    result = {key: value for key, value in data.items() if key not in GROUPS}
    for field in GROUPS.values():
        if result.pop(field, None) is not None:
            problems.append(Problem("machine-invalid", "unknown key", before + field))
    for kind, field in GROUPS.items():
        tables = data.get(kind, {})
        if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
            reason = f"must be tables by name: [{kind}.NAME]"
            problems.append(Problem("machine-invalid", reason, before + kind))
            continue
        parts: list[dict[str, Any]] = []
        result[field] = parts
        for name, table in tables.items():
            if "name" in table:
                reason = f"a {kind} has its name in the table's header"
                problems.append(
                    Problem("machine-invalid", reason, f"{before}{kind}.{shown(name)}.name")
                )
            part = {**table, "name": name}
            operands = table.get("operands")
            if kind == "primitive" and isinstance(operands, dict):
                part["operands"] = {
                    role: {"memory": value} if isinstance(value, str) else value
                    for role, value in operands.items()
                }
            parts.append(part)
    if problems:
        raise TilewrightError(problems)
    return result


def to_toml(machine: Machine) -> str:
    """The machine as the text of a machine file; ``load_machine`` reads the same machine from it.

    Fields that have their default value are left out.
    """
    data = machine.model_dump(mode="json", exclude_defaults=True)
    lines = [f"{key} = {_value(value)}" for key, value in data.items() if not _is_part(key, value)]
    for key in ("synchronisation", "layouts", "host", "c", "own"):
        if table := data.get(key):
            lines += ["", f"[{key}]", *_pairs(table)]
    for kind, field in GROUPS.items():
        for part in data.get(field, ()):
            header = f"{kind}.{_key(part.pop('name'))}"
            operands = part.pop("operands", {})
            lines += ["", f"[{header}]", *_pairs(part)]
            if operands:
                short = {
                    role: storage["memory"] if list(storage) == ["memory"] else storage
                    for role, storage in operands.items()
                }
                lines += ["", f"[{header}.operands]", *_pairs(short)]
    return "\n".join(lines) + "\n"


def _is_part(key: str, value: Any) -> bool:
    return key in GROUPS.values() or isinstance(value, dict)


def _pairs(table: dict[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(text: str) -> str:
    return text if _BARE_KEY.fullmatch(text) else _text(text)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        inside = ", ".join(_pairs(value))
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    return repr(value)


def _text(text: str) -> str:
    """A basic string, with everything but plain characters escaped."""
    inside = "".join(
        f"\\{c}" if c in '"\\' else f"\\u{ord(c):04X}" if ord(c) < 32 or ord(c) == 127 else c
        for c in text
    )
    return f'"{inside}"'
