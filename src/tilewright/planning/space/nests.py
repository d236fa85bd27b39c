"""The loop nests worth trying over the tiles of a kernel, and how many buffer slots fit them.

Dims on which the same operands depend have the same reuse, so they form one **group**: for a
convolution {n, oh, ow} (input and output), {co} (weights and output), {ci, kh, kw} (input and
weights). Only the order of groups matters to what is moved; within a group the dims keep the
domain's order. Groups on which everything depends go outermost.

Reduction loops lie inside all loops that change the output's box, so partial sums stay on chip.
A nest may have two levels: the output's memory then covers several tiles along one parallel group,
whose **inner** loop runs inside the reduction. So a long output vector accumulates in the output
buffer while weights come tile by tile, and each tile of the input is loaded once.

Inputs in the output's memory do not stay while such a loop runs. A primitive says along which dims
that may be (``OperandRecord.keeps_sums_along``).

A nest may also keep a tile of the image with all channels of the result **resident**, or with
several tiles of them, while weights come tile by tile. So fewer transfers pay a latency: where each
contiguous block is one (``MoveRecord.block_by_block``), the parts of each pixel would be a transfer
each; and a residual comes for several tiles at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product

import numpy as np

from tilewright.machine import Memory
from tilewright.machine.records import PrimitiveRecord
from tilewright.planning.space.footprint import Bools, Floats, Ints, Use, accumulator_bytes
from tilewright.planning.space.tilings import Space

MAX_GROUPS = 4
"""Parallel groups whose orders are permuted; further ones stay outermost."""


@dataclass(frozen=True)
class Group:
    """Dims on which the same operands depend."""

    dims: tuple[str, ...]
    users: frozenset[str]
    """Names of the operands that depend on them."""
    reduction: bool = False


@dataclass(frozen=True)
class Loop:
    """The loops of one group at one level of a nest."""

    group: Group
    inner: bool = False
    """True for loops within the output's residency, although the group is parallel."""
    resident: frozenset[str] = frozenset()
    """For an inner loop: the operands that stay resident while it runs."""


@dataclass(frozen=True)
class Nest:
    """Loops, outermost first; ``grown`` is the group that also has an inner loop, if any."""

    loops: tuple[Loop, ...]
    grown: Group | None = None
    fixed: int = 0
    """Outermost loops whose order is not permuted."""
    blocks: bool = False
    """True if the residency is for the sake of long blocks; no reduction is split then."""
    waits: frozenset[str] = frozenset()
    """The only dims that the inner loop steps through, if that is not all of its group's."""

    @property
    def resident(self) -> frozenset[str]:
        """The operands that stay while inner loops run."""
        return frozenset().union(*(loop.resident for loop in self.loops))


def groups_of(space: Space) -> list[Group]:
    """The groups of a kernel, in the order of their first dims."""
    reduction = space.kernel.anchor.reduction
    groups: dict[tuple[frozenset[str], bool], list[str]] = {}
    for dim in space.extents:
        users = frozenset(
            use.name for use in space.uses if dim in use.operand.dims and use.move is not None
        )
        groups.setdefault((users, dim in reduction), []).append(dim)
    return [Group(tuple(dims), users, inner) for (users, inner), dims in groups.items()]


def nests_of(space: Space, *, single_level: bool = False) -> list[Nest]:
    """Every nest worth trying, or of these those of a ``single_level``."""
    groups = groups_of(space)
    parallel = [g for g in groups if not g.reduction and (space.trips_of(g.dims) > 1).any()]
    reduction = [g for g in groups if g.reduction and (space.trips_of(g.dims) > 1).any()]
    names = {use.name for use in space.uses if use.move is not None}
    fixed = [g for g in parallel if g.users >= names]
    free = [g for g in parallel if g not in fixed]
    fixed, free = fixed + free[MAX_GROUPS:], free[:MAX_GROUPS]
    inner_orders = list(permutations(reduction))
    nests: list[Nest] = []
    for outer, inner in product(permutations(free), inner_orders):
        loops = [Loop(group) for group in (*fixed, *outer, *inner)]
        nests.append(Nest(tuple(loops), None, len(fixed)))
        if single_level or not reduction or not _can_grow(space):
            continue
        for group in free:
            inside = Loop(group, inner=True, resident=_at_output(space))
            nests.append(Nest((*loops, inside), group, len(fixed)))
    if single_level:
        return nests
    waiting = _waiting(space, fixed, free, reduction)
    return [*nests, *waiting, *_resident(space, parallel, fixed, free)]


