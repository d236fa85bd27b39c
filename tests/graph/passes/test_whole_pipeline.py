"""All graph passes in a row: the network still means the same, and so does its memory."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tests.graph.passes.packing import pack_weights
from tests.graph.passes.pass_networks import (
    Array,
    accelerator,
    assert_same,
    context,
    evaluate,
    inputs_of,
    random_network,
)
from tests.graph.passes.pipelines import pipeline, place_pipeline, prepare_pipeline
from tests.graph.passes.test_fix_numbers import calibrate
from tests.slow import but_fast
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp, network_of
from tilewright.graph.kernels import kernel_of
from tilewright.graph.operations import parse
from tilewright.graph.passes import PASSES
from tilewright.graph.passes.memory_plan import memory_plan_of
from tilewright.graph.passes.own import own_passes
from tilewright.graph.passes.quantise import quantise_pipeline
from tilewright.graph.placement import WEIGHTS, arenas_of, placement_of
from tilewright.graph.values import value_names
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.passes import PassRunner
from tilewright.ir.types import element_dtype, layout_of, shape_of, tensor_type
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.numerics.formats import numbers_of
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.network import network_machine
from tilewright.targets.base import find_target
from tilewright.targets.cambricon_x.machine import machine as cambricon_x
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.processors import Processor

EXAMPLES = Path(__file__).parents[3] / "examples" / "machines"

MACHINES: dict[str, Machine] = {
    "small": accelerator(),
    "cambricon-x": cambricon_x(),
    "avx512": cpu(Processor(lanes=16)),
    "sse": cpu(Processor(lanes=4)),
}


Compiled = tuple[ModuleOp, Weights, dict[str, Array], list[Array]]


def compiled(seed: int, machine: str) -> Compiled:
    """A random network through all passes, with an input and what it gave before."""
    module, store, inputs, expected = compile_anew(seed, machine)
    return module.clone(), store, inputs, expected


@lru_cache(maxsize=128)
def compile_anew(seed: int, machine_name: str) -> Compiled:
    machine = MACHINES[machine_name]
    module, store = random_network(seed, steps=14)
    inputs = inputs_of(module, seed)
    expected = evaluate(module, store, inputs)
    ctx = context(machine, store)
    runner = PassRunner(ctx)
    runner.run(module, prepare_pipeline(machine))
    ctx.ranges.update(calibrate(module, store, [inputs]))
    runner.run(module, place_pipeline(machine))
    return module, store, inputs, expected


class Arena:
    """Runs a network in two arenas of bytes, by its placements alone."""

    def __init__(self, network: NetworkOp, store: Weights) -> None:
        self.network = network
        sizes = arenas_of(network)
        generator = np.random.default_rng(0)
        self.bytes = {name: generator.bytes(size) for name, size in sizes.items()}
        self.arenas = {name: bytearray(data) for name, data in self.bytes.items()}
        self.arenas[WEIGHTS] = bytearray(pack_weights(network, store).tobytes())

    def physical(self, value: SSAValue) -> tuple[Array, Layout]:
        place, shape = placement_of(value), shape_of(value)
        layout = Layout.parse(layout_of(value), len(shape))
        dtype = element_dtype(tensor_type(value).element_type)
        assert place.offset % dtype.itemsize == 0
        extents = layout.physical_shape(shape)
        reach = sum((e - 1) * s for e, s in zip(extents, place.strides, strict=True)) + 1
        assert place.offset + reach * dtype.itemsize <= len(self.arenas[place.arena])
        flat = np.frombuffer(self.arenas[place.arena], dtype, reach, place.offset)
        strides = [stride * dtype.itemsize for stride in place.strides]
        return as_strided(flat, extents, strides), layout

    def read(self, value: SSAValue) -> Array:
        array, layout = self.physical(value)
        return layout.unpack(array.copy(), shape_of(value))

    def write(self, value: SSAValue, array: Array) -> None:
        target, layout = self.physical(value)
        target[...] = layout.pack(array)

    def run(self, inputs: dict[str, Array]) -> list[Array]:
        for name, value in self.network.inputs:
            self.write(value, inputs[name])
        for op in self.network.block.ops:
            if not isinstance(op, KernelOp):
                continue
            known: dict[SSAValue, Array] = {}
            for argument, value in zip(op.body.block.args, op.inputs, strict=True):
                known[argument] = self.read(value)
            for inner in op.operations:
                known[inner.result] = inner.evaluate(*(known[v] for v in inner.inputs))
            self.write(op.result, known[op.operations[-1].result])
        return [self.read(value) for value in self.network.output_op.values]


@pytest.mark.parametrize("seed", but_fast(range(14), range(2)))
@pytest.mark.parametrize("machine", MACHINES)
def test_memory_computes_what_the_network_means(machine: str, seed: int) -> None:
    module, store, inputs, expected = compiled(seed, machine)
    found = evaluate(module, store, inputs)
    fixed = MACHINES[machine].element == "fixed16"
    assert_same(expected, found, 0.02 if fixed else 1e-5)
    in_memory = Arena(network_of(module), store).run(inputs)
    for left, right in zip(found, in_memory, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", but_fast(range(4), range(1)))
def test_text_and_second_run(machine: str, seed: int) -> None:
    module, store, inputs, _ = compiled(seed, machine)
    text = str(module)
    assert str(parse(text)) == text
    again, store, _, _ = compile_anew.__wrapped__(seed, machine)
    assert str(again) == text
    ctx = context(MACHINES[machine], store)
    for name in ("partition", "fuse-pointwise", "fix-numbers", "plan-memory"):
        PASSES[name]().apply(ctx, again)
        assert str(again) == text, name
    PASSES["assign-layouts"]().apply(ctx, again)
    PASSES["eliminate-views"]().apply(ctx, again)
    again.verify()
    before, after = evaluate(module, store, inputs), evaluate(again, store, inputs)
    np.testing.assert_array_equal(before[0], after[0])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", range(6))
def test_kernels_suit_planning(machine: str, seed: int) -> None:
    module, _, _, _ = compiled(seed, machine)
    names = value_names(module)
    for op in network_of(module).block.ops:
        if isinstance(op, KernelOp) and not op.on_host:
            kernel = kernel_of(op, names)
            anchor = kernel.anchor
            assert any(
                p.serves(anchor.operation, anchor.extents) for p in MACHINES[machine].primitives
            )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", range(6))
def test_plan_is_sound(machine: str, seed: int) -> None:
    module, _, _, _ = compiled(seed, machine)
    plan = memory_plan_of(module)
    assert plan.peak >= plan.lower_bound == sum(-(-size // 64) * 64 for _, size in plan.alive)
    for index, first in enumerate(plan.buffers):
        assert first.offset % 64 == 0
        assert first.offset + first.bytes <= plan.peak
        for second in plan.buffers[index + 1 :]:
            if first.first <= second.last and second.first <= first.last:
                ends = first.offset + first.bytes, second.offset + second.bytes
                assert ends[0] <= second.offset or ends[1] <= first.offset
    assert "above the lower bound" in str(plan)
    careful = memory_plan_of(module, in_place=False)
    assert careful.lower_bound >= plan.lower_bound
    weights = [op for op in network_of(module).block.ops if isinstance(op, WeightOp)]
    assert plan.weight_bytes >= sum(np.prod(shape_of(w.result)) * 2 for w in weights)


def test_pipeline_names_every_pass() -> None:
    entries = [entry for machine in MACHINES.values() for entry in pipeline(machine)]
    short = {"element": "float16", "accumulator": "float32"}
    entries += pipeline(accelerator().with_values(short))
    # Channels in blocks; numbers of primitives.
    entries += pipeline(network_machine(ASCEND_910))
    entries += pipeline(load_machine(EXAMPLES / "mixed.toml"))
    entries += pipeline(find_target("cambricon").machine())
    entries += [entry for part in quantise_pipeline(numbers_of("int8")) for entry in part]
    brought = set(own_passes(find_target("cambricon").machine())) | set(own_passes(MACHINES["sse"]))
    assert len(brought) > 1 and not brought & set(PASSES)
    named = {entry.step.name for entry in entries}
    # Loops that a target does not take are unrolled by compiler/loops.py, and what front-ends took
    # apart is taken before all passes.
    assert named | {"unroll-loops", "take-steps"} == set(PASSES) | brought
    assert all(entry.reason for entry in entries)
    assert not any(e.step.name == "fix-numbers" for e in pipeline(MACHINES["sse"]))
