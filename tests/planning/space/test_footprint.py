"""Footprints against boxes enumerated tile by tile."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning import planning_kernels as kernels
from tests.planning.event_reference import box_elements
from tilewright.errors import TilewrightError
from tilewright.planning.domain import Affine
from tilewright.planning.space.footprint import (
    axis_table,
    run_elements,
    tile_positions,
    uses_of,
    whole_elements,
)
from tilewright.targets.cambricon_x.machine import MACHINE


@given(
    kernel=st.integers(1, 5),
    stride=st.integers(1, 3),
    pad=st.integers(0, 3),
    size=st.integers(5, 14),
    tile=st.integers(1, 14),
    part=st.integers(1, 5),
)
@settings(max_examples=120, deadline=None)
def test_axis_tables_are_the_enumeration(
    kernel: int, stride: int, pad: int, size: int, tile: int, part: int
) -> None:
    out = (size + 2 * pad - kernel) // stride + 1
    tile, part = min(tile, out), min(part, kernel)
    axis = Affine((("o", stride), ("k", 1)), -pad)
    sizes = {"o": np.array([out, tile]), "k": np.array([kernel, part])}
    table = axis_table(axis, size, 4, {"o": out, "k": kernel}, sizes)
    lengths: dict[tuple[bool, bool], list[int]] = {}
    for o, k in product(range(0, out, tile), range(0, kernel, part)):
        dims = {"o": (o, min(tile, out - o)), "k": (k, min(part, kernel - k))}
        start, length = axis.interval(dims)
        inside = len(range(max(start, 0), min(start + length, size)))
        lengths.setdefault((dims["o"][1] < tile, dims["k"][1] < part), []).append(inside)
    every = [length for group in lengths.values() for length in group]
    assert table.total[1, 1] == sum(every)
    assert table.largest[1, 1] == -(-max(every) // 4) * 4
    for kind, group in lengths.items():
        assert table.mean[kind][1, 1] == pytest.approx(np.mean(group))


def test_positions_end_with_the_remainder() -> None:
    start, size = tile_positions(10, 4)
    assert start.tolist() == [0, 4, 8]
    assert size.tolist() == [4, 4, 2]


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.conv(8, 16, 9, 3, 1),
        kernels.conv(8, 16, 9, 1, 2),
        kernels.conv(8, 16, 11, 2, 3, pad=0),
        kernels.conv(8, 16, 9, 3, groups=2),
        kernels.pool(8, 8, 2, 2),
        kernels.dense(20, 30),
    ],
    ids=lambda kernel: kernel.symbol,
)
def test_whole_kernels_touch_what_iterations_touch(kernel: kernels.Kernel) -> None:
    extents = kernel.anchor.extents
    for operand in kernel.operands:
        touched: set[tuple[int, ...]] = set()
        dims = [d for d in extents if d in operand.dims]
        for point in product(*(range(extents[d]) for d in dims)):
            at = {d: (i, 1) for d, i in zip(dims, point, strict=True)}
            index = tuple(axis.interval(at)[0] for axis in operand.access)
            if box_elements(operand, at):
                touched.add(index)
        assert whole_elements(operand, extents) == len(touched)


def test_joined_operands_follow_their_host_and_unknown_roles_are_refused() -> None:
    kernel = kernels.conv(8, 16, 9, residual=True)
    uses = uses_of(kernel, MACHINE, MACHINE.primitive("conv"))
    assert [(use.name, use.host) for use in uses] == [
        ("x", ""),
        ("w", ""),
        ("b", "w"),
        ("r", ""),
        ("y", ""),
    ]
    with pytest.raises(TilewrightError, match=r"plan-operand.*takes no weight"):
        uses_of(kernel, MACHINE, MACHINE.primitive("pool"))


def test_contiguous_runs_follow_the_layout() -> None:
    kernel = kernels.conv(32, 16, 10, 1)
    x = kernel.inputs[0]
    box = [np.array([1]), np.array([32]), np.array([4]), np.array([10])]
    part = [np.array([1]), np.array([16]), np.array([4]), np.array([10])]
    runs = {
        layout: (
            int(run_elements(replace(x, layout=layout), box)[0]),
            int(run_elements(replace(x, layout=layout), part)[0]),
        )
        for layout in ("", "NHWC", "NCHW16c")
    }
    assert runs == {"": (40, 40), "NHWC": (1280, 16), "NCHW16c": (640, 640)}
