"""Constraints on operands: what a primitive has no place for goes to the host, or unfused."""

from tests.graph.passes.pass_networks import Builder, accelerator, context
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.passes.editing import operations_of
from tilewright.graph.passes.fuse_pointwise import FusePointwise
from tilewright.graph.passes.partition import Partition
from tilewright.machine import Machine


def without(role: str) -> Machine:
    machine = accelerator()
    primitives = [
        p.model_copy(update={"operands": {r: s for r, s in p.operands.items() if r != role}})
        for p in machine.primitives
    ]
    return machine.model_copy(update={"primitives": tuple(primitives)})


def test_an_operand_without_a_place_is_named() -> None:
    net = Builder(x=(1, 4, 6, 6))
    plain = net.conv(net.inputs["x"], 4, bias=False)
    module = net.finish(net.conv(plain, 4, node="biased"))
    Partition().apply(context(without("bias"), net.store), module)
    first, second = operations_of(module)
    assert first.engine is not None and first.engine.data == "accelerator"
    assert second.engine is not None and second.engine.data == "host"
    assert second.reason is not None
    assert second.reason.data.startswith("conv takes no bias (")


def test_a_sum_is_not_fused_where_there_is_no_residual() -> None:
    def kernels(machine: Machine) -> list[list[str]]:
        net = Builder(x=(1, 4, 6, 6))
        first = net.conv(net.inputs["x"], 4, pads=(1,) * 4)
        total = net.op("add", first, net.conv(first, 4, pads=(1,) * 4))
        module = net.finish(net.op("relu", total))
        for step in (Partition(), FusePointwise()):
            step.apply(context(machine, net.store), module)
        ops = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
        return [[inner.name.removeprefix("graph.") for inner in op.operations] for op in ops]

    assert kernels(accelerator()) == [["conv"], ["conv", "add", "relu"]]
    assert kernels(without("residual")) == [["conv"], ["conv"], ["add", "relu"]]


def test_parameters_that_a_primitive_does_not_take() -> None:
    """An operation goes to the host with the reason, or is a kernel of its own."""

    def partitioned(parameters: dict[str, dict[str, tuple[float, ...]]]) -> list[KernelOp]:
        net = Builder(x=(1, 4, 6, 6))
        x = net.conv(net.inputs["x"], 4)
        module = net.finish(net.op("clip", x, minimum=-1.0, maximum=6.0))
        machine = accelerator()
        changed = [p.model_copy(update={"parameters": parameters}) for p in machine.primitives]
        machine = machine.model_copy(update={"primitives": tuple(changed)})
        for step in (Partition(), FusePointwise()):
            step.apply(context(machine, net.store), module)
        return [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]

    assert len(partitioned({})) == 1
    assert len(partitioned({"clip": {"minimum": (-1.0, 0.0), "maximum": (6.0,)}})) == 1
    apart = partitioned({"clip": {"minimum": (0.0,)}})
    assert len(apart) == 2
    assert apart[1].reason is not None
    assert "takes clip with minimum 0, here it is -1.0" in apart[1].reason.data
