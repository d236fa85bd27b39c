"""Grids of vector kernels: which the kernels take, and the best of them.

A block of such a kernel has one run of each of its axes (kernels/shares.py), as they lie in main
memory, the outermost first: outside of the dim that is cut in runs every block has a single index,
or a single block of 16, inside of it all. No two blocks may write to the same 32 bytes, and what
a copy writes behind a row, or behind a single element, that is no whole number of them the next one
has to write again: so rows that are none stay together. ``steps_of`` says where a kernel may be
cut; ``plan_cores`` takes the grid, and the tiles of its parts, that cost least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, gcd, prod
from typing import ClassVar, NamedTuple

import numpy as np

from tilewright.machine import Machine, Primitive
from tilewright.machine.records import PrimitiveRecord
from tilewright.planning import Ask, Plan
from tilewright.planning.canonical import canonical, renamed
from tilewright.planning.domain import Affine, Kernel, Operand
from tilewright.planning.layout import Layout
from tilewright.planning.planners.cores import ROUNDS, Columns, plan_cores
from tilewright.planning.schedule import Schedule
from tilewright.targets.ascend.elements import ELEMENTWISE, WALKED, is_flat, is_ragged
from tilewright.targets.ascend.formats import heads, image, matrices
from tilewright.targets.ascend.isa import LANES as REPEAT
from tilewright.targets.ascend.kernels.folds import FOLD_OF
from tilewright.targets.ascend.lowering.moves import steps_of as steps_of_move
from tilewright.targets.ascend.lowering.quantised import one_kernel
from tilewright.targets.ascend.machine import BLOCK, CUBE


class Step(NamedTuple):
    """A dim that may be cut, in multiples of a unit; what lies within it may be, too, where every
    block has a single unit of it, if that is one index or one block (``last`` otherwise)."""

    dim: str
    unit: int
    last: bool = False


def steps_of(kernel: Kernel) -> tuple[Step, ...]:
    """Return the steps at which a kernel may be cut, the outermost dim first; () for one block."""
    anchor = kernel.anchor
    out = kernel.output
    if anchor.operation in ELEMENTWISE:
        if out.layout and out.shape[-1] % CUBE:
            return ()
        if is_flat(kernel):
            # Whole repeats, but of the elements of one.
            unit = REPEAT if anchor.extents["e"] > REPEAT else CUBE
            return tuple(Step(dim.name, unit if dim.name == "e" else 1) for dim in anchor.dims)
        return _physical(out) if out.layout else _rows(out, ())
    if anchor.operation in ("softmax", "layer_norm"):
        if not out.layout:
            return _rows(out, anchor.reduction)
        return tuple(Step(dim, 1) for axis in out.access[:-1] if (dim := _dim(axis)))
    if anchor.operation in FOLD_OF:
        return _rows(out, (), flat="r" in anchor.extents)
    if anchor.operation in ("max_pool", "average_pool"):
        return _units(out, (1, CUBE, 1))
    if anchor.operation in ("transpose", "slice"):
        return _moved(kernel)
    if anchor.operation == "gather":
        return _rows(out, ())
    if anchor.operation == "pad":
        return _padded(kernel)
    if anchor.operation in ("quantise_linear", "dequantise_linear"):
        return _requantised(anchor.inputs[0], out)
    return _relaid(kernel) if anchor.operation == "convert_layout" else ()


def _dim(axis: Affine) -> str:
    """The dim that counts an axis's indices; "" where none does alone."""
    dim = axis.dims[0] if len(axis.dims) == 1 else ""
    return dim if axis == Affine(((dim, 1),)) else ""


def _rows(operand: Operand, whole: Sequence[str], *, flat: bool = False) -> tuple[Step, ...]:
    """Return the steps of a row-major tensor, which is written in whole, or row by row; ``whole``
    dims stay."""
    axes = [pair for pair in zip(operand.access, operand.shape, strict=True) if pair[1] > 1]
    per = BLOCK // operand.element_bytes
    steps: list[Step] = []
    for number, (axis, _) in enumerate(axes):
        dim = _dim(axis)
        inner = [extent for _, extent in axes[number + 1 :]]
        if dim in whole:
            continue
        unit = per // gcd(prod(inner), per)
        if inner and not flat:
            if inner[-1] % per:
                # Rows that are no whole blocks.
                return tuple(steps)
            unit = 1
        if not dim:
            break
        steps.append(Step(dim, unit, last=unit > 1))
    return tuple(steps)


def _physical(operand: Operand) -> tuple[Step, ...]:
    """Return the steps of a tensor in blocks that is taken in its own layout: whole blocks."""
    steps: list[Step] = []
    for part in Layout.parse(operand.layout, len(operand.shape)).factors:
        if part.modulus or operand.shape[part.axis] == 1:
            continue
        dim = _dim(operand.access[part.axis])
        if not dim:
            break
        steps.append(Step(dim, part.divisor))
    return tuple(steps)


def _units(operand: Operand, units: Sequence[int]) -> tuple[Step, ...]:
    """Return the steps of the first axes of an operand."""
    steps: list[Step] = []
    for axis, extent, unit in zip(operand.access, operand.shape, units, strict=False):
        dim = _dim(axis)
        if extent > 1 and not dim:
            break
        if dim:
            steps.append(Step(dim, unit))
    return tuple(steps)


def _moved(kernel: Kernel) -> tuple[Step, ...]:
    """Return the steps of a reordering of elements: where no elements are contiguous in the source,
    each is written by a copy of its own, which also writes the bytes after it."""
    steps = zip(steps_of_move(kernel.anchor), kernel.output.shape, strict=True)
    runs = any(step == 1 for step, extent in steps if extent > 1)
    return _rows(kernel.output, ()) if runs else ()


