"""Networks whose kernels are formed, as the fusion search takes them."""

from pathlib import Path

import onnx

from benchmarks import models
from tests.graph.passes.pass_networks import Builder, context
from tests.graph.passes.pipelines import prepare_pipeline
from tilewright.graph.dialect import KernelOp, NetworkOp, network_of
from tilewright.graph.passes.fuse_pointwise import FusePointwise
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.passes import CompilerContext, PassEntry, PassRunner
from tilewright.machine import Machine
from tilewright.network.fusion.graph import DependenceGraph, graph_of
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.processors import Processor

MACHINE = cpu(Processor(lanes=16, registers=32, vectors_per_cycle=2.0))


def formed(
    net: Builder, *outputs: SSAValue, machine: Machine = MACHINE, sums: bool = False
) -> tuple[ModuleOp, CompilerContext]:
    """The network as kernels; without ``sums`` sums are kernels of their own."""
    module, made = net.finish(*outputs), context(machine, net.store)
    form(module, made, sums)
    return module, made


def form(module: ModuleOp, made: CompilerContext, sums: bool = False) -> None:
    """Form the kernels of a network."""
    entries = [
        PassEntry(FusePointwise(sums=sums), "") if isinstance(e.step, FusePointwise) else e
        for e in prepare_pipeline(made.machine)
    ]
    PassRunner(made).run(module, entries, "")


def kernels_of(module: ModuleOp | NetworkOp) -> list[KernelOp]:
    network = module if isinstance(module, NetworkOp) else network_of(module)
    return [op for op in network.block.ops if isinstance(op, KernelOp)]


def graph_of_benchmark(name: str, folder: Path) -> DependenceGraph:
    """The dependence graph of one of the benchmarks' networks."""
    from tilewright import load

    path = folder / f"{name}.onnx"
    onnx.save(models.build(name)[1], path)
    imported = load(path)
    module = imported.module.clone()
    form(module, CompilerContext(MACHINE, imported.weights))
    return graph_of(network_of(module))
