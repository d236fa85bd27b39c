"""The description of a kernel's tile from which its code is emitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.targets.cambricon.lowering.boxes import Spans
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.streams import Stream
from tilewright.tile.dialect import BufferOp

Fill = Callable[[Operand, Spans, Value, Stream | None], None]
"""Emits the load of an operand's box into the slot at an address, or starts its stream."""

NewStream = Callable[[Operand], Stream | None]

Pass = Callable[[bool], None]
"""Is called where the code passes once, behind all loads of weights: before the first tile, or
(True) before the last one, or the last ones if those stay in the scratchpad."""


@dataclass(frozen=True)
class Tile:
    """The tile that is computed."""

    spans: Spans
    bases: dict[BufferOp, Value]
    """Addresses of the buffers' slots."""
    kept: Callable[[BufferOp], Spans]
    """What lies in a buffer: all of the dims whose loops run within its residency."""


Renew = Callable[[Tile], None]
"""Emits what a tile's code takes for granted of a buffer."""

Store = Callable[[Tile, Stream | None], None]
"""Emits the store of a tile's result, or starts its stream."""
