"""Machine: the description of a processor as frozen data, and its loading from TOML."""

from tilewright.machine.model import (
    Engine,
    Machine,
    Memory,
    Move,
    Primitive,
    Storage,
)

__all__ = ["Engine", "Machine", "Memory", "Move", "Primitive", "Storage"]
