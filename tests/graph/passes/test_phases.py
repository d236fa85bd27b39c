"""Transposed convolutions by one convolution for each phase: what they mean, and what they take."""

import random
from math import prod
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontends.onnx.onnx_models import assert_close, feeds_of, model_of, noise, single
from tests.frontends.onnx.test_onnx_phases import drawn
from tests.graph.passes.pass_networks import accelerator, context
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.operations import Operation
from tilewright.graph.passes import simplify_pipeline
from tilewright.graph.passes.rules.phases import fitted
from tilewright.graph.passes.take_steps import TakeSteps
from tilewright.ir.types import shape_of
from tilewright.machine import Machine
from tilewright.targets.base import find_target
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.processors import Processor

NHWC = accelerator(element="float32", accumulator="float32")


def simplified(model: onnx.ModelProto, machine: Machine = NHWC) -> tuple[int, list[Operation]]:
    """Products of the network as imported, and its operations as simplified; both mean the same."""
    imported, feeds = import_onnx(model), feeds_of(model)
    network = network_of(imported.module)
    TakeSteps().apply(context(machine, imported.weights), imported.module)
    before = products([op for op in network.block.ops if isinstance(op, Operation)])
    want = interpret(imported.module, imported.weights, feeds)
    for entry in simplify_pipeline(machine):
        entry.step.apply(context(machine, imported.weights), imported.module)
        imported.module.verify()
    got = interpret(imported.module, imported.weights, feeds)
    for name, array in want.items():
        assert np.ptp(array) > 0 or array.size == 1, "the model's output says nothing"
        assert_close(got[name], array, name)
    return before, [op for op in network.block.ops if isinstance(op, Operation)]


def products(ops: list[Operation]) -> int:
    return sum(
        prod(shape_of(op.result)) * prod(shape_of(op.inputs[1])[1:])
        for op in ops
        if op.operation == "conv"
    )


def named(ops: list[Operation], name: str) -> list[Operation]:
    return [op for op in ops if op.operation == name]


def upscaling(*behind: onnx.NodeProto, constants: dict[str, Any] | None = None, **attributes: Any):
    """A transposed convolution of 8 to 6 channels, and nodes that read its result, x1."""
    upscale = helper.make_node("ConvTranspose", ["x0", "w", "b"], ["x1"], name="up", **attributes)
    last = behind[-1].output[0] if behind else "x1"
    known = {"w": noise(8, 6, *attributes["kernel_shape"]), "b": noise(6), **(constants or {})}
    return model_of([upscale, *behind], {"x0": (1, 8, 5, 7)}, [last], known)


def test_random_windows_mean_the_same_and_take_no_more_products() -> None:
    draw, split, fewer = random.Random(7), 0, 0
    for _ in range(22):
        operands, attributes = drawn(draw)
        before, after = simplified(single("ConvTranspose", operands, **attributes))
        for join in named(after, "interleave"):
            split += 1
            kernels = [shape_of(conv.inputs[1])[2:] for conv in named(after, "conv")]
            for conv, kernel in zip(named(after, "conv"), kernels, strict=True):
                spans = [
                    (k - 1) * d for k, d in zip(kernel, conv.integers("dilations"), strict=True)
                ]
                assert all(p <= s for p, s in zip(conv.integers("pads"), spans * 2, strict=True))
            assert len(kernels) == len(join.inputs)
            fewer += products(after) < before
    assert split >= 4 and fewer >= 2


@pytest.mark.parametrize(
    ("attributes", "kernels"),
    [
        ({"kernel_shape": [2, 2], "strides": [2, 2]}, [(1, 1)] * 4),
        (
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4},
            [(1, 1), (1, 2), (2, 1), (2, 2)],
        ),
        ({"kernel_shape": [4, 4], "strides": [2, 2], "pads": [1] * 4}, [(2, 2)] * 4),
        ({"kernel_shape": [1, 5], "strides": [1, 3]}, [(1, 2), (1, 2), (1, 1)]),
        # The last row and pixel are the bias alone: a tap of zeros meets the image.
        (
            {"kernel_shape": [2, 2], "strides": [2, 2], "output_padding": [1, 0]},
            [(2, 1), (2, 1), (1, 1), (1, 1)],
        ),
    ],
)
def test_each_phase_has_its_own_taps(attributes: dict[str, Any], kernels: list[Any]) -> None:
    """And a slice that cuts the last row and pixel off is gone."""
    _, after = simplified(upscaling(**attributes))
    assert {op.operation for op in after} == {"conv", "interleave"}
    assert [shape_of(op.inputs[1])[2:] for op in named(after, "conv")] == kernels
    assert tuple(after[-1].integers("steps")) == tuple(attributes["strides"])


