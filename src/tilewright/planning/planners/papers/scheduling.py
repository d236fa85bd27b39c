"""Schedules written by hand: swTVM's primitives in Python (its section 5.1), TVM's names.

    schedule = Scheduling(kernel, machine)
    x, y, k = schedule.axes("n", "co", "ci")
    yo, yi = schedule.split(y, 128)
    ko, ki = schedule.split(k, 64)
    schedule.reorder(x, yo, ko, yi, ki)
    schedule.buffer_read("weight", yi, ki)
    schedule.buffer_write(yi)
    schedule.athread_parallel(yo)
    schedule.finished()          # a Schedule, as planners make them

An axis is a loop. The axes that buffers name run within a tile, whose boxes lie in memories that
software manages and which the primitive computes at once; all others are loops over tiles. Where
transfers stand follows (planning/planners/papers/correlation.py), and is checked. It works for
every machine whose primitives keep their operands in such memories. Nothing here is tied to one
target: what ``athread_parallel`` splits are the cores of the machine, and it is left out where
there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.planners.cores import part_of, shareable
from tilewright.planning.planners.papers.correlation import correlated, transfer_places
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.planners.stated import stated_schedule, tiling
from tilewright.planning.schedule import Schedule
from tilewright.planning.space.footprint import Use, uses_of
from tilewright.planning.space.levels import paths_of
from tilewright.planning.space.tilings import Space


@dataclass(frozen=True)
class Axis:
    """A loop over a dim of the kernel: ``extent`` iterations of ``step`` indices each."""

    name: str
    dim: str
    extent: int
    step: int = 1

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Fused:
    """Several neighbouring loops as one, for ``athread_parallel``."""

    axes: tuple[Axis, ...]

    @property
    def name(self) -> str:
        """The names of its axes."""
        return ".".join(axis.name for axis in self.axes)

    @property
    def extent(self) -> int:
        """The number of iterations of all fused axes."""
        return prod(axis.extent for axis in self.axes)


class Scheduling:
    """The loops of a kernel while they are split, ordered, and given buffers.

    All methods refuse (``schedule-``) what does not fit the kernel or the machine.
    """

    def __init__(self, kernel: Kernel, machine: Machine, primitive: str | Primitive = "") -> None:
        self.kernel, self.machine = kernel, machine
        self.primitive = self._primitive(primitive)
        self._check_paths()
        self.uses = uses_of(kernel, machine, self.primitive)
        if all(use.move is None for use in self.uses):
            raise self._refuse(
                "schedule-machine",
                f"{self.primitive.name} of {machine.name} computes in place on caches, and "
                "has no buffers to schedule",
            )
        self.order = [Axis(dim, dim, extent) for dim, extent in kernel.anchor.extents.items()]
        """The loops, outermost first."""
        self.buffered: dict[str, tuple[Axis, ...]] = {}
        """The axes that the buffers of operands were given, by operand."""
        self.slots: dict[str, int] = {}
        self.shared: Axis | Fused | None = None

    def axes(self, *dims: str) -> tuple[Axis, ...]:
        """The axes of dims that are not split yet, by their names."""
        by_name = {axis.name: axis for axis in self.order}
        for dim in dims:
            if dim not in by_name:
                known = ", ".join(by_name)
                raise self._refuse("schedule-axis", f"there is no axis {dim}", known)
        return tuple(by_name[dim] for dim in dims)

    def split(self, axis: Axis, factor: int) -> tuple[Axis, Axis]:
        """An axis as two: the outer one, and the inner one of ``factor`` iterations."""
        place = self._place(axis)
        if not 1 <= factor <= axis.extent:
            raise self._refuse(
                "schedule-split",
                f"{axis} has {axis.extent} iterations, and cannot be split by {factor}",
                f"a factor from 1 to {axis.extent}",
            )
        outer = Axis(f"{axis}.outer", axis.dim, ceil(axis.extent / factor), axis.step * factor)
        inner = Axis(f"{axis}.inner", axis.dim, factor, axis.step)
        self.order[place : place + 1] = [outer, inner]
        return outer, inner

    def reorder(self, *axes: Axis) -> None:
        """Put axes in this order, the outermost first, in the places that they have together."""
        places = sorted(self._place(axis) for axis in axes)
        if len(set(places)) < len(axes):
            raise self._refuse("schedule-order", "an axis occurs twice in the order")
        for place, axis in zip(places, axes, strict=True):
            self.order[place] = axis

    def fuse(self, *axes: Axis) -> Fused:
        """Neighbouring axes as one, for ``athread_parallel``."""
        places = [self._place(axis) for axis in axes]
        if not axes or places != list(range(places[0], places[0] + len(axes))):
            names = ", ".join(map(str, axes))
            raise self._refuse(
                "schedule-fuse", f"{names} are no neighbouring loops", "reorder them first"
            )
        return Fused(axes)

    def buffer_read(self, tensor: str, *axes: Axis) -> None:
        """Buffer an input: its box over these axes. ``tensor`` is an operand's name or role."""
        operand = self._operand(tensor)
        if operand is self.kernel.output:
            raise self._refuse("schedule-buffer", f"{tensor} is written", "buffer_write")
        self._buffer(operand, axes)

    def buffer_write(self, *axes: Axis) -> None:
        """Buffer the result: its box over these axes."""
        self._buffer(self.kernel.output, axes)

    def double_buffer(self, *tensors: str) -> None:
        """Give operands two slots: one is filled while the other is used."""
        for tensor in tensors:
            self.slots[self._operand(tensor).name] = 2

    def athread_parallel(self, axis: Axis | Fused) -> None:
        """Let the cores share the outermost loops: of n iterations core i takes those from i * c up
        to (i + 1) * c, with c = ceil(n / cores)."""
        axes = axis.axes if isinstance(axis, Fused) else (axis,)
        if tuple(self.order[: len(axes)]) != axes:
            raise self._refuse(
                "schedule-parallel",
                f"the cores share the outermost loops, and {axis.name} is not outermost",
                "reorder",
            )
        allowed = shareable(self.kernel)
        for part in axes:
            if part.dim not in allowed:
                raise self._refuse(
                    "schedule-parallel",
                    f"cores that share {part} would write the same elements of "
                    f"{self.kernel.output.name}",
                    "share a dim of the result",
                )
        self.shared = axis

    def finished(self) -> Schedule:
        """The schedule, once it is known to fit the kernel and the machine."""
        inner = self._inner()
        self._check_places(inner)
        tile = self._tile(inner)
        grid = self._grid()
        part = part_of(self.kernel, grid)
        tile = {dim: min(size, part.anchor.extents[dim]) for dim, size in tile.items()}
        extents = part.anchor.extents
        loops: list[str] = []
        for axis in self.order:
            if axis in inner or tile[axis.dim] >= extents[axis.dim]:
                continue
            if axis in self._shared_axes() and grid.get(axis.dim, axis.step + 1) <= axis.step:
                continue  # A part has one iteration of it.
            if axis.dim in loops:
                raise self._refuse(
                    "schedule-order",
                    f"{axis.dim} has two loops over tiles beside that of the cores",
                    "split it once",
                )
            loops.append(axis.dim)
        self._check_sums(loops)
        self._check_tile(tile, extents)
        space = tiling(part, self.machine, self.primitive, self.uses, tile)
        moved = [use for use in self.uses if use.move is not None]
        slots = [(use.name, self.slots.get(use.name, 1)) for use in moved]
        self._check_room(space)
        return stated_schedule(space, loops, slots, grid, self.machine)

    # ------------------------------------------------------------------ what is checked

    def _primitive(self, name: str | Primitive) -> Primitive:
        if isinstance(name, Primitive):
            return name
        candidates = agreeing(self.kernel, self.machine)
        for primitive in candidates:
            if name in ("", primitive.name):
                return primitive
        known = ", ".join(primitive.name for primitive in candidates)
        raise self._refuse("schedule-primitive", f"no primitive {name} computes it", known)

    def _check_paths(self) -> None:
        """Refuse operands that pass memories on their way: the primitives name one tile and one
        buffer of each, so what lies in the others, and in which loop it moves, would be open."""
        paths = paths_of(self.machine, self.primitive)
        for operand in self.kernel.operands:
            moves = paths.get(operand.role, ())
            if len(moves) > 1:
                passed = " and ".join(move.target for move in moves[:-1])
                ends = f"from {moves[0].source} to {moves[-1].target}"
                raise self._refuse(
                    "schedule-path",
                    f"{operand.name} passes {passed} on its way {ends}, and a schedule by hand "
                    "has one tile and one buffer of each operand: none for what it passes",
                    "leave the node to the planner, which finds a tile for each memory on the way, "
                    f"or give the machine a move {ends}",
                )

    def _refuse(self, code: str, reason: str, help: str = "") -> Exception:
        nodes = ", ".join(self.kernel.nodes)
        return refuse(code, reason, nodes or self.kernel.symbol, help)

    def _place(self, axis: Axis) -> int:
        if axis not in self.order:
            known = ", ".join(map(str, self.order))
            raise self._refuse("schedule-axis", f"{axis} is no loop, or was split", known)
        return self.order.index(axis)

    def _operand(self, tensor: str) -> Operand:
        for operand in self.kernel.operands:
            if tensor in (operand.name, operand.role):
                return operand
        known = ", ".join(f"{o.name} ({o.role})" for o in self.kernel.operands)
        raise self._refuse("schedule-buffer", f"there is no operand {tensor}", known)

    def _buffer(self, operand: Operand, axes: Sequence[Axis]) -> None:
        for axis in axes:
            self._place(axis)
            if axis.dim not in operand.dims:
                raise self._refuse("schedule-buffer", f"{operand.name} does not depend on {axis}")
        self.buffered[operand.name] = tuple(axes)

    def _shared_axes(self) -> tuple[Axis, ...]:
        if self.shared is None:
            return ()
        return self.shared.axes if isinstance(self.shared, Fused) else (self.shared,)

    def _inner(self) -> frozenset[Axis]:
        """The axes within tiles: those that some buffer names."""
        inner = frozenset(axis for axes in self.buffered.values() for axis in axes)
        for operand in self.kernel.operands:
            if operand.name not in self.buffered:
                continue
            given = set(self.buffered[operand.name])
            wanted = {axis for axis in inner if axis.dim in operand.dims}
            if given != wanted:
                missing = ", ".join(axis.name for axis in self.order if axis in wanted - given)
                raise self._refuse(
                    "schedule-buffer",
                    f"the buffer of {operand.name} leaves out {missing}, which runs within a tile",
                    "name it there, too: a tile is computed at once",
                )
        return inner

    def _check_places(self, inner: frozenset[Axis]) -> None:
        """Algorithm 3: refuses loops within buffers that stand outside of others."""
        names = {axis.name: axis for axis in self.order}
        every: dict[str, frozenset[str]] = {}
        buffered: dict[str, frozenset[str]] = {}
        for use in self.uses:
            dims = correlated(use.operand.access, self.kernel.anchor.extents)
            cut = [axis for axis in self.order if axis.dim in dims and axis.extent > 1]
            every[use.name] = frozenset(axis.name for axis in cut)
            buffered[use.name] = frozenset(axis.name for axis in cut if axis in inner)
        transfer_places(list(names), every, buffered)

    def _tile(self, inner: frozenset[Axis]) -> dict[str, int]:
        """The tile's size along every dim: the step of the innermost loop over tiles."""
        tile = dict(self.kernel.anchor.extents)
        for axis in self.order:
            if axis not in inner:
                tile[axis.dim] = min(tile[axis.dim], axis.step)
        return tile

    def _grid(self) -> dict[str, int]:
        """Indices of a part along each dim that the cores share."""
        if self.shared is None or self.machine.cores == 1:
            return {}
        extents = self.kernel.anchor.extents
        if isinstance(self.shared, Fused):
            sizes = {axis.dim: axis.step for axis in self.shared.axes}
        else:
            each = ceil(self.shared.extent / self.machine.cores)
            sizes = {self.shared.dim: self.shared.step * each}
        return {dim: size for dim, size in sizes.items() if size < extents[dim]}

    def _check_sums(self, loops: Sequence[str]) -> None:
        """Refuse partial sums that would have to leave their buffer."""
        reduction = self.kernel.anchor.reduction
        outer = next((n for n, dim in enumerate(loops) if dim in reduction), len(loops))
        inside = [d for d in loops[outer:] if d not in reduction and d in self.kernel.output.dims]
        if inside:
            raise self._refuse(
                "schedule-partial-sums",
                f"the loop over {loops[outer]} reduces, but stands outside of the loop over "
                f"{inside[0]}: partial sums of {self.kernel.output.name} would have to leave "
                "their buffer",
                "loop over reduction dims within those over the result's dims",
            )

    def _check_tile(self, tile: dict[str, int], extents: dict[str, int]) -> None:
        """Refuse tiles that the primitive does not compute."""
        for dim, size in tile.items():
            granule = self.primitive.multiples.get(dim, 1)
            most = self.primitive.limits.get(dim)
            if dim in self.primitive.whole and size < extents[dim]:
                raise self._refuse(
                    "schedule-tile",
                    f"{self.primitive.name} takes {dim} whole, and tiles have {size} of "
                    f"{extents[dim]}",
                    f"name {dim} in the buffers",
                )
            if most is not None and size > most:
                raise self._refuse(
                    "schedule-tile",
                    f"{self.primitive.name} takes {most} along {dim} at most, tiles have {size}",
                    f"split {dim} by {most} at most",
                )
            if size < extents[dim] and size % granule:
                raise self._refuse(
                    "schedule-tile",
                    f"{self.primitive.name} computes {granule} along {dim} at once, and tiles "
                    f"have {size}",
                    f"split {dim} by a multiple of {granule}",
                )

    def _check_room(self, space: Space) -> None:
        """Refuse tiles that do not fit their memories."""
        by_memory: dict[str, list[Use]] = {}
        for use in self.uses:
            if use.move is not None:
                by_memory.setdefault(use.memory.name, []).append(use)
        for name, uses in by_memory.items():
            room = self.machine.memory(name).room
            needs = {u.name: int(space.slot_bytes(u)[0]) * self.slots.get(u.name, 1) for u in uses}
            if room is not None and sum(needs.values()) > room:
                listed = ", ".join(f"{tensor} {size:,}" for tensor, size in needs.items())
                raise self._refuse(
                    "schedule-capacity",
                    f"tiles take {sum(needs.values()):,} bytes of {name}, which has {room:,} "
                    f"({listed})",
                    "split by smaller factors, or buffer fewer axes",
                )
