"""Placements are attributes that survive the text."""

import pytest

from tilewright.graph.dialect import KernelOp, NetworkOp, OutputOp, WeightOp, YieldOp
from tilewright.graph.placement import Placement, arenas_attribute, arenas_of, placement_of
from tilewright.ir import Block, Region, StringAttr, VerifyException, to_attribute
from tilewright.ir.types import tensor

KIND = tensor((2, 3))


def network() -> tuple[NetworkOp, WeightOp, KernelOp]:
    made = NetworkOp.of("net", [("x", KIND)], ["y"])
    weight = WeightOp.of("w", KIND)
    block = Block(arg_types=[KIND, KIND])
    block.add_op(YieldOp.build(operands=[[block.args[0]]]))
    kernel = KernelOp.build(
        operands=[[made.block.args[0], weight.result]],
        result_types=[KIND],
        properties={"symbol": StringAttr("k")},
        regions=[Region(block)],
    )
    made.block.add_ops([weight, kernel, OutputOp.build(operands=[[kernel.result]])])
    return made, weight, kernel


def test_before_and_after() -> None:
    made, weight, kernel = network()
    for value in (made.block.args[0], weight.result, kernel.result):
        with pytest.raises(VerifyException, match="plan-memory"):
            placement_of(value)
    places = [Placement("activations", 64 * i, (3, 1)) for i in range(3)]
    made.properties["placements"] = to_attribute([("activations", 0, (3, 1))])
    weight.placement = places[1].to_attribute()
    kernel.placement = places[2].to_attribute()
    made.verify()
    found = [placement_of(v) for v in (made.block.args[0], weight.result, kernel.result)]
    assert found == places


def test_arenas() -> None:
    made, _, _ = network()
    assert arenas_of(made) == {}
    made.arenas = arenas_attribute({"activations": 4096, "weights": 12})
    assert arenas_of(made) == {"activations": 4096, "weights": 12}


def test_not_a_placement() -> None:
    with pytest.raises(VerifyException, match="not a placement"):
        Placement.of_attribute(to_attribute([1, 2]))
