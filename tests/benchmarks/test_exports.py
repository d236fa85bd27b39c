"""The networks in the manner of exporters: valid ONNX, and outputs that depend on inputs."""

import numpy as np
import onnx
import onnxruntime
import pytest
from benchmarks.exports import BUILDERS

from tests.slow import but_fast

OUTPUTS = {
    "unet": (1, 2, 256, 256),
    "llama": (1, 64, 512),
    "efficientnet": (1, 1000),
    "convnext": (1, 1000),
}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", but_fast(BUILDERS, [name for name in BUILDERS if name != "convnext"])
)
def test_networks_are_valid_and_depend_on_inputs(name: str) -> None:
    model = BUILDERS[name]()
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(model, strict_mode=True))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    shape = session.get_inputs()[0].shape
    values = np.random.default_rng(2)
    one, two = (
        np.asarray(session.run(None, {"x": values.standard_normal(shape).astype(np.float32)})[0])
        for _ in range(2)
    )
    assert one.shape == OUTPUTS[name]
    for found in (one, two):
        assert np.isfinite(found).all() and 1e-3 < found.std() < 1e3
    assert np.abs(one - two).max() > 0.01 * np.abs(one).max()
