"""Front-ends: foreign model files become networks in the graph dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.errors import refuse
from tilewright.frontends.imported import Imported, ModelNode
from tilewright.frontends.mapped import MappedFile

__all__ = ["Imported", "MappedFile", "ModelNode", "load"]


def load(
    path: str | Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    weights: str | Path | None = None,
) -> Imported:
    """Read a model file of any format that Tilewright knows: ONNX, or Caffe's prototxt.

    ``shapes`` gives the shapes of inputs whose sizes the model leaves open. ``weights`` is the
    file of the weights for formats that keep them apart (a prototxt's caffemodel). Raises
    TilewrightError with every reason for which the model is refused.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".prototxt":
        from tilewright.frontends.caffe import import_caffe

        return import_caffe(path, weights=weights, shapes=shapes)
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
