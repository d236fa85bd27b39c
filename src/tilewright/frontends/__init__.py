"""Front-ends: foreign model files become networks in the graph dialect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.errors import refuse
from tilewright.frontends.imported import Imported, ModelNode
from tilewright.frontends.mapped import MappedFile
from tilewright.frontends.modules import TorchModule, is_torch_module
from tilewright.frontends.opened import Opened
from tilewright.shapes import Shapes
from tilewright.shapes.forms import concrete

__all__ = ["Imported", "MappedFile", "ModelNode", "Opened", "TorchModule", "load", "open_model"]


def open_model(
    model: str | Path | TorchModule, *, example_inputs: Any = None, dynamic_shapes: Any = None
) -> Opened | None:
    """Read a model whose format can leave dims free; None for formats that fix them all.

    A PyTorch module is captured with ``example_inputs``; ``dynamic_shapes`` says which of their
    sizes stay free (``OpenedTorch``). Raises TilewrightError if a file is not a model of the
    format that its name says, or a module cannot be captured.
    """
    if not isinstance(model, str | Path):
        return _open_module(model, example_inputs, dynamic_shapes)
    path = Path(model)
    _check_examples(path, example_inputs, dynamic_shapes)
    if path.suffix.lower() != ".onnx":
        return None
    from tilewright.frontends.onnx.opened import OpenedOnnx

    return OpenedOnnx(path)


def load(
    model: str | Path | TorchModule,
    *,
    shapes: Shapes | None = None,
    weights: str | Path | None = None,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
) -> Imported:
    """Read a model file that Tilewright knows (ONNX, Caffe's prototxt), or a PyTorch module.

    ``shapes`` gives sizes to dims that the model leaves free (``{"image": (1, 3, 224, 224)}``, or
    ``{"batch": 4}`` by a free dim's name); a first size that stays free is taken as 1, with a note.
    ``weights`` is the file of the weights for formats that keep them apart (a prototxt's
    caffemodel). ``example_inputs`` and ``dynamic_shapes`` are for modules (``open_model``). Raises
    TilewrightError with every reason for which the model is refused.
    """
    if (
        not isinstance(model, str | Path)
        or example_inputs is not None
        or dynamic_shapes is not None
    ):
        opened = open_model(model, example_inputs=example_inputs, dynamic_shapes=dynamic_shapes)
        assert opened is not None
        if weights is not None:
            raise refuse("model-weights", "a PyTorch module brings its weights")
        return opened.load(shapes)
    path = Path(model)
    suffix = path.suffix.lower()
    if suffix == ".prototxt":
        from tilewright.frontends.caffe import import_caffe

        fixed = {name: concrete(value, f"input {name!r}") for name, value in (shapes or {}).items()}
        return import_caffe(path, weights=weights, shapes=fixed)
    if suffix == ".onnx" and weights is None:
        from tilewright.frontends.onnx import import_onnx

        return import_onnx(path, shapes=shapes)
    if suffix == ".onnx":
        raise refuse(
            "model-weights",
            "an ONNX model says itself where its weights are",
            where=repr(str(path)),
            help="leave the weights out",
        )
    if suffix == ".caffemodel":
        raise refuse(
            "model-format",
            "a caffemodel holds the weights of a network that a prototxt describes",
            where=repr(str(path)),
            help="give the prototxt, and this file as its weights",
        )
    raise refuse(
        "model-format",
        f"no front-end reads files that end in {path.suffix!r}",
        where=repr(str(path)),
        help="ONNX models end in .onnx, Caffe's in .prototxt",
    )


def _open_module(module: TorchModule, example_inputs: Any, dynamic_shapes: Any) -> Opened:
    """A model that is no file."""
    if not is_torch_module(module):
        raise refuse(
            "model-format",
            f"no front-end reads objects of type {type(module).__name__}",
            help="give a file's path or a PyTorch module",
        )
    from tilewright.frontends.torch import OpenedTorch

    return OpenedTorch(module, example_inputs, dynamic_shapes)


def _check_examples(path: Path, example_inputs: Any, dynamic_shapes: Any) -> None:
    """Refuse what is for modules where the model is a file."""
    if example_inputs is not None or dynamic_shapes is not None:
        raise refuse(
            "torch-example-inputs",
            "a model file says itself what it takes",
            where=repr(str(path)),
            help="leave the example inputs out; they are for PyTorch modules",
        )
