"""Single operations on the DaVinci targets against the interpreter and NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tests.slow import but_fast
from tests.targets.ascend.operation_networks import compiled

from tilewright.numerics import reference


@pytest.mark.parametrize("shape", [(1,), (3, 5), (1, 3, 17, 19)])
def test_casts_at_the_edges(shape: tuple[int, ...], tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(0, 3, shape).astype(np.float32)
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    network = compiled(tmp_path, nodes, {"x": x}, {"y": (np.float32, shape)})
    assert not network.host
    expected = np.maximum(x, 0).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(network.outputs({"x": x})["y"], expected)


GROUPS = [
    # images, channels, results, groups, window, stride, dilation, rows
    (2, 64, 96, 2, 3, 2, 1, 11),
    (1, 64, 32, 8, 3, 1, 2, 13),
    (1, 12, 20, 4, 1, 1, 1, 7),
    (1, 34, 17, 17, 3, 1, 1, 5),
    (1, 256, 256, 4, 3, 1, 1, 14),
]


@pytest.mark.parametrize("case", but_fast(GROUPS, GROUPS[:2]))
def test_convolutions_of_groups(case: tuple[int, ...], tmp_path: Path) -> None:
    images, channels, results, group, size, stride, dilation, rows = case
    random = np.random.default_rng(1)
    x = random.normal(0, 1, (images, channels, rows, rows + 2)).astype(np.float32)
    depth = channels // group
    scale = 1 / np.sqrt(depth * size * size)
    w = random.normal(0, scale, (results, depth, size, size)).astype(np.float32)
    b = random.normal(0, 1, results).astype(np.float32)
    pads = [dilation * (size // 2)] * 4
    windows = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": pads, "group": group}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], **windows),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    halves = (a.astype(np.float16).astype(np.float32) for a in (x, w, b))
    image, weights, bias = halves
    expected = reference.conv2d(
        *(image, weights, (stride, stride), tuple(pads), (dilation, dilation), group)
    )
    expected = np.maximum(expected + bias[:, None, None], 0)
    network = compiled(
        tmp_path, nodes, {"x": x}, {"y": (np.float32, expected.shape)}, {"w": w, "b": b}
    )
    assert not network.host
    np.testing.assert_allclose(network.outputs({"x": x})["y"], expected, atol=6e-3)


LOOK_UPS = [((50, 48), 0, (2, 7)), ((3, 13, 17), 1, (5,)), ((4, 9), 1, (1,)), ((7,), 0, (4,))]


@pytest.mark.parametrize("case", LOOK_UPS)
@pytest.mark.parametrize("index", [np.int64, np.int32])
def test_look_ups(
    case: tuple[tuple[int, ...], int, tuple[int, ...]], index: type[np.integer], tmp_path: Path
) -> None:
    """Rows of a constant by indices of either sign."""
    shape, axis, places = case
    random = np.random.default_rng(len(shape))
    table = random.normal(0, 1, shape).astype(np.float32)
    i = random.integers(-shape[axis], shape[axis], places).astype(index)
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"], axis=axis)]
    expected = np.take(table, i, axis).astype(np.float16).astype(np.float32)
    network = compiled(tmp_path, nodes, {"i": i}, {"y": (np.float32, expected.shape)}, {"x": table})
    assert not network.host
    np.testing.assert_array_equal(network.outputs({"i": i})["y"], expected)