def _waiting(
    space: Space, fixed: Sequence[Group], free: Sequence[Group], reduction: Sequence[Group]
) -> list[Nest]:
    """Nests in which sums of several tiles wait while inputs in their memory come anew."""
    waits = _waits(space)
    reduced = {dim for group in reduction for dim in group.dims}
    still = {use.name for use in space.uses if not reduced & set(use.operand.dims)}
    here = _at_output(space) & still
    return [
        Nest(
            (
                *(Loop(looped) for looped in (*fixed, *outer, *inner)),
                Loop(group, inner=True, resident=here),
            ),
            group,
            len(fixed),
            waits=waits,
        )
        for outer, inner in product(permutations(free), permutations(reduction))
        for group in free
        if reduction and waits & set(group.dims)
    ]


def _waits(space: Space) -> frozenset[str]:
    """The dims along which sums may wait so."""
    storage = space.primitive.operands.get("output")
    return frozenset(() if storage is None else storage.own.keeps_sums_along())


def _resident(
    space: Space, parallel: Sequence[Group], fixed: Sequence[Group], free: Sequence[Group]
) -> list[Nest]:
    """Nests in which the output's memory holds all channels, or some tiles of them, while weights
    come tile by tile."""
    output = next(use for use in space.uses if use.output)
    here = _at_output(space)
    # A result alone is stored in as many bytes either way.
    if output.move is None or not (output.move.own.block_by_block() or len(here) > 1):
        return []
    others = {u.name for u in space.uses if u.move is not None and u.name not in here}
    stepped = [g for g in parallel if g.users & others and output.name in g.users]
    if not stepped or not others:
        return []
    dims = tuple(dim for group in stepped for dim in group.dims)
    inside = Group(dims, frozenset().union(*(group.users for group in stepped)))
    around = [Loop(group) for group in parallel if group not in stepped]
    whole = (*around, Loop(inside, inner=True, resident=here))
    nests = [Nest(whole, inside, len(around), blocks=True)]
    for group, outer in product([g for g in stepped if g in free], permutations(free)):
        loops = [Loop(looped) for looped in (*fixed, *outer)]
        inner = Loop(group, inner=True, resident=here)
        nests.append(Nest((*loops, inner), group, len(fixed), blocks=True))
    return nests


def _can_grow(space: Space) -> bool:
    """Return True if a level of the output's memory holds nothing but results."""
    if not any(use.output and use.move is not None for use in space.uses):
        return False
    memory = next(use.memory.name for use in space.uses if use.output)
    return all(
        use.memory.name != memory or use.output or use.operand.role == "residual"
        for use in space.uses
    )


@dataclass(frozen=True)
class Arrangement:
    """A nest with columns for every row of a space: what is valid, resident and buffered."""

    nest: Nest
    valid: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    trips: tuple[Floats, ...]
    """Trips of every loop of the nest (fractions where an inner loop's last round is short)."""
    grown: dict[str, Ints]
    """Tiles that the output's residency spans along each dim of the grown group."""
    slots: dict[str, Ints]
    """Buffer slots of every operand that is moved."""

    def take(self, rows: Ints) -> Arrangement:
        """The columns of some rows, in that order."""
        return Arrangement(
            self.nest,
            self.valid[rows],
            tuple(np.broadcast_to(count, self.valid.shape)[rows] for count in self.trips),
            {dim: column[rows] for dim, column in self.grown.items()},
            {name: column[rows] for name, column in self.slots.items()},
        )

    def key(self) -> tuple[bytes, ...]:
        """Equal for two of one nest that are valid for the same rows, and there the same.

        Trips follow from the nest and what is grown.
        """
        return (
            self.valid.tobytes(),
            *(
                column[self.valid].tobytes()
                for columns in (self.slots, self.grown)
                for _, column in sorted(columns.items())
            ),
        )


