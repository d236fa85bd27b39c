"""The C functions of a machine, where packages hold C that calls them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class CFunction(BaseModel):
    """The C function through which a program starts a move or a primitive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: str


class CInterface(BaseModel):
    """The C functions that programs call beside those of moves and primitives (c_interface.py)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix: str
    """The prefix of the names in the header (``npu``), and the header's own name."""
    wait: str
    """The function that makes an engine wait for another."""
    signal: str | None = None
    """The function that sets a flag, on machines that have flags."""
    barrier: str | None = None
    """The function that lets all engines wait for all, on machines that have flags."""
    finish: str
    """The function that returns once every engine has done what it was given."""
