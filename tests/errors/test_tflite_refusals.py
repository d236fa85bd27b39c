"""TensorFlow Lite files that are refused by code."""

import importlib.util

import pytest

import tilewright
from tilewright.errors import TilewrightError

INSTALLED = all(importlib.util.find_spec(name) for name in ("tensorflow", "tf2onnx"))


def problem_of(path):
    with pytest.raises(TilewrightError) as caught:
        tilewright.load(path)
    return caught.value.problems[0]


def test_a_missing_file(tmp_path):
    assert problem_of(tmp_path / "none.tflite").code == "tflite-missing-file"
    (tmp_path / "folder.tflite").mkdir()
    assert problem_of(tmp_path / "folder.tflite").code == "tflite-missing-file"


def test_another_file(tmp_path):
    path = tmp_path / "model.tflite"
    for data in (b"", b"TFL3", b"\x1c\x00\x00\x00TFL2" + bytes(40)):
        path.write_bytes(data)
        assert problem_of(path).code == "tflite-damaged"


def test_weights_beside_it(tmp_path):
    with pytest.raises(TilewrightError) as caught:
        tilewright.load(tmp_path / "model.tflite", caffemodel=tmp_path / "weights")
    assert caught.value.problems[0].code == "model-weights"


def test_what_follows_the_identifier_is_damaged(tmp_path):
    """Without the extra the message has the line that converts elsewhere."""
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(range(40)))
    problem = problem_of(path)
    if INSTALLED:
        assert problem.code == "tflite-damaged"
    else:
        assert problem.code == "tflite-extra"
        assert "python -m tf2onnx.convert --tflite" in problem.help
