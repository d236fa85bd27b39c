"""Models that are objects of another library, told without importing that library."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Exported(Protocol):
    """An object like the result of ``jax.export.export(jax.jit(f))(...)``."""

    @property
    def mlir_module_serialized(self) -> bytes:
        """The program in the portable form of StableHLO."""
        ...


class TorchModule(Protocol):
    """The interface that ``torch.nn.Module`` and ``torch.export.ExportedProgram`` share."""

    def named_buffers(self) -> Iterable[tuple[str, Any]]:
        """Names and tensors of what is stored beside the parameters."""
        ...


class OnnxModel(Protocol):
    """The interface of ``onnx.ModelProto`` that tells it from other objects."""

    @property
    def opset_import(self) -> Iterable[Any]:
        """The operator sets that the model uses, each with its version."""
        ...


def is_onnx_model(model: object) -> bool:
    """True if a model is an ``onnx.ModelProto``."""
    onnx: Any = sys.modules.get("onnx")
    return onnx is not None and isinstance(model, onnx.ModelProto)


def is_torch_module(model: object) -> bool:
    """Return True if a model is a module of PyTorch, or a program that torch.export captured."""
    torch: Any = sys.modules.get("torch")  # Objects of its classes exist only where it is loaded.
    return torch is not None and isinstance(model, torch.nn.Module | torch.export.ExportedProgram)
