"""Machine: the description of a processor as frozen data, and its loading from TOML."""

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
