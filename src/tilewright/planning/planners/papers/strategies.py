"""swATOP's schedule seeds and schedule spaces (its section 4.2) for the kernels of a network.

A *seed* says what is computed: loops, tensors, one product of tiles. A *space* says how it may be
scheduled: sizes of tiles and of the cores' parts (``FactorVar``), orders of loops, second slots. A
*strategy* takes one of each, and is a ``Schedule``. planning/planners/papers/strategy_text.py reads
both; ``strategies`` lists a space in one order, as many as ``count`` says before any is
looked at.

Loops that are not split run within tiles. What a kernel's layouts are and which of its dims a
primitive takes as vectors is settled before it is planned, so a space does not vary it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil, prod

from tilewright.errors import TilewrightError, refuse
from tilewright.machine import Machine, Primitive
from tilewright.planning.domain import Affine, Kernel
from tilewright.planning.own import in_turns
from tilewright.planning.planners.cores import shareable
from tilewright.planning.planners.papers.scheduling import Axis, Fused, Scheduling
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.schedule import Schedule
from tilewright.planning.space.mesh import (
    Mesh,
    divisions,
    exchanged_in_turns,
    in_step,
    sending_in_turn,
    turn_division,
)

MOST = 50_000
"""Strategies of one space."""

PRODUCTS = ("conv", "matmul")
"""Operations whose tensors a seed can state."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the seed by its role (``input``, ``weight``, ``output``), and its subscripts."""

    role: str
    access: tuple[Affine, ...]


@dataclass(frozen=True)
class Seed:
    """The subject of a space: the loops, and the product if it is one."""

    loops: tuple[tuple[str, int], ...]
    """Dims of the result and their extents, outermost first."""
    sums: tuple[tuple[str, int], ...]
    """Dims that are summed over."""
    tensors: tuple[Tensor, ...] = ()
    """The result and both factors; none where the kernel is no product."""

    @classmethod
    def of(cls, kernel: Kernel) -> Seed:
        """The seed of a kernel, of what else it computes on a tile (a bias, a ReLU) nothing."""
        anchor = kernel.anchor
        sizes = tuple(anchor.extents.items())
        loops = tuple(pair for pair in sizes if pair[0] not in anchor.reduction)
        sums = tuple(pair for pair in sizes if pair[0] in anchor.reduction)
        if anchor.operation not in PRODUCTS:
            return cls(loops, sums)
        operands = (anchor.output, *anchor.inputs[:2])
        roles = ("output", "input", "weight")
        tensors = (Tensor(r, o.access) for r, o in zip(roles, operands, strict=True))
        return cls(loops, sums, tuple(tensors))

    def statements(self) -> list[str]:
        """The statements of the cut in the text of a space."""
        parts = [
            ", ".join(f"{dim} {size}" for dim, size in dims) for dims in (self.loops, self.sums)
        ]
        lines = ["seed " + "; ".join(part for part in parts if part)]
        if self.tensors:
            c, a, b = (f"{t.role}[{', '.join(map(str, t.access))}]" for t in self.tensors)
            lines.append(f"compute {c} += {a} * {b}")
        return lines


@dataclass(frozen=True)
class Factors:
    """Sizes of tiles or of parts along a dim (FactorVar)."""

    dim: str
    sizes: tuple[int, ...] = ()
    """Sizes to try; empty: every size that gives another number of pieces."""
    where: str = field(default="", compare=False)

    def values(self, extent: int) -> list[int]:
        """The sizes, none larger than the dim, each once."""
        if self.sizes:
            return list(dict.fromkeys(min(size, extent) for size in self.sizes))
        return sorted({ceil(extent / pieces) for pieces in range(1, extent + 1)})


@dataclass(frozen=True)
class Cut:
    """The cut of the result into parts for the cores: in parts of sizes, or over the mesh."""

    parts: tuple[Factors, ...] = ()
    rows: tuple[str, ...] = ()
    """Dims that the rows of a mesh have parts of; what a row needs alike its cores exchange."""
    columns: tuple[str, ...] = ()
    where: str = field(default="", compare=False)


@dataclass(frozen=True)
class ScheduleSpace:
    """A space for the kernels that compute certain nodes of a model."""

    nodes: tuple[str, ...]
    seed: Seed | None = None
    """The seed that the kernels must match; None to take any."""
    primitives: tuple[str, ...] = ()
    """The names of primitives that may compute tiles; () for the first that can."""
    cuts: tuple[Cut, ...] = ()
    splits: tuple[Factors, ...] = ()
    orders: tuple[tuple[str, ...], ...] = ()
    """Orders of the loops over tiles, outermost first; none for the dims' own."""
    doubles: tuple[tuple[str, ...], ...] = ()
    """Operands that get two slots, by name or role."""
    where: str = field(default="", compare=False)


