"""Import a whole model: settle its inputs, then take its nodes in order (body.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.frontends.emitter import NewNetwork
from tilewright.frontends.imported import EmptyOutput, Imported, ModelNode
from tilewright.frontends.limits import shown
from tilewright.frontends.loops import LEAST_ROUNDS
from tilewright.frontends.onnx import functions
from tilewright.frontends.onnx.body import UNKNOWN, Body, Scope, Unknown
from tilewright.frontends.onnx.decided import Decided
from tilewright.frontends.onnx.interface import (
    Constants,
    given_arrays,
    inputs_of,
    outputs_of,
    tensor_type_of,
)
from tilewright.frontends.onnx.lowering import dtype_of
from tilewright.frontends.onnx.nodes import Node, live_nodes, nodes_of, sort_nodes
from tilewright.frontends.onnx.reader import ModelSource, Source, check_model, read_model
from tilewright.frontends.onnx.sequences import Absent, Item, ValueList
from tilewright.frontends.onnx.tensors import DTYPES, Constant
from tilewright.graph.dialect import network_of
from tilewright.graph.free_axes import same_but_for
from tilewright.graph.names import identifier
from tilewright.graph.operations.loops import MOST_ROUNDS
from tilewright.graph.passes.unroll_loops import UnrollLoops
from tilewright.graph.run_sizes import OutputEnd, Sample, follow_sizes
from tilewright.ir import Context, ModuleOp, PythonValue, SSAValue, to_attribute
from tilewright.ir.types import Array, element_dtype
from tilewright.shapes.forms import Shapes
from tilewright.shapes.lists import Lists


def import_onnx(
    source: ModelSource | Source,
    *,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
    stored: Mapping[str, Array] | None = None,
    loops: bool = False,
) -> Imported:
    """Read an ONNX model (operator sets 1 to the installed onnx's newest) into the graph dialect.

    ``source`` is a path, the bytes of a file, or a ModelProto; only models from a path may keep
    data outside. ``shapes`` settles dims that the model leaves open; ``constants`` gives
    inputs their values for good, so that shapes and axes may come from them; ``stored``
    are the model's own constants that the caller holds in its place. With ``loops``, loops and
    recurrent layers of more than a few rounds are loops of the network; otherwise every round of
    them is written out. An input
    with a size of 0 holds nothing, and is no input of the network. Raises TilewrightError with
    every reason for which the model is refused.
    """
    read = source if isinstance(source, Source) else read_model(source)
    importer = _Importer(read, shapes, constants, stored or {}, loops)
    module, ends = importer.module(), ()
    if importer.decided.rooms:
        importer, module, ends = _with_sizes(importer.decided.rooms, importer.again)
    return replace(importer.imported(module), ends=ends)


def _with_sizes(
    rooms: Mapping[str, int], importer_of: Callable[[str], _Importer]
) -> tuple[_Importer, ModuleOp, tuple[OutputEnd, ...]]:
    """The network of a model of which data decide sizes, once these are followed: beside the
    networks in which one has a smaller room each."""
    importer = importer_of("")
    module = importer.module()
    network, weights = network_of(module), importer.network.weights
    samples: list[Sample] = []
    for name, room in rooms.items():
        smaller = importer_of(name)
        other = network_of(smaller.module()), smaller.network.weights
        sizes = {**rooms, name: room - 1}
        try:
            pairs = {(room, room - 1)}
            differing = same_but_for((network, weights), other, pairs, any_extents=True)
            samples.append(Sample(sizes, differing))
        except TilewrightError as error:
            problem = error.problems[0]
            raise refuse(
                "onnx-shape",
                f"data decide the size {shown(name)}, and what follows from it is not computed "
                f"at run time: {problem.reason}",
                f"node {problem.where}",
                "where an input decides the size, give the input its value: --constant",
            ) from error
    decided = importer.decided
    ends = follow_sizes(
        network, weights, decided.sizes, decided.ends, rooms, samples, decided.stated
    )
    return importer, module, ends


def _listed(values: dict[str, Item | Unknown], name: str, length: int) -> ValueList | Unknown:
    """The sequence of inputs ``NAME.0``, ``NAME.1``, ..., which have no other name in the model."""
    items = [values.pop(f"{name}.{number}") for number in range(length)]
    tensors = tuple(item for item in items if isinstance(item, SSAValue | Constant))
    return ValueList(tensors) if len(tensors) == length else UNKNOWN


class _Importer:
    """The state of one import."""

    def __init__(
        self,
        source: Source,
        shapes: Shapes | None,
        constants: Constants | None,
        stored: Mapping[str, Array],
        loops: bool,
        smaller: str | None = None,
    ) -> None:
        self.again = partial(_Importer, source, shapes, constants, stored, loops)
        """Import once more, with less room for the size of a name, without shared constants."""
        self.source = source
        self.graph = source.model.graph
        self.versions = check_model(source)
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.empty: list[EmptyOutput] = []
        self.nodes = nodes_of(self.graph.node, self.versions)
        tensors = self._initializers()
        given = given_arrays(self.graph, constants)
        arrays = {**stored, **{name: array for name, array in given.items() if array is not None}}
        known = {*tensors, *stored, *given}
        inputs, settled = inputs_of(self.graph, known, shapes, self.problems, self.notes)
        self.decided = Decided(settled.rooms, smaller or "")
        absent = dict.fromkeys(given.keys() - arrays)
        self.lists = Lists(inputs={**settled.lengths, **absent})
        self.outputs = outputs_of(self.graph, self.problems)
        kinds = {name: kind for name, kind in inputs.items() if kind is not None}
        for name in [name for name, kind in kinds.items() if 0 in kind.get_shape()]:
            kind = kinds.pop(name)
            arrays[name] = np.zeros(kind.get_shape(), element_dtype(kind.element_type))
        self.name = identifier(self.graph.name, "network")
        self.network = NewNetwork(self.name, list(kinds.items()), self.outputs)
        self.network.decided, self.network.shares = self.decided, smaller is None
        self.least = LEAST_ROUNDS if loops else MOST_ROUNDS + 1
        """Loops of fewer rounds than this are written out."""
        values: dict[str, Item | Unknown] = dict.fromkeys(inputs, UNKNOWN)
        values.update(self.network.operator.inputs)
        values.update({name: Constant(array, name) for name, array in arrays.items()})
        for name, length in self.lists.inputs.items():
            values[name] = Absent() if length is None else _listed(values, name, length)
        missing = (value.name for value in self.graph.input if value.name not in known)
        values = dict.fromkeys(missing, UNKNOWN) | values
        self.scope = Scope(values, tensors)
        self.body = Body(
            self.network,
            source.files,
            functions.functions_of(source.model),
            self.problems,
        )

    def module(self) -> ModuleOp:
        """The model as a network with all of its loops; raises TilewrightError."""
        self.body.run(self._ordered(), self.scope, self.outputs)
        results = {name: self._output(name, item) for name, item in self._results().items()}
        if self.problems:
            raise TilewrightError(self.problems)
        names: list[PythonValue] = [name for name, value in results.items() if value is not None]
        values = [value for value in results.values() if value is not None]
        self.network.operator.properties["output_names"] = to_attribute(names)
        self.decided.check()
        return self.network.finish(values)

    def imported(self, module: ModuleOp) -> Imported:
        """A module of the model, once loops of few rounds are written out, and what is beside."""
        UnrollLoops(self.least).apply(Context(), module)
        digest, notes = self.source.digest, tuple(self.notes)
        named = (ModelNode(n.name, n.operator, n.outputs) for n in self.nodes)
        return Imported(
            module,
            self.network.weights,
            self.name,
            self.versions.get("", 0),
            digest,
            notes,
            nodes=tuple(named),
            files=self.source.files.mapped,
            empty=tuple(self.empty),
            lists=self.lists,
        )

    def _initializers(self) -> dict[str, TensorProto]:
        """The model's stored constants by name."""
        initializers: dict[str, TensorProto] = {}
        for proto in self.graph.initializer:
            where = f"tensor {shown(proto.name)}"
            if not proto.name:
                self.problems.append(Problem("onnx-duplicate-name", "it has no name", where))
            elif proto.name in initializers:
                self.problems.append(Problem("onnx-duplicate-name", "it is stored twice", where))
            initializers[proto.name] = proto
        for sparse in self.graph.sparse_initializer:
            where = f"tensor {shown(sparse.values.name)}"
            self.problems.append(Problem("onnx-dtype", "sparse tensors are not read", where))
        return initializers

    def _ordered(self) -> list[Node]:
        """The nodes that the outputs need, each after those it reads.

        Raises TilewrightError if there is no such order, with all that can be said of each node.
        """
        nodes = self.nodes
        try:
            ordered = sort_nodes(nodes, self.scope.names())
        except TilewrightError as error:
            self.problems.extend(error.problems)
            for node in nodes:
                try:
                    _ = self.body.check(node)
                except TilewrightError as other:
                    self.problems.extend(other.problems)
            raise TilewrightError(self.problems) from error
        produced = {name for node in nodes for name in node.outputs} | set(self.scope.names())
        for name in self.outputs:
            if name not in produced:
                reason = "nothing makes it"
                where = f"output {shown(name)}"
                self.problems.append(Problem("onnx-missing-output", reason, where))
        live = live_nodes(ordered, self.outputs)
        if len(live) < len(ordered):
            self.notes.append(f"{len(ordered) - len(live)} nodes lead to no output; left out")
        return live

    def _results(self) -> dict[str, Item | Unknown]:
        """What the outputs stand for by name, each element of a sequence for itself."""
        results: dict[str, Item | Unknown] = {}
        kinds = {value.name: value.type for value in self.graph.output}
        for name in self.outputs:
            item, kind = self.body.value(name, self.scope), kinds[name]
            other = isinstance(item, ValueList) != tensor_type_of(kind)[1]
            if isinstance(item, Absent):
                other = not kind.HasField("optional_type")
            if other and kind.WhichOneof("value") and not isinstance(item, Unknown):
                reason = "a sequence, an optional or a tensor is declared, and another computed"
                self.problems.append(Problem("onnx-dtype", reason, f"output {shown(name)}"))
                continue
            parts = {name: item}
            if isinstance(item, ValueList):
                parts = {f"{name}.{n}": element for n, element in enumerate(item.items)}
                self.lists.outputs[name] = len(parts)
            elif isinstance(item, Absent):
                parts = {}
                self.lists.outputs[name] = None
            for twice in results.keys() & parts:
                reason, where = "a sequence has an element of this name", f"output {shown(twice)}"
                self.problems.append(Problem("onnx-duplicate-name", reason, where))
            results |= parts
        return results

    def _output(self, name: str, value: Item | Unknown) -> SSAValue | None:
        """The tensor that an output stands for; None if it was refused, or is empty."""
        if isinstance(value, Constant) and value.array.dtype.kind == "O":
            self.problems.append(Problem("onnx-dtype", "it is text", f"output {shown(name)}"))
            return None
        if isinstance(value, Constant):
            self._check_output(name, value.array.dtype)
            if value.array.size == 0:
                shape = value.array.shape
                self.empty.append(EmptyOutput(name, shape, value.array.dtype.name))
                self.notes.append(
                    f"output {shown(name)} of shape {list(shape)} has no elements; left out"
                )
                return None
            return self.network.weight(value.array, value.name)
        if isinstance(value, Unknown | ValueList | Absent):
            if not self.problems:
                reason = "what makes it was left out"
                self.problems.append(
                    Problem("onnx-missing-output", reason, f"output {shown(name)}")
                )
            return None
        self._check_output(name, dtype_of(value))
        return value

    def _check_output(self, name: str, dtype: np.dtype[Any]) -> None:
        """Compare what is computed with what the model declares."""
        for value in self.graph.output:
            of, listed = tensor_type_of(value.type)
            kind = DTYPES.get(of.tensor_type.elem_type)
            meant = name.rpartition(".")[0] if listed else name
            if value.name == meant and kind is not None and kind != dtype:
                reason = f"it is declared as {kind}, and computed as {dtype}"
                self.problems.append(Problem("onnx-dtype", reason, f"output {shown(name)}"))
