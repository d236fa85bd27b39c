"""Gemm and MatMul, against ONNX Runtime."""

import pytest

from tests.frontends.onnx.onnx_models import check, noise, single
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import network_of


@pytest.mark.parametrize("opset", [9, 11, 13])
@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, -2.0), (2.0, 0.0)])
def test_gemm(opset, trans_a, trans_b, alpha, beta):
    a = (7, 5) if trans_a else (5, 7)
    b = (3, 7) if trans_b else (7, 3)
    attributes = {"transA": trans_a, "transB": trans_b, "alpha": alpha, "beta": beta}
    check(single("Gemm", [a, noise(*b), noise(3)], opset, **attributes))


@pytest.mark.parametrize("c", [(), (1,), (3,), (1, 3), (5, 1), (5, 3)])
def test_gemm_c_broadcasts(c):
    check(single("Gemm", [(5, 7), noise(7, 3), noise(*c)], beta=1.5))
    check(single("Gemm", [(5, 7), noise(7, 3), c or (1,)], beta=1.5))


def test_gemm_of_computed_operands():
    check(single("Gemm", [(5, 7), (7, 3)], alpha=3.0))
    check(single("Gemm", [noise(5, 7), (3, 7), (3,)], transB=1, alpha=3.0, beta=0.25))


def test_a_row_of_constants_becomes_the_bias_of_one_product():
    imported = import_onnx(single("Gemm", [(5, 7), noise(7, 3), noise(1, 3)], beta=2.0))
    names = [op.name for op in network_of(imported.module).block.ops]
    assert names == ["graph.weight", "graph.weight", "graph.matmul", "graph.output"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5, 7), (7, 3)),
        ((2, 5, 7), (7, 3)),
        ((2, 5, 7), (2, 7, 3)),
        ((4, 1, 5, 7), (2, 7, 3)),
        ((5, 7), (2, 7, 3)),
        ((7,), (7, 3)),
        ((5, 7), (7,)),
        ((2, 5, 7), (7,)),
        ((7,), (2, 7, 3)),
        ((7,), (7,)),
    ],
)
def test_matmul(a, b):
    check(single("MatMul", [a, noise(*b)]))
    check(single("MatMul", [a, b], 9))


@pytest.mark.parametrize(
    ("a", "b", "c"), [((5, 6), (7, 3), (3,)), ((5, 7), (7, 3), (4,)), ((5, 7), (7, 3), (2, 5, 3))]
)
def test_gemm_of_shapes_that_do_not_fit_is_refused(a, b, c):
    with pytest.raises(TilewrightError) as caught:
        import_onnx(single("Gemm", [a, noise(*b), noise(*c)]))
    assert [problem.code for problem in caught.value.problems] == ["onnx-shape"]
