"""A random graph in the making: values, nodes, constants, and choices that hypothesis shrinks."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
T = TypeVar("T")

OPSET, IR_VERSION = 21, 10

FLOAT, DOUBLE, HALF = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16
INT32, INT64, BOOL = TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
INT8, UINT8 = TensorProto.INT8, TensorProto.UINT8

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
"""Sizes of axes: one, odd ones, and those around the widths of vectors."""

MOST_ELEMENTS = 20_000
"""Of any value: graphs stay small, so that thousands can be run."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph."""

    name: str
    kind: int
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class Graph:
    """Nodes are appended to it; what a node makes follows from ONNX's own inference."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    inputs: list[Value] = field(default_factory=list[Value])
    values: list[Value] = field(default_factory=list[Value])
    nodes: list[NodeProto] = field(default_factory=list[NodeProto])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])

    # Choices

    def one_of(self, choices: Sequence[T]) -> T:
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return self.draw(st.integers(low, high))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def shape(self, low: int, high: int) -> tuple[int, ...]:
        """A shape of a rank from low to high."""
        found: list[int] = []
        for _ in range(self.number(low, high)):
            fits = [e for e in EXTENTS if math.prod(found) * e <= MOST_ELEMENTS // 8]
            found.append(self.one_of(fits))
        return tuple(found)

    # Values

    def fresh(self, shape: Sequence[int], kind: int = FLOAT) -> Value:
        """A new input."""
        made = Value(f"x{len(self.inputs)}", kind, tuple(shape))
        self.inputs.append(made)
        self.values.append(made)
        return made

    def value(
        self, fits: Callable[[Value], bool], shape: Callable[[], Sequence[int]], kind: int = FLOAT
    ) -> Value:
        """A value of the kind that fits: one there is, the newest first, or a new input."""
        found = [v for v in reversed(self.values) if v.kind == kind and fits(v)]
        if found and (len(self.inputs) > 4 or self.number(0, 5) < 5):
            return self.one_of(found)
        return self.fresh(shape(), kind)

    def tensor(self, low: int = 1, high: int = 6, kind: int = FLOAT) -> Value:
        """Any value of a rank from low to high."""
        return self.value(lambda v: low <= v.rank <= high, lambda: self.shape(low, high), kind)

    def image(self, rank: int = 2) -> Value:
        """A batch of images over some spatial axes."""

        def shape() -> Sequence[int]:
            batch, channels = self.number(1, 2), self.one_of((1, 2, 3, 4, 5, 8, 16, 17))
            most = {1: 33, 2: 13, 3: 5}[rank]
            return (batch, channels, *(self.number(1, most) for _ in range(rank)))

        return self.value(lambda v: v.rank == rank + 2, shape)

    def constant(self, array: Array) -> str:
        """A stored constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weights(self, *shape: int, fan_in: int | None = None, low: float | None = None) -> str:
        """Random float32 weights, scaled by the sums they take part in; or from low to low + 1."""
        name = f"c{len(self.constants)}"
        random = np.random.default_rng(zlib.crc32(f"{name}{shape}".encode()))
        if low is not None:
            array = random.random(shape) + low
        else:
            array = random.standard_normal(shape) / math.sqrt(fan_in or 1)
        return self.constant(array.astype(np.float32))

    # Nodes

    def add(
        self,
        operator: str,
        inputs: Sequence[Value | str],
        outputs: int = 1,
        **attributes: Any,
    ) -> list[Value]:
        """Append a node unless what it makes is empty, too large or not known."""
        names = [value if isinstance(value, str) else value.name for value in inputs]
        results = [f"t{len(self.nodes)}" + ("" if i == 0 else f"_{i}") for i in range(outputs)]
        node = helper.make_node(operator, names, results, f"n{len(self.nodes)}", **attributes)
        made = self._inferred(node)
        if len(made) != outputs:
            return []
        self.nodes.append(node)
        self.values += made
        return made

    def _inferred(self, node: NodeProto) -> list[Value]:
        known = {value.name: value for value in self.values}
        types = {
            name: helper.make_tensor_type_proto(known[name].kind, known[name].shape)
            for name in node.input
            if name in known
        }
        data: dict[str, TensorProto] = {}
        for name in node.input:
            if name in self.constants:
                array = self.constants[name]
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                types[name] = helper.make_tensor_type_proto(kind, array.shape)
                data[name] = numpy_helper.from_array(array, name)
        schema = onnx.defs.get_schema(node.op_type, OPSET, node.domain)
        opsets = [helper.make_opsetid("", OPSET)]
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=opsets
            )
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
            return []
        made: list[Value] = []
        for name in node.output:
            kind = found[name].tensor_type if name in found else None
            if kind is None or not kind.HasField("shape"):
                return []
            shape = tuple(dim.dim_value for dim in kind.shape.dim)
            if not 1 <= math.prod(shape) <= MOST_ELEMENTS or len(shape) > 6:
                return []
            made.append(Value(name, kind.elem_type, shape))
        return made

    # The whole

    def model(self) -> ModelProto | None:
        """The graph as a model; its outputs are drawn, what leads to none is a dead end."""
        made = [value for value in self.values if value not in self.inputs]
        if not made:
            return None
        read = {name for node in self.nodes for name in node.input}
        leaves = [value for value in made if value.name not in read]
        outputs = [value for value in leaves[:-1] if self.number(0, 5) > 0] + leaves[-1:]
        inner = [value for value in made if value.name in read]
        if inner and self.number(0, 3) == 0:
            outputs.append(self.one_of(inner))
        graph = helper.make_graph(
            self.nodes,
            "random",
            [helper.make_tensor_value_info(v.name, v.kind, v.shape) for v in self.inputs],
            [helper.make_tensor_value_info(v.name, v.kind, v.shape) for v in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def data_of(model: ModelProto, seed: int) -> dict[str, Array]:
    """Inputs for a model: floats around zero, small integers, booleans."""
    found: dict[str, Array] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        random = np.random.default_rng((seed, zlib.crc32(f"{value.name}{shape}".encode())))
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype.kind == "f":
            found[value.name] = random.standard_normal(shape).astype(dtype)
        elif dtype.kind == "b":
            found[value.name] = random.random(shape) < 0.5
        else:
            low = 0 if dtype.kind == "u" else -20
            found[value.name] = random.integers(low, 21, shape).astype(dtype)
    return found
