"""``tilewright run --engine`` and ``tilewright dlplib``: the library from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tilewright.cli.main import app

LENET = str(Path(__file__).parent.parent.parent / "examples" / "caffe" / "lenet.prototxt")

SMALL = """
input: "data" input_shape { dim: 1 dim: 3 dim: 6 dim: 6 }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool"
  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "relu" type: "ReLU" bottom: "pool" top: "pool" }
"""


def invoke(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in arguments])
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.parametrize("engine", ["DLP", "CAFFE"])
def test_engines(tmp_path: Path, engine: str) -> None:
    path, outputs = tmp_path / "small.prototxt", tmp_path / "out.npz"
    path.write_text(SMALL)
    image = np.random.default_rng(0).standard_normal((1, 3, 6, 6)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    given = ("--input", f"data={tmp_path / 'image.npy'}", "--engine", engine, "--check")
    text = invoke("run", path, *given, "-o", outputs)
    assert "pooling_forward" in text and "check passed" in text
    assert ("cycles" in text) == (engine == "DLP")
    expected = np.maximum(image.reshape(1, 3, 3, 2, 3, 2).max((3, 5)), 0)
    with np.load(outputs) as found:
        assert np.abs(found["pool"] - expected).max() < (1e-4 if engine == "DLP" else 1e-6)
    found = json.loads(invoke("run", path, *given, "--json"))
    assert [layer["name"] for layer in found["layers"]] == ["data", "pool", "relu"]
    assert found["target"] == ("cambricon-x" if engine == "DLP" else "cpu")
    assert (found["cycles"] > 0) == (engine == "DLP")


def test_refusals(tmp_path: Path) -> None:
    onnx = Path(LENET).parent.parent / "lenet5" / "lenet5.onnx"
    assert "option-engine" in invoke("run", onnx, "--engine", "DLP", status=2)
    assert "option-engine" in invoke("run", LENET, "--engine", "DLP", "--threads", 2, status=2)
    assert "dlp-parameter" in invoke("run", LENET, "--engine", "GPU", status=2)
    (tmp_path / "file").write_text("")
    assert "output-failed" in invoke("dlplib", "-o", tmp_path / "file", status=2)


def test_library_is_written(tmp_path: Path) -> None:
    found = json.loads(invoke("dlplib", "-o", tmp_path / "dlp", "--json"))
    assert Path(found["library"]).read_bytes()[:4] == b"\x7fELF"
    assert "dlpConvolutionForward" in Path(found["header"]).read_text()
