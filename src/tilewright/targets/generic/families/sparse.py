"""Products with compressed weights: streams, and elements that run on their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Column, Columns, Field
from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.numerics import sparse
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic import accumulate, epilogue
from tilewright.targets.generic.families.window import (
    MAX_POINTS,
    MEETING,
    input_touches,
    window_fields,
    windows,
)
from tilewright.targets.generic.family import Family, Unit
from tilewright.targets.generic.operands import (
    Values,
    memory_of,
    operand_fields,
    size_bits,
    size_fields,
)

OUT = ("n", "h", "w", "c")
_STREAM = ("block", "segment")
_SIZES = ("n", "co", "oh", "ow", "ci", "kh", "kw", "blocks", "segments", "words")


def lanes_of(part: Primitive) -> int:
    """Neurons of a block, each on an element of its own."""
    return part.multiples.get("cl", 1)


class Sparse(Family):
    """Convolution, or a product of rows, with weights compressed by step indexing."""

    name = "sparse"
    summary = "Multiplies windows of the input by compressed weights and accumulates."
    operations = ("sparse_product",)
    text = f"""\
At `weight.address` lie `blocks` x `segments` streams of `words` 16-bit words, `weight.block` and
`weight.segment` bytes apart. A stream has the counts of entries of its neurons (one for each
element), then a byte a step, two to a word, then a word a weight: the weights of the neurons of a
block by the `ci` / `segments` channels of a segment, in the order kh, kw, channel; a step is the
distance from the entry before. With these weights, for every n, oh, ow, co: the sum over ci, kh, kw
of input[n, row, column, ci] times weight[co, kh, kw, ci], with `bias` added when `bias` is 1 and
`first` is 1; of the last block, `co` neurons in all count.
{MEETING}Padding counts as zero. Fixed-point sums are modulo 2**32.
Each element computes its own neurons, as many entries a cycle as there are elements; `depth` says
how long the slowest takes for a pixel. A `depth` that the streams do not have is an error.
{accumulate.TEXT}"""

    def fields(self, machine: Machine, part: Primitive) -> tuple[Field, ...]:
        """The fields: sizes, window, operands, accumulation, steps."""
        if not {"input", "weight", "output"} <= part.operands.keys():
            raise refuse("isa-roles", f"{part.name} needs input, weight and output")
        if machine.element != "fixed16":
            raise refuse("isa-roles", f"{part.name} computes on 16-bit fixed point")
        return (
            *size_fields(machine, part, _SIZES),
            Field("depth", size_bits(machine, part), "cycles of the slowest element a pixel"),
            *window_fields(machine, part),
            *operand_fields(machine, "input", memory_of(part, "input"), OUT),
            *operand_fields(machine, "weight", memory_of(part, "weight"), _STREAM),
            *accumulate.bias_fields(machine, part, ("c",)),
            *operand_fields(machine, "output", memory_of(part, "output"), OUT, wide=True),
            *accumulate.FIELDS,
            *epilogue.fields(machine, part, OUT),
        )

    def execute(self, unit: Unit, part: Primitive, values: Values) -> None:
        """One instruction; the sums are exact in float64."""
        n, oh, ow, co = (values[name] for name in ("n", "oh", "ow", "co"))
        weight = self._weights(unit, part, values)
        if max(n * oh * ow * co, weight.size) > MAX_POINTS:
            raise refuse("simulate-size", f"a product of {weight.shape} x {n * oh * ow}")
        seen = windows(unit, part, values, ("n",), np.float64, 0)
        result = seen.reshape(n * oh * ow, -1) @ weight.astype(np.float64).T
        total = result.reshape(n, oh, ow, co).astype(np.int64)
        accumulate.finish(unit, part, values, total, OUT, ("c",))

    def _weights(self, unit: Unit, part: Primitive, values: Values) -> NDArray[Any]:
        """Dense weights [co, kh * kw * ci] as the streams in the buffer say."""
        lanes, co = lanes_of(part), values["co"]
        blocks, segments = values["blocks"], values["segments"]
        ci, taps = values["ci"], values["kh"] * values["kw"]
        if not (0 < co <= blocks * lanes and segments and ci % segments == 0):
            raise refuse("simulate-stream", f"{co} neurons of {ci} channels")
        if blocks * lanes * taps * ci > MAX_POINTS or values["words"] < lanes:
            raise refuse("simulate-size", f"{blocks} x {segments} streams of {values['words']}")
        streams = unit.memories.view(
            memory_of(part, "weight"),
            values["weight.address"],
            np.int16,
            (blocks, segments, values["words"]),
            (values["weight.block"], values["weight.segment"], 2),
        )
        if sparse.slowest(streams, lanes) != values["depth"]:
            raise refuse(
                "simulate-stream",
                f"the slowest element takes {sparse.slowest(streams, lanes)} cycles a pixel, "
                f"the instruction says {values['depth']}",
            )
        try:
            decoded = sparse.decode(streams, taps * (ci // segments), lanes)
        except ValueError as error:
            raise refuse("simulate-stream", str(error)) from None
        split = decoded.reshape(blocks * lanes, segments, taps, ci // segments)
        return split.transpose(0, 2, 1, 3).reshape(blocks * lanes, taps * ci)[:co]

    def touches(self, machine: Machine, part: Primitive, columns: Columns) -> list[Touch]:
        """The memory that instructions touch: windows, streams, bias, residual, accumulators and
        result."""
        axes = list(zip(OUT, (columns[d] for d in ("n", "oh", "ow", "co")), strict=True))
        two = np.full_like(columns["words"], 2)
        streams = Touch(
            memory_of(part, "weight"),
            False,
            columns["weight.address"],
            tuple(columns[name] for name in ("blocks", "segments", "words")),
            (columns["weight.block"], columns["weight.segment"], two),
            two,
        )
        ends = accumulate.sum_touches(machine, part, columns, axes, ("c",))
        return [*input_touches(machine, part, columns, ("n",)), streams, *ends]

    def dims(self, columns: Columns) -> Mapping[str, Column]:
        """One block and segment of the whole depth."""
        ones, depth = np.ones_like(columns["depth"]), columns["depth"] * sparse.SHARE
        return {**columns, "cb": ones, "cs": ones, "alone": depth, "each": depth, "lead": 0 * ones}
