"""The description of a kernel's tile from which its code is emitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.targets.cambricon.lowering.boxes import Spans
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.tile.dialect import BufferOp


@dataclass(frozen=True)
class Tile:
    """The tile that is computed."""

    spans: Spans
    bases: dict[BufferOp, Value]
    """Addresses of the buffers' slots."""
    kept: Callable[[BufferOp], Spans]
    """What lies in a buffer: all of the dims whose loops run within its residency."""
