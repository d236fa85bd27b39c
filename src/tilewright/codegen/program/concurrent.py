"""The duration of a run in which the host and the accelerator work at the same time.

Steps are issued in the network's order, each to its worker, host or accelerator. A worker runs its
steps in that order; a step begins when its worker is free and when every earlier step of the other
worker has ended that writes bytes which it touches, or touches bytes which it writes. Independent
branches so take as long as the longer of them, not as both. The values of a run do not depend on
it: any order that keeps these conditions gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.graph.dialect import GraphOperation, KernelOp
from tilewright.graph.placement import placement_of
from tilewright.ir import Operation, SSAValue
from tilewright.ir.types import element_size, layout_of, shape_of, tensor_type
from tilewright.planning.layout import Layout


@dataclass(frozen=True)
class Span:
    """The bytes of a value: runs of ``run`` bytes, one every ``period``, within a range."""

    arena: str
    first: int
    end: int
    """First byte behind the last."""
    run: int
    period: int
    """Equal to ``run`` where there are no gaps."""

    def meets(self, other: Span) -> bool:
        """Return True if both share bytes, or may share some where their periods differ."""
        if self.arena != other.arena or self.end <= other.first or other.end <= self.first:
            return False
        if self.period != other.period:
            return True
        # The parts of a join: each has its own place in every period.
        apart = (other.first - self.first) % self.period
        return apart < self.run or self.period - apart < other.run

    @classmethod
    def of(cls, value: SSAValue) -> Span:
        """The span of a placed value."""
        place, shape = placement_of(value), shape_of(value)
        size = element_size(tensor_type(value).element_type)
        extents = Layout.parse(layout_of(value), len(shape)).physical_shape(shape)
        last = sum((n - 1) * step for n, step in zip(extents, place.strides, strict=True))
        end = place.offset + (last + 1) * size
        run = size
        wide = [(n, step) for n, step in zip(extents, place.strides, strict=True) if n > 1]
        while wide:
            n, step = wide.pop()
            if step * size != run:
                if any(outer % step for _, outer in wide):
                    break  # images interleaved with odd rows: each row begins elsewhere in a period
                return cls(place.arena, place.offset, end, run, step * size)
            run *= n
        return cls(place.arena, place.offset, end, end - place.offset, end - place.offset)


@dataclass(frozen=True)
class Step:
    """One step of a run."""

    on_host: bool
    seconds: float
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]


def elapsed(steps: Sequence[Step]) -> float:
    """Seconds from the beginning of the first step to the end of the last."""
    ends: list[float] = []
    free = {False: 0.0, True: 0.0}
    for step in steps:
        begin = free[step.on_host]
        for other, end in zip(steps, ends, strict=False):
            if other.on_host != step.on_host and end > begin and _conflict(other, step):
                begin = end
        free[step.on_host] = begin + step.seconds
        ends.append(free[step.on_host])
    return max(ends, default=0.0)


def _conflict(first: Step, second: Step) -> bool:
    """Return True if two steps depend on each other and must run in their order."""
    return any(
        access.meets(other)
        for accesses, others in (
            (first.writes, second.reads),
            (first.reads, second.writes),
            (first.writes, second.writes),
        )
        for access in accesses
        for other in others
    )


def step_of(op: Operation, on_host: bool, seconds: float) -> Step:
    """The step that an operation of a placed network is."""
    assert isinstance(op, KernelOp | GraphOperation)
    reads = tuple(map(Span.of, op.inputs))
    return Step(on_host, seconds, reads, (Span.of(op.result),))
