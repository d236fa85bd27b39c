"""Pools and local response normalisation."""

from __future__ import annotations

from tests.targets.cpu.primitive_cases.cases import B, Cases

from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.normalisation import LrnOp
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.graph.operations.pooling import AveragePoolOp, MaxPoolOp
from tilewright.ir import PythonValue

LRN: dict[str, PythonValue] = {"size": 5, "alpha": 0.5, "beta": 0.75, "bias": 2.0}
LRN_EVEN: dict[str, PythonValue] = {"size": 4, "alpha": 0.5, "beta": 0.6, "bias": 1.0}

WINDOWS: Cases = {
    "maxpool": lambda m: m.kernel(
        [
            (
                MaxPoolOp,
                [m.input((1, 20, 13, 17), B)],
                {"kernel": (3, 3), "pads": (1, 1, 1, 1), "strides": (2, 2)},
            )
        ],
        B,
    ),
    "maxpool_dil": lambda m: m.kernel(
        [
            (
                MaxPoolOp,
                [m.input((1, 20, 13, 17), B)],
                {"kernel": (3, 2), "pads": (1, 0, 1, 1), "strides": (1, 2), "dilations": (2, 2)},
            )
        ],
        B,
    ),
    "avgpool": lambda m: m.kernel(
        [
            (
                AveragePoolOp,
                [m.input((1, 20, 13, 17), B)],
                {
                    "kernel": (3, 3),
                    "pads": (1, 1, 1, 2),
                    "strides": (2, 2),
                    "counted": (1, 0, 0, 1),
                },
            )
        ],
        B,
    ),
    "avgpool2": lambda m: m.kernel(
        [
            (
                AveragePoolOp,
                [m.input((1, 20, 13, 17), B)],
                {"kernel": (3, 3), "pads": (1, 1, 1, 1), "counted": (1, 1, 1, 1)},
            ),
            (BY_NAME["sigmoid"], [0], {}),
        ],
        B,
    ),
    "globalpool": lambda m: m.kernel(
        [(AveragePoolOp, [m.input((1, 40, 7, 7), B)], {"kernel": (7, 7)})], B
    ),
    "lrn": lambda m: m.kernel(
        [
            (
                LrnOp,
                [m.input((1, 40, 7, 9), B)],
                LRN,
            )
        ],
        B,
    ),
    "lrn4": lambda m: m.kernel(
        [
            (
                LrnOp,
                [m.input((2, 23, 7, 9), B)],
                LRN_EVEN,
            ),
            (ReluOp, [0], {}),
        ],
        B,
    ),
    "lrn_one_channel": lambda m: m.kernel([(LrnOp, [m.input((1, 1, 3, 5), B)], LRN)], B),
    "lrn_plain": lambda m: m.kernel([(LrnOp, [m.input((2, 23, 7, 9))], LRN_EVEN)]),
    "mean_nhwc_pool": lambda m: m.kernel(
        [
            (
                AveragePoolOp,
                [m.input((1, 20, 13, 17), "NHWC")],
                {
                    "kernel": (3, 3),
                    "pads": (1, 1, 1, 2),
                    "strides": (2, 2),
                    "counted": (1, 0, 0, 1),
                },
            )
        ],
        "NHWC",
    ),
}
