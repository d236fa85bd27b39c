"""The kernels of a network as one program, and what lies beside it in main memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import prod

from tilewright.graph.placement import WEIGHTS
from tilewright.ir.types import Array, element_size
from tilewright.machine import Machine
from tilewright.memory import align_up
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.kernel import lower_kernel
from tilewright.targets.cambricon.lowering.prefetch import (
    PlacedWeights,
    Prefetches,
    WeightRequest,
)
from tilewright.targets.cambricon.lowering.tables import Filled
from tilewright.targets.cambricon.lowering.weights import Segments
from tilewright.targets.cambricon.statements import (
    Statement,
    Words,
    assemble_statements,
    statement,
)
from tilewright.tile.dialect import BufferOp, ProgramOp, TensorOp

CONSTANTS = "constants"
"""The region of main memory after the arenas: tables, and copies of weights."""

ALIGNMENT = 64
"""Bytes to which what lies there is aligned."""


Variants = dict[tuple[tuple[str, int], ...], Machine]
"""A machine with what is left of memories in which tensors stay, by their names and bytes; timers
make each once for all that they time."""


@dataclass
class Lowering:
    """Lowers kernels one after the other; ``bases`` has the address of every region."""

    machine: Machine
    bases: Mapping[str, int]
    shared: Counter[int] = field(default_factory=Counter[int])
    """The number of kernels that read the weights at an offset."""
    parts: list[list[Statement]] = field(default_factory=list[list[Statement]])
    """The statements of every kernel."""
    image: bytearray = field(default_factory=bytearray)
    """The region of constants."""
    segments: dict[int, Segments] = field(default_factory=dict[int, Segments])
    """Cuts of weights by their offset in the arena, where they take the place of the original."""

    copies: dict[tuple[int, Segments], int] = field(default_factory=dict[tuple[int, Segments], int])
    """Weights that are copied into the region of constants: offset in the arena and cut -> place
    in the region."""
    prefetched: bool = False
    """True if each kernel's first weights are there, as if a kernel before had loaded them."""
    beside: Variants = field(default_factory=dict[tuple[tuple[str, int], ...], Machine])

    def __post_init__(self) -> None:
        self.prefetches = Prefetches(self.machine)
        self.placed: PlacedWeights | None = None
        self.tables: Filled = ()
        """The content that the last kernel has left in the machine's tables."""
        self.constants: dict[int, int] = {}
        """Offset in the arena of weights and place in the region of constants of those that stay
        on the chip."""
        self.cuts: dict[int, Segments] = {}
        """The cuts of weights among them, by their offset."""
        self.start: list[Statement] = []

    def kernel(
        self,
        program: ProgramOp,
        nodes: tuple[str, ...] = (),
        cycles: float = 0.0,
    ) -> None:
        """Append a kernel that takes about ``cycles`` cycles. Raises TilewrightError."""
        machine, rooms = self.machine, tuple(program.room_of.items())
        if rooms:
            if rooms not in self.beside:
                values = {f"memory.{name}.bytes": room for name, room in rooms}
                self.beside[rooms] = machine.with_values(values)
            machine = self.beside[rooms]
        lowered = lower_kernel(
            program,
            machine,
            self.bases,
            self._put,
            self._alone,
            self._reserve,
            lambda request: self._place(request, machine.memory("msm").room or 0),
            self.tables,
        )
        self.tables = lowered.tables
        for tensor, cut in lowered.segments.items():
            self.segments[tensor.get("offset")] = cut
        self.cuts |= {tensor.get("offset"): cut for tensor, cut in lowered.resident.items()}
        number = None if self.placed is None else self.placed.slot
        if lowered.prefetch is not None and number is not None:
            slot = self.prefetches.put(number, lowered.prefetch)
            at = next(i for i, line in enumerate(self.parts[number]) if line is slot.place)
            load = lowered.prefetch.statements(slot.registers, waits=slot.waits)
            self.parts[number][at : at + 1] = load
        self.prefetches.passed(lowered.used, lowered.slot, cycles)
        name = f"kernel {program.symbol.data}: {', '.join(nodes)}".rstrip(": ")
        start = [] if self.parts else self.start
        self.parts.append([Statement(remark=name), *start, *lowered.statements])

    def lose_chip(self) -> None:
        """The body of a loop runs here, as a program of its own: what kernels before have loaded or
        left in tables is gone."""
        self.prefetches.begin = len(self.parts)
        self.tables = ()

    @property
    def statements(self) -> list[Statement]:
        """The statements of the whole program."""
        slots = self.prefetches.places
        return [line for part in self.parts for line in part if id(line) not in slots]

    @property
    def starts(self) -> list[int]:
        """The first word of every kernel, and of what would follow."""
        counts = [sum(1 for line in part if line.mnemonic) for part in self.parts]
        return [0, *accumulate(counts)]

    def hold(self, programs: Iterable[ProgramOp]) -> None:
        """Load the constants that programs find on the chip before the first kernel: all of a
        scratchpad at once.

        They lie side by side there, and so does a copy of them in main memory.
        """
        found: dict[str, set[tuple[int, int, int]]] = {}
        for buffer in (op for program in programs for op in program.walk()):
            if isinstance(buffer, BufferOp) and buffer.stays and _is_weight(buffer.tensor_op):
                offset, start = buffer.tensor_op.get("offset"), buffer.get("address")
                size = prod(buffer.tensor_shape) * element_size(buffer.result.type.of.element_type)
                found.setdefault(buffer.memory, set()).add((offset, start, start + size))
        zero, chip, count = (Register(number) for number in range(3))
        for memory, constants in sorted(found.items()):
            first = min(start for _, start, _ in constants)
            size = max(end for *_, end in constants) - first
            at = self._append(bytes(size))
            self.constants |= {offset: at + start - first for offset, start, _ in constants}
            self.start += [
                statement("SMOVE", zero, 0, remark=f"constants that stay in {memory}"),
                statement("SMOVE", chip, first),
                statement("SMOVE", count, size // 2),
                statement(
                    f"{memory[0].upper()}LOAD", chip, count, zero, self.bases[CONSTANTS] + at
                ),
            ]

    def _place(self, request: WeightRequest, room: int) -> PlacedWeights:
        """Choose the place of a kernel's weights, and the kernel before that issues their load."""
        self.placed = self.prefetches.place(request, room)
        if self.prefetched:
            placed = self.placed
            self.placed = replace(placed, prefetch=request.first(placed.base, placed.later))
        return self.placed

    def _alone(self, tensor: TensorOp) -> bool:
        return self.shared[tensor.get("offset")] <= 1

    def _reserve(self, tensor: TensorOp, cut: Segments) -> int:
        """Room for a copy of weights in the region of constants; its address."""
        key = tensor.get("offset"), cut
        if key not in self.copies:
            self.copies[key] = self._append(bytes(2 * cut.size))
        return self.bases[CONSTANTS] + self.copies[key]

    def fill(self, offset: int, values: Array) -> None:
        """Fill the copies of the weights at an offset of the arena."""
        if (place := self.constants.get(offset)) is not None:
            cut = self.cuts.get(offset)
            data = (values if cut is None else cut.relaid(values).astype("<i2")).tobytes()
            self.image[place : place + len(data)] = data
        for (of, cut), at in self.copies.items():
            if of == offset:
                data = cut.relaid(values).astype("<i2").tobytes()
                self.image[at : at + len(data)] = data

    def _put(self, data: bytes) -> int:
        """Put bytes into the region of constants, once; their address."""
        offset = bytes(self.image).find(data)
        while offset >= 0 and offset % ALIGNMENT:
            offset = bytes(self.image).find(data, offset + 1)
        if offset < 0:
            offset = self._append(data)
        return self.bases[CONSTANTS] + offset

    def _append(self, data: bytes) -> int:
        """Append bytes to the region of constants, aligned; where they begin in it."""
        start = align_up(len(self.image), ALIGNMENT)
        self.image += bytes(start - len(self.image)) + data
        return start

    def words(self) -> Words:
        """Return the program's encoded instruction words."""
        return assemble_statements(self.statements)


def shared_weights(programs: list[ProgramOp]) -> Counter[int]:
    """Return the number of kernels that read the weights at each offset."""
    counts: Counter[int] = Counter()
    for program in programs:
        offsets = {
            op.tensor_op.get("offset")
            for op in program.walk()
            if isinstance(op, BufferOp) and _is_weight(op.tensor_op)
        }
        counts.update(offsets)
    return counts


def _is_weight(tensor: TensorOp) -> bool:
    return tensor.arena is not None and tensor.arena.data == WEIGHTS
