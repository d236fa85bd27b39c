"""The ONNX backend interface (onnx.backend.base) on the cpu target.

    import tilewright.integrations.onnx_backend as backend
    (scores,) = backend.run_model(model, [image])

Shapes are settled when a model is compiled. Where they depend on the values of inputs (Reshape's
second, say) the model is compiled when it is run, once for each such values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep

from tilewright.compiler.api import compile
from tilewright.errors import TilewrightError
from tilewright.frontends import Imported
from tilewright.frontends.onnx import import_onnx
from tilewright.ir.types import Array
from tilewright.runtime.executable import Executable

Given = Array | list[Array] | None
"""A tensor, a sequence, or an optional that holds nothing."""

KEPT = 8
"""Executables that a prepared model keeps, for different values of inputs that decide shapes."""

_KNOWN: Mapping[tuple[int, ...], str] = {
    (0,): """
        BlackmanWindow ConstantOfShape HammingWindow HannWindow If ImageDecoder
    """,
    (0, 1): "Loop",
    (0, 1, 2): "Range",
    (0, 1, 2, 3, 4): "MelWeightMatrix",
    (1,): """
        AffineGrid CenterCropPad CumProd CumSum Expand OneHot ReduceL1 ReduceL2
        ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
        ReduceSumSquare Reshape SequenceAt SequenceErase Split SplitToSequence Squeeze Tile Trilu
        Unsqueeze Upsample
    """,
    (1, 2): "Col2Im DFT Dropout",
    (1, 2, 3): "Pad Resize",
    (1, 2, 3, 4): "Slice",
    (1, 3): "STFT",
    (2,): "MaxUnpool NonMaxSuppression SequenceInsert",
    (4,): "GRU LSTM RNN",
}
CONSTANT_OPERANDS: Mapping[str, tuple[int, ...]] = {
    name: places for places, names in _KNOWN.items() for name in names.split()
}
"""Operands that must be known when a model is compiled, by operator."""

SIZES = ("Shape", "Size")
"""Operators whose results are known whatever the values of their operands are."""


def shape_inputs(model: ModelProto) -> set[str]:
    """Inputs of a model on whose values shapes, axes or branches depend, and those of text."""
    needed = _needed(model.graph)
    return {
        value.name
        for value in model.graph.input
        if value.name in needed or value.type.tensor_type.elem_type == TensorProto.STRING
    }


def has_open_inputs(model: ModelProto) -> bool:
    """Return True if an input's shape is not stated in full."""
    stored = {tensor.name for tensor in model.graph.initializer}
    kinds = [v.type.tensor_type for v in model.graph.input if v.name not in stored]
    return any(
        not kind.HasField("shape") or any(dim.dim_value <= 0 for dim in kind.shape.dim)
        for kind in kinds
    )


def specialised(model: ModelProto, inputs: Mapping[str, Given]) -> tuple[Imported, set[str]]:
    """The model for these inputs, and the names of those whose values are constants in it.

    Those are the inputs that decide shapes, empty ones, and optionals that hold nothing.
    """
    fixed = shape_inputs(model)
    constants = {
        name: value
        for name, value in inputs.items()
        if value is None or (not isinstance(value, list) and (name in fixed or value.size == 0))
    }
    shapes: dict[str, Any] = {}
    for name, value in inputs.items():
        if isinstance(value, list):
            shapes[name] = len(value)
            shapes |= {f"{name}.{n}": element.shape for n, element in enumerate(value)}
        elif value is not None and name not in constants:
            shapes[name] = value.shape
    settled = shapes if has_open_inputs(model) else None
    return import_onnx(model, shapes=settled, constants=constants), set(constants)


def _needed(graph: GraphProto) -> set[str]:
    """Names whose values must be known, in a graph and what it takes from outside."""
    needed: set[str] = {name for node in graph.node for name in _asked(node)}
    for node in reversed(graph.node):
        if node.op_type not in SIZES and needed.intersection(node.output):
            needed.update(_read(node))
    return needed


def _asked(node: NodeProto) -> Iterable[str]:
    for index in CONSTANT_OPERANDS.get(node.op_type, ()):
        if index < len(node.input):
            yield node.input[index]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from _needed(attribute.g)


def _read(node: NodeProto) -> Iterable[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _read(inner)


class Prepared(BackendRep):
    """A model that can be run; compiled at once, or for the values of its first run."""

    def __init__(self, model: ModelProto) -> None:
        """Compile what needs no values; raises TilewrightError if the model is refused."""
        self.model = model
        stored = {tensor.name for tensor in model.graph.initializer}
        self.inputs = [value.name for value in model.graph.input if value.name not in stored]
        self.outputs = [value.name for value in model.graph.output]
        self._fixed = shape_inputs(model) - stored
        self._waits = bool(self._fixed) or has_open_inputs(model)
        self._compiled: dict[tuple[object, ...], tuple[Executable, set[str]]] = {}
        if not self._waits:
            _ = self._executable({})

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, in the model's order, for inputs in the model's order or by name."""
        feeds = (
            inputs if isinstance(inputs, Mapping) else dict(zip(self.inputs, inputs, strict=True))
        )
        arrays = {str(name): given(value) for name, value in feeds.items()}
        executable, constant = self._executable(arrays if self._waits else {})
        results = executable.run({n: array for n, array in arrays.items() if n not in constant})
        return tuple(results[name] for name in self.outputs)

    def _executable(self, arrays: Mapping[str, Given]) -> tuple[Executable, set[str]]:
        """Return the executable for these inputs, and the names of those that it no longer
        takes."""
        key = tuple(
            (name, type(value), *(
                (str(each.dtype), each.shape, each.tobytes() if name in self._fixed else b"")
                for each in parts(value)
            ))
            for name, value in arrays.items()
        )  # fmt: skip
        if key not in self._compiled:
            while len(self._compiled) >= KEPT:
                del self._compiled[next(iter(self._compiled))]
            imported, constant = specialised(self.model, arrays)
            self._compiled[key] = (compile(imported, "cpu"), constant)
        return self._compiled[key]


def given(value: Any) -> Given:
    """An input of a run: an array, a list of arrays, or None."""
    if value is None or isinstance(value, list):
        return None if value is None else [np.asarray(_array(each)) for each in value]
    return np.asarray(_array(value))


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def parts(value: Given) -> list[Array]:
    """The arrays of an input of a run."""
    return value if isinstance(value, list) else [] if value is None else [value]


class Backend(OnnxBackend):
    """ONNX's class of a backend; all of it is class methods."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Return True if the model is imported, as far as that is known before its inputs are."""
        if not cls.supports_device(device):
            return False
        if shape_inputs(model) or has_open_inputs(model):
            return True
        try:
            _ = import_onnx(model)
        except TilewrightError:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Compile a model; raises TilewrightError with every reason for which it is refused."""
        return Prepared(model)

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Compile a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return True if it is the CPU."""
        return device.split(":")[0] == "CPU"


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
is_compatible = Backend.is_compatible
supports_device = Backend.supports_device
