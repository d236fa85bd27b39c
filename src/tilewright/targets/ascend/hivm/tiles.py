"""Tiles on their way into HIVM: where they are, how large, and where they lie on the chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.codegen.nest.span import Span
from tilewright.ir import SSAValue
from tilewright.ir.types import layout_of, shape_of
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.hivm.views import View

Spans = Mapping[str, Span]
"""Dim -> where its tile lies."""


@dataclass
class Home:
    """A buffer: its memory, and the tile that it holds."""

    tensor: SSAValue
    whole: View
    spans: Spans
    frame: tuple[str, ...] = ()
    """In UB: the dims of its axes, which are the result's, perhaps with the last and another one
    exchanged, as rows of main memory stay rows."""


def axis_order(value: SSAValue) -> tuple[int, ...] | None:
    """A tensor's axes as they lie in main memory, outermost first; None if some are in blocks."""
    factors = Layout.parse(layout_of(value), len(shape_of(value))).factors
    if any(factor.modulus or factor.divisor != 1 for factor in factors):
        return None
    return tuple(factor.axis for factor in factors)
