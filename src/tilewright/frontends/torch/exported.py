"""An exported program as an ONNX model in memory, and its weights beside it as arrays."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from onnx import ModelProto

from tilewright.errors import refuse
from tilewright.frontends.torch.library import torch_library
from tilewright.frontends.torch.names import input_names, output_names, rename
from tilewright.frontends.torch.reasons import told
from tilewright.ir.types import Array


def to_onnx(
    program: Any, title: str, dynamic_shapes: Any = None
) -> tuple[ModelProto, dict[str, Array]]:
    """An exported program as an ONNX model without its weights, and these by name.

    ``dynamic_shapes``, if it is given, has the names of the free dims. Raises TilewrightError
    (``torch-onnx``) with torch's reason.
    """
    torch = torch_library()
    where = f"module {title}"
    names = input_names(program), output_names(program)

    def write() -> Any:
        with torch.no_grad():
            written = torch.onnx.export(
                program, dynamo=True, verbose=False, dynamic_shapes=dynamic_shapes
            ).model
        rename(written, *names)
        return written

    def serialise() -> ModelProto:
        return import_module("onnx_ir").serde.serialize_model(written)

    written = told("torch-onnx", where, "torch cannot write it as ONNX", write)
    stored = {value.name: value.const_value for value in written.graph.initializers.values()}
    if any(value is None for value in stored.values()):
        raise refuse("torch-onnx", "a weight of its ONNX form has no value", where)
    weights = {name: value.numpy() for name, value in stored.items()}
    written.graph.initializers.clear()
    return told("torch-onnx", where, "its ONNX form is damaged", serialise), weights
