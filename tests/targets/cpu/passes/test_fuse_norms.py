"""fuse-norms: which normalisations join the product before them, and that all means the same."""

from dataclasses import replace
from typing import Any

import pytest
from tests.graph.passes.pass_networks import Builder, assert_same, context, evaluate, inputs_of

from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes import place_pipeline, prepare_pipeline
from tilewright.graph.passes.memory_plan import memory_plan_of
from tilewright.ir import ModuleOp, SSAValue, f16
from tilewright.ir.passes import PassRunner
from tilewright.machine import Machine
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.passes.fuse_norms import FuseNorms
from tilewright.targets.cpu.planning.capabilities import own_of
from tilewright.targets.cpu.processors import Processor

PROCESSOR = Processor(lanes=16, registers=32, vectors_per_cycle=2.0)
MACHINE = cpu(PROCESSOR)


def norm(net: Builder, x: SSAValue, width: int, **attributes: Any) -> SSAValue:
    return net.op("layer_norm", x, net.drawn(width), net.drawn(width), **attributes)


def apply(
    net: Builder, *outputs: SSAValue, always: bool = True, machine: Machine = MACHINE
) -> list[list[str]]:
    """The kernels behind the pass; the network's meaning is compared on the way."""
    return kernels(module_of(net, *outputs, always=always, machine=machine))


def module_of(
    net: Builder, *outputs: SSAValue, always: bool = True, machine: Machine = MACHINE
) -> ModuleOp:
    module = net.finish(*outputs)
    inputs = inputs_of(module)
    made = context(machine, net.store)
    PassRunner(made).run(module, prepare_pipeline(machine), "")
    before = evaluate(module, net.store, inputs)
    FuseNorms(always).apply(made, module)
    module.verify()
    assert_same(before, evaluate(module, net.store, inputs), 0)
    text = str(module)
    FuseNorms(always).apply(made, module)
    assert str(module) == text, "a second run changes nothing"
    return module


def kernels(module: ModuleOp) -> list[list[str]]:
    found = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    return [[op.operation for op in k.operations if isinstance(op, Operation)] for k in found]


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [((1, 9, 20), {"epsilon": 1e-12}), ((7, 20), {}), ((2, 3, 5, 20), {"centred": False})],
)
def test_a_sum_behind_a_product_is_normalised_in_its_kernel(
    shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    net = Builder(1, x=shape, r=(*shape[:-1], 33))
    y = net.op("add", net.product(net.inputs["x"], 33), net.inputs["r"])
    y = norm(net, y, 33, **attributes)
    assert apply(net, y) == [["matmul", "add", "layer_norm"]]


def test_names_nodes_and_places_stay() -> None:
    net = Builder(2, x=(1, 12, 32))
    y = net.product(net.inputs["x"], 32)
    y = norm(net, net.op("add", y, net.op("relu", net.inputs["x"])), 32)
    module = module_of(net, net.op("tanh", net.product(y, 32)))
    (_, first, _) = (op for op in network_of(module).block.ops if isinstance(op, KernelOp))
    assert first.symbol.data == "k1_matmul1"
    assert [op.node_name for op in first.operations] == ["matmul1", "add3", "layer_norm4"]
    steps = [e for e in place_pipeline(MACHINE) if e.step.name != "fuse-norms"]
    PassRunner(context(MACHINE, net.store)).run(module, steps, "")
    # The sums lie in the place of what is added, and the normalised rows in theirs.
    assert memory_plan_of(module).peak == 2 * 12 * 32 * 4


@pytest.mark.parametrize("how", ["output", "kernel", "twice"])
def test_sums_that_others_read_are_kept(how: str) -> None:
    net = Builder(3, x=(1, 9, 24))
    y = net.op("add", net.product(net.inputs["x"], 24), net.inputs["x"])
    z = norm(net, y, 24)
    if how == "output":
        found = apply(net, z, y)
    elif how == "kernel":  # as networks that normalise before a product
        found = apply(net, net.op("add", net.product(z, 24), y))
    else:
        found = apply(net, net.op("layer_norm", net.op("reshape", y, shape=(9, 24))), z)
    assert ["matmul", "add"] in found and ["layer_norm"] in found


def test_what_is_not_a_product_by_constants_stays() -> None:
    net = Builder(4, x=(1, 9, 24), z=(1, 24, 9))
    computed = net.op("layer_norm", net.op("matmul", net.inputs["x"], net.inputs["z"]))
    alone = norm(net, net.op("relu", net.inputs["x"]), 24)
    rows = net.op("layer_norm", net.op("softmax", net.product(net.inputs["x"], 24), axis=-1))
    behind = net.op("relu", norm(net, net.product(net.inputs["x"], 24), 24))
    found = apply(net, computed, alone, rows, behind)
    assert not any(len(ops) > 1 and "layer_norm" in ops[1:] for ops in found)


def test_other_numbers_stay() -> None:
    net = Builder(5, x=(1, 9, 24))
    y = net.op("cast", net.product(net.inputs["x"], 24), to="float16")
    y = net.op("cast", y, to="float32")
    assert apply(net, norm(net, y, 24)) == [["matmul", "cast", "cast", "layer_norm"]]
    net = Builder(5, x=(1, 9, 24))
    y = net.op("cast", net.product(net.inputs["x"], 24), to="float16")
    z = net.op("layer_norm", y)
    assert z.type.element_type == f16  # type: ignore[union-attr]
    module = net.finish(z)
    made = context(MACHINE, net.store)
    PassRunner(made).run(module, prepare_pipeline(MACHINE), "")
    FuseNorms(True).apply(made, module)
    assert len(kernels(module)) > 1


def sums(rows: int, width: int) -> tuple[Builder, SSAValue]:
    net = Builder(6, x=(1, rows, width), r=(1, rows, width))
    y = net.op("add", net.product(net.inputs["x"], width), net.inputs["r"])
    return net, norm(net, y, width)


@pytest.mark.parametrize(
    ("rows", "width", "cores", "fused"),
    [(128, 768, 1, True), (128, 768, 4, False), (1024, 256, 4, True), (1, 768, 4, False)],
)
def test_the_planner_is_asked_with_all_cores(
    rows: int, width: int, cores: int, fused: bool
) -> None:
    # Cores would divide few rows, and each read all weights.
    net, y = sums(rows, width)
    machine = cpu(replace(PROCESSOR, cores=cores))
    found = apply(net, y, always=False, machine=machine)
    assert (found == [["matmul", "add", "layer_norm"]]) is fused


def test_the_road_has_the_pass_where_primitives_normalise() -> None:
    names = [entry.step.name for entry in place_pipeline(MACHINE)]
    assert names.index("choose-methods") < names.index("fuse-norms") < names.index("assign-layouts")
    none = [
        p.model_copy(update={"own": own_of(p).model_copy(update={"rows": ()})})
        for p in MACHINE.primitives
    ]
    without = MACHINE.model_copy(update={"primitives": tuple(none)})
    assert "fuse-norms" not in [entry.step.name for entry in place_pipeline(without)]


def test_products_in_pieces_keep_a_kernel_of_their_own() -> None:
    machine = cpu(replace(PROCESSOR, cores=1, block_cycles=48.0))
    machine = machine.with_values({"own.cpu.pieces": "all"})
    net, y = sums(256, 512)
    module = net.finish(y)
    made = context(machine, net.store)
    PassRunner(made).run(module, [*prepare_pipeline(machine), *place_pipeline(machine)], "")
    assert kernels(module) == [["piece_matmul", "add"], ["layer_norm"]]
