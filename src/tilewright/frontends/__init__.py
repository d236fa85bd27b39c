"""Front-ends: foreign model files become networks in the graph dialect."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError, nearest, refuse
from tilewright.frontends.imported import EmptyOutput, Imported, ModelNode, Opened
from tilewright.frontends.mapped import MappedFile
from tilewright.frontends.modules import (
    Exported,
    OnnxModel,
    TorchModule,
    is_onnx_model,
    is_torch_module,
)
from tilewright.graph.names import network_name
from tilewright.shapes.forms import Shapes, concrete
from tilewright.system.files import names_beside

__all__ = [
    "EmptyOutput",
    "Exported",
    "Imported",
    "MappedFile",
    "ModelNode",
    "OnnxModel",
    "Opened",
    "TorchModule",
    "load",
    "open_model",
]

KINDS = (
    "ONNX models end in .onnx, Caffe's in .prototxt, StableHLO's in .mlir, .mlirbc or .stablehlo, "
    "TensorFlow Lite's in .tflite"
)
"""The format that each ending of a file's name stands for, as messages say it."""


def open_model(
    model: str | Path | Exported | OnnxModel | TorchModule,
    *,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    constants: Mapping[str, Any] | None = None,
) -> Opened | None:
    """Read a model whose format can leave dims free; None for formats that fix them all.

    An ``onnx.ModelProto`` is read as a file is. A PyTorch module is captured with
    ``example_inputs``; ``dynamic_shapes`` says which of their sizes stay free (``OpenedTorch``).
    ``constants`` makes inputs of an ONNX model constant (onnx/interface.py). Raises
    TilewrightError if a file is not a model of the format that its name says, or a module cannot be
    captured.
    """
    is_onnx = is_onnx_model(model) or (
        isinstance(model, str | Path) and Path(model).suffix.lower() == ".onnx"
    )
    if constants and not is_onnx:
        raise refuse(
            "model-constants",
            "only inputs of ONNX models can be made constant",
            repr(str(model)[:200]),
            "leave the constants out",
        )
    if isinstance(model, Exported):
        _no_examples("a program of JAX", example_inputs, dynamic_shapes)
        return None
    if not is_onnx and not isinstance(model, str | Path):
        return _open_module(model, example_inputs, dynamic_shapes)
    where = repr(str(model)) if isinstance(model, str | Path) else "an ONNX model in memory"
    _no_examples(where, example_inputs, dynamic_shapes)
    if not is_onnx:
        return None
    from tilewright.frontends.onnx.opened import OpenedOnnx

    source: Any = Path(model) if isinstance(model, str | Path) else model
    return OpenedOnnx(source, constants)


def load(
    model: str | Path | Exported | OnnxModel | TorchModule,
    *,
    shapes: Shapes | None = None,
    caffemodel: str | Path | None = None,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    loops: bool = False,
) -> Imported:
    """Read a model of any kind that Tilewright knows.

    ``model`` is a file (ONNX, Caffe's prototxt, StableHLO as text or bytecode, TensorFlow Lite),
    an ``onnx.ModelProto``, what ``jax.export.export`` returned, or a PyTorch module.

    ``shapes`` gives sizes to dims that the model leaves free (``{"image": (1, 3, 224, 224)}``, or
    ``{"batch": 4}`` by a free dim's name); a first size that stays free is taken as 1, with a note.
    ``caffemodel`` is the file of the weights of a prototxt. ``example_inputs`` and
    ``dynamic_shapes`` are for modules (``open_model``). With ``loops``, loops and recurrent layers
    stay loops of the network; otherwise every round is written out. Raises TilewrightError with
    every reason for which the model is refused.
    """
    if isinstance(model, Exported):
        from tilewright.frontends.stablehlo import import_stablehlo

        _no_examples("a program of JAX", example_inputs, dynamic_shapes)
        if caffemodel is not None:
            raise _own_weights("a program of JAX")
        return import_stablehlo(model, shapes=_fixed(shapes))
    if (
        not isinstance(model, str | Path)
        or example_inputs is not None
        or dynamic_shapes is not None
    ):
        opened = open_model(model, example_inputs=example_inputs, dynamic_shapes=dynamic_shapes)
        assert opened is not None
        if caffemodel is not None:
            raise _own_weights("a model in memory")
        return opened.load(shapes, loops=loops)
    path = Path(model)
    return _load_file(path, shapes, caffemodel, loops).named(network_name(path.stem))


