"""Comparison of a run with the graph interpreter on the same graph and inputs.

That graph is the one that the program was made from: what is wrong in it is equal on both sides.
So the outputs are also compared with the model as it was written (model_check.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.overflow import Overflow, Underflow
from tilewright.graph.sensitivity import (
    COARSE_MARGIN,
    MARGIN,
    UNIT_ROUNDOFF,
    UNITS,
    is_float,
    spread,
)
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp
from tilewright.ir.types import Array
from tilewright.runtime.model_check import ModelCheck, plain_json

RELATIVE_TOLERANCE = 1e-4
"""The tolerance relative to a float output's largest finite magnitude: sums of float32 in another
order differ by about the square root of their length times 6e-8, which stays below this for
reductions of a million."""

ABSOLUTE_TOLERANCE = 1e-6
"""Added for outputs that are all close to zero."""


@dataclass(frozen=True)
class Check:
    """A run compared with the meaning of its program, and with the model as it was written."""

    max_abs_error: float
    max_rel_error: float
    """The largest error of any output over that output's largest finite magnitude."""
    mismatches: int
    """Elements that differ: at all on integer machines, beyond the tolerance on float ones."""
    passed: bool
    """True if nothing differs from what the program means, and the model is near enough."""
    exact: bool
    """True if the machine computes in integers, so that outputs must be equal."""
    overflows: tuple[Overflow, ...] = ()
    """Nodes whose results are beyond what floats of 16 bits hold, on the machine as in the
    interpreter: the comparison does not count them."""
    underflows: tuple[Underflow, ...] = ()
    """Nodes whose tensors are too small for floats of 16 bits, in both alike."""
    model: ModelCheck | None = None
    """The outputs' distance from the model as it was written; None where that was not asked."""

    @property
    def equal(self) -> bool:
        """True if the outputs are what the program means, whatever the model says."""
        return not self.mismatches

    def to_json(self) -> dict[str, Any]:
        """For ``--json``; numbers that are not finite are null."""
        return plain_json(self)


def compared(
    module: ModuleOp,
    weights: Weights,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    *,
    expected: Mapping[str, Array],
    exact: bool,
    roundoff: float,
) -> Check:
    """Compare ``outputs`` with what the interpreter ``expected``; see ``Executable.check``.

    ``roundoff`` is that of the machine's numbers where they are coarser than float32
    (``Runner.roundoff``); with ``exact`` every difference is a mismatch.
    """
    spreads: dict[str, Array] = {}
    absolute = relative = 0.0
    mismatches = 0
    for name, want in expected.items():
        computed = outputs[name]
        if computed.shape != want.shape or computed.dtype != want.dtype:
            mismatches += want.size
            continue
        wide = want.astype(np.float64)
        with np.errstate(invalid="ignore"):  # Infinities that are equal are no mismatch below.
            difference = np.abs(computed.astype(np.float64) - wide)
        largest = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
        # Integers that follow from floats differ only where the interpreter's may, too.
        near = is_float(want) and not exact
        allowed = RELATIVE_TOLERANCE * largest + ABSOLUTE_TOLERANCE if near else 0.0
        # Not-a-number is a mismatch unless both have it in the same place.
        same = (computed == want) | (np.isnan(computed) & np.isnan(want))
        beyond = ~(same | (difference <= allowed))
        if beyond.any() and not exact:
            spreads = spreads or _spreads(module, weights, inputs, roundoff)
            beyond &= ~(difference <= spreads[name][tuple(map(slice, want.shape))])
        mismatches += int(beyond.sum())
        worst = float(np.where(same, 0.0, difference).max(initial=0.0))
        absolute = max(absolute, worst)
        relative = max(relative, worst / largest if largest else 0.0)
    return Check(absolute, relative, mismatches, mismatches == 0, exact)


def _spreads(
    module: ModuleOp, weights: Weights, inputs: Mapping[str, Array], roundoff: float
) -> dict[str, Array]:
    """For each output, what its elements may differ by from the interpreter's."""
    units, margin = (roundoff / UNIT_ROUNDOFF, COARSE_MARGIN) if roundoff else (UNITS, MARGIN)
    errors = spread(module, weights, inputs, units=units)
    return {name: margin * error for name, error in errors.items()}
