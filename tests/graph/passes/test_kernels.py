"""partition and fuse-pointwise: who computes what, and what is computed together."""

import pytest

from tests.graph.passes.pass_networks import (
    Builder,
    accelerator,
    assert_same,
    context,
    evaluate,
    inputs_of,
    random_network,
)
from tests.slow import but_fast
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.passes.fuse_pointwise import FusePointwise
from tilewright.graph.passes.partition import Partition
from tilewright.ir import ModuleOp, SSAValue
from tilewright.machine import Machine
from tilewright.targets.cpu.machine import machine as cpu

SMALL, CPU = accelerator(), cpu()


def kernels(module: ModuleOp) -> list[tuple[str, list[str]]]:
    found = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    return [
        (op.engine.data if op.engine else "", [inner.operation for inner in op.operations])  # type: ignore[attr-defined]
        for op in found
    ]


def prepare(net: Builder, value: SSAValue, machine: Machine, fuse: bool = True) -> ModuleOp:
    module = net.finish(value)
    inputs = inputs_of(module)
    expected = evaluate(module, net.store, inputs)
    ctx = context(machine, net.store)
    Partition().apply(ctx, module)
    module.verify()
    FusePointwise(fuse).apply(ctx, module)
    module.verify()
    assert_same(expected, evaluate(module, net.store, inputs), 0)
    return module


