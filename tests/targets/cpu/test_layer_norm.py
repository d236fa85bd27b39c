"""Layer normalisation against its meaning: lengths with remainders, strides, what follows it."""

import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker, check

from tilewright.codegen.c.compiler import FLAGS
from tilewright.graph.operations.binary import AddOp
from tilewright.graph.operations.normalisation import LayerNormOp
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.ir import SSAValue
from tilewright.machine import Machine
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import this_processor


def norm(
    m: Maker, shape: tuple[int, ...], operands: int = 3, layout: str = "", **attributes: object
) -> SSAValue:
    inputs: list[SSAValue | int] = [m.input(shape, layout, scale=3.0)]
    inputs += [m.weight(shape[-1:]) for _ in range(operands - 1)]
    residual = m.input(shape, layout)
    chain = [(LayerNormOp, inputs, attributes), (AddOp, [0, residual], {}), (ReluOp, [1], {})]
    return m.kernel(chain, layout)  # type: ignore[arg-type]


CASES = {
    "wide": lambda m: norm(m, (1, 5, 768)),
    "remainder": lambda m: norm(m, (3, 197)),
    "root_mean_square": lambda m: norm(m, (7, 100), 2, centred=False, epsilon=1e-6),
    "short": lambda m: norm(m, (2, 3, 5), 1),
    "one": lambda m: norm(m, (4, 1)),
    "blocked": lambda m: norm(m, (1, 20, 3, 37), 3, "NCHWLc"),
    "vectors": lambda m: norm(m, (2, 64), 2),
}


@pytest.mark.parametrize("made", [machine(), PLAIN], ids=["native", "four lanes"])
def test_layer_norm(made: Machine) -> None:
    m = Maker(made, seed=3)
    m.finish(*(case(m) for case in CASES.values()))
    flags = () if made is PLAIN else this_processor().flags
    check(m, flags=(*FLAGS, *flags, "-Werror"))
