"""Machine: the description of a processor as frozen data, and its loading from TOML."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.machine.expression import Expression, parse_expression
    from tilewright.machine.load import load_machine, to_toml
    from tilewright.machine.model import (
        Engine,
        Fusion,
        Machine,
        Memory,
        Move,
        Primitive,
        Storage,
        Synchronisation,
    )

_HOMES = {
    "Expression": "expression",
    "load_machine": "load",
    "parse_expression": "expression",
    "to_toml": "load",
}
"""The modules of what is not in ``model``."""

__all__ = [
    "Engine",
    "Expression",
    "Fusion",
    "Machine",
    "Memory",
    "Move",
    "Primitive",
    "Storage",
    "Synchronisation",
    "load_machine",
    "parse_expression",
    "to_toml",
]


def __getattr__(name: str) -> Any:
    """Import the names of the room on first use: a target names its capabilities without them."""
    if name not in __all__:
        raise AttributeError(f"module 'tilewright.machine' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tilewright.machine.{_HOMES.get(name, 'model')}"), name)
