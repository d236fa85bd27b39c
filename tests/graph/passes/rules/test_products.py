"""flatten-rows: the same numbers by one product of rank 2, where machines take one at a time."""

import numpy as np
import pytest

from tests.graph.passes.pass_networks import (
    Builder,
    accelerator,
    assert_same,
    context,
    evaluate,
    inputs_of,
)
from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.fold_constants import FoldConstants
from tilewright.graph.passes.simplify import Simplify
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of
from tilewright.machine import Machine
from tilewright.targets.cambricon.machine import MACHINE as CAMBRICON


def simplified(net: Builder, *outputs: SSAValue, machine: Machine = CAMBRICON) -> list[Operation]:
    """The operations that are left, after checking that the network means the same."""
    module = net.finish(*outputs)
    given = inputs_of(module)
    expected = evaluate(module, net.store, given)
    for step in (Simplify(), FoldConstants()):
        step.apply(context(machine, net.store), module)
        module.verify()
    assert_same(expected, evaluate(module, net.store, given), 2e-5)
    return [op for op in network_of(module).block.ops if isinstance(op, Operation)]


def names(ops: list[Operation]) -> list[str]:
    return [op.operation for op in ops]


@pytest.mark.parametrize("leading", [(2, 3), (2, 3, 4), (2, 1, 3, 2)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_linear_map_linear(leading: tuple[int, ...], bias: bool, last: bool) -> None:
    net = Builder(x=(*leading, 6))
    x = net.product(net.inputs["x"], 10, bias)
    x = net.op("mul", net.op("sigmoid", x), net.drawn(10)) if last else net.op("relu", x)
    x = net.product(x, 5, bias)
    maps = ["sigmoid"] if last else ["relu"]
    ops = simplified(net, x)
    kept = [name for name in names(ops) if name != "mul"]
    assert kept == ["reshape", "matmul", *maps, "matmul", "reshape"]
    assert all(len(shape_of(op.result)) == 2 for op in ops[:-1])
    assert shape_of(ops[-1].result) == (*leading, 5)


@pytest.mark.parametrize("first", [True, False])
def test_sum_with_rows_joins_the_product(first: bool) -> None:
    net = Builder(x=(2, 3, 6), z=(2, 3, 6))
    x, z = net.inputs["x"], net.inputs["z"]
    made = net.product(x, 6)
    ops = simplified(net, net.op("sub", made, z) if first else net.op("sub", z, made))
    assert counted(ops) == {"reshape": 3, "matmul": 1, "sub": 1}
    difference = next(op for op in ops if op.operation == "sub")
    assert shape_of(difference.result) == (6, 6)


def test_products_of_one_value_share_its_rows() -> None:
    net = Builder(x=(2, 3, 6))
    x = net.inputs["x"]
    ops = simplified(net, *(net.product(x, width) for width in (4, 5, 7)))
    assert counted(ops) == {"reshape": 4, "matmul": 3}


def test_what_stays() -> None:
    net = Builder(x=(2, 3, 6), z=(2, 6, 4))
    assert names(simplified(net, net.op("matmul", net.inputs["x"], net.inputs["z"]))) == ["matmul"]
    net = Builder(x=(1, 3, 6))
    assert names(simplified(net, net.product(net.inputs["x"], 4))) == ["matmul"]
    net = Builder(x=(2, 3, 6))
    found = simplified(net, net.product(net.inputs["x"], 4), machine=accelerator())
    assert names(found) == ["matmul"], "this machine takes whole batches"
    net = Builder(x=(2, 3, 6))
    rows = net.op("add", net.product(net.inputs["x"], 4, bias=False), net.drawn(2, 3, 4))
    assert "add" in names(simplified(net, rows)), "what differs from row to row is no bias"


def counted(ops: list[Operation]) -> dict[str, int]:
    values, counts = np.unique(names(ops), return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))