def test_maps_join_the_phases() -> None:
    """A normalisation becomes weights, an activation and a constant for each channel precede."""
    behind = [
        helper.make_node("BatchNormalization", ["x1", "c", "d", "d", "c"], ["x2"]),
        helper.make_node("Relu", ["x2"], ["x3"]),
        helper.make_node("Sub", ["k", "x3"], ["x4"]),
    ]
    constants = {
        "c": np.abs(noise(6)) + 0.5,
        "d": noise(6, seed=1),
        "k": noise(6, seed=2).reshape(6, 1, 1),
    }
    model = upscaling(*behind, kernel_shape=[3, 3], strides=[2, 2], constants=constants)
    _, after = simplified(model)
    names = [op.operation for op in after]
    assert names[-1] == "interleave"
    assert [names.count(name) for name in ("conv", "relu", "sub")] == [4, 4, 4]
    assert len(names) == 13


def test_what_varies_from_pixel_to_pixel_stays_behind() -> None:
    add = helper.make_node("Add", ["x1", "k"], ["x2"])
    model = upscaling(
        add, kernel_shape=[2, 2], strides=[2, 2], constants={"k": noise(1, 6, 10, 14)}
    )
    _, after = simplified(model)
    assert [op.operation for op in after[-2:]] == ["interleave", "add"]


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("group", [1, 3])
def test_pixels_out_of_channels(mode: str, group: int) -> None:
    """Upscaling by subpixels is written as transposed convolutions are; groups may lie across."""
    nodes = [
        helper.make_node("Conv", ["x0", "w"], ["x1"], group=group, pads=[1] * 4),
        helper.make_node("DepthToSpace", ["x1"], ["x2"], blocksize=2, mode=mode),
    ]
    weights = noise(24, 6 // group, 3, 3)
    _, after = simplified(model_of(nodes, {"x0": (2, 6, 4, 5)}, ["x2"], {"w": weights}))
    whole = group == 1 or mode == "CRD"
    assert len(named(after, "interleave")) == whole
    assert len(named(after, "conv")) == (4 if whole else 1)


@pytest.mark.parametrize(
    "machine",
    [cpu(Processor(lanes=16)), *(find_target(t).machine() for t in ("cambricon", "shidiannao"))],
    ids=lambda machine: machine.name,
)
def test_machines_that_would_move_pixel_by_pixel_keep_one_convolution(machine: Machine) -> None:
    """Caches; transfers of one block; images by channels."""
    _, after = simplified(upscaling(kernel_shape=[4, 4], strides=[2, 2]), machine)
    assert len(named(after, "conv")) == 1 and not named(after, "interleave")


def test_images_of_one_channel_are_left_alone() -> None:
    """Their pixels would lie element by element."""
    model = single("ConvTranspose", [(1, 8, 5, 6), noise(8, 1, 4, 4)], strides=[2, 2])
    assert not named(simplified(model)[1], "interleave")


def test_fitted_windows_meet_the_image() -> None:
    """Against every small case by search: the least range of taps around those that are given."""
    draw = random.Random(3)
    for _ in range(300):
        count, dilation, stride = draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 3)
        start, above = draw.randint(0, 2), draw.randint(-3, 6)
        extent, results = draw.randint(1, 6), draw.randint(1, 6)
        taps = range(start, start + count)
        axis = fitted(taps, dilation, above, extent, results, stride)

        def rows(window: int, kept: range) -> list[int]:
            return [window * stride + tap * dilation - above for tap in kept]  # noqa: B023

        first, last = rows(0, axis.taps), rows(results - 1, axis.taps)
        assert first[-1] >= 0 and last[0] < extent
        assert axis.taps.start == taps.start or rows(results - 1, axis.taps[1:])[0] >= extent
        assert axis.taps.stop == taps.stop or rows(0, axis.taps[:-1])[-1] < 0
        span = (len(axis.taps) - 1) * axis.dilation + 1
        assert sum(axis.pads) + len(axis.image) == (results - 1) * stride + span
        assert axis.image.start - axis.pads[0] == first[0]
        assert min(axis.pads) >= 0 and axis.image.stop <= extent
