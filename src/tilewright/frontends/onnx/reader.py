"""Read an ONNX file into a ModelProto, and find its version of the operator set."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from tilewright.errors import refuse
from tilewright.frontends.files import read_file
from tilewright.frontends.limits import MAX_FILE_BYTES, shown
from tilewright.frontends.mapped import MappedFile
from tilewright.frontends.onnx.lean import lean_model
from tilewright.frontends.onnx.limits import MAX_NODES
from tilewright.frontends.onnx.tensors import Files

ModelSource = str | Path | bytes | ModelProto


@dataclass(frozen=True)
class Source:
    """A parsed model and where it came from."""

    model: ModelProto
    digest: str
    files: Files
    """The files that hold large constants and external data."""
    title: str
    """The model's name in messages."""


def read_model(source: ModelSource) -> Source:
    """Parse a file, its bytes, or take a ModelProto; raises TilewrightError."""
    if isinstance(source, ModelProto):
        try:
            data = source.SerializeToString(deterministic=True)
        except (EncodeError, ValueError) as error:
            raise refuse("onnx-too-large", f"the model cannot be serialised: {error}") from error
        return Source(source, hashlib.sha256(data).hexdigest(), Files(), "model")
    if isinstance(source, bytes):
        data = np.frombuffer(source, np.uint8)
        digest = hashlib.sha256(source).hexdigest()
        return Source(_parse(data, "model"), digest, Files(content=data), "model")
    help = "protobuf cannot read it; store the weights as external data"
    return read_file(Path(source), "onnx", MAX_FILE_BYTES, _mapped, help)


def _mapped(path: Path) -> Source:
    """A file's model; raises TilewrightError, OSError or ValueError."""
    file, title = MappedFile(path), shown(str(path))
    digest = file.digest()
    file.check()
    model = _parse(file.bytes, title)
    file.release()
    return Source(model, digest, Files(path.parent, file), title)


def _parse(data: NDArray[np.uint8], title: str) -> ModelProto:
    """Bytes as a ModelProto, in which large constants refer to the bytes."""
    try:
        model = ModelProto.FromString(lean_model(data))
    except DecodeError as error:
        raise refuse(
            "onnx-truncated",
            "the bytes are not a whole ONNX model",
            where=title,
            help="the file may be cut short, or be in another format",
        ) from error
    return model


def check_model(source: Source) -> dict[str, int]:
    """The model's versions of its operator sets by domain ("" is ONNX's own), once it is in bounds.

    Raises TilewrightError for a model without a graph or with an operator set out of range.
    """
    model, title = source.model, source.title
    if not _is_text(model):
        raise refuse("onnx-truncated", "a name in it is not text", where=title)
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise refuse("onnx-truncated", "there is no graph in it", where=title)
    if len(model.graph.node) > MAX_NODES:
        raise refuse(
            "onnx-too-large",
            f"it has {len(model.graph.node)} nodes; the limit is {MAX_NODES}",
            where=title,
        )
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if versions.setdefault(domain, entry.version) != entry.version:
            asked = [versions[domain], entry.version]
            reason = f"it asks for several versions of the operators: {asked}"
            raise refuse("onnx-opset", reason, where=title)
    newest = onnx.defs.onnx_opset_version()
    if not versions:
        reason = "it does not say which version of the ONNX operators it uses"
        raise refuse("onnx-opset", reason, where=title)
    if "" in versions and not 1 <= versions[""] <= newest:
        raise refuse(
            "onnx-opset",
            f"operator set {versions['']} is outside 1 to {newest}",
            where=title,
            help="install a newer onnx" if versions[""] > newest else "",
        )
    return versions


def _is_text(model: ModelProto) -> bool:
    """Return True if every name is UTF-8; protobuf lets through what is not, as bytes or as an
    error."""
    try:
        return all(isinstance(name, str) for name in _names(model))
    except UnicodeDecodeError:
        return False


def _names(model: ModelProto) -> Iterator[object]:
    """Every name in a model that import reads."""
    graph = model.graph
    yield graph.name
    yield from (entry.domain for entry in model.opset_import)
    for function in model.functions:
        yield from (function.name, function.domain)
    for value in (*graph.input, *graph.output):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
            yield from _tensor_names(attribute.t)
    for tensor in graph.initializer:
        yield from _tensor_names(tensor)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)


def _tensor_names(tensor: TensorProto) -> Iterator[object]:
    yield tensor.name
    for entry in tensor.external_data:
        yield from (entry.key, entry.value)
