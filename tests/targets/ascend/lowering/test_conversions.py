"""Which method changes rows to Nz and back in a network, and what one that is forced refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tests.targets.ascend.operation_networks import Compiled, compiled

import tilewright
from tilewright.targets.ascend.target import AscendTarget

MARKS = {"naive": "scatter_vnchwconv_b16(", "vor": "vor("}
"""What of the vector unit's instructions a method has."""


def product(folder: Path, depth: int, method: str) -> tuple[Compiled, str]:
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
        values={"cores": 1, "own.ascend.fractalise": method},  # One core: matrices stay whole.
    )
    result = network.outputs({"x": x})["y"]
    # Operands are rounded to half precision on the cube, and are not on the host.
    bound = 4 * 2.0**-11 * 0.1 * np.sqrt(depth)
    np.testing.assert_allclose(result, x.astype(np.float64) @ w, rtol=2.0**-10, atol=bound)
    return network, AscendTarget().listing(network.executable.directory / "program")


@pytest.mark.few(2)
@pytest.mark.parametrize("method", ["naive", "improved", "vor", "dma"])
def test_a_method_is_forced(method: str, tmp_path: Path) -> None:
    network, text = product(tmp_path, 64, method)
    assert not network.host
    scatters = method in ("naive", "improved")
    assert (MARKS["naive"] in text) == scatters
    assert (MARKS["vor"] in text) == (method == "vor")


@pytest.mark.slow
def test_methods_that_are_forced_give_kernels_of_their_own(tmp_path: Path) -> None:
    texts = {}
    for method in ("naive", "improved", "vor", "dma"):
        (tmp_path / method).mkdir()
        texts[method] = product(tmp_path / method, 64, method)[1]
    assert len(set(texts.values())) == 4
    planned = product(tmp_path, 64, "planned")[1]
    assert planned in texts.values()  # The fastest of all is one of them.


def test_another_method_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tilewright.TilewrightError, match="fractalise"):
        product(tmp_path, 64, "vadds")


@pytest.mark.slow
def test_a_forced_method_takes_any_number_of_columns(tmp_path: Path) -> None:
    """Its tiles are the program's: more columns are more tiles."""
    network, _ = product(tmp_path, 4112, "improved")
    assert not network.host
