"""An ONNX model whose dims may be free, and the files that it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from tilewright.errors import refuse
from tilewright.frontends.imported import Imported, Opened
from tilewright.frontends.onnx.importer import import_onnx
from tilewright.frontends.onnx.interface import Constants, given_arrays, signature_of
from tilewright.frontends.onnx.limits import MAX_DEPTH
from tilewright.frontends.onnx.reader import Source, check_model, read_model
from tilewright.frontends.onnx.tensors import external_file, is_within
from tilewright.graph.names import network_name
from tilewright.shapes.forms import Shapes

MODEL_FILE = "model.onnx"
"""The file name of a model's copy; a model's own data file of that name is refused."""


class OpenedOnnx(Opened):
    """A model from a file, or one in memory (see ``Opened``).

    ``constants`` makes inputs constant (interface.py). Raises TilewrightError if it is no ONNX
    model.
    """

    def __init__(self, model: Path | ModelProto, constants: Constants | None = None) -> None:
        self.model = model
        self.constants = constants
        # The file alone does not say which network this is where inputs are constants.
        self.on_disk = isinstance(model, Path) and not constants
        source = read_model(model)
        _ = check_model(source)
        self._source: Source | None = source
        constant_names = set(given_arrays(source.model.graph, constants))
        self.signature = signature_of(source.model.graph, constant_names)
        in_memory = isinstance(model, ModelProto)
        self.name = network_name((model.graph.name or "network") if in_memory else model.stem)

    def load(self, shapes: Shapes | None = None, *, loops: bool = False) -> Imported:
        """The network for these shapes."""
        source, self._source = self._source, None
        imported = import_onnx(
            self.model if source is None else source,
            shapes=shapes,
            constants=self.constants,
            loops=loops,
        )
        return imported.named(self.name)

    def files(self) -> Mapping[str, Path]:
        """The model and its external data; refuses a model without a file, and constants, which
        the file does not have."""
        if isinstance(self.model, ModelProto):
            raise refuse(
                "shape-open", "a package with free dims holds its model's file",
                ", ".join(map(repr, self.signature.free)),
                "save the model and give its path, or give the free dims sizes",
            )  # fmt: skip
        if self.constants:
            raise refuse(
                "shape-open", "constants are for models whose shapes are all known",
                ", ".join(map(repr, self.signature.free)), "give the free dims sizes too: --shape",
            )  # fmt: skip
        source = self._source or read_model(self.model)
        files = {MODEL_FILE: self.model}
        for tensor in _tensors(source.model.graph, 0):
            if tensor.data_location != TensorProto.EXTERNAL or is_within(tensor):
                continue
            location, path = external_file(tensor, self.model.parent)
            name = PurePosixPath(location).as_posix()
            if name == MODEL_FILE and path != self.model.resolve():
                raise refuse(
                    "onnx-external-data", f"a package calls the model {MODEL_FILE} itself",
                    repr(name), "store the data under another name",
                )  # fmt: skip
            files[name] = path
        return files


def _tensors(graph: GraphProto, depth: int) -> Iterator[TensorProto]:
    """Every stored tensor of a graph and of those inside its nodes."""
    if depth > MAX_DEPTH:
        return  # Import refuses graphs that lie deeper.
    yield from graph.initializer
    for node in graph.node:
        yield from _of_node(node, depth)


def _of_node(node: NodeProto, depth: int) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH or attribute.HasField("g"):
            yield from _tensors(attribute.g, depth + 1)
        if attribute.HasField("t"):
            yield attribute.t
