"""Convolutions whose tiles a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.targets.generic.kernel_cases import Case, KernelBuilder

from tilewright.planning.schedule import Level, Schedule


def conv(
    channels: int,
    deep: int,
    size: tuple[int, int],
    kernel: tuple[int, int] = (3, 3),
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    maps: Sequence[str] = (),
    strides: tuple[int, int] = (1, 1),
) -> Case:
    """``channels`` of ``deep`` ones of an image, with bias, mapped, and narrowed to 16 bits."""
    build = KernelBuilder(channels + deep + kernel[0])
    y = build.op(
        "conv",
        build.image(1, deep, *size),
        build.operand((channels, deep, *kernel), 10, layout="OHWI"),
        build.operand((channels,), 18, bits=32),
        strides=strides,
        pads=pads,
        dilations=(1, 1),
        group=1,
    )
    for name in maps:
        y = build.op(name, y)
    return build.finish(build.op("requantise", y, result=(16, 8)))


def cut(
    case: Case, tile: Mapping[str, int], order: tuple[str, ...], slots: int = 2, weights: int = 0
) -> Schedule:
    """Tiles of that size in that order; ``slots`` for each operand, or other ones for weights."""
    level = Level("vsm", tuple({**case.kernel.anchor.extents, **tile}.items()), order)
    kinds = {
        one.name: weights or slots if one.role == "weight" else slots
        for one in case.kernel.operands
    }
    return Schedule("conv", (level,), tuple(kinds.items()))
