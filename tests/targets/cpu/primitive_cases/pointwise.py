"""Maps, alone and behind a convolution."""

from __future__ import annotations

from tests.targets.cpu.primitive_cases.cases import B, Cases

from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.binary import AddOp, MulOp, SubOp
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.normalisation import BatchNormOp
from tilewright.graph.operations.pointwise import PReluOp, ReluOp

POINTWISE: Cases = {
    "add": lambda m: m.kernel(
        [(AddOp, [m.input((2, 24, 5, 7), B), m.input((2, 24, 5, 7), B)], {}), (ReluOp, [0], {})], B
    ),
    "mulc": lambda m: m.kernel(
        [
            (MulOp, [m.input((2, 24, 5, 7), B), m.input((1, 24, 1, 1), B)], {}),
            (BY_NAME["hard_swish"], [0], {}),
        ],
        B,
    ),
    "mixed": lambda m: m.kernel(
        [(AddOp, [m.input((2, 24, 5, 7), B), m.input((2, 24, 5, 7))], {})], B
    ),
    "broadcast": lambda m: m.kernel(
        [
            (SubOp, [m.input((2, 1, 5, 7)), m.input((6, 1, 7))], {}),
            (BY_NAME["exp"], [0], {}),
            (MulOp, [0, 1], {}),
        ]
    ),
    "blocks_of_one_point": lambda m: m.kernel([(ReluOp, [m.input((1, 37, 1, 1), B)], {})], B),
    "prelu": lambda m: m.kernel([(PReluOp, [m.input((2, 24, 5, 7)), m.weight((24, 1, 1))], {})]),
    "conv_prelu": lambda m: m.kernel(
        [
            (ConvOp, [m.input((1, 8, 5, 7), B), m.weight((24, 8, 1, 1), "OIHWLiLo")], {}),
            (PReluOp, [0, m.weight((24, 1, 1))], {}),
        ],
        B,
    ),
    "swish": lambda m: m.kernel(
        [
            (ConvOp, [m.input((1, 8, 5, 7), B), m.weight((24, 8, 1, 1), "OIHWLiLo")], {}),
            (BY_NAME["sigmoid"], [0], {}),
            (MulOp, [0, 1], {}),
        ],
        B,
    ),
    "batchnorm": lambda m: m.kernel(
        [
            (
                BatchNormOp,
                [
                    m.input((1, 20, 9, 7), B),
                    m.weight((20,)),
                    m.weight((20,)),
                    m.weight((20,)),
                    m.kernel([(BY_NAME["abs"], [m.weight((20,))], {})]),
                ],
                {},
            )
        ],
        B,
    ),
    "unary": lambda m: m.kernel(
        [
            (BY_NAME["tanh"], [m.input((77,))], {}),
            (BY_NAME["erf"], [0], {}),
            (BY_NAME["abs"], [1], {}),
            (BY_NAME["sqrt"], [2], {}),
            (BY_NAME["hard_sigmoid"], [3], {"alpha": 0.3, "beta": 0.1}),
            (BY_NAME["exp"], [4], {}),
            (BY_NAME["log"], [5], {}),
            (BY_NAME["silu"], [6], {}),
            (BY_NAME["elu"], [7], {}),
            (BY_NAME["softplus"], [8], {}),
            (BY_NAME["neg"], [9], {}),
        ]
    ),
    "scalar": lambda m: m.kernel([(AddOp, [m.input(()), m.input(())], {})]),
}
