"""The prefetches of a register tile while it computes: its share of the next weights.

Weights come from main memory at every run. While a block of them is multiplied with one tile of
points after another, memory would be idle, and each new block would be waited for. So the tiles of
points divide the lines of the next block among them, and each asks for its own, a line or so in a
step of the reduction: double buffering, by hints. What lies beyond the tensor is asked for as well,
which no processor minds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from tilewright.codegen.c.address import Address, Extent
from tilewright.codegen.c.source import Writer, plus
from tilewright.codegen.nest.value import variable
from tilewright.numerics.element_types import size_of
from tilewright.targets.cpu.instance import Around, Instance

LINE = 64
"""Bytes that one hint asks for."""

LEAST_BYTES = 1 << 15
"""Weights of fewer bytes stay in a first cache."""


@dataclass(frozen=True)
class Ahead:
    """One call's share: ``step`` elements further in each step of the reduction."""

    step: int
    lines: int
    """Lines that are asked for in a step, of each run."""
    line: int
    """Elements of a line."""
    runs: int = 1
    """Runs of weights that the call asks for side by side, where there are more runs than calls."""
    between: int = 0
    """Elements from one of them to the next."""
    near: bool = False
    """True if the lines come to the first cache, not the second."""

    def write(self, writer: Writer) -> None:
        """Write what stands in each step; the pointer is ``ahead``."""
        for run in range(self.runs):
            for number in range(self.lines):
                place = run * self.between + number * self.line
                name = "fetch_near" if self.near else "fetch"
                writer.line(f"{name}({plus('ahead', str(place))});")
        writer.line(f"ahead += {self.step};")


@dataclass(frozen=True)
class Runs:
    """A block of weights in memory: runs of vectors, and how many calls read it."""

    steps: int
    """Steps of the reduction in a call."""
    vector: int
    """Elements of one vector's step."""
    vectors: int
    between: int
    """Elements from one vector to the next."""
    calls: int
    element_bytes: int

    def share(self, near: bool = False) -> Ahead:
        """Return the prefetches of a call in one step; if ``near``, into the first cache."""
        line = LINE // self.element_bytes
        runs, length = self._runs()
        each = ceil(length / self._calls_of_a_run(runs) / self.steps)
        step, lines = (each, 1) if each <= line else _whole(each, line)
        side = self._runs_of_a_call(runs)
        return Ahead(step, lines, line, side, self.between if side > 1 else 0, near)

    def place(self, call: str) -> str:
        """C expression: elements from the next block's begin to where a call's share begins.

        Calls that the runs leave over ask again for what the first ones asked for: what lies after
        the block is of no use yet, and would come in the place of something that is.
        """
        runs, length = self._runs()
        calls, side = self._calls_of_a_run(runs), self._runs_of_a_call(runs)
        # Of many calls each reaches a little into the share of the next one.
        size = ceil(length / calls)
        if runs == 1:
            return f"{call} * {size}"
        groups = ceil(runs / side)
        turn = calls * groups
        number = call if turn >= self.calls else f"{call} % {turn}"
        if side > 1:
            # The last group ends where the block does.
            return f"{number} * {runs - side} / {max(groups - 1, 1)} * {self.between}"
        if calls == 1:
            return f"{number} * {self.between}"
        return f"{number} / {calls} * {self.between} + {number} % {calls} * {size}"

    def _runs(self) -> tuple[int, int]:
        """Return the number of runs and the elements of each; adjacent vectors are one run."""
        length = self.steps * self.vector
        if self.vectors == 1 or self.between == self.vector:
            return 1, length * self.vectors
        return self.vectors, length

    def _calls_of_a_run(self, runs: int) -> int:
        return max(1, self.calls // runs)

    def _runs_of_a_call(self, runs: int) -> int:
        return ceil(runs / self.calls)


def _whole(each: int, line: int) -> tuple[int, int]:
    lines = ceil(each / line)
    return lines * line, lines


def ahead_of(
    instance: Instance, w: Address, between: int, elements: int
) -> tuple[Ahead, str] | None:
    """A tile's share of the next weights, and C's expression of where it begins.

    ``between`` is the number of elements from one vector of output channels to the next,
    ``elements`` that of one lane's step. None where the weights do not change, where no loop over
    points runs within those over the weights, and where they are few.
    """
    known = set(w.dims())
    numbers = [number for number, loop in enumerate(instance.loops) if loop.dim in known]
    size = size_of(w.element)
    if not numbers or prod(w.shape) * size < LEAST_BYTES:
        return None
    inner = instance.loops[numbers[-1] + 1 :]
    calls = prod(loop.trips for loop in inner)
    if calls < 2:
        return None
    vectors = ceil(instance.size("co") / instance.lanes)
    steps = prod(instance.size(dim) for dim in instance.reduction if dim != "ci")
    steps *= ceil(instance.size("ci") / elements)
    runs = Runs(steps, instance.lanes * elements, vectors, between, calls, size)
    following = offset_of_next(instance, w, instance.loops[numbers[-1]])
    place = runs.place(_call(inner))
    return runs.share(), place if following == "0" else f"{following} + {place}"


def next_weights(instance: Instance, w: Address) -> str:
    """C expression of the offset of the weights in the next iteration that has others."""
    loops = [loop for loop in instance.loops if loop.dim in w.dims()]
    return offset_of_next(instance, w, loops[-1]) if loops else w.offset(instance.dims)


def offset_of_next(instance: Instance, w: Address, loop: Around) -> str:
    """C expression of the offset of the weights in the loop's next iteration."""
    extent = instance.dims[loop.dim]
    starts = tuple(start + loop.step for start in extent.starts)
    # As one term: C that tells the next block of weights from this one.
    later = Extent(variable(f"({loop.variable} + {loop.step})"), extent.size, starts)
    return w.offset({**instance.dims, loop.dim: later})


def _call(loops: tuple[Around, ...]) -> str:
    """C expression of a call's number within the loops."""
    text = ""
    for loop in loops:
        text = f"({text}) * {loop.trips} + {loop.number}" if text else str(loop.number)
    return f"({text})"
