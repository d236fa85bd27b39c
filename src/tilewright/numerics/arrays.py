"""The type of the arrays that every room computes with."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
"""An array of any elements."""
