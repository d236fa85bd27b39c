"""ONNX models become networks in the graph dialect."""

from tilewright.frontends.onnx.importer import import_onnx

__all__ = ["import_onnx"]