def arrangements(space: Space, nest: Nest) -> list[Arrangement]:
    """The nest with every way to fill the memories with slots that is not dominated."""
    moved = [use for use in space.uses if use.move is not None]
    plans: list[Arrangement] = []
    whole = nest.grown is not None and all(
        loop.inner for loop in nest.loops if loop.group is nest.grown
    )
    wanted = (1, 2) if nest.grown and not whole else (1,)
    for output_slots in wanted:
        grown: dict[str, Ints] = {}
        if nest.grown and whole:
            grown = {dim: space.trips(dim).astype(np.int64) for dim in nest.grown.dims}
        elif nest.grown:
            grown = _growth(space, nest, moved, output_slots)
        trips = trips_of(space, nest, grown)
        valid = _canonical(nest, trips)
        if nest.grown:
            spans = np.prod([grown[d] for d in nest.grown.dims], axis=0)
            valid &= spans > 1
            if not whole and nest.blocks:
                valid &= spans < space.trips_of(nest.grown.dims)
            for dim in nest.grown.dims:
                if nest.waits and dim not in nest.waits:
                    valid &= space.trips(dim) == 1
        if nest.blocks:
            valid &= ~space.split()
        for slots, fits in _fillings(space, nest, moved, grown, trips):
            plans.append(Arrangement(nest, valid & fits, trips, grown, slots))
    return plans


def depends(use: Use, loop: Loop) -> bool:
    """Return True if an iteration of the loop changes the box of the operand."""
    return use.name in loop.group.users and not (loop.inner and use.name in loop.resident)


def _at_output(space: Space) -> frozenset[str]:
    """The operands in the output's memory."""
    memory = next(use.memory.name for use in space.uses if use.output)
    return frozenset(u.name for u in space.uses if u.move is not None and u.memory.name == memory)


