"""Networks whose packages the tests build in several ways, and the ways."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import tilewright

Array = NDArray[np.float32]

CROSS_COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"


@cache
def model() -> onnx.ModelProto:
    """Winograd, direct, depthwise and first-layer convolutions, pools, a product and a softmax.

    Large enough that planners divide its kernels among cores.
    """
    random = np.random.default_rng(11)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(name: str, *shape: int) -> str:
        scale = np.sqrt(2.0 / np.prod(shape[1:]))
        array = (random.standard_normal(shape) * scale).astype(np.float32)
        weights.append(numpy_helper.from_array(array, name))
        return name

    def node(kind: str, inputs: Sequence[str], name: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    x = node("Conv", ["image", weight("w1", 48, 3, 3, 3)], "first", **same)
    x = node("Relu", [x], "relu1")
    y = node("Conv", [x, weight("w2", 48, 48, 3, 3)], "second", **same)
    x = node("Add", [x, y], "sum")
    x = node("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = node("Conv", [x, weight("w3", 48, 1, 3, 3)], "depthwise", group=48, **same)
    x = node("Conv", [x, weight("w4", 96, 48, 1, 1)], "pointwise", kernel_shape=[1, 1])
    x = node("HardSwish", [x], "swish")
    # Few tiles of many channels: cores divide output channels, each with scratch of its own.
    x = node("MaxPool", [x], "small", kernel_shape=[3, 3], strides=[3, 3])
    x = node("Conv", [x, weight("w6", 128, 96, 3, 3)], "deep", **same)
    x = node("GlobalAveragePool", [x], "mean")
    x = node("Flatten", [x], "flat")
    x = node("Gemm", [x, weight("w5", 512, 128)], "dense", transB=1)
    node("Softmax", [x], "probabilities")
    graph = helper.make_graph(
        nodes,
        "pictures",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 45, 61])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, 512])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@cache
def image() -> Array:
    """One input of ``model``."""
    return np.random.default_rng(5).standard_normal((1, 3, 45, 61)).astype(np.float32)


def package(folder: Path, cpu: str | None) -> Path:
    """Compile ``model`` for a processor; the folder of its program."""
    path = folder / "pictures.onnx"
    onnx.save(model(), path)
    made = tilewright.compile(path, directory=folder / "package", cpu=cpu)
    return made.directory / "program"


@cache
def expected() -> Array:
    """What ONNX Runtime makes of ``image``."""
    import onnxruntime

    session = onnxruntime.InferenceSession(
        model().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, {"image": image()})[0])


def run_program(program: Path, name: str = "", wrapper: Sequence[str] = ()) -> Array:
    """Run a built package's program on ``image`` through files."""
    image().tofile(program / "x.bin")
    command = [program / (name or "pictures"), program / "weights.bin", program / "x.bin"]
    ran = subprocess.run(
        [*wrapper, *command, program / "y.bin"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return np.fromfile(program / "y.bin", np.float32).reshape(1, 512)


def missing(*tools: str) -> str:
    """Why a test is skipped: the tools that are not installed; "" if all are."""
    absent = [tool for tool in tools if shutil.which(tool) is None]
    return f"needs {', '.join(absent)}" if absent else ""
