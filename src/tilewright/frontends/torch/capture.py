"""Capture a module as an exported program; say in one refusal why that cannot be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.errors import refuse
from tilewright.frontends.torch.library import torch_library
from tilewright.frontends.torch.reasons import listed, told


def captured(module: Any, example_inputs: Any, dynamic_shapes: Any = None) -> Any:
    """``torch.export``'s program of a module in evaluation mode.

    Raises TilewrightError: ``torch-training``, ``torch-example-inputs``, ``torch-export``.
    """
    torch = torch_library()
    module = getattr(module, "_orig_mod", module)  # What torch.compile wrapped.
    where = f"module {type(module).__name__}"
    training = [name or "the whole" for name, part in module.named_modules() if part.training]
    if training:
        raise refuse(
            "torch-training",
            "these modules are in training mode, which changes Dropout and BatchNorm: "
            + listed(training),
            where,
            help="call .eval() on the module first",
        )
    positional, named = _arguments(example_inputs, where)
    dims = _named_dims(dynamic_shapes)

    def capture() -> Any:
        with torch.no_grad():
            return torch.export.export(module, positional, named, dynamic_shapes=dims, strict=False)

    return told("torch-export", where, "torch.export cannot capture it", capture)


def _arguments(example_inputs: Any, where: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs as positional and named arguments of the module."""
    help = "give example_inputs: a tensor, a tuple of arguments, or a dict of them by name"
    if example_inputs is None:
        raise refuse("torch-example-inputs", "a module does not say what it takes", where, help)
    if isinstance(example_inputs, torch_library().Tensor):
        return (example_inputs,), {}
    if isinstance(example_inputs, Mapping):
        return (), {str(name): value for name, value in example_inputs.items()}
    if isinstance(example_inputs, tuple | list):
        return tuple(example_inputs), {}
    reason = f"example inputs are of type {type(example_inputs).__name__}"
    raise refuse("torch-example-inputs", reason, where, help)


def _named_dims(dynamic_shapes: Any) -> Any:
    """Dynamic shapes as torch.export takes them; a text, ``"batch"``, becomes a Dim of its name."""
    if isinstance(dynamic_shapes, Mapping):
        return {key: _named_dims(value) for key, value in dynamic_shapes.items()}
    if isinstance(dynamic_shapes, tuple | list):
        return type(dynamic_shapes)(_named_dims(value) for value in dynamic_shapes)
    if isinstance(dynamic_shapes, str):
        return torch_library().export.Dim(dynamic_shapes)
    return dynamic_shapes
