"""The ``cached`` planner: schedules for machines whose fast memories are caches.

Operands stay in main memory; what is planned is the register tile, the split of the reduction, and
the order of the loops, so that what comes again is still in a cache. The registers are the memory
named ``registers`` (its granule is one vector). The space is small, and every schedule in it is
priced by cost.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import ceil
from operator import itemgetter
from typing import Any

from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive, parse_expression
from tilewright.numerics.blocks import GROUP
from tilewright.numerics.element_types import ELEMENTS
from tilewright.planning.cost.bounds import granule_bound, physical_bound, primitives_for
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.operand_layouts import operand_layout, takes_operand
from tilewright.targets.cpu.planning.block_cost import BlockCost
from tilewright.targets.cpu.planning.blocks import block_schedules
from tilewright.targets.cpu.planning.capabilities import own_of
from tilewright.targets.cpu.planning.cost import Caches, Nest
from tilewright.targets.cpu.planning.piece_cost import PieceCost
from tilewright.targets.cpu.planning.pieces import piece_schedules
from tilewright.targets.cpu.planning.registers import REGISTERS, Registers, registers_of
from tilewright.targets.cpu.planning.separable_cost import SeparableCost
from tilewright.targets.cpu.planning.sharing import divisible, share

_REDUCTION_BLOCKS = (64, 128, 256, 512, 1024)
_ROW_BLOCKS = (2, 4, 8, 16)
_SIDE_BY_SIDE = 8
"""Vectors of results that a fold keeps in registers."""

_POINTS = 32
"""Rows that pass a group of rows of a matrix in blocks."""

_PAGE, _PAGE_ROWS, _MOST_ROWS = 4096, 9, 14


def plan_cached(
    kernel: Kernel,
    machine: Machine,
    *,
    timer: Timer | None = None,
    budget: Budget | None = None,
) -> Plan:
    """The schedule of least predicted time, the same every time; refuses as ``plan`` does.

    Times are those of one core; which loop the cores share is decided last, and a schedule that
    they share much better is taken if one core loses little by it (sharing.py).
    """
    budget = budget or Budget()
    primitive = choose_primitive(kernel, machine)
    priced = ranked(kernel, machine)
    cost, moved, best = priced[divisible(kernel, machine, priced)]
    cycles, timed = None, 0
    for _, _, schedule in priced[: budget.timed] if timer is not None else ():
        assert timer is not None
        took = timer(kernel, schedule)
        timed += 1
        if cycles is None or took < cycles:
            best, cycles = schedule, took
    return Plan(
        schedule=share(kernel, machine, best, cost)[1],
        predicted_cycles=cost,
        moved_bytes=int(moved),
        physical_bound=physical_bound(kernel, machine, primitive),
        granule_bound=granule_bound(kernel, machine, primitive),
        candidates=len(priced),
        priced=len(priced),
        timed_cycles=cycles,
        timed=timed,
        planner="model",
    )


def ranked(kernel: Kernel, machine: Machine) -> list[tuple[float, float, Schedule]]:
    """The whole space, best first: predicted cycles, bytes to and from main memory, schedule."""
    primitive = choose_primitive(kernel, machine)
    pricer = _Pricer(kernel, machine, primitive)
    priced: list[tuple[float, float, Schedule]] = []
    for schedule in schedules(kernel, machine, primitive):
        cost, moved = pricer.price(schedule)
        priced.append((cost, moved, schedule))
    priced.sort(key=itemgetter(0))
    # Of equally fast ones the text decides, which is made for these alone.
    return [
        candidate
        for _, equal in groupby(priced, key=itemgetter(0))
        for candidate in _by_text(list(equal))
    ]


def _by_text(equal: list[tuple[float, float, Schedule]]) -> list[tuple[float, float, Schedule]]:
    return equal if len(equal) == 1 else sorted(equal, key=lambda priced: str(priced[2]))


def choose_primitive(kernel: Kernel, machine: Machine) -> Primitive:
    """The first primitive whose layouts, element types and granules agree with the kernel."""
    for primitive in primitives_for(kernel, machine):
        if all(operand.role in primitive.operands for operand in kernel.operands) and (
            _agrees(kernel, machine, primitive)
        ):
            return primitive
    raise refuse(
        "plan-primitive",
        f"no primitive of {machine.name} takes {kernel.anchor.operation} with these layouts: "
        + ", ".join(f"{o.role} {o.layout or 'row-major'}" for o in kernel.operands),
        kernel.symbol,
    )


def _agrees(kernel: Kernel, machine: Machine, primitive: Primitive) -> bool:
    extents = kernel.anchor.extents
    if "g" in extents and any(extents.get(d, g) % g for d, g in primitive.multiples.items()):
        return False  # a block of channels would hold two groups
    for operand in kernel.operands:
        if not takes_operand(machine, primitive, operand):
            return False
        wanted = operand_layout(machine, primitive, operand)
        if wanted == "any":
            continue
        rank = len(operand.shape)
        if operand.role == "residual" and len(operand.dims) < rank and not operand.layout:
            continue  # a constant per channel
        if Layout.parse(wanted, rank) != Layout.parse(operand.layout, rank):
            return False
    return True


def schedules(kernel: Kernel, machine: Machine, primitive: Primitive) -> Iterator[Schedule]:
    """The space of one kernel on one primitive."""
    extents, reduction = kernel.anchor.extents, kernel.anchor.reduction
    parallel = [dim for dim in extents if dim not in reduction]
    if own_of(primitive).block_cycles:
        yield from piece_schedules(kernel, primitive)
    elif any(operand.role == "scratch" for operand in kernel.inputs):
        yield from block_schedules(kernel, primitive, registers_of(machine, primitive))
    elif primitive.multiples.get("co"):
        yield from _products(kernel, machine, primitive)
    elif primitive.multiples.get("c"):
        registers = registers_of(machine, primitive)
        for width in _parts(extents["ow"], registers.count // 2 - 2):
            tile = dict.fromkeys(parallel, 1)
            tile |= {"c": min(registers.lanes, extents["c"]), "ow": width}
            yield _schedule(primitive, tile, parallel)
    elif "g" in primitive.whole:
        # Points of one vector of output channels at a time: as many as registers hold.
        registers = registers_of(machine, primitive)
        widest = max(p for p in range(1, registers.count + 1) if registers.fits(p, 1))
        tiles = _tiles(kernel, "ow", "oh", widest)
        width, height = max(tiles, key=lambda t: (t[0] * t[1], t[1]))
        tile = {"n": 1, "oh": height, "ow": width}
        yield _schedule(primitive, {**extents, **tile}, ["n", "oh", "ow"])
    elif "j" in primitive.whole and "co" in parallel:
        # Rows in groups (numerics/blocks.py), which stay near while a few points pass them.
        rows = next(rows for rows in (64, 32, GROUP) if extents["co"] % rows == 0)
        tile = dict.fromkeys(parallel, 1) | {"co": rows, "m": min(extents["m"], _POINTS)}
        outer = [dim for dim in parallel if dim != "co"]
        yield _schedule(primitive, {**extents, **tile}, ["co", *outer])
    elif "t" in primitive.whole:
        # Queries run along the lanes: as many vectors as leave room for a tile of keys.
        registers = registers_of(machine, primitive)
        vectors = 3 if registers.count >= 32 else 2
        tile = {"b0": 1, "b1": 1, "m": min(vectors * registers.lanes, extents["m"])}
        yield _schedule(primitive, {**extents, **tile}, ["b0", "b1", "m"])
    elif primitive.whole:
        # One row of points beside the dims that are kept whole.
        last = next((dim for dim in reversed(parallel) if dim not in primitive.whole), "")
        row = {last} if primitive.name in ("lrn", "shuffle") else set[str]()
        tile = {d: extents[d] if d in primitive.whole or d in row else 1 for d in parallel}
        kept = _innermost(kernel)
        if primitive.whole == ("axis",) and kept in tile:
            # Rows that lie side by side, one in each lane.
            lanes = machine.memory(REGISTERS).granule // 4
            tile[kept] = min(extents[kept], lanes)
        yield _schedule(primitive, tile, parallel)
    elif reduction:
        tile = dict.fromkeys(parallel, 1)
        kept = _innermost(kernel)
        if kept in tile:
            # Results that lie side by side are computed so, a few vectors at a time.
            lanes = machine.memory(REGISTERS).granule // 4
            tile[kept] = min(extents[kept], _SIDE_BY_SIDE * lanes)
        yield _schedule(primitive, tile, parallel)
    else:
        yield Schedule(primitive.name, (Level(REGISTERS, (), ()),))


def _innermost(kernel: Kernel) -> str:
    """The dim along which elements to be reduced, and results, lie side by side; "" if none."""
    x, y = kernel.anchor.inputs[0], kernel.anchor.output
    folds = kernel.anchor.operation.startswith("reduce_")
    if not (folds or kernel.anchor.operation == "softmax") or x.layout or y.layout:
        return ""
    last = [axis.terms for axis in (x.access[-1], y.access[-1])] if x.access and y.access else []
    return last[0][0][0] if last and last[0] == last[1] and len(last[0]) == 1 else ""


def _schedule(primitive: Primitive, tile: dict[str, int], order: list[str]) -> Schedule:
    sizes = tuple(sorted(tile.items()))
    looped = tuple(dim for dim in order if dim in tile)
    return Schedule(primitive.name, (Level(REGISTERS, sizes, looped),))


def _products(kernel: Kernel, machine: Machine, primitive: Primitive) -> Iterator[Schedule]:
    extents, reduction = kernel.anchor.extents, kernel.anchor.reduction
    registers = registers_of(machine, primitive)
    lanes = registers.lanes
    parallel = [dim for dim in extents if dim not in reduction and dim != "co"]
    column = "ow" if "ow" in parallel else parallel[-1]
    row = "oh" if "oh" in parallel else ""
    outer = [dim for dim in parallel if dim not in (row, column)]
    blocks = ceil(extents["co"] / lanes)
    depths = [extents["ci"]]
    # A residual may share the output's memory, which partial sums overwrite: they start from it.
    # An output of narrower elements does not hold them.
    sums = kernel.output.element == kernel.anchor.output.element
    if sums and _summed_first(kernel):
        depths += [d for d in _REDUCTION_BLOCKS if d < extents["ci"] and d % lanes == 0]
    # Weights in blocks of several vectors are read block by block.
    least = max(primitive.multiples["co"] // lanes, 1)
    for vectors in (1, 2, 3, 4, 6, 8) if least == 1 else (least,):
        if vectors > blocks and vectors > 1:
            break
        widest = registers.count
        while not registers.fits(widest, vectors) and widest > 1:
            widest -= 1
        if not registers.fits(widest, vectors):
            continue
        widest = min(widest, _streams(kernel, column))
        for width, height in _tiles(kernel, column, row, widest):
            for depth in depths:
                tile = dict.fromkeys(outer, 1)
                tile |= {"co": min(vectors * lanes, extents["co"]), column: width, "ci": depth}
                if row:
                    tile[row] = height
                yield from _orders(kernel, primitive, tile, outer, row, column)


def _summed_first(kernel: Kernel) -> bool:
    """Return True if residuals are added to the anchor's floats before any other operation."""
    value = kernel.anchor.output
    summed = {value.name}
    for stage in kernel.stages[1:]:
        names = [operand.name for operand in stage.inputs]
        if stage.operation != "add" or not ELEMENTS[stage.output.element].is_plain:
            break
        if names.count(value.name) != 1:
            break
        summed |= set(names)
        value = stage.output
    return all(o.role != "residual" or o.name in summed for o in kernel.inputs)


