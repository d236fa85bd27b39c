"""subsample: which strides become views, which stay, and that the network means the same."""

from typing import Any

import numpy as np
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
from tilewright.compiler.api import compile
from tilewright.frontends import Imported
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.passes import place_pipeline, prepare_pipeline
from tilewright.graph.passes.editing import operations_of
from tilewright.graph.passes.partition import Partition
from tilewright.graph.passes.subsample import Subsample
from tilewright.graph.placement import placement_of
from tilewright.graph.values import value_names
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.passes import PassRunner
from tilewright.machine import Machine
from tilewright.targets.cambricon.capabilities import CambriconMove
from tilewright.targets.cambricon_x.machine import machine as cambricon_x
from tilewright.targets.cpu.machine import machine as cpu

SMALL = accelerator()


def apply(net: Builder, *outputs: SSAValue, machine: Machine = SMALL, host: str = "") -> ModuleOp:
    """The network after partition and subsample; its meaning is compared on the way."""
    module = net.finish(*outputs)
    inputs = inputs_of(module)
    before = evaluate(module, net.store, inputs)
    for step in (Partition((host,)), Subsample()):
        step.apply(context(machine, net.store), module)
        module.verify()
    assert_same(before, evaluate(module, net.store, inputs))
    text = str(module)
    Subsample().apply(context(machine, net.store), module)
    assert str(module) == text, "a second run changes nothing"
    return module


def count(module: ModuleOp, name: str) -> int:
    return sum(op.operation == name for op in operations_of(module))


def strides(module: ModuleOp) -> list[tuple[int, ...]]:
    return [op.integers("strides") for op in operations_of(module) if "strides" in op.values]


def start() -> tuple[Builder, SSAValue]:
    net = Builder(3, x=(2, 5, 9, 12))
    return net, net.conv(net.inputs["x"], 8)


def test_layers_that_read_the_same_pixels_share_a_slice() -> None:
    net, x = start()
    main = net.conv(x, 6, 1, strides=(2, 2))
    shortcut = net.conv(net.op("relu", net.conv(x, 4, 1, strides=(2, 2), bias=False)), 6, 1)
    module = apply(net, net.op("add", main, shortcut))
    assert count(module, "slice") == 1
    assert set(strides(module)) == {(1, 1)}


@pytest.mark.parametrize(
    ("shape", "stride", "left", "slices"),
    [
        ((1, 3), (3, 2), (1, 2), 1),
        ((3, 1), (2, 3), (2, 1), 1),
        ((1, 1), (4, 1), (1, 1), 1),
        ((2, 2), (3, 3), (3, 3), 0),
        ((1, 1), (1, 1), (1, 1), 0),
    ],
)
def test_every_axis_by_itself(
    shape: tuple[int, int], stride: tuple[int, int], left: tuple[int, int], slices: int
) -> None:
    net, x = start()
    module = apply(net, net.op("conv", x, net.drawn(4, 8, *shape), strides=stride))
    assert (count(module, "slice"), strides(module)[-1]) == (slices, left)


def test_padding_stays_where_it_is() -> None:
    net, x = start()
    module = apply(net, net.conv(x, 4, 1, strides=(2, 2), pads=(1, 0, 0, 0)))
    # Rows are padded, columns are not.
    assert count(module, "slice") == 1
    assert strides(module)[-1] == (2, 1)
    assert operations_of(module)[-1].integers("pads") == (1, 0, 0, 0)


@pytest.mark.parametrize("name", ["max_pool", "average_pool"])
def test_pools_and_concatenations(name: str) -> None:
    net, x = start()
    joined = net.op("concat", x, net.op("relu", x), axis=1)
    module = apply(net, net.op(name, joined, kernel=(1, 1), strides=(2, 3)))
    assert count(module, "slice") == 1
    assert strides(module)[-1] == (1, 1)


def test_depthwise() -> None:
    net, x = start()
    module = apply(net, net.conv(x, 8, 1, group=8, strides=(2, 2)))
    assert count(module, "slice") == 1


def _linear() -> Machine:
    moves = tuple(
        m.model_copy(update={"own": CambriconMove(linear=m.target == "in")}) for m in SMALL.moves
    )
    return accelerator(moves=moves)


@pytest.mark.parametrize(
    ("machine", "host"),
    [
        pytest.param(cpu(), "", id="operands in place"),
        pytest.param(_linear(), "", id="a transfer for every pixel"),
        pytest.param(accelerator(layouts={}), "", id="rows cannot be strided"),
        pytest.param(SMALL, "strided", id="layer on the host"),
        pytest.param(SMALL, "conv1", id="input from the host"),
    ],
)
def test_left_alone(machine: Machine, host: str) -> None:
    net, x = start()
    y = net.conv(x, 4, 1, strides=(2, 2), node="strided")
    assert count(apply(net, y, machine=machine, host=host), "slice") == 0


@pytest.mark.parametrize("view", ["input", "transpose"])
def test_inputs_that_lie_otherwise_are_left_alone(view: str) -> None:
    net, x = start()
    x = net.inputs["x"] if view == "input" else net.op("transpose", x, permutation=(0, 1, 3, 2))
    assert count(apply(net, net.conv(x, 4, 1, strides=(2, 2))), "slice") == 0


@pytest.mark.parametrize("seed", range(8))
def test_random_networks_keep_their_meaning(seed: int) -> None:
    module, store = random_network(seed, steps=20)
    inputs = inputs_of(module, seed)
    expected = evaluate(module, store, inputs)
    for step in (Partition(), Subsample()):
        step.apply(context(SMALL, store), module)
        module.verify()
    assert_same(expected, evaluate(module, store, inputs))


def test_the_slice_becomes_an_address() -> None:
    net, x = start()
    module = net.finish(net.conv(x, 4, 1, strides=(2, 3)))
    runner = PassRunner(context(SMALL, net.store))
    runner.run(module, prepare_pipeline(SMALL))
    runner.context.ranges.update(dict.fromkeys(value_names(module).values(), (-4.0, 4.0)))
    runner.run(module, place_pipeline(SMALL))
    (view,) = [op for op in operations_of(module) if op.operation == "slice"]
    source, found = placement_of(view.inputs[0]), placement_of(view.result)
    n, h, w, c = source.strides
    assert found.offset == source.offset
    assert found.strides == (n, 2 * h, 3 * w, c)
    kernels = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    assert [k.operations[0].name for k in kernels if not k.on_host] == ["graph.conv"] * 2


def test_only_touched_pixels_travel() -> None:
    net = Builder(5, x=(1, 16, 16, 16))
    x = net.conv(net.inputs["x"], 32, 1)
    strided = net.conv(x, 16, 1, strides=(2, 2), node="strided")
    imported = Imported(net.finish(strided), net.store, "net", 13, "")
    random = np.random.default_rng(1)
    sample: dict[str, Any] = {"x": random.normal(0, 1, (1, 16, 16, 16)).astype(np.float32)}
    machine = cambricon_x().with_values({"instruction_bytes": 0})  # leaves the fetches out
    executable = compile(imported, "cambricon-x", machine=machine, calibration=[sample])
    outputs = executable.run(sample, check_races=True)
    assert executable.check(sample, outputs).equal
    (kernel,) = [k for k in executable.profile.kernels if k.nodes == ("strided",)]
    # A quarter of the pixels, the weights, the bias and the result, each once.
    assert kernel.dram_bytes == 2 * (8 * 8 * 32 + 16 * 32 + 8 * 8 * 16) + 4 * 16
