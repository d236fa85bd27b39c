"""What the emitted C cannot say, and what no core group has room for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.errors import TilewrightError
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.sunway.chip import CHIP, group_machine
from tilewright.targets.sunway.emit.names import layer_names
from tilewright.targets.sunway.emit.nest import PartNest
from tilewright.targets.sunway.emit.transfers import place_of, transfer_function
from tilewright.targets.sunway.machine import MACHINE, MAIN_BYTES
from tilewright.tile.build import build
from tilewright.tile.dialect import BufferOp, programs_of


def two_rows(gap: int) -> str:
    """C that fetches tiles of two rows, which begin so many bytes apart."""
    extents = {"d0": 1, "d1": 2, "d2": gap // 4}
    access = tuple(Affine(((dim, 1),)) for dim in extents)
    shape = tuple(extents.values())
    x, y = Operand("x", shape, access), Operand("y", shape, access, role="output")
    dims = tuple(Dim(*pair) for pair in extents.items())
    kernel = Kernel("wide", (Stage("relu", dims, (x,), y, node="wide"),), ("wide",))
    level = Level("ldm", (("d0", 1), ("d1", 2), ("d2", 64)), ("d2",))
    (program,) = programs_of(build(kernel, Schedule("vector", (level,)), MACHINE))
    buffer = next(op for op in program.walk() if isinstance(op, BufferOp))
    place = place_of(PartNest(program), buffer, layer_names(program))
    return transfer_function(place, "wide", get=True)


def test_the_longest_gap_of_a_descriptor() -> None:
    assert "536870908 - block" in two_rows((1 << 31) - 16)
    with pytest.raises(TilewrightError) as raised:
        two_rows(1 << 31)
    (problem,) = raised.value.problems
    assert problem.code == "lower-descriptor"
    assert "2147483648 bytes apart" in problem.reason and problem.help


def convolutions(folder: Path, batch: int, side: int) -> Path:
    """A model of three convolutions, of which the last one reads the input again."""
    draw = np.random.default_rng(7).normal
    channels = {"wide": (64, 8), "middle": (64, 64), "last": (4, 8)}
    inputs = {"wide": "x", "middle": "wide_y", "last": "x"}
    nodes = [
        helper.make_node("Conv", [inputs[name], f"{name}_w"], [f"{name}_y"], name, pads=[1] * 4)
        for name in channels
    ]
    ports = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, (batch, count, side, side))
        for name, count in (("x", 8), ("middle_y", 64), ("last_y", 4))
    }
    weights = [
        numpy_helper.from_array(draw(size=(*size, 3, 3)).astype(np.float32), f"{name}_w")
        for name, size in channels.items()
    ]
    x, *results = ports.values()
    graph = helper.make_graph(nodes, "three", [x], results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "three.onnx")
    return folder / "three.onnx"


def test_a_network_larger_than_main_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TilewrightError) as raised:
        tilewright.compile(convolutions(tmp_path, 320, 224), "sunway", planner="ldm")
    (problem,) = raised.value.problems
    # What the middle one reads and writes are 3.8 GiB each, and the input half a one.
    each = 320 * 64 * 224 * 224 * 4
    assert problem.code == "memory-capacity" and "middle" in problem.where
    assert problem.reason.count(f"{each:,}") == 2 and f"has {MAIN_BYTES:,}" in problem.reason
    assert "smaller batch" in problem.help


def test_main_memory_is_full_at_the_last_byte(tmp_path: Path) -> None:
    model = convolutions(tmp_path, 1, 16)
    with pytest.raises(TilewrightError, match="memory-capacity") as raised:
        tilewright.compile(model, "sunway", planner="ldm", values={"memory.dram.bytes": 1000})
    words = raised.value.problems[0].reason.replace(",", "").split()
    needed = int(words[words.index("take") + 1])
    # The weights, and what is live during the middle layer.
    assert needed >= 4 * 9 * (64 * 8 + 64 * 64 + 4 * 8) + 4 * 16 * 16 * (8 + 64 + 64)
    tilewright.compile(model, "sunway", planner="ldm", values={"memory.dram.bytes": needed})
    with pytest.raises(TilewrightError, match="memory-capacity"):
        tilewright.compile(model, "sunway", planner="ldm", values={"memory.dram.bytes": needed - 1})


def test_the_chip_has_the_memories_of_its_core_groups() -> None:
    assert CHIP.memory("dram").bytes == 4 * MAIN_BYTES
    assert group_machine(CHIP).memory("dram") == MACHINE.memory("dram")
