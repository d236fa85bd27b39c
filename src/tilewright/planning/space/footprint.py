"""The footprint of a tile: the machine's view of a kernel's operands, and exact box sizes per tile.

An operand's box is the product of one interval per axis, cut at the tensor's ends because padding
holds no data. An axis depends on one or two dims, so largest boxes and sums over all tiles are
products of small tables, one per axis: moved bytes are exact, edge tiles and halos included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse
from tilewright.machine import Machine, Memory, Move, Primitive
from tilewright.numerics.element_types import size_of
from tilewright.planning.domain import Affine, Kernel, Operand
from tilewright.planning.layout import Layout
from tilewright.planning.own import lies_by_tile
from tilewright.planning.space.conversions import conversion
from tilewright.planning.space.windows import beside

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Counts = Ints | int
"""One number for each of many things, or one for all of them."""


def picked(column: Counts, rows: Ints) -> Counts:
    """A column's numbers of some rows."""
    return column if isinstance(column, int) else column[rows]


@dataclass(frozen=True)
class Use:
    """The buffering and movement of a kernel's operand by a primitive of a machine."""

    operand: Operand
    memory: Memory
    move: Move | None
    """Between main memory and ``memory``; None for an operand in place, or held on the chip: that
    takes none of the room for buffers either, as if it lay in main memory."""
    multiples: tuple[int, ...]
    """Per axis, the granule of its extent in ``memory``."""
    element_bytes: int
    """Bytes of an element in ``memory``."""
    host: str = ""
    """Name of the operand in whose move this one travels; "" for a move of its own."""
    output: bool = False
    apart: tuple[str, ...] = ()
    """Dims of a window along which each window is moved by itself."""
    by_tile: bool = False
    """True if main memory has it tile by tile, each tile contiguous."""
    elsewhere: bool = False
    """True if another memory than the main one holds it (``Machine.home``)."""

    @property
    def name(self) -> str:
        """The name of the operand."""
        return self.operand.name


def uses_of(kernel: Kernel, machine: Machine, primitive: Primitive) -> tuple[Use, ...]:
    """The operands in the order of their moves: inputs, then the output.

    A joined operand comes right after its host. Raises TilewrightError when the primitive has no
    place for an operand.
    """
    hosts = hosts_of(kernel, machine)
    uses: list[Use] = []
    for operand in kernel.operands:
        storage = primitive.operands.get(operand.role)
        if storage is None:
            reason = f"{primitive.name} of {machine.name} takes no {operand.role}"
            raise refuse("plan-operand", f"{reason} ({operand.name})", kernel.symbol)
        memory = machine.memory_beside(primitive, storage.memory)
        output, home = operand is kernel.output, machine.home(constant=operand.is_constant)
        if operand in kernel.anchor.inputs:
            operand = beside(operand, kernel.anchor, primitive)
        if operand.resident_in == memory.name:
            memory = machine.memory(home)
        path = path_of(operand, machine, home, memory.name, output=output)
        if len(path) > 1:
            raise refuse(
                "plan-path",
                f"{operand.name} passes {path[0].target} on its way, and this planner plans one "
                "memory of an operand's path",
                kernel.symbol,
                "the planner exact plans a tile for each memory",
            )
        move = path[0] if path else None
        apart = storage.own.windows_apart()
        granules = tuple(axis.granule(storage.multiples, apart) for axis in operand.access)
        host = hosts.get((storage.joined or "", home), "")
        constant = operand.role in ("weight", "bias") and not operand.computed
        by_tile = constant and lies_by_tile(storage)
        element = storage.element_bytes or operand.element_bytes
        options = host, output, apart, by_tile, home != machine.main
        if move is not None and home != machine.main:
            # Its bytes pass no main memory; the other memory gives them at its own rate.
            rate = machine.memory(home).bytes_per_cycle or move.bytes_per_cycle
            update = {"bytes_per_cycle": min(rate, move.bytes_per_cycle)}
            move = move.model_copy(update=update)
        uses.append(Use(operand, memory, move, granules, element, *options))
    moved = [use for use in uses if not use.host]
    return tuple(
        use
        for use_of_kernel in moved
        for use in (use_of_kernel, *(u for u in uses if u.host == use_of_kernel.name))
    )


