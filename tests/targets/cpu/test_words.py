"""Images of floats to bytes, four channels side by side: the same integers as the graph's."""

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker

from tilewright.codegen.c.compiler import FLAGS
from tilewright.graph.dialect import WeightOp
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.graph.operations.quantisation import QuantiseLinearOp
from tilewright.ir import SSAValue
from tilewright.ir.types import element_of, tensor, tensor_type
from tilewright.machine import Machine
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import this_processor
from tilewright.targets.cpu.walk import kernel_source

NATIVE = (*FLAGS, *this_processor().flags)

SHAPES = ((1, 3, 5, 37), (2, 9, 4, 21), (3, 1, 2, 2))


def constant(m: Maker, array: np.ndarray) -> SSAValue:
    op = WeightOp.of(m.weights.add(array, "c"), tensor((), element_of(array.dtype)))
    m.network.block.add_op(op)
    return op.result


@pytest.mark.few(3)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize(
    ("dtype", "described", "flags"),
    [(np.uint8, PLAIN, FLAGS), (np.uint8, machine(), NATIVE), (np.int8, machine(), NATIVE)],
)
def test_images_become_bytes(
    dtype: type[np.generic], shape: tuple[int, ...], described: Machine, flags: tuple[str, ...]
) -> None:
    m = Maker(described, seed=sum(shape))
    x = m.input(shape, scale=40.0)
    scale = constant(m, np.array(0.37, np.float32))
    zero = constant(m, np.array(7, dtype))
    kind = tensor_type(zero).element_type
    types = [tensor(shape, tensor_type(x).element_type), tensor(shape, kind, "NCHW4c")]
    y = m.kernel([(ReluOp, [x], {}), (QuantiseLinearOp, [0, scale, zero], {})], types=types)
    m.finish(y)
    found, expected = m.run(flags)["out0"], m.expected()["out0"]
    assert np.array_equal(found, expected)
    assert len(np.unique(expected)) > min(30, expected.size // 4)
    program = m.compilation().kernels[0].program
    assert program is not None
    assert "store_int32" in kernel_source(program, m.lanes).text or shape[3] < m.lanes
