"""The table of errors: what it compares is right."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from benchmarks.cpu.errors import exact, layer, measure


def test_float64_is_the_same_convolution() -> None:
    model, x = layer(5, 7, 9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = np.asarray(session.run(None, {"x": x})[0])
    np.testing.assert_allclose(found, exact(model, x), atol=1e-5)


@pytest.mark.slow
def test_a_row_tells_the_methods_apart(tmp_path: Path) -> None:
    found: list[float] = []
    for form in ("winograd_2", "winograd_4_plain", "winograd_6"):
        row = measure(64, 64, 56, tmp_path, form=form)
        assert row is not None
        _, where, method, ours, direct, theirs, _ = row.split("|")
        assert (where.strip(), method.strip()) == ("64 x 64 x 56 x 56", form)
        assert 0 < float(theirs) < 3e-6
        assert 0 < float(direct) < 3e-6
        found.append(float(ours))
    assert 0 < found[0] < found[1] < found[2] < 5e-5


def test_what_no_planner_takes_has_no_row(tmp_path: Path) -> None:
    assert measure(16, 16, 7, tmp_path, form="winograd_2_5x5") is None