def hosts_of(kernel: Kernel, machine: Machine) -> dict[tuple[str, str], str]:
    """By role and the memory that holds them, the operands in whose moves others from there may
    travel."""
    hosts: dict[tuple[str, str], str] = {}
    for operand in kernel.inputs:
        home = machine.home(constant=operand.is_constant)
        hosts.setdefault((operand.role, home), operand.name)
    return hosts


def path_of(
    operand: Operand, machine: Machine, home: str, memory: str, *, output: bool = False
) -> tuple[Move, ...]:
    """The moves between the memory that holds an operand and another; refuses (``plan-path``) where
    none lead there."""
    try:
        return machine.path(*((memory, home) if output else (home, memory)))
    except KeyError as error:
        help = f"add a move from {home}, which holds {operand.name}"
        raise refuse("plan-path", str(error.args[0]), operand.name, help) from None


def accumulator_bytes(kernel: Kernel, machine: Machine) -> int:
    """Bytes of an output element while its reduction is split over several computes."""
    return max(size_of(machine.accumulator), kernel.output.element_bytes)


def keeps_sums(kernel: Kernel, primitive: Primitive) -> bool:
    """Return True if a primitive keeps its sums in the result's buffer: of one term, too."""
    return primitive.sums and bool(kernel.anchor.reduction)


def holds_sums(kernel: Kernel, primitive: Primitive) -> bool:
    """Return True if the result's buffer next to a primitive has the accumulator's width even where
    no reduction is cut: the primitive keeps its sums there, or leaves the rounding to a move."""
    return keeps_sums(kernel, primitive) or conversion(kernel, primitive) is not None


def axis_lengths(
    axis: Affine, extent: int, positions: Mapping[str, tuple[Ints, Ints]]
) -> NDArray[np.int64]:
    """Lengths of an axis' interval within ``[0, extent)``, one array axis per dim of ``positions``.

    ``positions`` gives start and size of every tile along the dims that the axis depends on.
    """
    low: Ints = np.asarray(axis.offset, np.int64)
    high: Ints = np.asarray(axis.offset + 1, np.int64)
    coefficients: dict[str, int] = {}
    for name, c in axis.terms:
        coefficients[name] = coefficients.get(name, 0) + c
    names = list(positions)
    for name, (start, size) in positions.items():
        c = coefficients.get(name, 0)
        shape = [1] * len(names)
        shape[names.index(name)] = len(start)
        first, last = (c * start).reshape(shape), (c * (start + size - 1)).reshape(shape)
        low, high = low + np.minimum(first, last), high + np.maximum(first, last)
    return np.maximum(np.minimum(high, extent) - np.maximum(low, 0), 0)


def tile_positions(extent: int, size: int) -> tuple[Ints, Ints]:
    """Start and size of every tile along a dim."""
    start = np.arange(0, extent, size, dtype=np.int64)
    return start, np.minimum(size, extent - start)


@dataclass(frozen=True)
class AxisTable:
    """Box lengths along one axis for every combination of candidate sizes of its dims."""

    dims: tuple[str, ...]
    largest: Ints
    """Largest length over all tiles, rounded to the storage's multiple; one axis per dim."""
    total: Ints
    """Sum of the lengths over all tiles."""
    mean: dict[tuple[bool, ...], Floats]
    """Mean length of the tiles that are (True) or are not (False) cut short along each dim."""


def axis_table(
    axis: Affine,
    extent: int,
    multiple: int,
    extents: Mapping[str, int],
    sizes: Mapping[str, Ints],
    apart: Sequence[str] = (),
) -> AxisTable:
    """The table of one axis; ``sizes`` holds the candidate tile sizes of every dim.

    Where the axis has a dim of ``apart``, windows are moved one by one, whole: ``total`` and
    ``mean`` count what is moved, ``largest`` the windows, as there is room for each.
    """
    dims = tuple(dict.fromkeys(name for name in axis.dims if name in extents))
    tiles = ((name, extents[name], tuple(sizes[name].tolist())) for name in dims)
    windows = frozenset(apart) & frozenset(axis.dims)
    return _axis_table(axis, extent, multiple, tuple(tiles), windows)


