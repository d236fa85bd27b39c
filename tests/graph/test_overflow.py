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


@pytest.mark.slow
def test_what_reads_a_value_that_the_host_keeps_is_named(tmp_path: Path) -> None:
    executable = run(model(3000.0), tmp_path, keep_float=["second"])
    check = executable.check({"x": X}, executable.run({"x": X}))
    assert [overflow.node for overflow in check.overflows] == ["third"]
    executable = run(model(3000.0), tmp_path, keep_float=["second", "third"])
    outputs = executable.run({"x": X})
    assert np.isfinite(outputs["out"]).all()
    assert executable.check({"x": X}, outputs).overflows == ()


@pytest.mark.few(1)
@pytest.mark.parametrize("tail", ["", "log", "mask"])
def test_infinities_of_the_model_are_none(tmp_path: Path, tail: str) -> None:
    executable = run(model(1.0, tail), tmp_path)
    check = executable.check({"x": X}, executable.run({"x": X}))
    assert check.equal and check.overflows == ()


def test_samples_are_looked_through_when_a_network_is_compiled(tmp_path: Path) -> None:
    samples = [{"x": np.zeros_like(X)}, {"x": X}]
    notes = run(model(3000.0), tmp_path, calibration=samples).manifest.notes
    assert len(notes) == 1 and notes[0].startswith("second: ") and "65,504" in notes[0]
    assert not run(model(3000.0), tmp_path, calibration=samples[:1]).manifest.notes


def halves(nodes: list[onnx.NodeProto], **constants: object) -> onnx.ModelProto:
    """A model of float32 from x [16, 64] to out."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, (16, 64))],
        [helper.make_tensor_value_info("out", FLOAT, None)],
        [
            numpy_helper.from_array(np.asarray(value, np.float32), name)
            for name, value in constants.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


ON = [
    ("ascend910", {}),
    pytest.param("examples/machines/five-buffers.toml", {}, marks=pytest.mark.slow),
    ("cpu", {"numbers": "float16"}),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("target", "options"), ON)
def test_a_product_that_underflows_is_named(
    target: str, options: dict[str, str], tmp_path: Path
) -> None:
    """Operands of 1e-4 are held well enough; float16 has only a few steps of their products."""
    generator = np.random.default_rng(2)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["t"], name="small"),
        helper.make_node("MatMul", ["t", "b"], ["out"], name="large"),
    ]
    path = tmp_path / "model.onnx"
    for scale, told in ((1e-4, True), (1e-2, False)):
        a, b = (generator.normal(0, size, (64, 64)) for size in (scale, 100.0))
        onnx.save(halves(nodes, a=a, b=b), path)
        executable = tilewright.compile(path, target, **options)  # type: ignore[arg-type]
        x = X * np.float32(scale)
        outputs = executable.run({"x": x})
        check = executable.check({"x": x}, outputs)
        want = x.astype(np.float64) @ a @ b
        lost = np.sqrt(np.mean((outputs["out"] - want) ** 2) / np.mean(want**2))
        assert check.equal and bool(check.underflows) == told == bool(lost > 1e-2)
        assert check.passed != told, "what is lost is far from the model"
        if told:
            (underflow,) = check.underflows
            assert underflow.node == "small" and underflow.largest < 6.2e-5
            assert lost / 2 < underflow.lost < lost * 2
            assert "scale its operands or weights up" in str(underflow)


def test_samples_tell_what_underflows(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "large"], ["out"], name="product")]
    path = tmp_path / "model.onnx"
    onnx.save(halves(nodes, large=np.float32(1e6)), path)
    for scale, count in ((1e-7, 1), (1e-3, 0)):
        samples = [{"x": X * np.float32(scale)}]
        notes = tilewright.compile(path, "ascend910", calibration=samples).manifest.notes
        assert len([note for note in notes if note.startswith("product: its numbers")]) == count


def test_a_sum_beyond_the_limit_is_named(tmp_path: Path) -> None:
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["out"], name="sum", keepdims=0)]
    of = halves(nodes)
    of.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axes"))
    path = tmp_path / "model.onnx"
    onnx.save(of, path)
    executable = tilewright.compile(path, "ascend910")
    x = np.full((16, 64), 1000, np.float32)
    x[3] = 1030  # 64 times 1030 is 65,920
    outputs = executable.run({"x": x})
    (overflow,) = executable.check({"x": x}, outputs).overflows
    assert (overflow.node, overflow.lost, overflow.size) == ("sum", 1, 16)
    assert np.isinf(outputs["out"][3]) and np.isfinite(np.delete(outputs["out"], 3)).all()


@pytest.mark.parametrize("masked", [20, 64])
def test_a_mask_that_becomes_infinite_is_no_loss_unless_it_masks_all(
    masked: int, tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "one"], ["s"], name="scores"),
        helper.make_node("Add", ["s", "x"], ["t"], name="sum"),
        helper.make_node("Softmax", ["t"], ["out"], name="softmax"),
    ]
    path = tmp_path / "model.onnx"
    onnx.save(halves(nodes, one=np.full(64, 0.5)), path)
    executable = tilewright.compile(path, "ascend910")
    x = X.copy()
    x[:, :masked] = -1e30
    check = executable.check({"x": x}, executable.run({"x": x}))
    assert bool(check.overflows) == (masked == 64)