@dataclass(frozen=True)
class _Parts:
    """One cut with its sizes."""

    grid: tuple[tuple[str, int], ...] = ()
    exchanged: tuple[tuple[str, str], ...] = ()


def check(space: ScheduleSpace, kernel: Kernel) -> None:
    """Refuse a kernel that is not what a space is for: ``space-seed``, ``space-dim``."""
    if space.seed is not None and space.seed != Seed.of(kernel):
        lines = "; ".join(Seed.of(kernel).statements())
        reason = f"{kernel.symbol} does not compute what the seed says"
        raise refuse("space-seed", reason, space.where, f"it is: {lines}")
    known = kernel.anchor.extents
    named = [(f.dim, f.where) for f in space.splits]
    named += [(f.dim, f.where) for cut in space.cuts for f in cut.parts]
    named += [(dim, cut.where) for cut in space.cuts for dim in (*cut.rows, *cut.columns)]
    for dim, where in named:
        if dim not in known:
            raise refuse("space-dim", f"{kernel.symbol} has no dim {dim}", where, ", ".join(known))
    for cut in space.cuts:
        for dim in (*(f.dim for f in cut.parts), *cut.rows, *cut.columns):
            if dim not in shareable(kernel):
                reason = f"cores that share {dim} would write the same elements"
                raise refuse("space-dim", reason, cut.where, ", ".join(sorted(shareable(kernel))))


def primitives_of(space: ScheduleSpace, kernel: Kernel, machine: Machine) -> list[Primitive]:
    """The primitives that a space names; refuses (``space-primitive``) what cannot compute it."""
    known = [*agreeing(kernel, machine), *sending_in_turn(kernel, machine)]
    for name in space.primitives:
        if name not in [primitive.name for primitive in known]:
            reason = f"no primitive {name} of {machine.name} computes {kernel.symbol}"
            raise refuse("space-primitive", reason, space.where, ", ".join(p.name for p in known))
    return [p for p in known if p.name in space.primitives] or [known[0]]


def count(space: ScheduleSpace, kernel: Kernel, machine: Machine, mesh: Mesh | None = None) -> int:
    """Strategies of a space, those that turn out not to fit included.

    Refuses more than ``MOST`` (``space-size``), and what ``check`` refuses.
    """
    check(space, kernel)
    extents = kernel.anchor.extents
    tiles = prod(len(split.values(extents[split.dim])) for split in space.splits)
    cuts = sum(
        len(_parts(space, kernel, primitive, mesh))
        for primitive in primitives_of(space, kernel, machine)
    )
    size = cuts * tiles * max(len(space.orders), 1) * max(len(space.doubles), 1)
    if size > MOST:
        reason = f"{size:,} strategies for {kernel.symbol} are more than {MOST:,}"
        raise refuse("space-size", reason, space.where, "name fewer sizes, or fewer orders")
    return size


def strategies(
    space: ScheduleSpace, kernel: Kernel, machine: Machine, mesh: Mesh | None = None
) -> Iterator[Schedule | TilewrightError]:
    """Every strategy as a schedule, or the reason why it is invalid, in a fixed order: primitives,
    cuts, tiles, orders of loops, slots; the last of these change first."""
    extents = kernel.anchor.extents
    for primitive in primitives_of(space, kernel, machine):
        choices = product(
            _parts(space, kernel, primitive, mesh),
            product(*(split.values(extents[split.dim]) for split in space.splits)),
            space.orders or (_own_order(space, kernel),),
            space.doubles or ((),),
        )
        for parts, sizes, order, doubles in choices:
            tile = {split.dim: size for split, size in zip(space.splits, sizes, strict=True)}
            try:
                yield _strategy(kernel, machine, primitive, parts, tile, order, doubles)
            except TilewrightError as error:
                yield error


def _own_order(space: ScheduleSpace, kernel: Kernel) -> tuple[str, ...]:
    """The split dims as the kernel has them, those of the result first."""
    split = {factors.dim for factors in space.splits}
    dims = [dim for dim in kernel.anchor.extents if dim in split]
    return tuple(sorted(dims, key=lambda dim: dim in kernel.anchor.reduction))


