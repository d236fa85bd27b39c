"""Variants of a core: what ``--set`` changes is what kernels are lowered for and checked by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.slow import dealt

import tilewright
from tilewright.errors import TilewrightError
from tilewright.targets.ascend.machine import ASCEND_310, ASCEND_910, DaVinci
from tilewright.targets.ascend.package import core_of
from tilewright.targets.base import find_target


@pytest.mark.parametrize("core", [ASCEND_310, ASCEND_910], ids=lambda core: core.name)
def test_a_machine_as_it_stands_is_of_its_core(core: DaVinci) -> None:
    assert core_of(find_target(core.name).machine()) == core


def test_values_of_a_variant_reach_the_core() -> None:
    values = {
        "memory.cbuf.bytes": 1 << 18, "memory.ca.bytes": 1 << 14, "memory.cb.bytes": 1 << 13,
        "memory.cc.bytes": 1 << 15, "memory.ub.bytes": 1 << 16, "synchronisation.ids": 3,
        "clock_hz": 5e8, "move.gm-to-cbuf.bytes_per_cycle": 32, "engine.m.queue": 7,
        "memory.gm.own.ascend.cached": 1 << 20, "memory.gm.bytes_per_cycle": 77,
    }  # fmt: skip
    core = core_of(find_target("ascend910").machine().with_values(values))
    sizes = (core.l1, core.l0a, core.l0b, core.l0c, core.ub, core.l2)
    assert sizes == (1 << 18, 1 << 14, 1 << 13, 1 << 15, 1 << 16, 1 << 20)
    assert core.events == 3 and core.queue == 7 and core.clock_hz == 5e8
    assert core.paths["gm", "cbuf"] == 32 and core.memory == 77
    assert core.paths["ub", "gm"] == ASCEND_910.paths["ub", "gm"]


@pytest.mark.parametrize("values", [{"ids": 0}, {"ids": 9}, {"depth": 2}])
def test_no_core_has_such_flags(values: dict[str, int]) -> None:
    """Nor does any take flags that count, or tokens."""
    target = find_target("ascend910")
    with pytest.raises(TilewrightError) as refused:
        values = {f"synchronisation.{key}": value for key, value in values.items()}
        target.check_machine(target.machine().with_values(values))
    assert "synchronisation" in str(refused.value)


def network(seed: int) -> onnx.ModelProto:
    """A convolution of odd sizes, a pool, and a softmax over what is left."""
    random = np.random.default_rng(seed)
    channels, size = int(random.integers(3, 40)), int(random.integers(9, 21))
    weights = random.standard_normal((channels, 3, 3, 3)).astype(np.float32) / 4
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("Flatten", ["p"], ["f"]),
            helper.make_node("Softmax", ["f"], ["y"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


VARIANTS = [
    {"synchronisation.ids": 1},
    {"memory.ub.bytes": 64},
    {"memory.ub.bytes": 3 << 10, "synchronisation.ids": 2},
    {"memory.ub.bytes": 20 << 10, "memory.cbuf.bytes": 8 << 10},
    {"memory.ca.bytes": 1 << 10, "memory.cb.bytes": 1 << 10, "memory.cc.bytes": 4 << 10},
]


@pytest.mark.parametrize(
    ("name", "number"), dealt(["ascend310", "ascend910"], range(len(VARIANTS)))
)
def test_networks_run_on_small_cores(name: str, number: int, tmp_path: Path) -> None:
    onnx.save(network(number), tmp_path / "small.onnx")
    compiled = tilewright.compile(tmp_path / "small.onnx", name, values=VARIANTS[number])
    (info,) = compiled.inputs
    image = np.random.default_rng(number + 9).standard_normal(info.shape).astype(info.dtype)
    arrays = {info.name: image}
    assert compiled.check(arrays, compiled.run(arrays)).passed
