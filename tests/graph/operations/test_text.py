"""The dialect's text reads back to the same text, for every operation."""

import re

import pytest

from tests.graph.operations.catalogue import EXAMPLES
from tests.graph.operations.example import Example
from tilewright.graph.dialect import KernelOp, NetworkOp, OutputOp, WeightOp, YieldOp
from tilewright.graph.operations import BY_NAME, parse
from tilewright.graph.operations.numbers import (
    ConvertLayoutOp,
    DequantiseOp,
    QuantiseOp,
    RequantiseOp,
)
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.ir import Block, ModuleOp, ParseError, Region, StringAttr, VerifyException, to_text
from tilewright.ir.types import FixedType, tensor, tensor_type


def network_around(example: Example, node: str) -> ModuleOp:
    inputs = [(f"x {i}", value.type) for i, value in enumerate(example.make().inputs)]
    network = NetworkOp.of("net", inputs, ["y"])
    op = BY_NAME[example.operation].build_from(network.block.args, example.attributes, node=node)
    network.block.add_ops([op, OutputOp.build(operands=[[op.result]])])
    return ModuleOp([network])


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_round_trip(example: Example) -> None:
    module = network_around(example, "a node")
    module.verify()
    text = to_text(module)
    again = parse(text)
    assert to_text(again) == text
    assert again.is_structurally_equivalent(module)
    assert str(parse(str(module))) == str(module)


def test_round_trip_of_kernels_weights_and_numbers() -> None:
    network = NetworkOp.of("net", [("image", tensor((1, 4, 8, 8)))], ["y"])
    fixed = tensor((1, 4, 8, 8), FixedType.of(16, -3))
    into = QuantiseOp.build_from(network.block.args, result_type=fixed, node="image")
    weight = WeightOp.of("w_01234567", tensor((4, 4, 1, 1), FixedType.of(16, 20)))
    body = Block(arg_types=[fixed, weight.result.type])
    conv = BY_NAME["conv"].build_from(body.args, node='conv1/é "quoted"\n')
    narrow = RequantiseOp.build_from([conv.result], result_type=fixed, node="conv1")
    relu = ReluOp.build_from([narrow.result], node="relu1")
    body.add_ops([conv, narrow, relu, YieldOp.build(operands=[[relu.result]])])
    kernel = KernelOp.build(
        operands=[[into.result, weight.result]],
        result_types=[fixed],
        properties={"symbol": StringAttr("conv1_k"), "engine": StringAttr("host")},
        regions=[Region(body)],
    )
    blocked = ConvertLayoutOp.build_from(
        [kernel.result], result_type=tensor((1, 4, 8, 8), FixedType.of(16, -3), "NHWC")
    )
    out = DequantiseOp.build_from([blocked.result])
    network.block.add_ops(
        [into, weight, kernel, blocked, out, OutputOp.build(operands=[[out.result]])]
    )
    module = ModuleOp([network])
    module.verify()
    text = to_text(module)
    assert to_text(parse(text)) == text
    assert "%relu1 = graph.relu" in text and '"NHWC"' in text
    assert tensor_type(conv.result).element_type == FixedType.of(32, 17)


def test_text_is_pleasant() -> None:
    convolution = next(example for example in EXAMPLES if example.attributes.get("group") == 2)
    text = to_text(network_around(convolution, "stage1/conv_12"))
    line = next(line.strip() for line in text.splitlines() if "graph.conv" in line)
    assert line == (
        "%stage1_conv.12 = graph.conv %x.0, %x.1, %x.2 "
        '{group = 2, pads = [1, 0, 2, 1], node = "stage1/conv_12"} : '
        "(tensor<2x4x7x7xf32>, tensor<6x2x3x2xf32>, tensor<6xf32>) -> tensor<2x6x8x7xf32>"
    )


def test_numbers_keep_their_value() -> None:
    for value in (1e-5, 0.1, 1 / 3, 2.0, 1e300, -7.25e-310, 5e-324):
        example = Example("clip", ((2,),), {"maximum": value}, lambda _: [])
        module = network_around(example, "n")
        found = re.search(r"maximum = ([^,}]*)", to_text(module))
        assert found is not None and float(found.group(1)) == value
        assert to_text(parse(to_text(module))) == to_text(module)


def network(body: str) -> str:
    return (
        'graph.network "n" attributes {input_names = ["x"], output_names = ["y"]} {\n'
        f"^bb0(%x: tensor<2xf32>):\n{body}\ngraph.output %y : tensor<2xf32>\n}}"
    )


def kernel(argument: str, result: str) -> str:
    return network(
        '%y = graph.kernel "k" (%x) : (tensor<2xf32>) -> tensor<2xf32> {\n'
        f"^bb0(%a: {argument}):\ngraph.yield {result} : tensor<2xf32>\n}}"
    )


RELU = "%y = graph.relu %x : (tensor<2xf32>) -> tensor<2xf32>"


def test_these_texts_are_good() -> None:
    parse(network(RELU))
    parse(kernel("tensor<2xf32>", "%a"))


@pytest.mark.parametrize(
    "text",
    [
        "graph.nothing",
        network("%y = graph.relu %x {bogus = 1} : (tensor<2xf32>) -> tensor<2xf32>"),
        network("%y = graph.softmax %x {axis = f32} : (tensor<2xf32>) -> tensor<2xf32>"),
        network("%y = graph.softmax %x {axis = [0]} : (tensor<2xf32>) -> tensor<2xf32>"),
        network(
            "%y = graph.relu %z : (tensor<2xf32>) -> tensor<2xf32>\n"
            "%z = graph.relu %x : (tensor<2xf32>) -> tensor<2xf32>"
        ),
        network("%y = graph.relu %x : (tensor<2xf32>) -> tensor<3xf32>"),
        network("%y = graph.relu %x : (tensor<?xf32>) -> tensor<?xf32>"),
        kernel("tensor<3xf32>", "%a"),
        kernel("tensor<2xf32>", "%x"),
        network(RELU).replace('["x"]', "[1]"),
        network(RELU).replace('["x"]', "f32"),
        network(RELU).replace('["x"]', '["x", "x2"]'),
        network(RELU).replace('["y"]', "[]"),
        '"graph.conv"() : () -> ()',
        'graph.network "n" { }',
        '%0 = graph.weight {symbol = "\\FF"} : tensor<1xf32>',
        "%0 = graph.weight : tensor<1xf32>",
    ],
)
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises((ParseError, VerifyException)):
        parse(text)
