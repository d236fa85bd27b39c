"""TensorFlow Lite models become networks, by way of tf2onnx and the ONNX importer."""

from tilewright.frontends.tensorflow.importer import import_tflite

__all__ = ["import_tflite"]
