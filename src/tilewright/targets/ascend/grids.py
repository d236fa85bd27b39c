"""Grids of vector kernels: which the kernels take, and the best of them.

A block of such a kernel has one run of each of its axes, as they lie in main
memory, the outermost first: outside of the dim that is cut in runs every block has a single index,
or a single block of 16, inside of it all. No two blocks may write to the same 32 bytes, and what
a copy writes after a row, or after a single element, that is no whole number of them, the next one
has to write again: so rows that are no whole number of them stay together. ``steps_of`` says where
a kernel may be cut; ``plan_cores`` takes the grid, and the tiles of its parts, that cost least.
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
from tilewright.targets.ascend.elements import ELEMENTWISE, is_flat, is_ragged
from tilewright.targets.ascend.isa import LANES as REPEAT
from tilewright.targets.ascend.kernels.folds import FOLD_OF
from tilewright.targets.ascend.machine import BLOCK, CUBE
from tilewright.targets.ascend.moves import MOVES, parts_of
from tilewright.targets.ascend.vector_primitives import QUANTISED


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
        if out.layout and out.shape[-1] % CUBE and anchor.operation not in QUANTISED:
            return ()
        if is_flat(kernel):
            # Whole repeats, but of the elements of one.
            least = max(CUBE, BLOCK // out.element_bytes)
            unit = REPEAT if anchor.extents["e"] > REPEAT else least
            return tuple(Step(dim.name, unit if dim.name == "e" else 1) for dim in anchor.dims)
        return _in_blocks(_physical(out) if out.layout else _rows(out, ()), kernel)
    if anchor.operation in ("softmax", "layer_norm"):
        if not out.layout:
            return _rows(out, anchor.reduction)
        return tuple(Step(dim, 1) for axis in out.access[:-1] if (dim := _dim(axis)))
    if anchor.operation in FOLD_OF:
        return _rows(out, (), flat="r" in anchor.extents)
    if anchor.operation in ("max_pool", "average_pool"):
        return _units(out, (1, CUBE, 1))
    if anchor.operation in MOVES:
        return _moved(kernel)
    return ()


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
    """Return the steps of a move. Single elements, and parts of a padded row that are no whole
    blocks, also write the bytes after them."""
    out = kernel.output
    if len(out.shape) > 1 and out.shape[-1] == 1 and not out.layout:
        return ()
    parts, per = parts_of(kernel), BLOCK // out.element_bytes
    if len(parts) > 1 and any(part % per for part in parts):
        return ()
    return _in_blocks(_physical(out) if out.layout else _rows(out, ()), kernel)


def _in_blocks(steps: Sequence[Step], kernel: Kernel) -> tuple[Step, ...]:
    """Steps in whole blocks of columns, where an operand lies in such."""
    units: dict[str, int] = {}
    for operand in kernel.operands:
        if operand.layout:
            dim = _dim(operand.access[-1])
            units[dim] = max(units.get(dim, 1), BLOCK // operand.element_bytes)
    return tuple(step._replace(unit=max(step.unit, units.get(step.dim, 1))) for step in steps)


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
