"""Pixels batch by batch: no scalar instruction that could stand beside products is waited for."""

from __future__ import annotations

from tests.targets.generic.kernel_cases import KernelBuilder

from tilewright.planning.cost.bounds import granule_bound
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.join_pixels import join_pixels
from tilewright.targets.cambricon.machine import machine
from tilewright.targets.cambricon.timer import timer

CAMBRICON = machine()


def convolution(ci: int, co: int, size: tuple[int, int], kernel: int, stride: int) -> Kernel:
    build, pad = KernelBuilder(1), kernel // 2
    y = build.op(
        "conv",
        build.image(1, ci, *size),
        build.operand((co, ci, kernel, kernel), 10, layout="OHWI"),
        build.operand((co,), 18, bits=32),
        strides=(stride, stride),
        pads=(pad, pad, pad, pad),
        dilations=(1, 1),
        group=1,
    )
    return build.plan_only(build.op("requantise", build.op("relu", y), result=(16, 8)))


def share(kernel: Kernel, dim: str, **sizes: int) -> float:
    """Part of the bound in the cycles of a kernel in rows of pixels."""
    tile = tuple({**kernel.anchor.extents, **sizes}.items())
    slots = tuple((one.name, 2) for one in kernel.operands if one.role in ("input", "output"))
    schedule = Schedule("conv", (Level("vsm", tile, (dim,)),), slots)
    bound = granule_bound(kernel, CAMBRICON, CAMBRICON.primitive("conv"))
    return bound / timer(CAMBRICON)(kernel, schedule)


def test_first_layers_of_seven_rows() -> None:
    """As ResNets begin: without its scalar instructions between products it was 88 % of it."""
    kernel = convolution(3, 64, (56, 224), 7, 2)
    assert share(kernel, "oh", oh=1) > 0.92


def test_products_of_four_cycles() -> None:
    """Of 64 channels each: pixels written out, where a loop took twice the cycles; what follows the
    sums stands as far apart as it takes."""
    kernel = join_pixels(convolution(64, 64, (28, 56), 1, 1), CAMBRICON)
    assert share(kernel, "ow", ow=112) > 0.75
