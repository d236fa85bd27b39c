"""A PyTorch module as a model: torch.export captures it, the ONNX importer reads what torch writes.

Weights go past the ONNX form: their arrays share the module's memory until a network's own store
takes its copy.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from tilewright.frontends.imported import Imported, Opened
from tilewright.frontends.modules import TorchModule
from tilewright.frontends.onnx import import_onnx
from tilewright.frontends.onnx.interface import signature_of
from tilewright.frontends.onnx.opened import MODEL_FILE
from tilewright.frontends.torch.capture import captured
from tilewright.frontends.torch.checks import check_program
from tilewright.frontends.torch.exported import to_onnx, with_bounds
from tilewright.frontends.torch.library import check_exporter, torch_library
from tilewright.graph.names import identifier
from tilewright.graph.weights import digest_of
from tilewright.ir.types import Array
from tilewright.shapes.forms import Shapes
from tilewright.system.temporary import make_folder, remove_folder

WEIGHTS_FILE = "weights.bin"
"""Holds the weights beside the model where both become files."""


class OpenedTorch(Opened):
    """A module in evaluation mode, or an exported program, captured.

    ``example_inputs`` are what the module is captured with: a tensor, a tuple of arguments, or a
    mapping of them by name; tensors among them become the network's inputs, other values are
    fixed. A program brings its own. ``dynamic_shapes`` is handed to torch.export: it says which
    sizes stay free. Networks have a copy of the parameters as they are when they are loaded.
    Raises TilewrightError with every reason for a refusal.
    """

    def __init__(
        self, module: TorchModule, example_inputs: Any = None, dynamic_shapes: Any = None
    ) -> None:
        torch = torch_library()
        check_exporter()
        title = type(module).__name__
        if isinstance(module, torch.export.ExportedProgram):
            program: Any = module
        else:
            program = captured(module, example_inputs, dynamic_shapes)
        check_program(program, title)
        self.name = identifier(title, "network")
        self._model, self._weights = to_onnx(program, title, dynamic_shapes)
        self._model.graph.name = self.name
        self.signature = with_bounds(signature_of(self._model.graph), program)

    def load(self, shapes: Shapes | None = None, *, loops: bool = False) -> Imported:
        """The network for these shapes."""
        imported = import_onnx(self._model, shapes=shapes, stored=self._weights, loops=loops)
        return replace(imported, digest=_digest(imported.digest, self._weights))

    def files(self) -> Mapping[str, Path]:
        """The model and its weights as files, which live as long as this object."""
        folder = make_folder()
        weakref.finalize(self, remove_folder, folder)
        model = ModelProto()
        model.CopyFrom(self._model)
        with (folder / WEIGHTS_FILE).open("wb") as file:
            for name, array in sorted(self._weights.items()):
                dense = np.ascontiguousarray(array)
                model.graph.initializer.append(_external(name, array, file.tell()))
                file.write(dense.reshape(-1).view(np.uint8).data)
        (folder / MODEL_FILE).write_bytes(model.SerializeToString(deterministic=True))
        return {name: folder / name for name in (MODEL_FILE, WEIGHTS_FILE)}


def _external(name: str, array: Array, offset: int) -> TensorProto:
    """A stored tensor whose bytes lie in the file of the weights."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    stored = TensorProto(name=name, dims=array.shape, data_type=kind)
    stored.data_location = TensorProto.EXTERNAL
    fields = {"location": WEIGHTS_FILE, "offset": str(offset), "length": str(array.nbytes)}
    for key, value in fields.items():
        stored.external_data.add(key=key, value=value)
    return stored


def _digest(model: str, weights: Mapping[str, Array]) -> str:
    """SHA-256 of a model without weights and of the weights, in hexadecimal."""
    state = hashlib.sha256(model.encode())
    for name, array in sorted(weights.items()):
        state.update(f"{name} {digest_of(np.ascontiguousarray(array))}\n".encode())
    return state.hexdigest()
