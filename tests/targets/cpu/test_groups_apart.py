"""Groups of a convolution stay apart in vectors that they share: infinities and NaN, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright
from tilewright.numerics import reference


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_stays_in_its_group(value: float, tmp_path: Path) -> None:
    """The numbers of integers are exact in any order, so results are those of NumPy."""
    random = np.random.default_rng(1)
    x = random.integers(-5, 6, (1, 6, 9, 9)).astype(np.float32)
    x[0, 2, 4, 4] = value
    w = random.integers(1, 5, (12, 2, 3, 3)).astype(np.float32)
    b = random.integers(-9, 9, 12).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], group=3, pads=[1, 1, 1, 1])
    graph = helper.make_graph(
        [node],
        "groups",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_tensor_value_info("y", 1, (1, 12, 9, 9))],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    path = tmp_path / "groups.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    executable = tilewright.compile(path, target="cpu", exact_convolution=True)
    parts = [
        reference.conv2d(x[:, 2 * g :][:, :2], w[4 * g :][:4], (1, 1), (1, 1, 1, 1))
        for g in range(3)
    ]
    expected = np.concatenate(parts, 1) + b[:, None, None]
    assert np.isfinite(expected[:, 4:8]).sum() == 4 * (81 - 9)
    np.testing.assert_array_equal(executable.run({"x": x})["y"], expected)
