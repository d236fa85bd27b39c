"""The one place where torch is imported, which comes with an extra."""

from __future__ import annotations

from typing import Any

from tilewright.system.extras import library


def torch_library(name: str = "torch") -> Any:
    """The module ``torch``, or another of its extra; raises TilewrightError (``torch-missing``)."""
    return library(name, "torch", "torch-missing", "PyTorch modules")


def check_exporter() -> None:
    """See that torch can write ONNX; raises TilewrightError (``torch-missing``)."""
    torch_library("onnxscript")
