"""The kernels of a network as one program, and what lies beside it in main memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.graph.placement import WEIGHTS
from tilewright.machine import Machine
from tilewright.targets.cambricon.lowering.kernel import lower_kernel
from tilewright.targets.cambricon.lowering.weights import Segments
from tilewright.targets.cambricon.statements import Statement, Words, assemble_statements
from tilewright.tile.dialect import BufferOp, ProgramOp, TensorOp
from tilewright.types import Array

CONSTANTS = "constants"
"""The region of main memory behind the arenas: tables, and copies of weights."""

ALIGNMENT = 64
"""Bytes to which what lies there is aligned."""


@dataclass
class Lowering:
    """Lowers kernels one after the other; ``bases`` has the address of every region."""

    machine: Machine
    bases: Mapping[str, int]
    shared: Counter[int] = field(default_factory=Counter[int])
    """How many kernels read the weights at an offset."""
    statements: list[Statement] = field(default_factory=list[Statement])
    starts: list[int] = field(default_factory=lambda: [0])
    """The first word of every kernel, and of what would follow."""
    image: bytearray = field(default_factory=bytearray)
    """The region of constants."""
    segments: dict[int, Segments] = field(default_factory=dict[int, Segments])
    """Cuts of weights by their offset in the arena, where they take the place of the original."""

    copies: dict[tuple[int, int], tuple[int, Segments]] = field(
        default_factory=dict[tuple[int, int], tuple[int, Segments]]
    )
    """Weights that are copied into the region of constants: offset in the arena and band ->
    place in the region and cut."""

    def kernel(self, program: ProgramOp, nodes: tuple[str, ...] = ()) -> None:
        """Append a kernel. Raises TilewrightError."""
        lowered = lower_kernel(
            program, self.machine, self.bases, self._put, self._alone, self._reserve
        )
        for tensor, cut in lowered.segments.items():
            self.segments[tensor.get("offset")] = cut
        name = f"kernel {program.symbol.data}: {', '.join(nodes)}".rstrip(": ")
        self.statements += [Statement(remark=name), *lowered.statements]
        words = sum(1 for one in lowered.statements if one.mnemonic)
        self.starts.append(self.starts[-1] + words)

    def _alone(self, tensor: TensorOp) -> bool:
        return self.shared[tensor.get("offset")] <= 1

    def _reserve(self, tensor: TensorOp, cut: Segments) -> int:
        """Room for a copy of weights in the region of constants; its address."""
        key = tensor.get("offset"), cut.band
        if key not in self.copies:
            at = -(-len(self.image) // ALIGNMENT) * ALIGNMENT
            self.image += bytes(at - len(self.image) + 2 * cut.banded_size)
            self.copies[key] = at, cut
        return self.bases[CONSTANTS] + self.copies[key][0]

    def fill(self, offset: int, values: Array) -> None:
        """Fill the copies of the weights at an offset of the arena."""
        for (of, _), (at, cut) in self.copies.items():
            if of == offset:
                data = cut.relaid(values).astype("<i2").tobytes()
                self.image[at : at + len(data)] = data

    def _put(self, data: bytes) -> int:
        """Put bytes into the region of constants, once; their address."""
        found = bytes(self.image).find(data)
        while found >= 0 and found % ALIGNMENT:
            found = bytes(self.image).find(data, found + 1)
        if found < 0:
            found = -(-len(self.image) // ALIGNMENT) * ALIGNMENT
            self.image += bytes(found - len(self.image)) + data
        return self.bases[CONSTANTS] + found

    def words(self) -> Words:
        """The program's words."""
        return assemble_statements(self.statements)


def shared_weights(programs: list[ProgramOp]) -> Counter[int]:
    """How many kernels read the weights at each offset."""
    found: Counter[int] = Counter()
    for program in programs:
        offsets = {
            op.tensor_op.get("offset")
            for op in program.walk()
            if isinstance(op, BufferOp) and _is_weight(op.tensor_op)
        }
        found.update(offsets)
    return found


def _is_weight(tensor: TensorOp) -> bool:
    return tensor.arena is not None and tensor.arena.data == WEIGHTS
