"""Runs a planning stage or kernel as the loop nest that it states: slow, and independent.

Every iteration reads the elements that the access maps name; what lies outside a tensor is
padding. Integers stay Python integers.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.ir.types import Array
from tilewright.planning.domain import Affine, Kernel, Operand, Stage

Point = Mapping[str, int]


def index_of(access: tuple[Affine, ...], point: Point) -> tuple[int, ...]:
    return tuple(
        axis.offset + sum(factor * point[name] for name, factor in axis.terms) for axis in access
    )


def read(operand: Operand, array: Array, point: Point) -> Any:
    """The element that an iteration touches, or None in the padding."""
    assert array.shape == operand.shape
    index = index_of(operand.access, point)
    inside = all(0 <= i < extent for i, extent in zip(index, operand.shape, strict=True))
    return array[index].item() if inside else None


def run_stage(stage: Stage, arrays: Mapping[str, Array]) -> Array:
    """The stage's output as float64, or as Python integers for fixed point."""
    kind = object if stage.output.element.startswith("fixed") else np.float64
    result = np.full(stage.output.shape, None, object)
    extents = [range(dim.extent) for dim in stage.dims]
    for values in itertools.product(*extents):
        point = dict(zip(stage.extents, values, strict=True))
        elements = [read(operand, arrays[operand.name], point) for operand in stage.inputs]
        target = index_of(stage.output.access, point)
        result[target] = REDUCE[stage.operation](stage, result[target], elements, point)
    assert not any(element is None for element in result.ravel()), "an element is never written"
    return result.astype(kind)


def _product(_: Stage, so_far: Any, elements: list[Any], __: Point) -> Any:
    x, w = elements[:2]
    start = (elements[2] if len(elements) == 3 else 0) if so_far is None else so_far
    return start + (0 if x is None else x) * w


def _largest(_: Stage, so_far: Any, elements: list[Any], __: Point) -> Any:
    values = [value for value in (so_far, elements[0]) if value is not None]
    return max(values) if values else None


def _sum(_: Stage, so_far: Any, elements: list[Any], __: Point) -> Any:
    return (so_far or 0) + (elements[0] or 0)


def _sum_of_squares(_: Stage, so_far: Any, elements: list[Any], __: Point) -> Any:
    return (so_far or 0) + (elements[0] or 0) ** 2


def _copy(stage: Stage, so_far: Any, elements: list[Any], _: Point) -> Any:
    assert so_far is None
    return stage.attribute("value", 0) if elements[0] is None else elements[0]


REDUCE = {
    "conv": _product,
    "depthwise_conv": _product,
    "matmul": _product,
    "max_pool": _largest,
    "average_pool": _sum,
    "reduce_mean": _sum,
    "lrn": _sum_of_squares,
    "softmax": _copy,
    "transpose": _copy,
    "slice": _copy,
    "pad": _copy,
    "relu": lambda _, __, e, ___: max(e[0], 0),
    "add": lambda _, __, e, ___: e[0] + e[1],
    "mul": lambda _, __, e, ___: e[0] * e[1],
    "prelu": lambda _, __, e, ___: e[0] if e[0] >= 0 else e[0] * e[1],
    "batch_norm": lambda s, __, e, ___: (
        e[1] * (e[0] - e[3]) / (e[4] + s.attribute("epsilon")) ** 0.5 + e[2]
    ),
}
"""What one iteration makes of the element written so far (None at first) and those read."""


def run_kernel(kernel: Kernel, arrays: Mapping[str, Array]) -> Array:
    """The kernel's output, stage after stage."""
    known = dict(arrays)
    for stage in kernel.stages:
        known[stage.output.name] = run_stage(stage, known)
    return known[kernel.output.name]
