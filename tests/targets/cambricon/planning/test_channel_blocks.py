"""Blocks of channels as dims of their own: what lowerings make of them, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from tests.planning.space.test_join_pixels import convolution
from tests.targets.cambricon.lowering.kernel_words import run_case
from tests.targets.generic.kernel_cases import Array, Case, KernelBuilder

from tilewright.errors import TilewrightError
from tilewright.planning.cost.bounds import granule_bound
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.join_pixels import join_pixels
from tilewright.targets.cambricon.machine import machine
from tilewright.targets.cambricon.planning.channel_blocks import by_channel_blocks, layout_of_blocks
from tilewright.targets.cambricon.timer import timer

CAMBRICON = machine()


def with_blocks(kernel: Kernel, sizes: Mapping[str, int]) -> Kernel:
    """The kernel with blocks of so many channels in the images of these roles."""

    def blocks(operand: Operand) -> Operand:
        role = "output" if operand.name in kernel.internal else operand.role
        size = sizes.get(role, 0) if len(operand.shape) == 4 else 0
        return replace(operand, layout=layout_of_blocks(size)) if size else operand

    stages = tuple(
        replace(stage, inputs=tuple(map(blocks, stage.inputs)), output=blocks(stage.output))
        for stage in kernel.stages
    )
    return replace(kernel, stages=stages)


def in_blocks(case: Case, sizes: Mapping[str, int]) -> Case:
    """The same case over blocks of channels, and one row of pixels where it may be."""
    kernel = join_pixels(by_channel_blocks(with_blocks(case.kernel, sizes)), CAMBRICON)
    before = {one.name: one for one in case.kernel.operands}

    def relaid(operand: Operand, data: Array) -> Array:
        size = sizes.get(operand.role, 0)
        if operand.role == "weight" or len(operand.shape) < 4 or not size:
            return data.reshape(operand.shape) if operand.role != "weight" else data
        n, channels, *pixels = before[operand.name].shape
        apart = data.reshape(n, channels // size, size, *pixels).transpose(0, 1, 3, 4, 2)
        return np.ascontiguousarray(apart).reshape(operand.shape)

    operands = {one.name: relaid(one, case.operands[one.name]) for one in kernel.inputs}
    expected = relaid(kernel.output, case.expected)
    return replace(case, kernel=kernel, operands=operands, expected=expected)


def scheduled(case: Case, primitive: str, order: tuple[str, ...], **sizes: int) -> Schedule:
    tile = {**case.kernel.anchor.extents, **sizes}
    slots = tuple(
        (one.name, 1 if one.role in ("residual", "output") else 2) for one in case.kernel.operands
    )
    return Schedule(primitive, (Level("vsm", tuple(tile.items()), order),), slots)


def test_blocks_are_dims() -> None:
    sizes = {"input": 32, "residual": 64, "output": 64}
    kernel = by_channel_blocks(with_blocks(convolution(co=128, ci=96).kernel, sizes))
    assert kernel.anchor.extents == {
        "n": 1, "g": 2, "co": 64, "oh": 6, "ow": 7, "ci": 32, "kh": 3, "kw": 1,
    }  # fmt: skip
    roles = {one.role: one for one in kernel.operands}
    assert roles["input"].shape == (1, 3, 6, 7, 32)
    assert roles["weight"].shape == (128, 32, 3, 1)
    assert roles["residual"].shape == roles["output"].shape == (1, 2, 6, 7, 64)
    assert roles["bias"].access[0].dims == ("g", "co")
    assert kernel.anchor.iterations == convolution(co=128, ci=96).kernel.anchor.iterations


def test_without_blocks_nothing_changes() -> None:
    kernel = convolution().kernel
    assert by_channel_blocks(kernel) is kernel


def test_rows_of_a_kernel_are_no_blocks() -> None:
    with pytest.raises(TilewrightError, match="plan-operand"):
        by_channel_blocks(with_blocks(convolution(3, ci=64).kernel, {"input": 32}))


RESULT = {"residual": 64, "output": 64}


@pytest.mark.parametrize(
    ("sizes", "primitive", "order", "tile"),
    [
        (RESULT, "conv", ("g", "ow"), {"g": 1, "ow": 10}),
        (RESULT, "conv", ("g", "co", "ow"), {"g": 1, "co": 32, "ow": 42}),
        ({"input": 32}, "conv", ("ow",), {"ow": 9}),
        ({"input": 32}, "rows_conv", ("ow", "kh"), {"ow": 9, "kh": 1}),
        ({"input": 32}, "rows_conv", ("co", "ow", "kh"), {"co": 64, "ow": 9, "kh": 2}),
        (RESULT | {"input": 32}, "conv", ("g", "ow"), {"g": 1, "ow": 10}),
        (RESULT | {"input": 32}, "rows_conv", ("g", "ow", "kh"), {"g": 1, "ow": 42, "kh": 1}),
    ],
)
@pytest.mark.parametrize("stride", [1, 2])
def test_bit_for_bit(
    sizes: dict[str, int], primitive: str, order: tuple[str, ...], tile: dict[str, int], stride: int
) -> None:
    """Windows that skip pixels are not joined to one row."""
    case = in_blocks(convolution(1, stride, co=128, ci=96), sizes)
    width = case.kernel.anchor.extents["ow"]
    tile = {**tile, "ow": min(tile["ow"], width)}
    schedule = scheduled(case, primitive, order, **tile)
    if stride == 2:
        schedule = scheduled(case, primitive, ("oh", *order), **tile | {"oh": 2})
    found, _, _ = run_case(case, schedule, CAMBRICON)
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize("relu", [False, True])
def test_means_of_blocks(relu: bool) -> None:
    build = KernelBuilder(7)
    y = build.op(
        "average_pool",
        build.image(1, 192, 5, 6),
        kernel=(5, 6),
        strides=(1, 1),
        pads=(0, 0, 0, 0),
        counted=(0, 0, 0, 0),
    )
    case = in_blocks(build.finish(build.op("relu", y) if relu else y), {"input": 64})
    schedule = scheduled(case, "matrix_mean", ("g",), g=1)
    found, _, _ = run_case(case, schedule, CAMBRICON)
    np.testing.assert_array_equal(found, case.expected)


def test_parts_of_channels_are_one_transfer() -> None:
    """As ResNet-50 ends: 512 of 2048 channels were a transfer for each pixel, 84 % of the bound."""
    build = KernelBuilder(1)
    y = build.op(
        "conv",
        build.image(1, 512, 7, 7),
        build.operand((2048, 512, 1, 1), 10, layout="OHWI"),
        build.operand((2048,), 18, bits=32),
        strides=(1, 1),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        group=1,
    )
    y = build.op("relu", build.op("add", y, build.image(1, 2048, 7, 7, fraction=9)))
    kernel = build.plan_only(build.op("requantise", y, result=(16, 8)))
    kernel = join_pixels(
        by_channel_blocks(with_blocks(kernel, {"residual": 128, "output": 128})), CAMBRICON
    )
    tile = {**kernel.anchor.extents, "g": 1, "ow": 25}
    slots = tuple((one.name, 1 if one.role == "input" else 2) for one in kernel.operands)
    schedule = Schedule("conv", (Level("vsm", tuple(tile.items()), ("ow", "g")),), slots)
    bound = granule_bound(kernel, CAMBRICON, CAMBRICON.primitive("conv"))
    assert timer(CAMBRICON)(kernel, schedule) * 0.9 < bound
