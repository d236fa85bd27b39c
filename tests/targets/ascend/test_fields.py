"""Fields of instructions: what a kernel computes as it runs fits them, or is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.papers.ascend.handovers import synchronised
from onnx import helper
from tests.targets.ascend.operation_networks import compiled

from tilewright.errors import TilewrightError
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.machine import MAX_FIELD
from tilewright.targets.ascend.program import Buffer, Loop, Place, Program, Tensor


@pytest.mark.parametrize("last", [MAX_FIELD, MAX_FIELD + 1])
@pytest.mark.parametrize("field", ["gap", "bursts"])
def test_numbers_that_depend_on_a_loop(last: int, field: str) -> None:
    """The last iteration's gap, or number of bursts, is the one that fits or does not."""
    limits = {"gap": MAX_FIELD, "bursts": 4095}
    loop = Loop("n", 2)
    most = limits[field] + (last - MAX_FIELD)
    value = loop.variable + (most - 1)
    x, ub = Tensor("x", 1 << 30), Buffer("ub", "ub", 0, 1 << 17)
    copy = (2, 1, value) if field == "gap" else (value, 1)
    loop.body.append(isa.copy(Place(ub), Place(x), *copy))
    program = Program("kernel", (x,), [loop], (ub,))
    if last == MAX_FIELD:
        synchronised(program)
        return
    with pytest.raises(TilewrightError, match="a field holds") as error:
        synchronised(program)
    assert error.value.problems[0].code == "lower-field"


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"strides": [70, 70]}, "a stride of a window is 70, but a field holds 1 to 63"),
        ({"pads": [1, 130, 1, 1]}, "the padding of an image is 130"),
    ],
)
def test_a_window_that_no_field_holds_stays_on_the_host(
    attributes: dict[str, list[int]], reason: str, tmp_path: Path
) -> None:
    random = np.random.default_rng(3)
    x = random.normal(0, 1, (1, 16, 80, 80)).astype(np.float16).astype(np.float32)
    weight = random.normal(0, 0.1, (16, 16, 3, 3)).astype(np.float16).astype(np.float32)
    sizes = (2, 2) if "strides" in attributes else (80, 209)
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    results = {"y": (np.float32, (1, 16, *sizes))}
    network = compiled(tmp_path, [node], {"x": x}, results, {"w": weight})
    (kernel,) = network.executable.manifest.kernels
    assert kernel.engine == "host"
    assert reason in kernel.reason
    assert "smaller windows, strides, dilations or padding" in kernel.reason


@pytest.mark.slow
def test_blocks_of_columns_far_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of more rows than the gap between bursts holds blocks, where a field holds less
    than on any core: what it really holds would take 70,000 rows."""
    monkeypatch.setattr(isa, "MAX_FIELD", 1000)
    random = np.random.default_rng(1)
    x = random.normal(0, 1, (1100, 20)).astype(np.float32)
    w = random.normal(0, 1, (20, 17)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    network = compiled(tmp_path, nodes, {"x": x}, {"y": (np.float32, (1100, 17))}, {"w": w})
    assert not network.host
    network.outputs({"x": x}, orders=(0,))
    # Each burst of the product's is a copy of its own.
    (text,) = network.executable.directory.glob("program/cce/*matmul*.c")
    assert "int64_t q = 0" in text.read_text()
