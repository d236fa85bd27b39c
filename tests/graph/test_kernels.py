"""Kernels of the graph as chains of stages: they compute what the kernel computes."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.graph.operations.iterate import run_kernel
from tilewright.graph.dialect import KernelOp, NetworkOp, OutputOp, YieldOp
from tilewright.graph.interpreter import interpret
from tilewright.graph.kernels import kernel_of, operand_values
from tilewright.graph.operations import BY_NAME
from tilewright.graph.values import value_names
from tilewright.graph.weights import Weights
from tilewright.ir import Block, Region, SSAValue, StringAttr, VerifyException
from tilewright.ir.types import shape_of, tensor

Step = tuple[str, Sequence[int], dict[str, object]]
"""Operation; operands as indices into the kernel's arguments, then results; attributes."""


def network_of_kernel(
    shapes: Sequence[tuple[int, ...]], steps: Sequence[Step], operands: Sequence[int] = ()
) -> tuple[NetworkOp, KernelOp]:
    """A network of one kernel; ``operands`` are indices of inputs (each once by default)."""
    inputs = [(f"in{i}", tensor(shape)) for i, shape in enumerate(shapes)]
    network = NetworkOp.of("n", inputs, ["y"])
    outer = [network.block.args[i] for i in (operands or range(len(shapes)))]
    body = Block(arg_types=[value.type for value in outer])
    values: list[SSAValue] = list(body.args)
    for number, (kind, indices, attributes) in enumerate(steps):
        picked = [values[i] for i in indices]
        op = BY_NAME[kind].build_from(picked, attributes, node=f"node{number}")  # type: ignore[arg-type]
        body.add_op(op)
        values.append(op.result)
    body.add_op(YieldOp.build(operands=[[values[-1]]]))
    kernel = KernelOp.build(
        operands=[outer],
        result_types=[values[-1].type],
        properties={"symbol": StringAttr("k")},
        regions=[Region(body)],
    )
    network.block.add_ops([kernel, OutputOp.build(operands=[[kernel.result]])])
    return network, kernel


CHAINS: list[tuple[list[tuple[int, ...]], list[Step], list[int]]] = [
    (
        [(1, 2, 5, 4), (3, 2, 3, 3), (3,), (1, 3, 5, 4)],
        [("conv", [0, 1, 2], {"pads": (1, 1, 1, 1)}), ("add", [4, 3], {}), ("relu", [5], {})],
        [],
    ),
    (
        [(2, 4, 4, 4), (6, 2, 2, 2), (6, 1, 1)],
        [("conv", [0, 1], {"group": 2}), ("prelu", [3, 2], {}), ("mul", [4, 4], {})],
        [],
    ),
    (
        [(1, 3, 4, 4), (3, 1, 3, 3), (1, 3, 1, 4)],
        [("conv", [0, 1], {"group": 3, "pads": (1, 1, 1, 1)}), ("add", [2, 3], {})],
        [],
    ),
    ([(3, 4), (4, 5), (5,)], [("matmul", [0, 1, 2], {}), ("relu", [3], {})], []),
    (
        [(2, 3, 4), (4, 5), (2, 1, 5)],
        [("matmul", [0, 1], {}), ("add", [2, 3], {}), ("relu", [4], {})],
        [],
    ),
    ([(1, 2, 4, 4)], [("max_pool", [0], {"kernel": (2, 2)}), ("relu", [1], {})], []),
    ([(2, 3), (3,)], [("add", [0, 1], {}), ("relu", [2], {})], []),
    (
        [(1, 3, 4, 4), (3, 3, 3, 3)],
        [("conv", [0, 1], {"pads": (1, 1, 1, 1)}), ("add", [3, 2], {}), ("relu", [4], {})],
        [0, 1, 0],
    ),
    ([(2, 3)], [("add", [0, 0], {}), ("relu", [1], {})], []),
]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: "-".join(s[0] for s in chain[1]))
def test_stages_compute_what_the_kernel_computes(
    chain: tuple[list[tuple[int, ...]], list[Step], list[int]],
) -> None:
    network, op = network_of_kernel(*chain)
    network.verify()
    names = value_names(network)
    kernel = kernel_of(op, names)
    generator = np.random.default_rng(2)
    arrays = {
        name: generator.normal(size=shape_of(value)).astype(np.float32)
        for name, value in network.inputs
    }
    values = operand_values(op, names)
    by_value = dict(zip(network.block.args, arrays.values(), strict=True))
    given = {operand.name: by_value[values[operand.name]] for operand in kernel.inputs}
    expected = interpret(network, Weights(), arrays)["y"]
    np.testing.assert_allclose(run_kernel(kernel, given), expected, rtol=1e-5, atol=1e-5)
    anchor = {dim.name for dim in kernel.anchor.dims if dim.kind == "parallel"}
    assert all(set(stage.extents) <= anchor for stage in kernel.stages[1:])
    assert kernel.output.access == kernel.anchor.output.access
    assert kernel.nodes == tuple(f"node{i}" for i in range(len(chain[1])))
    assert values[kernel.output.name] is op.result


def test_roles() -> None:
    network, op = network_of_kernel(*CHAINS[0])
    kernel = kernel_of(op, value_names(network))
    roles = {operand.name: operand.role for operand in kernel.operands}
    assert roles == {
        "in0": "input",
        "in1": "weight",
        "in2": "bias",
        "in3": "residual",
        "node2": "output",
    }
    assert kernel.internal == {"node0", "node1"}
    assert kernel.symbol == "k"


def test_a_value_read_in_two_ways_is_two_operands() -> None:
    network, op = network_of_kernel(*CHAINS[7])
    kernel = kernel_of(op, value_names(network))
    assert [operand.name for operand in kernel.inputs] == ["in0", "in1", "in0_again"]
    assert [operand.role for operand in kernel.inputs] == ["input", "weight", "residual"]


REFUSED: list[tuple[list[tuple[int, ...]], list[Step], str]] = [
    ([(2, 3)], [("reshape", [0], {"shape": (6,)})], "no loop nest"),
    ([(2, 3), (3, 3)], [("relu", [0], {}), ("matmul", [2, 1], {})], "no map"),
    ([(1, 3), (2, 3)], [("relu", [0], {}), ("add", [2, 1], {})], "no map"),
    ([], [], "empty"),
]


@pytest.mark.parametrize(("shapes", "steps", "reason"), REFUSED, ids=[r[2] for r in REFUSED])
def test_refusals(shapes: list[tuple[int, ...]], steps: list[Step], reason: str) -> None:
    if steps:
        network, op = network_of_kernel(shapes, steps)
    else:
        network, op = network_of_kernel([(2,)], [("relu", [0], {})])
        relu = next(iter(op.body.block.ops))
        relu.results[0].replace_all_uses_with(op.body.block.args[0])
        relu.detach()
        relu.erase()
    with pytest.raises(VerifyException, match=reason):
        kernel_of(op, value_names(network))