def _growth(space: Space, nest: Nest, moved: Sequence[Use], slots: int) -> dict[str, Ints]:
    """The most tiles along the grown group that the output's memory holds, evened out.

    For blocks they are a divisor of all tiles.
    """
    group = nest.grown
    assert group is not None
    output = next(use for use in moved if use.output)
    limit, memory = output.memory.room or 0, output.memory.name
    per_tile, beside = np.zeros(space.rows), np.zeros(space.rows)
    for use in moved:
        if use.name not in nest.resident:
            if nest.waits and use.memory.name == memory:
                # One slot is filled while the other is used.
                beside = beside + 2 * space.slot_bytes(use)
            continue
        size = space.slot_bytes(use) * (slots if use.output else 1)
        if use.name in group.users:
            per_tile = per_tile + size
        else:
            beside = beside + size
    left = np.maximum((limit - beside) // np.maximum(per_tile, 1), 1)
    grown: dict[str, Ints] = {}
    for dim in reversed(group.dims):
        trips = space.trips(dim)
        most = np.minimum(trips, left).astype(np.int64)
        if nest.blocks:
            grown[dim] = np.ones(space.rows, np.int64)
            for count in range(2, int(most.max(initial=1)) + 1):
                grown[dim] = np.where((trips % count == 0) & (count <= most), count, grown[dim])
        else:
            rounds = -(-trips // most)
            grown[dim] = -(-trips // rounds)
        left = np.where(grown[dim] == trips, np.maximum(left // trips, 1), 1)
    return grown


def trips_of(space: Space, nest: Nest, grown: dict[str, Ints]) -> tuple[Floats, ...]:
    """Per loop of the nest, its trips in every row."""
    trips_by_loop: list[Floats] = []
    for loop in nest.loops:
        count = np.ones(space.rows)
        for dim in loop.group.dims:
            trips = space.trips(dim)
            if loop.group is nest.grown:
                outer = -(-trips // grown[dim])
                count = count * (trips / outer if loop.inner else outer)
            else:
                count = count * trips
        trips_by_loop.append(count)
    return tuple(trips_by_loop)


def trips_along(space: Space, dims: Sequence[str]) -> Floats:
    """Trips of the loops over some dims together, in every row."""
    count = np.ones(space.rows)
    for dim in dims:
        count = count * space.trips(dim)
    return count


def _canonical(nest: Nest, trips: tuple[Floats, ...]) -> np.ndarray:
    """Return True, for each row, for the one nest that has its loops in order, among nests that
    differ only in loops of one trip."""
    valid = np.ones(len(trips[0]) if trips else 1, np.bool_)
    outer = [i for i, loop in enumerate(nest.loops) if not loop.inner and i >= nest.fixed]
    for kind in (False, True):
        same = [i for i in outer if nest.loops[i].group.reduction == kind]
        for a, b in pairwise(same):
            first, second = trips[a] > 1, trips[b] > 1
            swapped = nest.loops[a].group.dims > nest.loops[b].group.dims
            valid &= ~(first & ~second)
            if swapped:
                valid &= first | second
    if nest.grown:
        split = np.zeros(len(valid), np.bool_)
        for loop, count in zip(nest.loops, trips, strict=True):
            split |= (count > 1) & loop.group.reduction
        valid &= split | nest.blocks
    return valid


def _fillings(
    space: Space,
    nest: Nest,
    moved: Sequence[Use],
    grown: dict[str, Ints],
    trips: tuple[Floats, ...],
) -> list[tuple[dict[str, Ints], np.ndarray]]:
    """Slots of every operand, for every order in which operands may claim memory that is left."""
    hosts = [use for use in moved if not use.host]
    per_memory: dict[str, list[Use]] = {}
    for use in hosts:
        per_memory.setdefault(use.memory.name, []).append(use)
    need: dict[str, Ints] = {}
    for use in moved:
        size = _resident_bytes(space, use, nest, grown)
        need[use.host or use.name] = need.get(use.host or use.name, 0) + size
    reload = {u.name: moves_of(u, nest, trips) > 1 for u in hosts}
    fits = np.ones(space.rows, np.bool_)
    for uses in per_memory.values():
        fits &= sum(need[use.name] for use in uses) <= _room(uses[0].memory)
    filled = [
        [
            _filled(order, need, reload, _room(order[0].memory))
            for order in list(permutations(uses))[:24]
        ]
        for uses in per_memory.values()
    ]
    return [
        ({name: slots for memory_slots in choice for name, slots in memory_slots.items()}, fits)
        for choice in product(*filled)
    ]


def _room(memory: Memory) -> int:
    return 1 << 62 if memory.room is None else memory.room


def _filled(
    order: Sequence[Use], need: Mapping[str, Ints], reload: Mapping[str, Bools], limit: int
) -> dict[str, Ints]:
    """Slots of the operands in one memory, which claim in this order what is left of it."""
    used = sum((need[use.name] for use in order), start=np.zeros(1, np.int64))
    slots = {use.name: np.ones(len(used), np.int64) for use in order}
    most = max(2 if u.move is None or u.move.in_flight == 1 else 4 for u in order)
    for level in range(2, most + 1):
        for use in order:
            more = (used + need[use.name] <= limit) & reload[use.name]
            more &= slots[use.name] == level - 1
            slots[use.name] = slots[use.name] + more
            used = used + more * need[use.name]
    return slots


def _resident_bytes(space: Space, use: Use, nest: Nest, grown: dict[str, Ints]) -> Ints:
    size = space.slot_bytes(use)
    if not nest.grown or use.name not in nest.resident:
        return size
    count = np.full(space.rows, float(use.element_bytes))
    if use.output:
        count[space.split()] = accumulator_bytes(space.kernel, space.machine)
    for table, extent in zip(space.tables[use.name], use.operand.shape, strict=True):
        at = tuple(space.index[dim] for dim in table.dims)
        length = table.largest[at].astype(np.float64)
        for dim in table.dims:
            if dim in grown:
                # Of the axis, not of the dim, which may step over several of its indices.
                whole = float(extent)
                length = np.minimum(length * grown[dim], np.maximum(whole, length))
        count = count * length
    granule = use.memory.granule
    return (np.ceil(count / granule) * granule).astype(np.int64)


def moves_of(use: Use, nest: Nest, trips: tuple[Floats, ...]) -> Floats:
    """Return how many times an operand is moved: trips of all loops down to the last it depends
    on."""
    total, seen = np.ones(1), np.ones(1)
    for loop, count in zip(nest.loops, trips, strict=True):
        seen = seen * count
        if depends(use, loop):
            total = np.where(count > 1, seen, total)
    return total


class TakesTurns(PrimitiveRecord):
    """A primitive that needs fewer slots than its operands' moves seem to ask for."""

    @abstractmethod
    def slots(self, space: Space, arrangement: Arrangement) -> Mapping[str, Ints]:
        """Slots of every operand that is moved, as far as its moves are concerned."""