def _padded(kernel: Kernel) -> tuple[Step, ...]:
    """Return the steps outside of the axes that are padded."""
    out, amounts = kernel.output, kernel.anchor.attribute("pads")
    assert isinstance(amounts, tuple)
    rank = len(out.shape)
    axes = [axis for axis in range(rank) if amounts[axis] or amounts[rank + axis]]
    if not axes:
        return _rows(out, ())
    if prod(out.shape[axes[-1] + 1 :]) % (BLOCK // out.element_bytes):
        return ()
    return _units(out, (1,) * axes[0])


def _requantised(source: Operand, out: Operand) -> tuple[Step, ...]:
    """Return the steps of a conversion between halves and integers, in the integers' layout."""
    if not one_kernel(source, out):
        return ()
    integers = out if out.element == "int8" else source
    if not integers.layout:
        return _rows(out, (), flat=True) if out is integers else ()
    return _physical(integers)


def _relaid(kernel: Kernel) -> tuple[Step, ...]:
    """Return the steps of a change of layout."""
    (source,), out = kernel.anchor.inputs, kernel.output
    rank = len(out.shape)
    given, wanted = (Layout.parse(operand.layout, rank) for operand in (source, out))
    if given.row_major and wanted.row_major:
        return _rows(out, ())
    if not given.row_major and not wanted.row_major:
        return ()
    blocked = wanted if given.row_major else given
    back = wanted.row_major
    if rank == 4 and blocked == Layout.parse(heads(), 4):
        return () if back and out.shape[3] % CUBE else _units(out, (1, 1))
    if rank == 4 and blocked == Layout.parse(image(), 4):
        if back and prod(out.shape[2:]) % CUBE:
            return ()
        images = _units(out, (1,) if out.shape[1] % CUBE else (1, CUBE))
        area = Operand("", out.shape[2:], out.access[2:], out.element)
        return (*images, *_rows(area, (), flat=True))
    if rank > 1 and blocked == matrices(rank):
        if back and out.shape[-1] % CUBE:
            return ()
        axes = list(zip(out.access, out.shape, strict=True))[-2:]
        dims = (_dim(axis) for axis, extent in axes if extent % CUBE == 0)
        return tuple(Step(dim, CUBE) for dim in dims if dim)
    return ()


def vector_grids(kernel: Kernel, primitive: Primitive, cores: int) -> Columns:
    """The grids that a kernel takes: parts for half of the cores at least, where its dims give that
    many, and for each core ``ROUNDS`` at most."""
    del primitive
    extents = kernel.anchor.extents
    rows: list[dict[str, int]] = [dict(extents)]
    around, parts = dict(extents), 1
    for dim, unit, last in steps_of(kernel):
        units = ceil(extents[dim] / unit)
        most = min(units, cores * ROUNDS // parts)
        sizes = {min(ceil(units / count) * unit, extents[dim]) for count in range(2, most + 1)}
        if kernel.anchor.operation not in WALKED:
            # A last part that is much shorter would make all tiles as short.
            sizes = {size for size in sizes if 2 * (extents[dim] % size or size) >= size + unit}
        rows += [{**around, dim: size} for size in sorted(sizes, reverse=True)]
        around, parts = {**around, dim: min(unit, extents[dim])}, parts * units
        if last or parts > cores * ROUNDS:
            break
    counts = [prod(ceil(extents[dim] / size) for dim, size in row.items()) for row in rows]
    least = min(ceil(cores / 2), max(counts))
    kept = [row for row, count in zip(rows, counts, strict=True) if count >= least]
    return {dim: np.array([row[dim] for row in kept], np.int64) for dim in extents}


def ascending(kernel: Kernel, schedule: Schedule) -> Schedule:
    """The schedule that stores rows of no whole blocks from the first to the last."""
    if not is_ragged(kernel):
        return schedule
    summed = kernel.anchor.reduction
    dims = sorted(kernel.anchor.extents, key=lambda dim: dim in summed)
    levels = tuple(
        replace(level, order=tuple(sorted(level.order, key=dims.index)))
        for level in schedule.levels
    )
    return replace(schedule, levels=levels)


@dataclass
class GridPlans:
    """Plans vector kernels for all cores; others as ``asked`` does."""

    machine: Machine
    asked: Ask | None
    known: dict[tuple[Kernel, tuple[Step, ...]], Plan] = field(
        default_factory=dict[tuple[Kernel, tuple[Step, ...]], Plan]
    )

    chains: ClassVar = True
    """Chains are planned as chains (planning/chains/cores.py)."""

    def __post_init__(self) -> None:
        primitives = tuple(
            primitive.model_copy(update={"own": PrimitiveRecord()})
            for primitive in self.machine.primitives
        )
        self.shared = self.machine.model_copy(update={"primitives": primitives})

    def __call__(self, kernel: Kernel) -> Plan | None:
        """A kernel's plan; None where all kernels of its kind are planned alike."""
        chosen = None if self.asked is None else self.asked(kernel)
        if chosen is not None:
            return replace(chosen, schedule=ascending(kernel, chosen.schedule))
        steps = () if kernel.producers else steps_of(kernel)
        if not steps and not is_ragged(kernel):
            return None
        unnamed, names = canonical(kernel)
        key = unnamed, steps
        if key not in self.known:
            plan = plan_cores(kernel, self.shared, allowed=vector_grids)
            plan = replace(plan, schedule=ascending(kernel, plan.schedule))
            self.known[key] = replace(plan, schedule=renamed(plan.schedule, names))
        back = {new: old for old, new in names.items()}
        plan = self.known[key]
        return replace(plan, schedule=renamed(plan.schedule, back))
