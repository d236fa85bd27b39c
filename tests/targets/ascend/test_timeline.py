"""Timelines of DaVinci: commands of the emitted C, at the times that the report adds up."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.compiler.pipeline import resolve


@pytest.mark.few(1)
@pytest.mark.parametrize("cores", [1, 4])
def test_a_timeline_has_the_commands_of_each_kernel(cores: int, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    weight = numpy_helper.from_array(random.normal(0, 0.2, (64, 96)).astype(np.float32), "w")
    kind = TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Softmax", ["p"], ["y"], name="shares"),
    ]
    shapes = [helper.make_tensor_value_info(n, kind, [48, d]) for n, d in (("x", 64), ("y", 96))]
    graph = helper.make_graph(nodes, "g", shapes[:1], shapes[1:], [weight])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        tmp_path / "model.onnx",
    )
    _, machine = resolve("ascend910", values={"cores": cores})
    package = tilewright.compile(tmp_path / "model.onnx", "ascend910", machine=machine)
    trace = tmp_path / "trace.json"
    x = random.normal(size=(48, 64)).astype(np.float32)
    assert package.check({"x": x}, package.run({"x": x}, trace=trace)).equal
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    kernels = {e["name"]: e for e in events if e["tid"] == 0}
    assert {"product"} in [set(e["args"]["nodes"]) for e in kernels.values()]
    assert {"shares"} in [set(e["args"]["nodes"]) for e in kernels.values()]
    commands = [e for e in events if e["tid"]]
    assert {"mad", "copy_gm_to_ubuf"} <= {e["name"] for e in commands}
    for event in commands:
        kernel = kernels[event["args"]["kernel"]]
        assert kernel["ts"] - 1e-6 <= event["ts"]
        assert event["ts"] + event["dur"] <= kernel["ts"] + kernel["dur"] + 1e-6
    if cores > 1:
        return  # The pipes are the first block's.
    profile = package.profile
    assert profile.cycles is not None
    for track, engine in enumerate(machine.engines, 1):
        cycles = sum(e["args"]["cycles"] for e in commands if e["tid"] == track)
        share = profile.engines.get(engine.name, 0.0)
        assert cycles / profile.cycles == pytest.approx(share, rel=1e-3, abs=1e-4)
    assert sum(profile.engines.values()) > 0.5