def _streams(kernel: Kernel, column: str) -> int:
    """Points whose inputs a first cache and its prefetcher follow at once.

    Rows of a matrix lie apart, each a stream of its own. Rows a multiple of a page apart fall into
    one set of a first cache, whose ways also hold the weights (measured: 14 such rows lose a
    quarter, 9 nothing).
    """
    source = next((operand for operand in kernel.inputs if operand.role == "input"), None)
    if source is None or source.layout or not source.shape or "kw" in kernel.anchor.extents:
        return 1 << 30
    if column not in source.access[-2].dims if len(source.access) > 1 else True:
        return 1 << 30
    return _PAGE_ROWS if source.shape[-1] * source.element_bytes % _PAGE == 0 else _MOST_ROWS


def _tiles(kernel: Kernel, column: str, row: str, widest: int) -> Iterator[tuple[int, int]]:
    """Columns and rows of register tiles: balanced parts of a row, or several whole rows."""
    extents = kernel.anchor.extents
    for width in _parts(extents[column], widest):
        yield width, 1
    if not row or extents[column] * 2 > widest or not _rows_inside(kernel, row):
        return
    for height in _parts(extents[row], widest // extents[column]):
        if height > 1:
            yield extents[column], height


def _parts(extent: int, most: int) -> list[int]:
    """Sizes that cut an extent evenly into parts of at most ``most``: the fewest and a few more."""
    fewest = ceil(extent / most)
    return sorted({ceil(extent / parts) for parts in range(fewest, fewest + 3)}, reverse=True)


def _rows_inside(kernel: Kernel, row: str) -> bool:
    """Return True if no window crosses the image's border along dim ``row``."""
    whole = {name: (0, extent) for name, extent in kernel.anchor.extents.items()}
    for operand in kernel.anchor.inputs:
        for axis, extent in zip(operand.access, operand.shape, strict=True):
            low, size = axis.interval(whole)
            if row in axis.dims and (low < 0 or low + size > extent):
                return False
    return True


def _orders(
    kernel: Kernel,
    primitive: Primitive,
    tile: dict[str, int],
    outer: list[str],
    row: str,
    column: str,
) -> Iterator[Schedule]:
    """Orders of the loops: weights outside, or blocks of rows outside."""
    extents = kernel.anchor.extents
    pixels = [dim for dim in (row, column) if dim]
    whole = {dim: extents[dim] for dim in tile}
    sizes = tuple(sorted(tile.items()))
    lanewise = "co"

    def nest(first: dict[str, int], order: list[str], rest: list[str]) -> Schedule:
        levels = [Level(REGISTERS, sizes, tuple(rest))]
        if order:
            coarse = tuple(sorted({**whole, **dict.fromkeys(outer, 1), **first}.items()))
            levels.insert(0, Level("l2", coarse, tuple(order)))
        return Schedule(primitive.name, tuple(levels))

    yield nest({}, [], [*outer, lanewise, "ci", *pixels])
    yield nest({}, [], [*outer, "ci", lanewise, *pixels])
    if tile["ci"] == extents["ci"]:
        yield nest({}, [], [*outer, *pixels, lanewise, "ci"])
    if row:
        for parts in _ROW_BLOCKS:
            rows = ceil(ceil(extents[row] / parts) / tile[row]) * tile[row]
            if tile[row] < rows < extents[row]:
                yield nest({row: rows}, [*outer, row], [lanewise, "ci", *pixels])


class _Pricer:
    """Predicted cycles of schedules of one kernel on one primitive."""

    def __init__(self, kernel: Kernel, machine: Machine, primitive: Primitive) -> None:
        self.kernel, self.machine = kernel, machine
        self.primitive = primitive
        self.caches = Caches(kernel, machine, primitive)
        self.registers = registers_of(machine, primitive) if primitive.multiples else None
        self.inside = _inside_fraction(kernel, "kw")
        self.rows = _inside_fraction(kernel, "kh")
        self.reduction = frozenset(kernel.anchor.reduction)
        self.blocked = "co" if "co" in kernel.anchor.extents else "c"
        self.blocks: BlockCost | PieceCost | SeparableCost | None = None
        if own_of(primitive).block_cycles:
            self.blocks = PieceCost(kernel, machine, primitive)
        elif any(operand.role == "scratch" for operand in kernel.inputs):
            parts = {"c", "co"} <= set(kernel.anchor.extents)
            self.blocks = (
                SeparableCost(kernel, machine, self._price_part)
                if parts
                else BlockCost(kernel, machine, primitive)
            )
        self.plain = 0.0
        self.computes: dict[tuple[tuple[str, int, int], ...], float] = {}
        if not primitive.multiples:
            value: Any = parse_expression(primitive.cycles).evaluate(kernel.anchor.extents)
            self.plain = float(value)

    def _price_part(
        self, kernel: Kernel, primitive: Primitive, schedule: Schedule
    ) -> tuple[float, float]:
        return _Pricer(kernel, self.machine, primitive).price(schedule)

    def price(self, schedule: Schedule) -> tuple[float, float]:
        """Cycles, and bytes to and from main memory."""
        if self.blocks is not None:
            return self.blocks.price(schedule)
        nest = Nest.of(self.kernel, schedule)
        return self.caches.price(nest, self._compute(nest))

    def _compute(self, nest: Nest) -> float:
        """Cycles to compute the tiles if no access missed the first cache."""
        if self.registers is None:
            return self.plain
        # The order of loops over different dims changes no tile.
        loops = tuple(sorted(nest.loops, key=itemgetter(0)))
        if loops not in self.computes:
            self.computes[loops] = self._computed(nest, self.registers)
        return self.computes[loops]

    def _computed(self, nest: Nest, registers: Registers) -> float:
        compute = 0.0
        split = any(dim in self.reduction for dim, _, _ in nest.loops)
        for count, sizes in nest.tiles():
            vectors = ceil(sizes[self.blocked] / registers.lanes)
            points, steps = 1, 1
            for dim, size in sizes.items():
                if dim in self.reduction:
                    steps *= ceil(size / own_of(self.primitive).dot) if dim == "ci" else size
                elif dim != self.blocked:
                    points *= size
            step = registers.step_cycles(points * self.inside, vectors)
            call = registers.call_cycles(points, vectors)
            if split:
                call += points * vectors  # sums are read back
            compute += count * (steps * self.rows * step + call)
        return compute


def _inside_fraction(kernel: Kernel, tap: str) -> float:
    """The part of all taps along one axis of the window that lies inside the image."""
    extents = kernel.anchor.extents
    for operand in kernel.anchor.inputs:
        for axis, extent in zip(operand.access, operand.shape, strict=True):
            terms = dict(axis.terms)
            out = next((name for name in terms if name != tap), None)
            if tap not in terms or out is None:
                continue
            taps = sum(
                0 <= index * terms[out] + number * terms[tap] + axis.offset < extent
                for index in range(extents[out])
                for number in range(extents[tap])
            )
            return taps / (extents[out] * extents[tap])
    return 1.0
