"""PyTorch modules become networks: captured by torch.export, written as ONNX in memory, imported.

torch is an extra: nothing here imports it before a module is at hand (``library.py``).
"""

from tilewright.frontends.torch.opened import OpenedTorch

__all__ = ["OpenedTorch"]
