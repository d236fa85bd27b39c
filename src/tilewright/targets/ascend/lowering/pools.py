"""Pools of images on the vector unit."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.numerics import reference
from tilewright.planning.domain import Stage
from tilewright.targets.ascend.formats import image
from tilewright.targets.ascend.kernels.pools import Window, pool
from tilewright.targets.ascend.kernels.reductions import reduce_across
from tilewright.targets.ascend.kernels.shares import joined
from tilewright.targets.ascend.lowering.launches import Launches, Value
from tilewright.targets.ascend.machine import CUBE


def _pair(stage: Stage, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    value = stage.attribute(name, default)
    assert isinstance(value, tuple)
    return tuple(int(number) for number in value)


def pooling(
    launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None
) -> Value:
    """The launches of a pool; see ``STAGES``."""
    (value,) = operands
    result = target or launches.buffer(stage.output.shape, "half", image())
    if any((end.element, end.layout) != ("half", image()) for end in (value, result)):
        raise launches.refusal(f"{stage.operation} takes half precision in NC1HWC0 alone")
    average = stage.operation == "average_pool"
    fold = "add" if average else "max"
    of = stage.output
    channels = launches.extent(of.access[1], of.shape[1], CUBE)
    planes = joined((launches.extent(of.access[0], of.shape[0]), channels))
    height, width = value.shape[2:]
    kernel, strides = _pair(stage, "kernel", ()), _pair(stage, "strides", (1, 1))
    pads, dilations = _pair(stage, "pads", (0,) * 4), _pair(stage, "dilations", (1, 1))
    core = launches.core
    if kernel == (height, width) and not any(pads):
        program = reduce_across(
            *(fold, planes, height * width, CUBE, core),
            mean=average,
            name=launches.name("pool"),
            element="half",
            skips=not average,
        )
        launches.launch(program, value, result)
        return result
    window = Window((kernel[0], kernel[1]), (strides[0], strides[1]), (dilations[0], dilations[1]))
    counts = np.full((1, 1), prod(kernel))
    if average:
        counted = _pair(stage, "counted", (0,) * 4)
        shape = stage.inputs[0].shape[2:]
        counts = reference.pool_counts(shape, kernel, strides, pads, (1, 1), counted)
    several = bool((counts != counts[0, 0]).any())
    program = pool(
        *(fold, planes, height, width, window, core),
        pads=pads,
        factor=1 / float(counts[0, 0]),
        factors=several,
        lines=launches.extent(of.access[2], of.shape[2]),
        name=launches.name("pool"),
    )
    more: list[Value] = []
    if several:
        factors = np.repeat((1 / counts.astype(np.float64)).reshape(-1, 1), CUBE, axis=1)
        more.append(launches.constant(factors.astype(np.float32), factors.shape, "float", ""))
    launches.launch(program, value, *more, result)
    return result
