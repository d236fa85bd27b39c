"""The part of every loop variable's range that buffers hold: swTVM's algorithms 1 and 5.

Of every tensor one dim is being buffered at a time, from the lowest (contiguous) one upwards: the
next, once all variables of this one are buffered whole. A variable is a *size* variable if it
stands in that dim of some tensor, a *number* variable if it stands in a higher one (it then decides
how many transfers there are), and a *computing* variable if both.

First every size and computing variable gets ``block`` (64 floats: a transfer of 256 bytes has a
good bandwidth) or its whole range, halved while the buffers do not fit. Then, again and again, the
variable is doubled with which fewest transfers are left if it is the innermost one, until the next
doubling does not fit.

What is unclear or impossible in the printed algorithm is decided so (its lines in brackets): a
range of 64 counts as whole (16); the initial loop runs over variables that have no buffer yet,
where the printed one never ends (11-33); doubling stops at the range (37); where even one element
does not fit, there is no tile, and going back to variables before would not help (25-28); the
expansion ends where no variable is left (36); levels stop at the last dim, that of the variable
included (algorithm 5, 41-51). Sizes are multiples of the primitive's granules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tilewright.planning.planners.ldm.order import Tensor, select

Kind = Literal["size", "number", "computing"]

BLOCK = 64
"""Elements that a variable's buffer begins with."""

Fits = Callable[[Mapping[str, int]], bool]
"""A test whether the buffers of tiles of these sizes fit their memories."""


@dataclass
class Buffering:
    """The state of algorithm 1: the buffers' sizes by variable, and what is still cut."""

    ranges: Mapping[str, int]
    tensors: Sequence[Tensor]
    fits: Fits
    block: int = BLOCK
    granules: Mapping[str, int] = field(default_factory=dict[str, int])
    """Sizes are multiples of these, or the whole range."""
    whole: frozenset[str] = frozenset()
    """Variables whose range is never cut."""
    steps: int = field(default=0, init=False)
    """Sizes of buffers that were looked at."""

    def __post_init__(self) -> None:
        self.sizes = {v: self._least(v) for v in self.ranges}
        self.cut = set(self.ranges) - self.whole
        self.levels = {tensor.name: 0 for tensor in self.tensors}
        self._rise()

    def run(self) -> dict[str, int] | None:
        """The buffers' sizes; None where not even the least of them fit."""
        if not self._fit():
            return None
        self._initialise()
        self._expand()
        return self.sizes

    # ------------------------------------------------------------ algorithm 5

    def kind(self, variable: str) -> Kind | None:
        """Return the kind of a variable; None for one in no tensor's dims that are still cut."""
        size = number = False
        for tensor in self.tensors:
            level = self.levels[tensor.name]
            size |= level < len(tensor.dims) and variable in tensor.dims[level]
            number |= any(variable in dim for dim in tensor.dims[level + 1 :])
        if size:
            return "computing" if number else "size"
        return "number" if number else None

    def ordered(self) -> list[str]:
        """The variables that buffers can grow by: size variables by the bytes that their tensors'
        buffers take, then computing ones by the tensors that they affect."""
        by_kind: dict[Kind | None, list[str]] = {}
        for variable in self.ranges:
            if variable in self.cut:
                by_kind.setdefault(self.kind(variable), []).append(variable)
        sizes = sorted(by_kind.get("size", []), key=self._bytes)
        computing = sorted(
            by_kind.get("computing", []), key=lambda v: sum(t.holds(v) for t in self.tensors)
        )
        return sizes + computing

    def _rise(self) -> None:
        """Move tensors whose current dim is buffered whole on to their next dim."""
        for tensor in self.tensors:
            while self.levels[tensor.name] < len(tensor.dims) and not (
                self.cut & tensor.dims[self.levels[tensor.name]]
            ):
                self.levels[tensor.name] += 1

    def _settle(self, variable: str) -> None:
        """Take out a variable that is buffered whole."""
        self.cut.discard(variable)
        self._rise()

    def _reopen(self, variable: str) -> None:
        """Put back a variable that is no longer whole: its tensors go back to its dim."""
        self.cut.add(variable)
        for tensor in self.tensors:
            for level in range(min(self.levels[tensor.name], len(tensor.dims))):
                if variable in tensor.dims[level]:
                    self.levels[tensor.name] = level
                    break

    # ------------------------------------------------------------ algorithm 1

    def _initialise(self) -> None:
        started: set[str] = set()
        while new := [v for v in self.ordered() if v not in started]:
            for variable in new:
                started.add(variable)
                self._put(variable, self._rounded(variable, self.block))
                while not self._fit() and self.sizes[variable] > self._least(variable):
                    self._put(variable, self._rounded(variable, self.sizes[variable] // 2))

    def _expand(self) -> None:
        while variables := self.ordered():
            trips = {v: -(-extent // self.sizes[v]) for v, extent in self.ranges.items()}
            chosen = select(variables, self.tensors, trips)
            before = self.sizes[chosen]
            self._put(chosen, min(2 * before, self.ranges[chosen]))
            if not self._fit():
                self._put(chosen, before)
                return

    def _put(self, variable: str, size: int) -> None:
        """Give a variable's buffer a size."""
        self.sizes[variable] = size
        if size == self.ranges[variable]:
            self._settle(variable)
        elif variable not in self.cut:
            self._reopen(variable)

    def _fit(self) -> bool:
        self.steps += 1
        return self.fits(self.sizes)

    def _least(self, variable: str) -> int:
        extent = self.ranges[variable]
        return extent if variable in self.whole else min(self.granules.get(variable, 1), extent)

    def _rounded(self, variable: str, size: int) -> int:
        """Cap a size at the range; sizes below the range are multiples of the granule."""
        granule = self.granules.get(variable, 1)
        return min(max(size // granule, 1) * granule, self.ranges[variable])

    def _bytes(self, variable: str) -> int:
        """Elements that the buffers of a variable's tensors hold."""
        total = 0
        for tensor in self.tensors:
            if tensor.holds(variable):
                total += tensor.elements(self.sizes)
        return total
