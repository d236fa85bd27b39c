"""The configuration and limits that all parts of a machine's description share."""

from __future__ import annotations

from pydantic import ConfigDict

MAX_VALUE = 1 << 48
"""The greatest size or rate of a machine."""

CLOSED = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
"""Parts are frozen, and closed, so that an unknown key is an error."""
