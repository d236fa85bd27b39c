"""The cpu target against ONNX Runtime."""
