"""Points of sizes, rates and clocks that share what they can, against points alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tilewright.planning.chains import known
from tilewright.planning.chains.rooms import Rooms
from tilewright.sweeps import Rows, sweep

MACHINE = """
name = "one-memory"
clock_hz = 800e6
element = "int8"
accumulator = "int32"
layouts = { activation = "NHWC", weight = "OHWI" }
memory.dram = { bytes_per_cycle = 4 }
memory.sram = { bytes = 65_536, granule = 16 }
engine.dma = { queue = 8 }
engine.out = { queue = 8 }
engine.mac = { queue = 4 }
[move.in]
source = "dram"
target = "sram"
engine = "dma"
bytes_per_cycle = 4
latency = 100
in_flight = 4
[move.out]
source = "sram"
target = "dram"
engine = "out"
bytes_per_cycle = 4
latency = 100
in_flight = 4
[primitive.conv]
operations = ["conv"]
engine = "mac"
cycles = "16 + n*g*oh*ow*ceil(co/8)*ceil(ci/8)*kh*kw"
peak = "n*g*oh*ow*co*ci*kh*kw/64"
multiples = { co = 8, ci = 8 }
operands.input = "sram"
operands.weight = "sram"
operands.residual = "sram"
operands.output = "sram"
operands.bias = { memory = "sram", joined = "weight" }
epilogue = [["add"], ["relu", "clip"], ["requantise", "requantise_linear"]]
[primitive.depthwise]
operations = ["depthwise_conv"]
engine = "mac"
cycles = "16 + n*oh*ow*ceil(c/8)*kh*kw"
peak = "n*oh*ow*c*kh*kw/8"
multiples = { c = 8 }
operands.input = "sram"
operands.weight = "sram"
operands.residual = "sram"
operands.output = "sram"
operands.bias = { memory = "sram", joined = "weight" }
epilogue = [["add"], ["relu", "clip"], ["requantise", "requantise_linear"]]
"""

SIZES = [65_536, 16_384, 4096, 2048]
RATES = [4, 1]


def blocks(folder: Path) -> tuple[str, str]:
    """The paths of a model of two blocks of three convolutions, and of the machine."""
    random, nodes, weights = np.random.default_rng(3), list[NodeProto](), list[TensorProto]()

    def conv(source: str, name: str, shape: tuple[int, ...], groups: int = 1) -> str:
        data = random.standard_normal(shape).astype(np.float32)
        weights.append(numpy_helper.from_array(data, f"w{name}"))
        pads = [shape[2] // 2] * 4
        nodes.append(
            helper.make_node(
                "Conv", [source, f"w{name}"], [name], name=name, group=groups, pads=pads
            )
        )
        nodes.append(helper.make_node("Relu", [name], [f"{name}r"], name=f"{name}r"))
        return f"{name}r"

    value = "x"
    for block in ("a", "b"):
        wide = conv(value, f"{block}0", (48, 8, 1, 1))
        value = conv(conv(wide, f"{block}1", (48, 1, 3, 3), 48), f"{block}2", (8, 48, 1, 1))
    graph = helper.make_graph(
        nodes,
        "blocks",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8, 12, 12])],
        [helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, [1, 8, 12, 12])],
        weights,
    )
    model, machine = folder / "blocks.onnx", folder / "one-memory.toml"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), model)
    machine.write_text(MACHINE, encoding="utf-8")
    return str(model), str(machine)


def alone(model: str, machine: str, size: int, rate: int) -> Rows:
    """The row of a point in a process that knows nothing."""
    known.forget()
    vary = {"memory.sram.bytes": [size], "memory.dram.bytes_per_cycle": [rate]}
    return sweep(model, machine, vary)


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1])
def test_sizes_and_rates_that_share_have_the_rows_of_points_alone(
    order: int, tmp_path: Path
) -> None:
    model, machine = blocks(tmp_path)
    apart = [
        row
        for size in SIZES[::order]
        for rate in RATES
        for row in alone(model, machine, size, rate)
    ]
    known.forget()
    vary = {"memory.sram.bytes": SIZES[::order], "memory.dram.bytes_per_cycle": RATES}
    together = sweep(model, machine, vary)
    assert any(0 < (row.kernels or 0) < 6 for row in together)  # Some are fused.
    assert len({row.cycles for row in together}) > len(RATES)  # Some sizes are felt.
    for one, other in zip(together, apart, strict=True):
        if not one.planned_at:
            assert one.to_json() | {"pareto": None} == other.to_json() | {"pareto": None}
        else:
            assert (one.cycles or 0.0) < (other.cycles or 0.0)
    for rate in RATES:
        at = [row for row in together if row.values["memory.dram.bytes_per_cycle"] == rate]
        ranked = sorted(at, key=lambda row: row.values["memory.sram.bytes"])
        cycles = [row.cycles or 0.0 for row in ranked]
        assert cycles == sorted(cycles, reverse=True)


def test_answers_hold_from_what_fitted_to_what_did_not() -> None:
    rooms = Rooms()
    assert rooms.fits("a", 100, 60) and rooms.fits("a", 40, 30) and not rooms.fits("a", 10, 25)
    assert rooms.fits("b", float("inf"), 10**9)
    for more, held in ((0, True), (-10, True), (-11, False), (14, True), (15, False)):
        assert rooms.hold({"a": more}) == held
    assert rooms.hold({"b": -(10**6), "c": 5})
    rooms.compared = True
    assert rooms.hold({"a": 0}) and not rooms.hold({"a": 1})
