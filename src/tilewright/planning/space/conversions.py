"""Results that the first move on their way rounds to the machine's elements.

A kernel of 16-bit floats computes in float32 and rounds its result once, by a ``cast`` at the end
of its chain, one of fixed point by a ``requantise``. Where a primitive's output is ``converted``,
the primitive leaves that to the move out of its memory, as DaVinci's moves out of L0C do: the
buffer next to the primitive then holds sums, whether its reduction is cut or not, and all memories
after it hold the machine's elements.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.machine import Move, Primitive
from tilewright.numerics.element_types import ELEMENTS
from tilewright.planning.domain import Kernel, Stage

ROUNDING = {"cast": "float", "requantise": "fixed"}
"""Operations that round sums to the machine's elements, and the kind of these."""


def conversion(kernel: Kernel, primitive: Primitive) -> Stage | None:
    """The last stage of a kernel's tiles, which rounds its sums, where a move does it."""
    storage, last = primitive.operands.get("output"), kernel.stages[-1]
    if storage is None or not storage.converted or last is kernel.anchor:
        return None
    if last.operation not in ROUNDING or len(last.inputs) != 1:
        return None
    sums, result = ELEMENTS[last.inputs[0].element], ELEMENTS[last.output.element]
    kinds = {sums.kind, result.kind, ROUNDING[last.operation]}
    return last if len(kinds) == 1 and sums.bytes > result.bytes else None


def computed_stages(
    kernel: Kernel, primitive: Primitive, path: tuple[Move, ...]
) -> tuple[Stage, ...]:
    """The stages that the primitive itself computes for a tile, where results leave by ``path``:
    all but the rounding that its first move does. The last result lies as the kernel's does."""
    stages, rounding = kernel.stages, conversion(kernel, primitive)
    if rounding is None or not path or "convert" not in path[0].transforms:
        return stages
    *others, last = stages[:-1]
    sums = replace(last.output, shape=rounding.output.shape, layout=rounding.output.layout)
    return (*others, replace(last, output=sums))
