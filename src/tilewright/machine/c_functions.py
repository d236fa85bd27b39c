"""The C functions of a machine, where packages hold C that calls them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    """Frozen, and closed: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CFunction(_Part):
    """The C function through which a program starts a move or a primitive."""

    function: str


class CInterface(_Part):
    """What programs in C call beside the functions of moves and primitives (c_interface.py)."""

    prefix: str
    """What names of the header begin with (``npu``), and the header's own name."""
    wait: str
    """The function that makes an engine wait for another."""
    signal: str | None = None
    """The function that sets a flag, on machines that have flags."""
    barrier: str | None = None
    """The function that lets all engines wait for all, on machines that have flags."""
    finish: str
    """The function that returns once every engine has done what it was given."""
