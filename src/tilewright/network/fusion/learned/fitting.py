"""Fitting a cost's values to simulated kernels, by Gauss and Newton's method with a ridge.

The deviations of predictions are no sums of terms: an engine that nothing waits for may take longer
and change nothing. So they are predicted again with each value changed a little, the changes taken
to be linear, and the best values by these tried; and that a few times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np

from tilewright.network.fusion.learned.instructions import Floats
from tilewright.network.fusion.learned.pipeline import Instructions

Sample = tuple[Instructions, float]
"""The instructions of a kernel, and its simulated cycles."""

RIDGE = 1e-5
"""Weight of the squares of what values differ by from the machine's description, against the
squares of all samples' deviations: half of a value weighs as much as 0.16 % of one sample."""

STEPS = 8
"""Times that deviations are taken to be linear, at most."""

HALVES = 4
"""Shorter steps that are tried where the best values by the linear ones are worse."""

MOST = 10.0
"""Times the machine's own that a value is at most, and cycles more of an instruction: a few kernels
of one size would else be fitted by a constant that is wrong for those of others."""

ENOUGH = 0.999
"""Part of the loss before, above which no further step is taken."""


@dataclass(frozen=True)
class Term:
    """A value: ``plain`` is what the machine's description says, ``unit`` a change by all of it."""

    name: str
    plain: float
    unit: float
    low: float
    high: float
    """Bounds of the change, in units."""
    step: float
    """In units, by which derivatives are taken: long enough that rounded cycles do not blur them,
    and that an engine which others hide comes to be seen."""


@dataclass(frozen=True)
class Fit:
    """The values that fit samples, if instructions are dispatched in one order.

    Points are changes of the values in units of the terms.
    """

    samples: Sequence[Sample]
    ready: bool

    @cached_property
    def terms(self) -> list[Term]:
        """What can be learned of the samples."""
        kinds = {kind for kernel, _ in self.samples for kind in kernel.kinds}
        windows = {name for kernel, _ in self.samples for name in kernel.windows}
        terms: list[Term] = []
        for kind in sorted(kinds):
            terms.append(Term(f"times.{kind}", 1.0, 1.0, -1.0, MOST, -0.2))
            if kind.startswith("compute."):
                terms.append(Term(f"more.{kind}", 0.0, 1.0, 0.0, MOST, 1.0))
        return terms + [Term(f"apart.{name}", 0.0, 1.0, 0.0, 1.0, 1.0) for name in sorted(windows)]

    def values(self, point: Floats) -> dict[str, float]:
        """The values at a point."""
        changes = zip(self.terms, point.tolist(), strict=True)
        return {term.name: term.plain + term.unit * change for term, change in changes}

    def deviations(self, point: Floats, only: str = "", known: Floats | None = None) -> Floats:
        """Logarithms of predicted over simulated cycles, of each sample; of those that have not
        the term ``only``, ``known`` ones."""
        values, ratios = self.values(point), [] if known is None else known.tolist()
        name = only.partition(".")[2]
        for number, (kernel, cycles) in enumerate(self.samples):
            if known is None or name in (*kernel.kinds, *kernel.windows):
                ratio = log(max(kernel.cycles(values, ready=self.ready), 1.0) / cycles)
                ratios[number : number + 1] = [ratio]
        return np.array(ratios)

    def loss(self, point: Floats, deviations: Floats) -> float:
        """What is to be least."""
        return float(deviations @ deviations + RIDGE * (point @ point))

    def best(self) -> tuple[float, Floats]:
        """The least loss that was found, and where."""
        point = np.zeros(len(self.terms))
        deviations = self.deviations(point)
        least = self.loss(point, deviations)
        for _ in range(STEPS):
            slopes = self._slopes(point, deviations)
            square = slopes.T @ slopes + RIDGE * np.eye(len(point))
            change = -np.linalg.solve(square, slopes.T @ deviations + RIDGE * point)
            before = least
            for half in range(HALVES):
                trial = np.clip(point + change / 2**half, *self._bounds)
                there = self.deviations(trial)
                if self.loss(trial, there) < least:
                    point, deviations, least = trial, there, self.loss(trial, there)
                    break
            if least > ENOUGH * before:
                break
        return least, point

    @cached_property
    def _bounds(self) -> tuple[Floats, Floats]:
        low, high = zip(*((term.low, term.high) for term in self.terms), strict=True)
        return np.array(low), np.array(high)

    def _slopes(self, point: Floats, deviations: Floats) -> Floats:
        """[samples, terms]: by how much deviations change with each term."""
        columns: list[Floats] = []
        for number, term in enumerate(self.terms):
            moved = np.array(point)
            ends = np.clip(point[number] + np.array([1, -1]) * term.step, term.low, term.high)
            moved[number] = max(ends, key=lambda end: abs(end - point[number]))
            step = moved[number] - point[number]
            columns.append((self.deviations(moved, term.name, deviations) - deviations) / step)
        return np.array(columns).T
