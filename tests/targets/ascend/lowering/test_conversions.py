"""How a network changes rows to Nz and back: by copies of blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tests.targets.ascend.operation_networks import Compiled, compiled

from tilewright.targets.ascend.target import AscendTarget


def product(folder: Path, depth: int) -> tuple[Compiled, str]:
    """A product that starts and ends with rows, and its package's C."""
    random = np.random.default_rng(3)
    x = random.normal(0, 1, (48, depth)).astype(np.float32)
    w = random.normal(0, 0.1, (depth, 32)).astype(np.float32)
    network = compiled(
        folder,
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": x},
        {"y": (np.float32, (48, 32))},
        {"w": w},
        values={"cores": 1},  # Matrices stay whole.
    )
    result = network.outputs({"x": x})["y"]
    # Operands are rounded to half precision on the cube, and are not on the host.
    bound = 4 * 2.0**-11 * 0.1 * np.sqrt(depth)
    np.testing.assert_allclose(result, x.astype(np.float64) @ w, rtol=2.0**-10, atol=bound)
    return network, AscendTarget().listing(network.executable.directory / "program")


def test_blocks_are_copied(tmp_path: Path) -> None:
    network, text = product(tmp_path, 64)
    assert not network.host
    assert "scatter_vnchwconv_b16(" not in text


@pytest.mark.slow
def test_there_may_be_any_number_of_columns(tmp_path: Path) -> None:
    """Tiles are the program's: more columns are more tiles."""
    network, _ = product(tmp_path, 4112)
    assert not network.host
