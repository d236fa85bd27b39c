"""Quantised networks: LeNet-5 on digits in every format, and a CNN beside ONNX Runtime's own."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.compiler.pipeline import resolve
from tilewright.ir.types import Array
from tilewright.numerics.formats import numbers_of
from tilewright.report.quantisation import quantisation_report
from tilewright.runtime import Executable

LENET = Path(__file__).parents[2] / "examples" / "lenet5"


def digits() -> dict[str, Array]:
    with np.load(LENET / "held_out.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def right(executable: Executable, found: dict[str, Array]) -> int:
    """How many of the 360 held-out images are classified right."""
    images = found["images"].astype(np.float32) / 16
    guesses = [int(executable.run({"image": x[None]})["probabilities"].argmax()) for x in images]
    return int((np.array(guesses) == found["labels"]).sum())


FLOAT = 356
"""Images that float32 classifies right, on both targets' own and in PyTorch."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "numbers", "observer"),
    [
        ("cpu", "float32", None),
        ("cpu", "int8", None),
        ("cpu", "int8", "percentile"),
        ("cpu", "int8", "mean-squared-error"),
        ("cpu", "int8-power-of-two", None),
        ("cpu", "int8-power-of-two", "mean-squared-error"),
        ("cpu", "fixed16", None),
        ("cpu", "float16", None),
        ("cpu", "bfloat16", None),
        ("cambricon-x", "fixed16", None),
    ],
)
def test_lenet_keeps_its_accuracy(target: str, numbers: str, observer: str | None) -> None:
    found = digits()
    executable = tilewright.compile(
        LENET / "lenet5.onnx",
        target,
        numbers=numbers,
        observer=observer,
        calibration={"image": found["calibration"].astype(np.float32) / 16},
    )
    count = right(executable, found)
    assert count == FLOAT if numbers == "float32" else count >= FLOAT - 2


def test_int8_computes_in_integers_as_the_interpreter_does() -> None:
    found = digits()
    calibration = {"image": found["calibration"].astype(np.float32) / 16}
    executable = tilewright.compile(
        LENET / "lenet5.onnx", "cpu", numbers="int8", calibration=calibration
    )
    for image in found["images"][:4].astype(np.float32) / 16:
        seen: dict[str, Array] = {}
        wanted: dict[str, Array] = {}
        executable.run({"image": image[None]}, observe=seen.__setitem__)
        executable.reference({"image": image[None]}, wanted.__setitem__)
        integers = [name for name, array in seen.items() if array.dtype.kind in "iu"]
        assert len(integers) >= 5
        for name in integers:
            assert np.array_equal(seen[name], wanted[name]), name


def cnn(path: Path, seed: int) -> None:
    """A small CNN with a residual and random He-scaled weights."""
    random = np.random.default_rng(seed)
    weights: dict[str, Array] = {}
    nodes: list[onnx.NodeProto] = []

    def conv(x: str, name: str, co: int, ci: int, group: int = 1, stride: int = 1) -> str:
        shape = (co, ci // group, 3, 3)
        scale = (2 / (ci // group * 9)) ** 0.5
        weights[f"{name}.w"] = (random.normal(size=shape) * scale).astype(np.float32)
        weights[f"{name}.b"] = random.normal(size=co, scale=0.1).astype(np.float32)
        nodes.append(
            helper.make_node(
                "Conv", [x, f"{name}.w", f"{name}.b"], [name], name,
                kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=group, strides=[stride, stride],
            )
        )  # fmt: skip
        return name

    def add(kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind.lower()}{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    x = add("Relu", conv("image", "c1", 16, 3))
    y = add("Relu", conv(x, "c2", 16, 16, group=16))
    x = add("Relu", add("Add", conv(y, "c3", 16, 16), x))
    x = add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = add("Relu", conv(x, "c4", 32, 16))
    x = add("Flatten", add("GlobalAveragePool", x))
    weights["fc.w"] = (random.normal(size=(10, 32)) * 32**-0.5).astype(np.float32)
    weights["fc.b"] = random.normal(size=10, scale=0.1).astype(np.float32)
    nodes.append(helper.make_node("Gemm", [x, "fc.w", "fc.b"], ["scores"], "fc", transB=1))
    graph = helper.make_graph(
        nodes,
        "cnn",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 24, 24])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def by_onnxruntime(model: Path, samples: list[Array]) -> onnxruntime.InferenceSession:
    """ONNX Runtime's own static quantisation: QDQ, symmetric int8, weights by channel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnxruntime.quantization import (
            CalibrationDataReader,
            QuantFormat,
            QuantType,
            quantize_static,
        )

        class Reader(CalibrationDataReader):
            def __init__(self) -> None:
                self.rows: Iterator[dict[str, Array]] = iter([{"image": x} for x in samples])

            def get_next(self) -> dict[str, Array] | None:
                return next(self.rows, None)

        place = model.with_name("quantised.onnx")
        quantize_static(
            model, place, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
            extra_options={"ActivationSymmetric": True},
        )  # fmt: skip
    return onnxruntime.InferenceSession(place)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*range(1), *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 3))]
)
def test_int8_is_no_worse_than_onnxruntimes(seed: int, tmp_path: Path) -> None:
    model = tmp_path / "cnn.onnx"
    cnn(model, seed)
    random = np.random.default_rng(100 + seed)
    samples = [random.normal(size=(1, 3, 24, 24)).astype(np.float32) for _ in range(8)]
    held_out = [random.normal(size=(1, 3, 24, 24)).astype(np.float32) for _ in range(12)]
    exact = onnxruntime.InferenceSession(model)
    theirs = by_onnxruntime(model, samples)
    ours = tilewright.compile(
        model, "cpu", numbers="int8", calibration=[{"image": x} for x in samples]
    )

    def error(run: object) -> float:
        pairs = [(run({"image": x}), exact.run(None, {"image": x})[0]) for x in held_out]
        squares = sum(float(np.square(a - b).sum()) for a, b in pairs)
        return (squares / sum(float(np.square(b).sum()) for _, b in pairs)) ** 0.5

    own = error(lambda x: ours.run(x)["scores"])
    reference = error(lambda x: theirs.run(None, x)[0])
    assert 1e-4 < own < 1.1 * reference, (own, reference)


@pytest.mark.slow
def test_the_report_and_a_run_agree(tmp_path: Path) -> None:
    model = tmp_path / "cnn.onnx"
    cnn(model, 9)
    random = np.random.default_rng(9)
    samples = [{"image": random.normal(size=(1, 3, 24, 24)).astype(np.float32)} for _ in range(4)]
    target, machine = resolve("cpu")
    told = quantisation_report(
        model, target, machine, numbers_of("int8"), calibration=samples, samples=4
    )
    ours = tilewright.compile(model, "cpu", numbers="int8", calibration=samples)
    exact = onnxruntime.InferenceSession(model)
    noise = signal = 0.0
    for sample in samples:
        wanted = exact.run(None, sample)[0]
        noise += float(np.square(ours.run(sample)["scores"] - wanted).sum())
        signal += float(np.square(wanted).sum())
    assert told.together.relative == pytest.approx((noise / signal) ** 0.5, rel=0.25)
