"""The operations of the tile dialect; dialect.py says what they mean together."""

from tilewright.tile.operations.base import TileOperation
from tilewright.tile.operations.compute import ComputeOp, StageOp
from tilewright.tile.operations.structure import LoopOp, ProgramOp, TensorOp
from tilewright.tile.operations.transfer import BufferOp, MoveOp

__all__ = [
    "BufferOp",
    "ComputeOp",
    "LoopOp",
    "MoveOp",
    "ProgramOp",
    "StageOp",
    "TensorOp",
    "TileOperation",
]
