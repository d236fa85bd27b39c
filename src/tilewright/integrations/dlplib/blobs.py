"""Blobs: a network's values in device memory, and the numbers that each is stored in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from tilewright.frontends import Imported
from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.values import value_names
from tilewright.integrations.dlplib.handle import Handle, Operand
from tilewright.integrations.dlplib.numeric import FLOAT32, NumericType, finest, fixed16
from tilewright.ir import SSAValue
from tilewright.ir.types import Array
from tilewright.numbers.calibration import Samples, observed_ranges, samples_of

SHARING = frozenset(("concat", "reshape", "max_pool", "relu"))
"""Operations whose integers pass through: results and operands have one binary point."""

LRN_HIGHEST = 26
"""The finest binary point of what lrn reads."""

ROOM = 30
"""Bits of the magnitude of a sum of products: half of what 32 bits hold."""


@dataclass
class Blob:
    """A value of the network: its shape there, its numbers, and, once it is made, its memory.

    As a tensor it has the missing dims last: N x C becomes N x C x 1 x 1.
    """

    shape: tuple[int, ...]
    type: NumericType
    operand: Operand | None = None

    @property
    def dims(self) -> tuple[int, int, int, int]:
        """The shape as N, C, H, W."""
        n, c, h, w = (*self.shape, 1, 1, 1, 1)[:4]
        return n, c, h, w

    @property
    def memory(self) -> Operand:
        """The memory; it is there once the layer that writes it has been reshaped."""
        assert self.operand is not None
        return self.operand


@dataclass(frozen=True)
class Numbers:
    """Numeric types of a network's values, and the largest magnitudes that they took."""

    types: Mapping[SSAValue, NumericType]
    largest: Mapping[SSAValue, float]

    def of(self, value: SSAValue) -> NumericType:
        """The type of a value."""
        return self.types.get(value, FLOAT32)

    def of_constant(self, array: Array) -> NumericType:
        """The type of a constant that is stored by itself."""
        return finest(float(np.abs(array).max(initial=0.0))) if self.types else FLOAT32

    def of_weights(self, array: Array, x: NumericType, result: SSAValue) -> NumericType:
        """The type of weights, such that sums of products with ``x`` leave room in 32 bits."""
        type = self.of_constant(array)
        if not self.types:
            return type
        sums = max(self.largest[result], 2.0**-20)
        return fixed16(max(min(type.fraction, ROOM - ceil(log2(sums)) - x.fraction), -16))


def choose_numbers(imported: Imported, handle: Handle, samples: Samples | None) -> Numbers:
    """The finest types for what the values are on sample inputs (random ones if there are none).

    A machine of float32 needs none.
    """
    if not handle.is_fixed:
        return Numbers({}, {})
    network = network_of(imported.module)
    stream = samples_of(network, samples)
    ranges = observed_ranges(imported.module, imported.weights, stream)
    names = value_names(imported.module)
    largest = {
        value: max(abs(bound) for bound in ranges[name])
        for value, name in names.items()
        if name in ranges
    }
    fractions = {value: finest(size).fraction for value, size in largest.items()}
    operations = [op for op in network.block.ops if isinstance(op, Operation)]
    changed = True
    while changed:
        changed = False
        for op in operations:
            if op.operation in SHARING:
                group = [value for value in (*op.inputs, op.result) if value in fractions]
                least = min(fractions[value] for value in group)
            elif op.operation == "lrn":
                group = [op.inputs[0]]
                least = min(fractions[op.inputs[0]], LRN_HIGHEST)
            else:
                continue
            for value in group:
                if fractions[value] != least:
                    fractions[value], changed = least, True
    return Numbers({value: fixed16(point) for value, point in fractions.items()}, largest)