def _load_file(
    path: Path, shapes: Shapes | None, caffemodel: str | Path | None, loops: bool
) -> Imported:
    """Read a file by the front-end that its name asks for."""
    suffix = path.suffix.lower()
    if suffix == ".prototxt":
        from tilewright.frontends.caffe import import_caffe

        return import_caffe(path, caffemodel=caffemodel, shapes=_fixed(shapes))
    if caffemodel is not None and suffix in (".onnx", ".mlir", ".mlirbc", ".stablehlo", ".tflite"):
        raise _own_weights(repr(str(path)))
    if suffix == ".onnx":
        from tilewright.frontends.onnx import import_onnx

        return import_onnx(path, shapes=shapes, loops=loops)
    if suffix in (".mlir", ".mlirbc", ".stablehlo"):
        from tilewright.frontends.stablehlo import import_stablehlo

        return import_stablehlo(path, shapes=_fixed(shapes))
    if suffix == ".tflite":
        from tilewright.frontends.tensorflow import import_tflite

        return import_tflite(path, shapes=shapes, loops=loops)
    if suffix == ".gguf":
        raise refuse(
            "model-format", "a language model becomes a package by a command of its own",
            repr(str(path)), "tilewright llm MODEL.gguf (docs/llm.md)",
        )  # fmt: skip
    if suffix == ".caffemodel":
        raise refuse(
            "model-format",
            "a caffemodel holds the weights of a network that a prototxt describes",
            where=repr(str(path)),
            help="give the prototxt, and this file as --caffemodel",
        )
    if _is_missing(path):
        raise refuse(
            "model-missing", "there is no model and no package of that name", repr(str(path)),
            nearest(path.name, names_beside(path)),
        )  # fmt: skip
    if path.is_dir():
        package = (path / "manifest.json").is_file()
        raise refuse(
            "model-format",
            "is a package: it is compiled already" if package else "is a directory, not a model",
            where=repr(str(path)),
            help="run it: tilewright run, or Executable.load" if package else KINDS,
        )
    if suffix in (".pt", ".pth", ".pt2", ".ckpt", ".safetensors", ".bin"):
        raise refuse(
            "model-format",
            "is a file of PyTorch's: weights, or a program that only PyTorch reads",
            where=repr(str(path)),
            help="load it in Python and export the module: torch.onnx.export(module, inputs, "
            "'model.onnx'), or give tilewright.compile the module (docs/pytorch.md)",
        )
    raise refuse(
        "model-format",
        f"no front-end reads files that end in {path.suffix!r}"
        if suffix
        else "its name has no suffix",
        where=repr(str(path)),
        help=KINDS,
    )


def _is_missing(path: Path) -> bool:
    """Return True if there is no file and no directory of that name."""
    try:
        return not path.exists()
    except (OSError, ValueError):  # No file can have such a name.
        return True


def _open_module(module: Any, example_inputs: Any, dynamic_shapes: Any) -> Opened:
    """A model that is no file."""
    if not is_torch_module(module):
        raise refuse(
            "model-format",
            f"no front-end reads objects of type {type(module).__name__}",
            help="give a file's path, an onnx.ModelProto or a PyTorch module",
        )
    from tilewright.frontends.torch import OpenedTorch

    return OpenedTorch(module, example_inputs, dynamic_shapes)


def _no_examples(where: str, example_inputs: Any, dynamic_shapes: Any) -> None:
    """Refuse arguments that are for PyTorch modules where the model is of another kind."""
    if example_inputs is not None or dynamic_shapes is not None:
        raise refuse(
            "torch-example-inputs",
            "a model of this kind states its own inputs",
            where=where,
            help="leave the example inputs out; they are for PyTorch modules",
        )


def _fixed(shapes: Shapes | None) -> dict[str, tuple[int, ...]]:
    """Shapes as formats take them that leave no dims free."""
    return {name: concrete(value, f"input {name!r}") for name, value in (shapes or {}).items()}


def _own_weights(where: str) -> TilewrightError:
    """The refusal of a caffemodel beside a model that says itself where its weights are."""
    help = "leave the caffemodel out"
    return refuse("model-weights", "a model of this kind has its own weights", where, help)
