"""Front-ends: foreign model files become networks in the graph dialect."""

from __future__ import annotations

from pathlib import Path

from tilewright.errors import refuse
from tilewright.frontends.imported import Imported, ModelNode
from tilewright.frontends.mapped import MappedFile
from tilewright.frontends.opened import Opened
from tilewright.shapes import Shapes
from tilewright.shapes.forms import concrete

__all__ = ["Imported", "MappedFile", "ModelNode", "Opened", "load", "open_model"]


def open_model(path: str | Path) -> Opened | None:
    """Read a model whose format can leave dims free; None for formats that fix them all.

    Raises TilewrightError if the file is not a model of the format that its name says.
    """
    path = Path(path)
    if path.suffix.lower() != ".onnx":
        return None
    from tilewright.frontends.onnx.opened import OpenedOnnx

    return OpenedOnnx(path)


def load(
    path: str | Path,
    *,
    shapes: Shapes | None = None,
    weights: str | Path | None = None,
) -> Imported:
    """Read a model file of any format that Tilewright knows: ONNX, or Caffe's prototxt.

    ``shapes`` gives sizes to dims that the model leaves free (``{"image": (1, 3, 224, 224)}``, or
    ``{"batch": 4}`` by a free dim's name); a first size that stays free is taken as 1, with a note.
    ``weights`` is the file of the weights for formats that keep them apart (a prototxt's
    caffemodel). Raises TilewrightError with every reason for which the model is refused.
    """
    path = Path(path)
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