@pytest.mark.parametrize("seed", but_fast(range(12), range(4)))
@pytest.mark.parametrize("machine", [SMALL, CPU], ids=["small", "cpu"])
def test_meaning_is_kept(seed: int, machine: Machine) -> None:
    module, store = random_network(seed)
    inputs = inputs_of(module, seed)
    expected = evaluate(module, store, inputs)
    ctx = context(machine, store)
    for step in (Partition(), FusePointwise()):
        step.apply(ctx, module)
        module.verify()
    assert_same(expected, evaluate(module, store, inputs), 0)
    left = {op.name for op in network_of(module).block.ops}
    assert left <= {
        *("graph.weight", "graph.kernel", "graph.output"),
        *("graph.reshape", "graph.concat", "graph.slice", "graph.transpose"),
    }
    symbols = [op.symbol.data for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    assert len(set(symbols)) == len(symbols)
    assert all(symbol.isidentifier() for symbol in symbols)
    if machine is CPU:
        on_host = [inner for engine, inner in kernels(module) if engine == "host"]
        assert all(inner == ["pad"] for inner in on_host)


def residual_block() -> tuple[Builder, SSAValue]:
    net = Builder(x=(1, 8, 6, 6))
    x = net.inputs["x"]
    main = net.conv(net.op("relu", net.conv(x, 8, pads=(1,) * 4)), 8, pads=(1,) * 4)
    shortcut = net.conv(x, 8, 1)
    return net, net.op("relu", net.op("add", main, shortcut))


@pytest.mark.parametrize("machine", [SMALL, CPU], ids=["small", "cpu"])
def test_residual_joins_the_later_convolution(machine: Machine) -> None:
    net, y = residual_block()
    module = prepare(net, y, machine)
    assert kernels(module) == [
        ("accelerator", ["conv", "relu"]),
        ("accelerator", ["conv"]),
        ("accelerator", ["conv", "add", "relu"]),
    ]


def test_groups_are_taken_in_order_and_once() -> None:
    """relu after sigmoid would be a step back, so it heads a kernel, with all groups anew."""
    net = Builder(x=(1, 4, 5, 5))
    x = net.conv(net.inputs["x"], 4)
    for name in ("relu", "sigmoid", "relu", "leaky_relu", "sigmoid", "relu"):
        x = net.op(name, x)
    assert kernels(prepare(net, x, SMALL)) == [
        ("accelerator", ["conv", "relu", "sigmoid"]),
        ("accelerator", ["relu", "leaky_relu", "sigmoid"]),
        ("accelerator", ["relu"]),
    ]


def test_any_chain_joins_a_generated_loop() -> None:
    net = Builder(x=(1, 4, 5, 5))
    x = net.conv(net.inputs["x"], 4)
    for name in ("relu", "sigmoid", "relu"):
        x = net.op(name, x)
    x = net.op("mul", net.drawn(1, 4, 1, 1), x)
    assert kernels(prepare(net, x, CPU)) == [
        ("accelerator", ["conv", "relu", "sigmoid", "relu", "mul"])
    ]


def test_value_with_two_uses_ends_a_chain() -> None:
    net = Builder(x=(1, 4, 5, 5))
    a = net.conv(net.inputs["x"], 4)
    y = net.op("add", net.op("relu", a), net.op("sigmoid", a))
    found = kernels(prepare(net, y, CPU))
    assert found == [
        ("accelerator", ["conv"]),
        ("accelerator", ["sigmoid"]),
        ("accelerator", ["relu", "add"]),
    ]


def test_value_added_to_itself() -> None:
    net = Builder(x=(1, 4, 5, 5))
    a = net.conv(net.inputs["x"], 4)
    assert len(kernels(prepare(net, net.op("add", a, a), CPU))) == 2


def test_fusing_can_be_turned_off() -> None:
    net, y = residual_block()
    assert all(len(inner) == 1 for _, inner in kernels(prepare(net, y, CPU, fuse=False)))


def test_fixed_epilogue_takes_no_broadcast() -> None:
    net = Builder(x=(1, 4, 5, 5))
    y = net.op("add", net.conv(net.inputs["x"], 4), net.drawn(1, 4, 1, 1))
    assert len(kernels(prepare(net, y, SMALL))) == 2


def reasons(net: Builder, value: SSAValue, machine: Machine) -> dict[str, str]:
    module = net.finish(value)
    Partition().apply(context(machine, net.store), module)
    return {
        op.operation: op.reason.data if op.reason else ""  # type: ignore[attr-defined]
        for op in network_of(module).block.ops
        if hasattr(op, "reason")
    }


def test_reasons_are_concrete() -> None:
    net = Builder(x=(1, 5000))
    x = net.op("softmax", net.inputs["x"], axis=1)
    x = net.op("exp", net.op("div", x, net.drawn(1, 5000)))
    found = reasons(net, x, SMALL)
    assert "softmax with axis = 5000 kept whole needs 10000 bytes of in" in found["softmax"]
    assert "which holds 8192" in found["softmax"]
    assert "no primitive of small computes exp (it has" in found["exp"]
    assert "no primitive of small computes div" in found["div"]


def test_an_epilogue_that_lacks_an_operand_is_named() -> None:
    """Further values of an epilogue are the operand residual."""
    conv = SMALL.primitive("conv")
    operands = {role: one for role, one in conv.operands.items() if role != "residual"}
    epilogue = (("add", "div"), ("relu",))
    lacking = conv.model_copy(update={"operands": operands, "epilogue": epilogue})
    net = Builder(x=(1, 3, 8, 8))
    x = net.op("div", net.conv(net.inputs["x"], 5), net.drawn(1, 5, 6, 6))
    found = reasons(net, net.op("exp", x), accelerator(primitives=(lacking,)))
    assert "the epilogue of conv has it" in found["div"]
    assert "an operand residual, which the primitive lacks" in found["div"]
    assert "epilogue" not in found["exp"]


def test_limit_and_extent_reasons() -> None:
    limited = accelerator(
        primitives=(
            SMALL.primitive("softmax").model_copy(update={"limits": {"axis": 16}}),
            SMALL.primitive("conv").model_copy(update={"extents": {"kh": (1, 5)}}),
        )
    )
    net = Builder(x=(1, 3, 8, 8))
    x = net.op("reshape", net.conv(net.inputs["x"], 5, 7), shape=(1, 20))
    found = reasons(net, net.op("softmax", x, axis=1), limited)
    assert "conv serves kh from 1 to 5, here it is 7" in found["conv"]
    assert "over 20 elements: the softmax unit takes at most 16" in found["softmax"]


def test_results_of_32_bits_need_requantising() -> None:
    plain = SMALL.primitive("vector").model_copy(
        update={"epilogue": (), "operations": ("add", "relu", "div")}
    )
    net = Builder(x=(1, 4, 5, 5))
    x = net.op("add", net.inputs["x"], net.inputs["x"])
    found = reasons(net, net.op("div", net.op("relu", x), x), accelerator(primitives=(plain,)))
    assert "no primitive for it can requantise" in found["add"]
    assert found["relu"] == ""
    assert "div is not defined on 16-bit fixed point" in found["div"]


def test_host_on_request() -> None:
    net = Builder(x=(1, 4, 5, 5))
    x = net.op("relu", net.conv(net.inputs["x"], 4, node="first"))
    module = net.finish(net.conv(x, 4, node="second"))
    Partition(("first", "relu")).apply(context(CPU, net.store), module)
    engines = [
        op.engine.data  # type: ignore[attr-defined]
        for op in network_of(module).block.ops
        if getattr(op, "engine", None) is not None
    ]
    assert engines == ["host", "host", "accelerator"]
