"""Attention: one kernel of cube and vector unit for all heads."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.planning.domain import Stage
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.formats import heads
from tilewright.targets.ascend.kernels.attention import Heads, attention
from tilewright.targets.ascend.kernels.shares import joined, scaled
from tilewright.targets.ascend.lowering.launches import Launches, Value
from tilewright.targets.ascend.machine import CUBE


def attend(
    launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None
) -> Value:
    """The launch of an attention; see ``STAGES``."""
    result = target or launches.buffer(stage.output.shape, "half", heads())
    layout = Layout.parse(heads(), 4)
    for value in (*operands[:3], result):
        if value.element != "half" or Layout.parse(value.layout, 4) != layout:
            raise launches.refusal("attention takes half precision, each head's matrix in Nz")
    q, k, v = (value.shape for value in operands[:3])
    mask: tuple[int, ...] = ()
    if len(operands) > 3:
        mask = _mask(launches, operands[3], (q[0], q[2], q[1], k[1]))
    scale = float(str(stage.attribute("scale", 1.0)))
    short = (
        bool(launches.free.intersection(operand.access[1].dims)) for operand in stage.inputs[:2]
    )
    of = Heads(q[0] * q[2], q[1], k[1], q[3], v[3], scale, mask, *short)
    out = stage.output
    batches, lines, own, _ = (
        launches.extent(axis, size, unit)
        for axis, size, unit in zip(out.access, out.shape, (1, CUBE, 1, 1), strict=True)
    )
    program = attention(
        *(of, launches.core, launches.name("attention")),
        heads=joined((batches, own)),
        lines=scaled(lines, CUBE),
    )
    launches.launch(program, *operands, result)
    return result


def _mask(
    launches: Launches, value: Value, scores: tuple[int, int, int, int]
) -> tuple[int, int, int]:
    """Return the steps by which the mask broadcasts; see ``Heads.mask``."""
    if value.element != "half" or value.layout:
        raise launches.refusal("attention takes a mask of half precision in row-major order")
    batch, own, rows, keys = value.shape
    if keys != scores[3] or rows not in (1, scores[2]):
        raise launches.refusal("attention takes a mask that has a number for each key")
    rows_apart = keys if rows > 1 else 0
    size = rows * keys
    if own == scores[1] and batch == scores[0]:
        return size, rows_apart, 1
    if own == 1:
        # One for each batch, which all of its heads share.
        return (size if batch > 1 else 0), rows_apart, scores[1]
    if scores[0] == 1:
        return size, rows_apart, 1
    raise launches.refusal(
        f"attention takes a mask of each head or of each batch, not {list(value.shape)} "
        f"({prod(value.shape)} numbers) for {list(scores)}"
    )