def _parts(
    space: ScheduleSpace, kernel: Kernel, primitive: Primitive, mesh: Mesh | None
) -> list[_Parts]:
    """Every cut of the result with its sizes."""
    parts: list[_Parts] = []
    extents = kernel.anchor.extents
    for cut in space.cuts:
        if not cut.rows:
            every = product(*(f.values(extents[f.dim]) for f in cut.parts))
            dims = [f.dim for f in cut.parts]
            parts += [_Parts(tuple(zip(dims, sizes, strict=True))) for sizes in every]
            continue
        if mesh is None:
            reason = "the machine has no mesh of cores that exchange registers"
            raise refuse("space-mesh", reason, cut.where, "cores DIM by SIZE")
        if in_turns(primitive):
            division = turn_division(kernel, primitive, mesh.side)
            if division is None:
                continue
            rows, columns = (
                tuple(d for d, _ in side) for side in (division.rows, division.columns)
            )
            if (cut.rows, cut.columns) == (rows, columns):
                parts.append(_Parts(tuple(division.grid.items()), exchanged_in_turns(kernel)))
            continue
        dims = [dim for dim in extents if dim in (*cut.rows, *cut.columns)]
        for division in divisions(dims, extents, primitive.multiples, mesh.side):
            rows, columns = ({d for d, _ in side} for side in (division.rows, division.columns))
            if rows == set(cut.rows) and columns == set(cut.columns):
                exchanged = division.exchanged(kernel)
                parts.append(_Parts(tuple(division.grid.items()), exchanged))
    if not space.cuts:
        return [_Parts()]
    return list(dict.fromkeys(parts))


def _strategy(
    kernel: Kernel,
    machine: Machine,
    primitive: Primitive,
    parts: _Parts,
    tile: dict[str, int],
    order: tuple[str, ...],
    doubles: tuple[str, ...],
) -> Schedule:
    """One strategy by the primitives of planning/planners/papers/scheduling.py; refuses what they
    refuse."""
    if in_turns(primitive):
        _check_turns(kernel, primitive, parts, tile, doubles)
    scheduling = Scheduling(kernel, machine, primitive)
    within = {axis.dim: axis for axis in scheduling.order}
    shared: list[Axis] = []
    for dim, size in parts.grid:
        if size < within[dim].extent:
            outer, within[dim] = scheduling.split(within[dim], size)
            shared.append(outer)
    loops: dict[str, Axis] = {}
    for dim, size in tile.items():
        if size < within[dim].extent:
            loops[dim], within[dim] = scheduling.split(within[dim], size)
    ordered = [loops[dim] for dim in order if dim in loops]
    scheduling.reorder(*shared, *ordered, *within.values())
    for operand in kernel.operands:
        cut = [axis for dim, axis in within.items() if dim in operand.dims]
        if operand is kernel.output:
            scheduling.buffer_write(*cut)
        else:
            scheduling.buffer_read(operand.name, *cut)
    scheduling.double_buffer(*doubles)
    if shared:
        scheduling.athread_parallel(Fused(tuple(shared)))
    schedule = scheduling.finished()
    if not parts.exchanged:
        return schedule
    sizes = {dim: axis.extent for dim, axis in within.items()}
    if not in_step(kernel, dict(parts.grid), sizes):
        reason = "cores of a mesh would come to different numbers of tiles"
        raise refuse("space-mesh", reason, kernel.symbol, "tiles that divide the parts")
    return replace(schedule, exchanged=parts.exchanged)


def _check_turns(
    kernel: Kernel,
    primitive: Primitive,
    parts: _Parts,
    tile: dict[str, int],
    doubles: tuple[str, ...],
) -> None:
    """Refuse (``space-mesh``) a tile that cores cannot multiply in turns."""
    extents = {**kernel.anchor.extents, **dict(parts.grid)}
    reason, advice = "", ""
    if not parts.exchanged:
        reason, advice = "is computed by a whole mesh", "cores rows DIM columns DIM"
    for dim, granule in primitive.multiples.items():
        if dim not in extents:
            continue
        size = min(tile.get(dim, extents[dim]), extents[dim])
        if extents[dim] > 1 and (size % granule or extents[dim] % granule):
            reason, advice = f"takes {dim} in multiples of {granule}, not {size}", f"split {dim}"
    for dim in kernel.anchor.reduction:
        if tile.get(dim, extents[dim]) >= extents[dim]:
            reason, advice = f"takes turns along {dim}, which is one tile", f"split {dim}"
    for operand in kernel.anchor.inputs[:2]:
        if not {operand.name, operand.role} & set(doubles):
            reason, advice = (
                f"sends {operand.name} while the next tile comes",
                "double input weight",
            )
    if reason:
        raise refuse("space-mesh", f"{primitive.name} {reason}", kernel.symbol, advice)