@lru_cache(maxsize=1024)
def _axis_table(
    axis: Affine,
    extent: int,
    multiple: int,
    cuts: tuple[tuple[str, int, tuple[int, ...]], ...],
    apart: frozenset[str],
) -> AxisTable:
    """``axis_table`` with name, extent and sizes of the axis' own dims: searches share many."""
    dims = tuple(name for name, _, _ in cuts)
    extents = {name: size for name, size, _ in cuts}
    sizes = {name: some for name, _, some in cuts}
    shape = tuple(len(sizes[name]) for name in dims)
    largest, total = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    kinds = list(product((False, True), repeat=len(dims)))
    mean = {kind: np.zeros(shape) for kind in kinds}
    tiles = {name: [tile_positions(extents[name], s) for s in sizes[name]] for name in dims}
    for index in product(*map(range, shape)):
        chosen = {name: tiles[name][i] for name, i in zip(dims, index, strict=True)}
        lengths = axis_lengths(axis, extent, chosen)
        most = int(lengths.max())
        if apart:
            most = prod(int(size.max()) for name, (_, size) in chosen.items() if name not in apart)
        largest[index] = -(-most // multiple) * multiple
        if apart:
            columns = np.ix_(*(size for _, size in chosen.values()))
            lengths = prod(columns, start=np.ones(1, np.int64))
        total[index] = lengths.sum()
        short = [chosen[name][1] < chosen[name][1][0] for name in dims]
        for kind in kinds:
            part = lengths
            for place, (mask, edge) in enumerate(zip(short, kind, strict=True)):
                part = part.compress(mask if edge else ~mask, axis=place)
            mean[kind][index] = part.mean() if part.size else 0.0
    return AxisTable(dims, largest, total, mean)


def whole_elements(operand: Operand, extents: Mapping[str, int]) -> int:
    """Elements of an operand that the whole kernel touches, each counted once."""
    count = 1
    for axis, extent in zip(operand.access, operand.shape, strict=True):
        count *= min(_distinct(axis, extent, extents), extent)
    return count


def _distinct(axis: Affine, extent: int, extents: Mapping[str, int]) -> int:
    """At most how many of the axis' indices are touched; exact where strides skip some."""
    terms = sorted((abs(c), extents.get(name, 1)) for name, c in axis.terms if c)
    count, span = 1, 1
    for c, size in terms:
        # Runs that are further apart than they are long leave indices out between them.
        count = size * count if c > span else max(count, min(span + c * (size - 1), size * count))
        span += c * (size - 1)
    inside = axis.interval({name: (0, size) for name, size in extents.items()})
    cut = max(min(inside[0] + inside[1], extent) - max(inside[0], 0), 0)
    return min(count, cut)


def run_elements(operand: Operand, lengths: Sequence[Counts]) -> Ints:
    """Contiguous elements in main memory of boxes with these lengths along the logical axes.

    Boxes are taken to begin at whole blocks of the layout. Where the tensor is a part of a larger
    one, nothing is contiguous across its ends. Windows that a move gathers are paid as they are
    written, one after the other.
    """
    if operand.image is not None:
        return np.ones(1, np.int64) * prod(lengths, start=1)
    first = lengths[0] if lengths else np.ones(1, np.int64)  # a scalar has no axes
    run, whole = np.ones_like(first), np.ones_like(first, np.bool_)
    for axis, divisor, extent, least in _runs(operand.layout, operand.shape, operand.strides):
        length = lengths[axis] if divisor == 1 else -(-lengths[axis] // divisor)
        run = run * np.where(whole, np.minimum(length, extent), 1)
        whole = whole & (length >= least)
    return run


@lru_cache(maxsize=1024)
def _runs(
    text: str, shape: tuple[int, ...], strides: tuple[int, ...]
) -> list[tuple[int, int, int, int]]:
    """The physical axes along which elements are contiguous, innermost first: the logical axis, the
    divisor of its index, the extent, and the length that is all of it."""
    layout = Layout.parse(text, len(shape))
    extents = layout.physical_shape(shape)
    runs: list[tuple[int, int, int, int]] = []
    dense = 1  # elements from the first index of the axes within to what follows their last
    steps = strides or layout.strides(shape)
    for factor, extent, stride in reversed([*zip(layout.factors, extents, steps, strict=True)]):
        if extent > 1 and stride != dense:
            break
        dense = stride * extent if extent > 1 else dense
        least = min(extent, -(-shape[factor.axis] // factor.divisor))
        runs.append((factor.axis, factor.divisor, extent, least))
    return runs
