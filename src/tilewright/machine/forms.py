"""A machine from and to plain data, with every problem named by its key."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tilewright.errors import Problem, TilewrightError, nearest
from tilewright.machine.checks import MachineError, shown
from tilewright.machine.model import (
    CFunction,
    Engine,
    Fusion,
    Machine,
    Memory,
    Move,
    Primitive,
    Storage,
    Synchronisation,
)
from tilewright.machine.records import RecordError

GROUPS = {
    "memory": "memories",
    "move": "moves",
    "engine": "engines",
    "primitive": "primitives",
    "fusion": "fusions",
}
"""Kind of part (as keys and machine files say it) -> field of the machine."""

_MODELS: dict[str, type[BaseModel]] = {
    "memory": Memory,
    "move": Move,
    "engine": Engine,
    "primitive": Primitive,
    "fusion": Fusion,
}


def machine_of(data: dict[str, Any], source: str = "") -> Machine:
    """The machine of the data that ``Machine.to_json`` gives.

    Types are strict (a string is no number). Raises TilewrightError with every problem found;
    ``source`` (a file) is put before the keys.
    """
    try:
        return Machine.model_validate_json(json.dumps(data, default=_no_value), strict=True)
    except ValidationError as error:
        problems = [
            problem for details in error.errors() for problem in _problems(details, data, source)
        ]
        raise TilewrightError(problems) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise TilewrightError(
            Problem("machine-invalid", f"not a machine: {shown(error)}", source)
        ) from None


def first_reason(error: Exception) -> str:
    """What is wrong with a file, on one line: of what pydantic found, the first key and reason."""
    if not isinstance(error, ValidationError):
        return str(error)[:300]
    first, *others = error.errors()
    key = ".".join(shown(part) for part in first["loc"])
    more = f", and {len(others)} more" if others else ""
    return f"{key}: {_reason(first)}{more}" if key else f"{_reason(first)}{more}"


def _no_value(value: Any) -> Any:
    raise TypeError(f"{shown(value)!r} is neither text, number, table nor list")


def _problems(details: ErrorDetails, data: dict[str, Any], source: str) -> list[Problem]:
    cause = details.get("ctx", {}).get("error")
    before = f"{source}: " if source else ""
    if isinstance(cause, MachineError):
        return [replace(problem, where=before + problem.where) for problem in cause.problems]
    path = [str(part) for part in details["loc"]]
    kind = next((kind for kind, field in GROUPS.items() if path[:1] == [field]), "")
    key = _key(details, data, kind)
    if isinstance(cause, RecordError):
        return [
            _of_record(inner, f"{before}{key}.{cause.family}") for inner in cause.error.errors()
        ]
    hint = ""
    if details["type"] == "extra_forbidden":
        hint = nearest(path[-1], _siblings(path, kind), 1)
    return [Problem("machine-invalid", _reason(details), before + key, hint)]


def _of_record(details: ErrorDetails, place: str) -> Problem:
    """Return the problem that a validation error states, within a record of one family's own
    keys."""
    key = ".".join([place, *(shown(part) for part in details["loc"])])
    return Problem("machine-invalid", _reason(details), key)


def _reason(details: ErrorDetails) -> str:
    cause = details.get("ctx", {}).get("error")
    if details["type"] == "extra_forbidden":
        return "unknown key"
    if details["type"] == "missing":
        return "is missing"
    if details["type"] == "value_error" and isinstance(cause, ValueError):
        return shown(cause)
    value, reason = json.dumps(details["input"], default=str), details["msg"]
    return f"{reason[:1].lower()}{reason[1:]}, but it is {value[:80]}"


def _key(details: ErrorDetails, data: dict[str, Any], kind: str) -> str:
    """The dotted key of an error's location, parts by name instead of by number."""
    location = list(details["loc"])
    if kind and len(location) > 1 and isinstance(location[1], int):
        parts = data.get(GROUPS[kind])
        part = parts[location[1]] if isinstance(parts, list) else None
        name = part.get("name") if isinstance(part, dict) else None
        location[:2] = [kind, shown(name) if name is not None else location[1]]
    return ".".join(shown(part) for part in location)


def _siblings(path: list[str], kind: str) -> list[str]:
    """The keys that are possible where an unknown one was found."""
    if path[0] == "synchronisation" and len(path) > 1:
        return sorted(Synchronisation.model_fields)
    if not kind:
        return sorted({*Machine.model_fields, *GROUPS} - set(GROUPS.values()))
    model = _MODELS[kind]
    if len(path) > 3:
        model = CFunction if path[2] == "c" else Storage
    return sorted(model.model_fields)
