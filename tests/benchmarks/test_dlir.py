"""DLIR's pages: what is pruned, and that rows tell the code that they were measured with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from benchmarks.papers.dlir import sparse
from benchmarks.papers.dlir.code import code_of
from onnx import numpy_helper

from benchmarks import measuring


@pytest.mark.parametrize("density", (0.5, 0.1))
def test_pruned_networks_keep_the_largest_weights(
    density: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(measuring, "MODELS", tmp_path)
    network, kept = sparse.pruned("lenet5", (density,))
    assert kept == pytest.approx(density, abs=0.01)
    whole = onnx.load(measuring.model_path("lenet5"))
    for before, after in zip(whole.graph.initializer, network.graph.initializer, strict=True):
        old, new = (numpy_helper.to_array(tensor) for tensor in (before, after))
        if old.ndim == 1:
            np.testing.assert_array_equal(old, new)
            continue
        np.testing.assert_array_equal(new[new != 0], old[new != 0])
        assert np.abs(old[new == 0]).max() <= np.abs(new[new != 0]).min()
        assert (new != 0).mean() == pytest.approx(density, abs=0.01)


def test_rows_tell_their_code() -> None:
    codes = {target: code_of(target) for target in ("cambricon", "cambricon-x", "shidiannao")}
    assert len(set(codes.values())) == 3
    assert code_of("shidiannao-l") == codes["shidiannao"]
    assert all(len(code) == 8 for code in codes.values())
