"""Run choose-methods on a network, and look at the methods of its kernels."""

from typing import Any

from tests.graph.passes.pass_networks import Builder, assert_same, context, evaluate, inputs_of
from tests.graph.passes.pipelines import prepare_pipeline
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.own import own_passes
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.passes import PassRunner
from tilewright.machine import Machine
from tilewright.planning import Planner


def apply_methods(
    net: Builder, *outputs: SSAValue, machine: Machine, planner: Any = None, **options: Any
) -> ModuleOp:
    """The network with kernels and methods; its meaning is compared on the way."""
    module = net.finish(*outputs)
    inputs = inputs_of(module)
    before = evaluate(module, net.store, inputs)
    ctx = context(machine, net.store)
    ctx.planner = Planner(machine, ask=planner)
    PassRunner(ctx).run(module, prepare_pipeline(machine), "")
    choose = own_passes(machine)["choose-methods"](**options)
    choose.apply(ctx, module)
    module.verify()
    assert_same(before, evaluate(module, net.store, inputs), 2e-5)
    text = str(module)
    choose.apply(ctx, module)
    assert str(module) == text, "a second run changes nothing"
    return module


def anchors(module: ModuleOp) -> list[Operation]:
    """The first operation of each kernel."""
    kernels = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    return [op for k in kernels if isinstance(op := k.operations[0], Operation)]


def methods(module: ModuleOp) -> list[str]:
    """The names of the anchors."""
    return [op.operation for op in anchors(module)]
