"""Models for the tests of the whole pipeline, and a run that is checked at every turn."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto

import tilewright
from benchmarks import models
from tilewright.runtime import Executable

ROOT = Path(__file__).parents[2]
LENET = ROOT / "examples" / "lenet5" / "lenet5.onnx"
SMALL_NPU = ROOT / "examples" / "machines" / "small-npu.toml"
MACHINES = Path(__file__).parent / "machines"


def resized(model: ModelProto, size: int) -> ModelProto:
    """The model on images of ``size`` x ``size``; it must end in a global pool."""
    for axis in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
    del model.graph.value_info[:]
    return model


def logits_of(model: ModelProto) -> ModelProto:
    """The model without a softmax at its end, which hosts compute in float32."""
    last = model.graph.node[-1]
    if last.op_type == "Softmax":
        kind = onnx.helper.make_tensor_value_info(last.input[0], onnx.TensorProto.FLOAT, None)
        model.graph.node.remove(last)
        model.graph.output[0].CopyFrom(kind)
    return model


def lenet() -> ModelProto:
    """LeNet-5 up to its logits."""
    return logits_of(onnx.load(LENET))


def network(name: str, size: int | None = None) -> ModelProto:
    """One of the benchmarks' networks up to its logits."""
    _, model = models.build(name)
    return logits_of(model if size is None else resized(model, size))


def image(model: ModelProto, seed: int = 1) -> dict[str, NDArray[np.float32]]:
    """A random image for a network, by the input's name."""
    return {model.graph.input[0].name: models.images(model, seed=seed)}


def run_checked(model: ModelProto, target: str, folder: Path, **options: Any) -> Executable:
    """Compile a model, run it, and compare with the interpreter; integers bit for bit.

    The float network bounds how far fixed point may be off, so that a reference that is wrong in
    the same way does not pass.
    """
    path = folder / "model.onnx"
    onnx.save(model, path)
    sample = image(model)
    executable = tilewright.compile(path, target, calibration=[sample], **options)
    outputs = executable.run(sample, check_races=True)
    check = executable.check(sample, outputs)
    assert check.equal, check
    if executable.manifest.element != "float32":
        assert check.exact and check.max_abs_error == 0 and check.mismatches == 0
    _close_to_float(path, sample, outputs, executable.manifest.element)
    return executable


def _close_to_float(
    path: Path,
    sample: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[Any]],
    element: str,
) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, dict(sample))
    (found,) = outputs.values()
    scale = float(np.abs(want).max())
    tolerance = 1e-4 if element == "float32" else 0.03
    assert float(np.std(want)) > 0.01 * scale, "the outputs say something"
    np.testing.assert_allclose(found, want, rtol=0, atol=tolerance * scale)
