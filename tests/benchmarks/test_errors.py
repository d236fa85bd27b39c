"""The table of errors: what it compares is right."""

from pathlib import Path

import numpy as np
import onnxruntime
from benchmarks.cpu.errors import exact, layer, measure


def test_float64_is_the_same_convolution() -> None:
    model, x = layer(5, 7, 9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    np.testing.assert_allclose(session.run(None, {"x": x})[0], exact(model, x), atol=1e-5)


def test_a_row_tells_the_methods_apart(tmp_path: Path) -> None:
    _, where, method, ours, direct, theirs, _ = measure(64, 64, 28, tmp_path).split("|")
    assert where.strip() == "64 x 64 x 28 x 28"
    assert method.strip().startswith("winograd")
    assert 0 < float(theirs) < 3e-6
    assert 0 < float(direct) < 3e-6
    assert 0 < float(ours) < 3e-5
