"""What machine files leave to the compiler: fusions, and what stays on the chip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.compiler.pipeline import resolve
from tilewright.machine.load import load_machine

MACHINES = Path(__file__).parents[2] / "examples" / "machines"

ONE_SRAM = """\
name = "one-sram"
clock_hz = 5e8
element = "fixed16"
accumulator = "fixed32"
layouts = { activation = "NHWC", weight = "OHWI" }
memory.dram = { bytes_per_cycle = 4 }
memory.sram = { bytes = 65_536, granule = 16KEYS }
engine.in = {}
engine.out = {}
engine.compute = {}
[move]
load = { source = "dram", target = "sram", engine = "in", bytes_per_cycle = 4, latency = 40 }
store = { source = "sram", target = "dram", engine = "out", bytes_per_cycle = 4, latency = 40 }
[primitive.conv]
operations = ["conv", "depthwise_conv"]
engine = "compute"
cycles = "8 + n*g*oh*ow*ceil(co/16)*ceil(ci/16)*ceil(c/16)*kh*kw"
peak = "n*g*oh*ow*co*ci*c*kh*kw/256"
operands = { input = "sram", weight = "sram", bias = "sram", residual = "sram", output = "sram" }
epilogue = [["add"], ["relu"], ["requantise"]]
[primitive.points]
operations = ["add", "relu", "requantise"]
engine = "compute"
cycles = "8 + ceil(d0*d1*d2*d3/16)"
peak = "d0*d1*d2*d3/16"
operands = { input = "sram", residual = "sram", weight = "sram", output = "sram" }
"""

APART = ONE_SRAM.replace("KEYS", ", resident = []") + "[fusion]\n"


def written(folder: Path, text: str) -> str:
    file = folder / "machine.toml"
    file.write_text(text.replace("KEYS", ""))
    return str(file)


def test_one_memory_between_primitives(tmp_path: Path) -> None:
    machine = resolve(written(tmp_path, ONE_SRAM))[1]
    pair, three = machine.fusions
    assert pair.query == "conv|depthwise|map -> conv|depthwise|map"
    assert three.query == " -> ".join(["conv|depthwise|map"] * 3)
    assert {pair.between, three.between} == {"sram"}
    assert machine.memory("sram").resident == ("inputs", "results")


def test_a_file_that_says_so_has_none(tmp_path: Path) -> None:
    file = written(tmp_path, APART)
    machine = resolve(file)[1]
    assert machine.fusions == () and machine.memory("sram").resident == ()
    assert machine == load_machine(file)


def test_memories_that_share_nothing() -> None:
    """Results and inputs of small-npu lie apart; only inputs are shared, and no chain is."""
    machine = resolve(str(MACHINES / "small-npu.toml"))[1]
    assert machine.fusions == ()
    stays = {memory.name: memory.resident for memory in machine.memories if memory.resident}
    assert stays == {"feature": ("inputs",)}


def test_what_no_move_reaches_at_once_stays_out() -> None:
    machine = resolve(str(MACHINES / "five-buffers.toml"))[1]
    assert machine.memory("l0a").resident == ()


@pytest.fixture
def block(tmp_path: Path) -> Path:
    """An inverted residual of 16 channels: 1x1 to 48, depthwise 3x3, 1x1 back, and the sum."""
    random = np.random.default_rng(0)
    shapes = {"w0": (48, 16, 1, 1), "w1": (48, 1, 3, 3), "w2": (16, 48, 1, 1)}
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, shape, random.normal(0, 0.2, shape).ravel())
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], group=48, pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "w2"], ["e"]),
        helper.make_node("Add", ["e", "x"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 16, 20, 20)) for n in "xy"]
    path = tmp_path / "block.onnx"
    graph = helper.make_graph(nodes, "block", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph), path)
    return path


def test_the_default_is_the_better_mapping(block: Path, tmp_path: Path) -> None:
    x = {"x": np.random.default_rng(1).normal(0, 1, (1, 16, 20, 20)).astype(np.float32)}
    cycles: list[float] = []
    results: list[np.ndarray] = []
    for text in (APART, ONE_SRAM):
        package = tilewright.compile(block, written(tmp_path, text), calibration=[x])
        outputs = package.run(x, check_races=True)
        assert package.check(x, outputs).passed
        results.append(outputs["y"])
        cycles.append(package.summary()["cycles"])
    assert np.array_equal(*results)
    assert cycles[1] < 0.7 * cycles[0]


@pytest.mark.slow
def test_more_memory_is_not_slower(block: Path, tmp_path: Path) -> None:
    file = written(tmp_path, ONE_SRAM)
    sizes = [{"memory.sram.bytes": 1 << n} for n in range(12, 19)]
    cycles = [
        tilewright.compile(block, file, values=size).summary()["predicted_cycles"] for size in sizes
    ]
    assert cycles == sorted(cycles, reverse=True), cycles
