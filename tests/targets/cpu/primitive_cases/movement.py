"""What moves elements, and a mean of them."""

from __future__ import annotations

from tests.targets.cpu.primitive_cases.cases import B, Cases

from tilewright.graph.operations.numbers import ConvertLayoutOp
from tilewright.graph.operations.reductions import ReduceMeanOp
from tilewright.graph.operations.views import PadOp, SliceOp, TransposeOp

MOVEMENT: Cases = {
    "convert": lambda m: m.kernel([(ConvertLayoutOp, [m.input((2, 21, 5, 7))], {})], B),
    "convert_back": lambda m: m.kernel([(ConvertLayoutOp, [m.input((2, 21, 5, 7), B)], {})]),
    "convert_nhwc": lambda m: m.kernel(
        [(ConvertLayoutOp, [m.input((2, 21, 5, 7), "NHWC")], {})], B
    ),
    "transpose": lambda m: m.kernel(
        [(TransposeOp, [m.input((2, 21, 5, 7))], {"permutation": (0, 2, 3, 1)})]
    ),
    "slice": lambda m: m.kernel(
        [
            (
                SliceOp,
                [m.input((2, 21, 5, 7))],
                {"starts": (1, -1), "ends": (9, -6), "axes": (1, 2), "steps": (2, -2)},
            )
        ]
    ),
    "pad": lambda m: m.kernel(
        [(PadOp, [m.input((2, 3, 5, 7))], {"pads": (0, 0, 1, 2, 0, 0, 3, 0), "value": 1.5})]
    ),
    "mean": lambda m: m.kernel([(ReduceMeanOp, [m.input((2, 21, 5, 7))], {"axes": (2, 3)})]),
}
