"""The ``stationary`` planner: which operand of a matrix product stays while others pass.

A product of A (M x N) and B (N x K), N summed, is cut into blocks m x n, n x k and m x k, each
next to the primitive in a memory of its own. Of the blocks one stays:

==== ===================================== ======================== ========================
kind loops                                 elements that are loaded condition
==== ===================================== ======================== ========================
is   for x: for s: load A; for y: load B   MN + MNK/m               k = K or n = N
ws   for y: for s: load B; for x: load A   NK + MNK/k               m = M or n = N
os   for x: for y: for s: load A, load B   MNK/k + MNK/m            none
==== ===================================== ======================== ========================

The conditions keep sums of one block from leaving the chip before they are complete. The planner
takes the kind's tile of fewest loaded elements: the model of A. Vyazovtsev's thesis (2024, 6.4.1),
which prints "m = N" for ws, loads the operands of its listing with their indices exchanged, and
counts no memory between main memory and the primitive's own: ``exact`` plans with it.

Tiles whose size divides the extents are tried, in multiples of the primitive's blocks; where none
divides, all multiples are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal

from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.planning.cost.bounds import granule_bound, physical_bound
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.plan import Budget, Plan, Timer, timed
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.levels import paths_of

if TYPE_CHECKING:
    from tilewright.planning.planners.registry import Made, Request

Kind = Literal["is", "ws", "os"]
KINDS: tuple[Kind, ...] = ("is", "ws", "os")

Family = Literal["any", "whole reduction"]
"""The tiles that are tried: all, or those with n = N, among which the thesis looks for its best."""


@dataclass(frozen=True, order=True)
class Tile:
    """Sizes of the blocks: m x n of A, n x k of B, m x k of C."""

    m: int
    n: int
    k: int


@dataclass(frozen=True)
class Product:
    """A matrix product with the extents of the thesis: N is the reduction."""

    M: int
    N: int
    K: int

    def loads(self, kind: Kind, tile: Tile) -> int:
        """Elements of A and B that are loaded next to the primitive; edge tiles count as cut."""
        by_rows = self.N * self.K * -(-self.M // tile.m)
        by_columns = self.M * self.N * -(-self.K // tile.k)
        if kind == "is":
            return self.M * self.N + by_rows
        if kind == "ws":
            return self.N * self.K + by_columns
        return by_columns + by_rows

    def allows(self, kind: Kind, tile: Tile) -> bool:
        """Return True if sums of blocks stay on the chip until they are complete."""
        if kind == "os" or tile.n >= self.N:
            return True
        return tile.k >= self.K if kind == "is" else tile.m >= self.M


@dataclass(frozen=True)
class Room:
    """Elements that a block of each matrix may have."""

    a: int
    b: int
    c: int

    def holds(self, tile: Tile) -> bool:
        """Return True if all three blocks fit."""
        return tile.m * tile.n <= self.a and tile.n * tile.k <= self.b and tile.m * tile.k <= self.c


def tiles(of: Product, room: Room, blocks: Tile = Tile(16, 16, 16)) -> Iterator[Tile]:
    """Tiles that fit, small ones first."""
    for m, n, k in product(_sizes(of.M, blocks.m), _sizes(of.N, blocks.n), _sizes(of.K, blocks.k)):
        if room.holds(tile := Tile(m, n, k)):
            yield tile


def _sizes(extent: int, block: int) -> list[int]:
    """Multiples of a block that divide an extent; all up to it where its end is ragged."""
    padded = -(-extent // block) * block
    every = range(block, padded + 1, block)
    return [size for size in every if padded == extent and extent % size == 0] or list(every)


def best_tile(
    kind: Kind,
    of: Product,
    room: Room,
    blocks: Tile = Tile(16, 16, 16),
    *,
    family: Family = "any",
) -> tuple[int, Tile] | None:
    """The fewest loaded elements and a tile that needs no more; None where no tile fits.

    Of several tiles the one whose matrices are most square is taken, then that of the longest n:
    fewer and larger blocks.
    """
    fitting = [
        (of.loads(kind, tile), -min(tile.m, tile.k), -tile.n, tile)
        for tile in tiles(of, room, blocks)
        if of.allows(kind, tile) and (family == "any" or tile.n >= of.N)
    ]
    if not fitting:
        return None
    loads, _, _, tile = min(fitting)
    return loads, tile


@dataclass(frozen=True)
class Stationary:
    """The planner with its options."""

    kind: Kind = "os"
    buffers: int = 1
    """Buffers of each operand next to the primitive: with 2, loads run beside products."""

    def __call__(
        self,
        kernel: Kernel,
        machine: Machine,
        *,
        timer: Timer | None = None,
        budget: Budget | None = None,
    ) -> Plan:
        """The plan of a product; raises TilewrightError for other kernels."""
        primitive = agreeing(kernel, machine)[0]
        dims = _matrix_dims(kernel)
        extents = kernel.anchor.extents
        of = Product(extents[dims.m], extents[dims.n], extents[dims.k])
        blocks = Tile(*(primitive.multiples.get(dim, 1) for dim in (dims.m, dims.n, dims.k)))
        room = self._room(machine, primitive, kernel)
        best = best_tile(self.kind, of, room, blocks)
        if best is None:
            raise refuse(
                "plan-capacity",
                f"no tile of {self.kind} fits {machine.name}'s memories",
                ", ".join(kernel.nodes),
                "another kind, or the planner exact",
            )
        loads, tile = best
        schedule = self.schedule(kernel, machine, tile)
        cycles = granule_bound(kernel, machine, primitive)
        output = kernel.output
        stored = of.M * of.K * output.element_bytes
        moved = loads * kernel.anchor.inputs[0].element_bytes + stored
        plan = Plan(
            schedule=schedule,
            predicted_cycles=max(cycles, moved / _main_rate(machine, primitive)),
            moved_bytes=moved,
            physical_bound=physical_bound(kernel, machine, primitive),
            granule_bound=cycles,
            candidates=1,
            priced=1,
            planner="stationary",
        )
        return plan if timer is None else timed(plan, kernel, timer)

    def _room(self, machine: Machine, primitive: Primitive, kernel: Kernel) -> Room:
        """Elements of a block of each operand; sums have the accumulator's 4 bytes."""
        size = kernel.anchor.inputs[0].element_bytes
        bytes_of = {"input": size, "weight": size, "output": 4}
        rooms: list[int] = []
        for role, element in bytes_of.items():
            room = machine.memory_beside(primitive, primitive.operands[role].memory).room
            slots = 1 if role == "output" else self.buffers
            rooms.append(1 << 60 if room is None else room // slots // element)
        return Room(*rooms)

    def schedule(self, kernel: Kernel, machine: Machine, tile: Tile) -> Schedule:
        """The kind's loops with a tile; raises TilewrightError where the kernel is no product."""
        primitive, dims = agreeing(kernel, machine)[0], _matrix_dims(kernel)
        sizes = {dims.m: tile.m, dims.n: tile.n, dims.k: tile.k}
        extents = kernel.anchor.extents
        cut = tuple((dim, min(sizes.get(dim, 1), extent)) for dim, extent in extents.items())
        orders = {"is": (dims.m, dims.n, dims.k), "ws": (dims.k, dims.n, dims.m)}
        loops = orders.get(self.kind, (dims.m, dims.k, dims.n))
        batch = tuple(dim for dim in extents if dim not in sizes)
        order = tuple(d for d in (*batch, *loops) if dict(cut)[d] < extents[d])
        paths = paths_of(machine, primitive)
        levels = [Level(primitive.operands["input"].memory, cut, order)]
        staged: list[tuple[str, str, int]] = []
        for operand in kernel.operands:
            path = paths.get(operand.role, ())
            passed = [hop.target for hop in path[:-1]]
            slots = 1 if operand.role == "output" else self.buffers
            staged += [(operand.name, memory, slots) for memory in passed]
        if staged:
            # The memory on the way has the same tile: the model knows of none.
            first = next(path[0].target for path in paths.values() if len(path) > 1)
            levels = [Level(first, cut, order), Level(levels[0].memory, cut, ())]
        buffers = tuple(
            (operand.name, 1 if operand.role == "output" else self.buffers)
            for operand in kernel.operands
        )
        return Schedule(primitive.name, tuple(levels), buffers, staged=tuple(staged))


def stationary(request: Request) -> Made:
    """The planner of products with the options that are asked for."""
    kind: Kind = next(kind for kind in KINDS if kind == request.options.get("kind", "os"))
    planner = request.searching(Stationary(kind, int(request.options.get("buffers", "1"))))
    return nullcontext(lambda kernel: planner.plan(kernel) if is_product(kernel) else None)


@dataclass(frozen=True)
class _Dims:
    m: str
    n: str
    k: str


def _matrix_dims(kernel: Kernel) -> _Dims:
    """The dims of a product's rows, reduction and columns."""
    dims = _dims_of(kernel)
    if dims is None:
        raise refuse(
            "plan-primitive",
            f"the planner stationary plans matrix products, not {kernel.anchor.operation}",
            ", ".join(kernel.nodes),
            "the planner exact",
        )
    return dims


def is_product(kernel: Kernel) -> bool:
    """Return True if a kernel is the product of two matrices, or of a batch of them."""
    return _dims_of(kernel) is not None


def _dims_of(kernel: Kernel) -> _Dims | None:
    anchor = kernel.anchor
    by_role: dict[str, Operand] = {operand.role: operand for operand in anchor.inputs}
    a, b = by_role.get("input"), by_role.get("weight")
    if anchor.operation != "matmul" or a is None or b is None or len(anchor.reduction) != 1:
        return None
    rows = [dim for dim in anchor.extents if dim in a.dims - b.dims]
    columns = [dim for dim in anchor.extents if dim in b.dims - a.dims]
    if len(rows) != 1 or len(columns) != 1:
        return None
    return _Dims(rows[0], anchor.reduction[0], columns[0])


def _main_rate(machine: Machine, primitive: Primitive) -> float:
    path = paths_of(machine, primitive)["input"]
    return path[0].bytes_per_cycle if path else float("inf")
