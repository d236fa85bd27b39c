"""Tilewright inside other software: a torch.compile backend, ONNX's backend interface, DLPlib."""
