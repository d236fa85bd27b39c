"""Which bytes each CPE has to move for a tile program, and where they lie in its LDM, by walking
the program in Python.

It shares nothing with what writes C but the meaning of the dialect: boxes come from windows and
intervals, the parts of the CPEs from the numbers of the shared loops' iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import ceil, isqrt, prod

from tilewright.ir import Block
from tilewright.ir.types import layout_of, shape_of
from tilewright.planning.domain import Interval
from tilewright.planning.layout import Layout
from tilewright.tile.dialect import BufferOp, DomainOp, LoopOp, MoveOp, ProgramOp

Runs = list[tuple[int, int]]
"""First byte and bytes of contiguous runs, one after the other; what touches is one run."""


def add(runs: Runs, start: int, size: int) -> None:
    """Append a run."""
    if runs and sum(runs[-1]) == start:
        runs[-1] = (runs[-1][0], runs[-1][1] + size)
    else:
        runs.append((start, size))


@dataclass
class Walk:
    """The moves of one CPE: by direction and tensor, the runs of bytes in its arena."""

    program: ProgramOp
    cpe: int
    cores: int
    """In a mesh with as many rows as columns, where operands are exchanged."""
    found: dict[tuple[str, str], Runs] = field(default_factory=dict[tuple[str, str], Runs])
    tiles: dict[tuple[str, str], Runs] = field(default_factory=dict[tuple[str, str], Runs])
    """The same in LDM."""
    visits: dict[BufferOp, int] = field(default_factory=dict[BufferOp, int])
    """Tiles of each buffer that came before."""
    turns: dict[str, int] = field(default_factory=dict[str, int])
    """Tiles that came before, of tensors whose cores fetch one in turns."""
    spare: bool = False
    """Whether another core computes this one's part."""

    def run(self) -> dict[tuple[str, str], Runs]:
        """Walk the whole program."""
        shared = [] if self.program.shared is None else self.program.shared.data.split()
        self.left = len(shared)
        dims = {dim: (0, extent) for dim, extent in self.program.extents.items()}
        if shared or self.cpe == 0:
            self.block(self.program.body.block, dims)
        return self.found

    def block(self, block: Block, dims: Mapping[str, Interval]) -> None:
        boxes: dict[BufferOp, list[Interval]] = {}
        for op in block.ops:
            if isinstance(op, BufferOp):
                boxes[op] = box_of(op, dims)
            elif isinstance(op, LoopOp):
                self.loop(op, dims)
            elif isinstance(op, DomainOp):
                inner = dict(dims)
                for dim, axis in op.bound.items():
                    (low, size), extent = axis.interval(dims), dims[dim][1]
                    start = min(max(low, 0), extent)
                    inner[dim] = (start, max(min(low + size, extent) - start, 0))
                if all(inner[dim][1] for dim in op.bound):
                    self.block(op.body.block, inner)
            elif isinstance(op, MoveOp):
                self.move(op, boxes[op.buffer])

    def move(self, op: MoveOp, box: list[Interval]) -> None:
        """A box, or this core's share of one that those of its row or column load together."""
        kind, tensor = "get" if op.loads else "put", op.buffer.tensor_op.symbol.data
        axis = dict(self.program.get("exchanged", ())).get(tensor)
        if self.spare and (kind == "put" or not axis or share_axis(op.buffer) < 0):
            return
        if op.loads and axis == "all" and self.cpe:
            return
        if op.loads and axis in ("row in turns", "column in turns"):
            side = isqrt(self.cores)
            turn = self.turns[tensor] = self.turns.get(tensor, -1) + 1
            if turn % side != (self.cpe % side if axis.startswith("row") else self.cpe // side):
                return
        first = 0
        if op.loads and axis in ("row", "column"):
            whole, box = box, share_of(op.buffer, box, self.cpe, isqrt(self.cores), axis == "row")
            number = share_axis(op.buffer)
            if number >= 0:  # Those before it lie in front, all axes around it are of one index.
                share = (whole[number][0], box[number][0] - whole[number][0])
                before = [share if n == number else own for n, own in enumerate(whole)]
                first = prod(size for _, size in before)
        runs = self.found.setdefault((kind, tensor), [])
        for start, size in bytes_of(op.buffer, box):
            add(runs, start, size)
        visit = self.visits[op.buffer] = self.visits.get(op.buffer, -1) + 1
        slot = op.buffer.get("address") + visit % op.buffer.slot_count * op.buffer.get("bytes")
        if size := prod(size for _, size in box):
            add(self.tiles.setdefault((kind, tensor), []), slot + 4 * first, 4 * size)

    def loop(self, op: LoopOp, dims: Mapping[str, Interval]) -> None:
        if not self.left:
            for inner in iterations(op, dims):
                self.block(op.body.block, inner)
            return
        chain = [op]
        while len(chain) < self.left:
            chain.append(next(o for o in chain[-1].body.block.ops if isinstance(o, LoopOp)))
        self.left = 0
        choices = [list(iterations(loop, dims)) for loop in chain]
        if {axis for _, axis in self.program.get("exchanged", ())} & {"row", "column"}:
            # A row or column of the mesh that has no part exchanges what the last one needs.
            side = isqrt(self.cores)
            for own in choices:
                while side % len(own):
                    own.append({**own[-1], "spare": (0, 0)})
        each = ceil(prod(map(len, choices)) / self.cores)
        for number, chosen in enumerate(product(*choices)):
            if number // each == self.cpe:
                self.spare = any("spare" in one for one in chosen)
                inside = dict(dims)
                for loop, one in zip(chain, chosen, strict=True):
                    inside[loop.dim.data] = one[loop.dim.data]
                self.part(chain, inside)
        self.left = len(chain)

    def part(self, chain: Sequence[LoopOp], dims: Mapping[str, Interval]) -> None:
        """One part: what stands in the bodies of the shared loops, each once."""
        for loop in chain[:-1]:
            boxes = {o: box_of(o, dims) for o in loop.body.block.ops if isinstance(o, BufferOp)}
            for op in loop.body.block.ops:
                if isinstance(op, MoveOp):
                    self.move(op, boxes[op.buffer])
        self.block(chain[-1].body.block, dims)


def iterations(op: LoopOp, dims: Mapping[str, Interval]) -> Iterator[dict[str, Interval]]:
    """The dims in each iteration of a loop."""
    start, size = dims[op.dim.data]
    end = min(op.upper_bound, size)
    for at in range(op.lower_bound, end, op.step_size):
        yield {**dims, op.dim.data: (start + at, min(op.step_size, end - at))}


def box_of(op: BufferOp, dims: Mapping[str, Interval]) -> list[Interval]:
    """The part of a buffer's window that lies in the tensor."""
    box: list[Interval] = []
    for affine, extent in zip(op.window.data, op.tensor_shape, strict=True):
        low, size = affine.interval(dims)
        start, end = max(low, 0), min(low + size, extent)
        box.append((start, max(end - start, 0)))
    return box


def share_axis(op: BufferOp) -> int:
    """The outermost axis along which boxes have several indices; -1 if there is none."""
    shape = op.get("shape")
    layout = Layout.parse(layout_of(op.tensor_op.result), len(shape))
    return next((f.axis for f in layout.factors if shape[f.axis] > 1), -1)


def share_of(
    op: BufferOp, box: Sequence[Interval], cpe: int, side: int, by_row: bool
) -> list[Interval]:
    """What one core loads: of the outermost axis along which boxes have several indices, an equal
    run of those of this box."""
    axis = share_axis(op)
    if axis < 0:
        return list(box)
    lane = cpe % side if by_row else cpe // side
    start, size = box[axis]
    first, end = size * lane // side, size * (lane + 1) // side
    return [(start + first, end - first) if n == axis else one for n, one in enumerate(box)]


def bytes_of(op: BufferOp, box: Sequence[Interval]) -> Iterator[tuple[int, int]]:
    """The float32 elements of a box, in the order of memory."""
    tensor = op.tensor_op
    shape = shape_of(tensor.result)
    layout = Layout.parse(layout_of(tensor.result), len(shape))
    order = [factor.axis for factor in layout.factors]
    strides = tuple(tensor.get("strides", ())) or layout.strides(shape)
    offset = 0 if tensor.offset is None else tensor.offset.value.data
    for index in product(*(range(box[axis][0], sum(box[axis])) for axis in order)):
        yield offset + 4 * sum(i * int(s) for i, s in zip(index, strides, strict=True)), 4


def traced(
    lines: Sequence[str], spawn: int, ldm: int, temporary: int = 0
) -> dict[tuple[int, str, str], tuple[Runs, Runs]]:
    """What a trace of the shim says of a spawn: CPE, file and line of the command -> runs in main
    memory, and in LDM, whose tiles begin ``ldm`` bytes behind the first variable.

    The parameters' gets, which come from the MPE's stack, are left out. The third memory that
    main.c allocates is what programs know from byte ``temporary`` of the second.
    """
    found: dict[tuple[int, str, str], tuple[Runs, Runs]] = {}
    for line in lines:
        number, cpe, _, block, offset, size, stride, length, file, row, tile = line.split()
        if int(number) != spawn or int(block) < 0:
            continue
        runs, tiles = found.setdefault((int(cpe), file, row), ([], []))
        at = int(offset) + (temporary if int(block) == 2 else 0)
        for _ in range(int(size) // int(length)):
            add(runs, at, int(length))
            at += int(length) + int(stride)
        add(tiles, int(tile) - ldm, int(size))
    return found
