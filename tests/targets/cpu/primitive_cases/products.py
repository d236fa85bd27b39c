"""Products of matrices, and softmax."""

from __future__ import annotations

from tests.targets.cpu.primitive_cases.cases import B, Cases

from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.binary import AddOp, MulOp
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.operations.normalisation import SoftmaxOp
from tilewright.graph.operations.pointwise import LeakyReluOp, ReluOp

PRODUCTS: Cases = {
    "softmax": lambda m: m.kernel([(SoftmaxOp, [m.input((3, 1000), scale=5.0)], {"axis": 1})]),
    "softmax_mid": lambda m: m.kernel(
        [
            (SoftmaxOp, [m.input((2, 21, 3, 2), B, scale=50.0)], {"axis": 1}),
            (MulOp, [0, m.input((2, 21, 3, 2), B)], {}),
        ],
        B,
    ),
    "softmax_rows": lambda m: m.kernel([(SoftmaxOp, [m.input((3, 7, 5))], {"axis": -1})]),
    "fc": lambda m: m.kernel(
        [
            (
                MatMulOp,
                [m.input((1, 70)), m.weight((45, 70), "OILo"), m.weight((45,), "OLo")],
                {"transpose_b": True},
            ),
            (BY_NAME["tanh"], [0], {}),
        ]
    ),
    "fc3": lambda m: m.kernel(
        [
            (
                MatMulOp,
                [m.input((5, 70)), m.weight((45, 70), "OILo"), m.weight((45,), "OLo")],
                {"transpose_b": True},
            ),
            (AddOp, [0, m.input((5, 45))], {}),
            (ReluOp, [1], {}),
        ]
    ),
    "matmul_row": lambda m: m.kernel([(MatMulOp, [m.input((5, 70)), m.weight((70, 45))], {})]),
    "matmul_batch": lambda m: m.kernel(
        [
            (MatMulOp, [m.input((2, 3, 5, 17)), m.input((3, 17, 21))], {}),
            (LeakyReluOp, [0], {"alpha": 0.1}),
        ]
    ),
    "matmul_bt": lambda m: m.kernel(
        [(MatMulOp, [m.input((2, 5, 17)), m.input((2, 21, 17))], {"transpose_b": True})]
    ),
    "matmul_at": lambda m: m.kernel(
        [(MatMulOp, [m.input((17, 5)), m.input((17, 21)), m.input((5, 1))], {"transpose_a": True})]
    ),
}
