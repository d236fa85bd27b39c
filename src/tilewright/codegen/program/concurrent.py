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

from tilewright.graph.arenas import Box
from tilewright.graph.dialect import KernelOp
from tilewright.graph.operation import Operation
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import SSAValue


@dataclass(frozen=True)
class Span:
    """The bytes of a value: runs of ``run`` bytes, one every ``period``, within a range."""

    arena: str
    first: int
    end: int
    """First byte after the last."""
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
        box = Box.of(value)
        end = box.offset + box.span
        run = box.width
        wide = [pair for pair in zip(box.extents, box.strides, strict=True) if pair[0] > 1]
        while wide:
            n, step = wide.pop()
            if step != run:
                if any(outer % step for _, outer in wide):
                    break  # images interleaved with odd rows: each row begins elsewhere in a period
                return cls(box.arena, box.offset, end, run, step)
            run *= n
        return cls(box.arena, box.offset, end, box.span, box.span)


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


def step_of(op: AnyOperation, on_host: bool, seconds: float) -> Step:
    """The step that an operation of a placed network is."""
    assert isinstance(op, KernelOp | Operation)
    reads = tuple(map(Span.of, op.inputs))
    return Step(on_host, seconds, reads, (Span.of(op.result),))
