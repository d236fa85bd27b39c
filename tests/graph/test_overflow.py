"""Results beyond float16: named with their node, where the interpreter has infinities as well."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright

FLOAT = TensorProto.FLOAT


def model(scale: float, tail: str = "") -> onnx.ModelProto:
    """Two products, of which the second has results of about 64 ``scale`` squared; its operands
    are below 100."""
    generator = np.random.default_rng(0)
    weights = {
        "a": generator.normal(0, 1, (64, 64)),
        "b": generator.normal(0, scale, (64, 64)),
        "mask": np.where(generator.random((16, 64)) < 0.3, -np.inf, 0.0),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["y"], name="first"),
        helper.make_node("MatMul", ["y", "b"], ["z"], name="second"),
        helper.make_node("MatMul", ["z", "a"], ["out"], name="third"),
    ]
    if tail == "log":  # Minus infinity, in float32, too.
        nodes[1:] = [
            helper.make_node("Relu", ["y"], ["r"], name="relu"),
            helper.make_node("Log", ["r"], ["out"], name="log"),
        ]
    if tail == "mask":
        nodes[1:] = [
            helper.make_node("Add", ["y", "mask"], ["m"], name="masked"),
            helper.make_node("Softmax", ["m"], ["out"], name="softmax"),
        ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, (16, 64))],
        [helper.make_tensor_value_info("out", FLOAT, (16, 64))],
        [
            numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in weights.items()
            if any(name in node.input for node in nodes)
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def run(of: onnx.ModelProto, folder: Path, **options: object) -> tilewright.Executable:
    path = folder / "model.onnx"
    onnx.save(of, path)
    return tilewright.compile(path, "ascend910", **options)  # type: ignore[arg-type]


X = np.random.default_rng(1).normal(size=(16, 64)).astype(np.float32)


def test_a_check_names_the_node_and_counts_what_is_lost(tmp_path: Path) -> None:
    executable = run(model(3000.0), tmp_path)
    outputs = executable.run({"x": X})
    check = executable.check({"x": X}, outputs)
    a, b = (
        numpy_helper.to_array(one).astype(np.float64) for one in model(3000.0).graph.initializer
    )
    beyond = np.count_nonzero(np.abs(X @ a @ b) > 65520)  # Half a unit above the largest.
    (overflow,) = check.overflows
    assert check.equal and not np.isfinite(outputs["out"]).all()
    assert check.model is not None and not check.model.passed and not check.passed
    assert (overflow.node, overflow.element, overflow.limit) == ("second", "float16", 65504)
    assert overflow.size == 16 * 64 and abs(overflow.lost - beyond) <= 2 and beyond > 100
    assert "--keep-float second" in str(overflow)


def test_what_reads_a_value_that_the_host_keeps_is_named(tmp_path: Path) -> None:
    executable = run(model(3000.0), tmp_path, keep_float=["second"])
    check = executable.check({"x": X}, executable.run({"x": X}))
    assert [overflow.node for overflow in check.overflows] == ["third"]
    executable = run(model(3000.0), tmp_path, keep_float=["second", "third"])
    outputs = executable.run({"x": X})
    assert np.isfinite(outputs["out"]).all()
    assert executable.check({"x": X}, outputs).overflows == ()


@pytest.mark.parametrize("tail", ["", "log", "mask"])
def test_infinities_of_the_model_are_none(tmp_path: Path, tail: str) -> None:
    executable = run(model(1.0, tail), tmp_path)
    check = executable.check({"x": X}, executable.run({"x": X}))
    assert check.passed and check.overflows == ()


def test_samples_are_looked_through_when_a_network_is_compiled(tmp_path: Path) -> None:
    samples = [{"x": np.zeros_like(X)}, {"x": X}]
    notes = run(model(3000.0), tmp_path, calibration=samples).manifest.notes
    assert len(notes) == 1 and notes[0].startswith("second: ") and "65,504" in notes[0]
    assert not run(model(3000.0), tmp_path, calibration=samples[:1]).manifest.notes
