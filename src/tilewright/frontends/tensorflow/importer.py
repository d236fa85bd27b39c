"""Convert a TensorFlow Lite file with tf2onnx, in a process of its own, and import the result.

tf2onnx and tensorflow are loaded in that process alone: they are large, and they read what
strangers wrote. Integer models arrive as ONNX's QuantizeLinear and DequantizeLinear.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from tilewright.errors import TilewrightError, refuse
from tilewright.frontends.files import read_file
from tilewright.frontends.imported import Imported
from tilewright.frontends.limits import MAX_FILE_BYTES
from tilewright.frontends.onnx import import_onnx
from tilewright.shapes.forms import Shapes
from tilewright.system.temporary import temporary_folder

OPSET = 17
"""Version of the ONNX operators that is asked for: the newest that tf2onnx 1.17 maps well."""

MAX_SECONDS = 600
"""Time that a conversion may take."""

IDENTIFIER = b"TFL3"
"""Bytes 4 to 8 of every TensorFlow Lite file."""


def import_tflite(path: Path, *, shapes: Shapes | None = None, loops: bool = False) -> Imported:
    """Read a TensorFlow Lite file into the graph dialect.

    ``shapes`` settles inputs whose sizes the model leaves open. Raises TilewrightError, also where
    tf2onnx or tensorflow is not installed (``tflite-extra``).
    """
    title = repr(str(path))
    data = read_file(path, "tflite", MAX_FILE_BYTES, Path.read_bytes)
    if data[4:8] != IDENTIFIER:
        raise refuse("tflite-damaged", "it is not a TensorFlow Lite file", where=title)
    missing = [name for name in ("tf2onnx", "tensorflow") if not _installed(name)]
    if missing:
        raise refuse(
            "tflite-extra",
            f"{' and '.join(missing)}, which read it, are not installed",
            where=title,
            help="pip install tilewright[tensorflow], or convert it where they are: "
            "python -m tf2onnx.convert --tflite model.tflite --output model.onnx",
        )
    imported = import_onnx(_converted(data, title), shapes=shapes, loops=loops)
    return replace(imported, digest=sha256(data).hexdigest())


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _converted(data: bytes, title: str) -> bytes:
    """The model as the bytes of an ONNX file."""
    with temporary_folder() as folder:
        # Names of our own: the user's may look like options.
        source, target = folder / "model.tflite", folder / "model.onnx"
        source.write_bytes(data)
        command = [sys.executable, "-m", "tf2onnx.convert", "--opset", str(OPSET)]
        command += ["--tflite", str(source), "--output", str(target)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                timeout=MAX_SECONDS,
                check=False,
                cwd=folder,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            )
        except subprocess.TimeoutExpired as error:
            reason = f"converting it takes more than {MAX_SECONDS} seconds"
            raise refuse("tflite-too-large", reason, where=title) from error
        if done.returncode == 0 and target.is_file():
            return target.read_bytes()
        raise _failed(done, title)


def _failed(done: subprocess.CompletedProcess[bytes], title: str) -> TilewrightError:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    last = " ".join(lines[-1].split())[:300] if lines else f"it ended with {done.returncode}"
    return refuse("tflite-damaged", f"tf2onnx does not convert it: {last}", where=title)
