"""An operation on operands of some shapes, and the ONNX nodes that mean the same."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from tilewright.graph.operations import BY_NAME, Operation
from tilewright.ir import Block
from tilewright.ir.types import Array, element_dtype, element_of, tensor


@dataclass(frozen=True)
class Example:
    """An operation on operands of some shapes; ``onnx`` adds nodes from x0, x1, ... to y."""

    operation: str
    shapes: tuple[tuple[int, ...], ...]
    attributes: dict[str, Any]
    onnx: Callable[["Example"], list[onnx.NodeProto]]
    positive: tuple[int, ...] = ()
    """Operands whose elements must be positive."""
    constants: dict[str, Array] = field(default_factory=dict)
    """Initializers of the ONNX graph."""
    scale: float = 1.0
    tolerance: float = 1e-5
    dtypes: tuple[str, ...] = ()
    """Element types of the operands; float32 if not given."""

    def dtype(self, index: int) -> np.dtype[Any]:
        return np.dtype(self.dtypes[index] if self.dtypes else "float32")

    def __str__(self) -> str:
        shapes = " ".join("x".join(map(str, shape)) for shape in self.shapes)
        attributes = " ".join(f"{key}={value}" for key, value in self.attributes.items())
        return f"{self.operation} {shapes} {attributes}".replace(" ", "-")

    def make(self) -> Operation:
        """The operation, on block arguments."""
        kinds = [tensor(shape, element_of(self.dtype(i))) for i, shape in enumerate(self.shapes)]
        block = Block(arg_types=kinds)
        op = BY_NAME[self.operation].build_from(block.args, self.attributes, node="a node")
        assert isinstance(op, Operation)
        op.verify()
        return op

    def operands(self, seed: int) -> list[Array]:
        """Seeded operands."""
        generator = np.random.default_rng(seed)
        arrays = [generator.normal(size=shape) * self.scale for shape in self.shapes]
        for index in self.positive:
            arrays[index] = np.abs(arrays[index]) + 0.1
        return [
            np.asarray(array > 0 if self.dtype(i) == np.bool_ else array, self.dtype(i))
            for i, array in enumerate(arrays)
        ]

    def expected(self, operands: list[Array]) -> Array:
        """What ONNX Runtime computes."""
        inputs = [
            helper.make_tensor_value_info(
                f"x{i}", helper.np_dtype_to_tensor_dtype(self.dtype(i)), shape
            )
            for i, shape in enumerate(self.shapes)
        ]
        of = helper.np_dtype_to_tensor_dtype(element_dtype(self.make().result.type.element_type))
        output = helper.make_tensor_value_info("y", of, None)
        constants = [onnx.numpy_helper.from_array(a, k) for k, a in self.constants.items()]
        graph = helper.make_graph(self.onnx(self), "example", inputs, [output], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, ["CPUExecutionProvider"]
        )
        return session.run(None, {f"x{i}": array for i, array in enumerate(operands)})[0]


def node(kind: str, **fixed: Any) -> Callable[[Example], list[onnx.NodeProto]]:
    """One ONNX node of all operands."""

    def build(example: Example) -> list[onnx.NodeProto]:
        names = [f"x{i}" for i in range(len(example.shapes))]
        return [helper.make_node(kind, names, ["y"], **fixed)]

    return build


def with_constants(
    operation: str, x: tuple[int, ...], attributes: dict[str, Any], kind: str, *inputs: Any
) -> Example:
    """ONNX nodes whose parameters are operands (None: left out)."""
    constants = {f"c{i}": np.asarray(v) for i, v in enumerate(inputs) if v is not None}
    names = ["x0"] + [f"c{i}" if v is not None else "" for i, v in enumerate(inputs)]

    def build(_: Example) -> list[onnx.NodeProto]:
        mode = {"mode": attributes["mode"]} if "mode" in attributes else {}
        return [helper.make_node(kind, names, ["y"], **mode)]

    return Example(operation, (x,), attributes, build, constants=constants)
