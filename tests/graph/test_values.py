"""Values get the model's names, made safe; the model's spelling is kept."""

from tests.graph.networks import by_hand, parameters
from tilewright.graph.dialect import KernelOp, NetworkOp, OutputOp, YieldOp, network_of
from tilewright.graph.operations import BY_NAME, parse
from tilewright.graph.values import name_values, value_names
from tilewright.ir import Block, ModuleOp, Region, StringAttr, to_text
from tilewright.ir.types import tensor


def test_names_follow_nodes_and_survive_text() -> None:
    module, _ = by_hand(parameters(0))
    names = list(value_names(module).values())
    assert names[0] == "image" and "softmax21" in names
    assert list(value_names(parse(to_text(module))).values()) == names
    assert list(value_names(network_of(module)).values()) == names


def test_clashes_are_resolved_and_originals_kept() -> None:
    network = NetworkOp.of("n", [("a/b", tensor((2,))), ("a.b", tensor((2,)))], ["y"])
    value = network.block.args[0]
    for kind, node in (
        ("relu", "a:b"),
        ("exp", "int"),
        ("neg", "int"),
        ("neg", "int"),
        ("tanh", ""),
        ("tanh", ""),
        ("abs", 'q"\n'),
    ):
        op = BY_NAME[kind].build_from([value], node=node)
        network.block.add_op(op)
        value = op.result
    network.block.add_op(OutputOp.build(operands=[[value]]))
    named = name_values(ModuleOp([network]))
    assert list(named.names.values()) == [
        "a_b",
        "a_b_2",
        "a_b_3",
        "int_",
        "int_neg",
        "int_neg_2",
        "tanh_",
        "tanh_2",
        "q",
    ]
    assert named.originals["a_b_2"] == "a.b" and named.originals["q"] == 'q"\n'


def test_a_kernel_shares_names_with_what_is_inside() -> None:
    kind = tensor((2,))
    network = NetworkOp.of("n", [("x", kind)], ["y"])
    body = Block(arg_types=[kind])
    first = BY_NAME["exp"].build_from(body.args, node="e")
    second = BY_NAME["relu"].build_from([first.result], node="r")
    body.add_ops([first, second, YieldOp.build(operands=[[second.result]])])
    kernel = KernelOp.build(
        operands=[[network.block.args[0]]],
        result_types=[kind],
        properties={"symbol": StringAttr("e_k")},
        regions=[Region(body)],
    )
    network.block.add_ops([kernel, OutputOp.build(operands=[[kernel.result]])])
    names = value_names(network)
    assert names[body.args[0]] == names[network.block.args[0]] == "x"
    assert names[kernel.result] == names[second.result] == "r"
    assert names[first.result] == "e"
