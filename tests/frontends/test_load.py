"""Formats are told by the name of the file."""

import pytest

from tilewright.errors import TilewrightError
from tilewright.frontends import load


@pytest.mark.parametrize("name", ["model.pt", "model", "model.pb"])
def test_unknown_formats_are_refused(name, tmp_path):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(TilewrightError, match="model-format"):
        load(tmp_path / name)


def test_missing_files_are_refused(tmp_path):
    for path in (tmp_path / "none.onnx", tmp_path / "folder.onnx", "nul\0.onnx"):
        if path == tmp_path / "folder.onnx":
            path.mkdir()
        with pytest.raises(TilewrightError, match="onnx-missing-file"):
            load(path)
