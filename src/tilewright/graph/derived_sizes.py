"""Sizes that follow from a size of a run by windows, strides and repetitions.

A window of 3 that moves by 2 makes ``(h + 1) // 2`` rows of ``h``, and a nearest resize by 2 makes
``2 h``. Such a form is a chain of steps ``(n * times + more) // by`` on a size. Chains are reduced,
so that two ways to the same rows, as the branches of a residual block are, give equal forms:
``((n + a) // b + c) // d`` is ``(n + a + b c) // (b d)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

Step = tuple[int, int, int]
"""times, more, by: a size n becomes (n * times + more) // by."""


@dataclass(frozen=True)
class Form:
    """A size of a run, or one that follows from it."""

    base: str
    """The name of the run's size."""
    unit: int = 1
    """A divisor of the run's size; the steps begin with how many times it is in it."""
    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, base: str, unit: int = 1) -> Form:
        """The size itself."""
        return cls(base, unit).then(unit, 0, 1)

    def then(self, times: int, more: int, by: int) -> Form:
        """The form of (n * times + more) // by for a size n of this form."""
        steps = list(self.steps)
        if steps:
            before, added, parts = steps[-1]
            if parts == 1 or times == 1:
                # Of whole parts, or divided twice.
                steps.pop()
                if parts == 1:
                    times, more = before * times, added * times + more
                else:
                    times, more, by = before, added + more * parts, parts * by
        common = gcd(times, by)
        times, more, by = times // common, more // common, by // common
        steps += [(times, more, by)] if (times, more, by) != (1, 0, 1) else []
        return Form(self.base, self.unit, tuple(steps))

    def at(self, size: int) -> int:
        """The value where the run's size is ``size``."""
        size //= self.unit
        for times, more, by in self.steps:
            size = (size * times + more) // by
        return size

    @property
    def is_base(self) -> bool:
        """True if this is the run's size itself."""
        return self == Form.of(self.base, self.unit)

    @property
    def period(self) -> int:
        """After how many of the run's sizes the remainders of all divisions repeat."""
        return self.unit * prod(by for _, _, by in self.steps)

    @property
    def name(self) -> str:
        """A name that is an identifier, the same for equal forms."""
        if self.is_base:
            return self.base
        parts = [self.base, *([f"of{self.unit}"] if self.unit > 1 else [])]
        for times, more, by in self.steps:
            parts += [f"times{times}"] if times > 1 else []
            parts += [f"{'plus' if more > 0 else 'minus'}{abs(more)}"] if more else []
            parts += [f"over{by}"] if by > 1 else []
        return "_".join(parts)
