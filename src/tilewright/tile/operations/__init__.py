"""The operations of the tile dialect; dialect.py says what they mean together."""

from tilewright.tile.operations.base import TileOperation
from tilewright.tile.operations.compute import ComputeOp, StageOp
from tilewright.tile.operations.events import (
    BarrierOp,
    EventOp,
    Ordering,
    SignalOp,
    WaitOp,
)
from tilewright.tile.operations.structure import DomainOp, LoopOp, ProgramOp, Scope, TensorOp
from tilewright.tile.operations.transfer import BufferOp, MoveOp

__all__ = [
    "BarrierOp",
    "BufferOp",
    "ComputeOp",
    "DomainOp",
    "EventOp",
    "LoopOp",
    "MoveOp",
    "Ordering",
    "ProgramOp",
    "Scope",
    "SignalOp",
    "StageOp",
    "TensorOp",
    "TileOperation",
    "WaitOp",
]
