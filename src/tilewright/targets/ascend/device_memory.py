"""The addresses of values in the device's memory during a run of a network: one arena, planned
before.

A value that a kernel of the device gives stays there for those that read it; what comes from the
host (inputs, weights, results of its kernels) is copied once, and back comes what the host reads.
Room is planned as the host's own is, by the steps from which to which a value is needed
(memory/heuristics.py), with the bytes after each that kernels may touch. A view of a whole value
(a reshape) has the same place; slices of a value, and concatenations, go through the host's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.graph.arenas import Box
from tilewright.graph.dialect import KernelOp, OutputOp
from tilewright.graph.operation import Operation
from tilewright.graph.placement import WEIGHTS
from tilewright.ir import BlockArgument, SSAValue
from tilewright.memory.heuristics import allocate
from tilewright.memory.problem import Buffer, Problem
from tilewright.targets.ascend.lowering.launches import Launch

ALIGNMENT = 512
"""Bytes: what main memory's full rate asks for."""


@dataclass
class Placed:
    """A value on the device."""

    value: SSAValue
    bytes: int = 0
    first: int = 0
    """The step from which on it is there; 0 is before all."""
    last: int = 0
    offset: int = 0


@dataclass
class DeviceMemory:
    """The plan; steps are numbered from 1 on, in the network's order."""

    bytes: int = 0
    """The bytes of the arena."""
    values: dict[SSAValue, Placed] = field(default_factory=dict[SSAValue, Placed])
    """Places by the value that was there first (``origin``)."""
    before: dict[int, list[SSAValue]] = field(default_factory=dict[int, list[SSAValue]])
    """The values that are copied to the device before a step; for step 0 those there from the
    start."""
    after: dict[int, list[SSAValue]] = field(default_factory=dict[int, list[SSAValue]])
    """The values that are copied back after a step: results that the host reads."""
    end: list[SSAValue] = field(default_factory=list[SSAValue])
    """The values that are copied back at the end: outputs."""

    def offset(self, value: SSAValue) -> int:
        """Return the offset of a value in the arena."""
        return self.values[origin(value)].offset


def origin(value: SSAValue) -> SSAValue:
    """The value whose bytes these are, in the same order."""
    owner = value.owner
    if isinstance(owner, Operation) and len(owner.inputs) == 1:
        before = owner.inputs[0]
        if Box.of(value).same(Box.of(before)):
            return origin(before)
    return value


def device_memory(
    steps: Sequence[KernelOp], launches: Mapping[str, Sequence[Launch]]
) -> DeviceMemory:
    """The plan for a network's kernels in order; ``launches`` has those of the device's kernels, by
    symbol."""
    plan = DeviceMemory()
    for number, op in enumerate(steps, 1):
        if op.symbol.data not in launches:
            continue
        for launch in launches[op.symbol.data]:
            for argument in launch.arguments:
                if argument.kind == "operand":
                    _read(plan, op.inputs[argument.number], number, argument.bytes)
                elif argument.kind == "result":
                    placed = plan.values.setdefault(op.result, Placed(op.result, 0, number, number))
                    placed.bytes = max(placed.bytes, argument.bytes)
        _results(plan, op, number, launches, len(steps) + 1)
    kept = list(plan.values.values())
    for placed in kept:
        if Box.of(placed.value).arena == WEIGHTS:
            placed.last = len(steps) + 1  # As they are for a run, they are for the next.
    buffers = [
        Buffer(f"value{number}", placed.bytes, placed.first, placed.last)
        for number, placed in enumerate(kept)
    ]
    allocation = allocate(Problem(tuple(buffers), ALIGNMENT))
    plan.bytes = allocation.peak
    for placed, offset in zip(kept, allocation.offsets, strict=True):
        placed.offset = offset
    return plan


def _read(plan: DeviceMemory, value: SSAValue, step: int, size: int) -> None:
    """An operand of a step: what is not there yet is copied, inputs and weights at the start."""
    first = origin(value)
    placed = plan.values.get(first)
    if placed is None:
        early = isinstance(first, BlockArgument) or Box.of(first).arena == WEIGHTS
        placed = plan.values[first] = Placed(first, 0, 0 if early else step)
        plan.before.setdefault(placed.first, []).append(first)
    placed.bytes = max(placed.bytes, size)
    placed.last = max(placed.last, step)


def _results(
    plan: DeviceMemory,
    op: KernelOp,
    step: int,
    launches: Mapping[str, Sequence[Launch]],
    end: int,
) -> None:
    """Plan the copies of a kernel's result that the host reads, on the way or at the end."""
    outside = [
        isinstance(reader, OutputOp)
        for reader in _readers(op.result)
        if not (isinstance(reader, KernelOp) and reader.symbol.data in launches)
    ]
    if outside and all(outside):
        plan.end.append(op.result)
        plan.values[op.result].last = end
    elif outside:
        plan.after.setdefault(step, []).append(op.result)


def _readers(value: SSAValue) -> list[object]:
    """Return the readers of a value, direct ones and those through views of all of it."""
    readers: list[object] = []
    for use in value.uses:
        reader = use.operation
        result = reader.results[0] if reader.results else None
        if isinstance(reader, Operation) and result is not None and origin(result) != result:
            readers += _readers(result)
        else:
            readers.append(reader)
    return readers
