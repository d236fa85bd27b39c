"""A small network by hand: two branches, a residual, local response normalisation, a classifier."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.graph.dialect import NetworkOp, OutputOp, WeightOp
from tilewright.graph.operations import BY_NAME
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.types import Array, element_of, tensor

WEIGHTS: dict[str, tuple[int, ...]] = {
    "w1": (8, 3, 3, 3),
    "b1": (8,),
    "w2": (8, 1, 3, 3),
    "b2": (8,),
    "w3": (4, 8, 1, 1),
    "b3": (4,),
    "fc": (12, 10),
    "fb": (10,),
}


def parameters(seed: int) -> dict[str, Array]:
    """He-scaled weights and small biases."""
    generator = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name, shape in WEIGHTS.items():
        fan = shape[0] if name == "fc" else max(int(np.prod(shape[1:])), 1)
        scale = 0.1 if len(shape) == 1 else (2 / fan) ** 0.5
        found[name] = (generator.normal(size=shape) * scale).astype(np.float32)
    return found


def by_hand(values: dict[str, Array]) -> tuple[ModuleOp, Weights]:
    """The network in the graph dialect."""
    weights, network = Weights(), NetworkOp.of("small", [("image", tensor((2, 3, 12, 12)))], ["y"])

    def weight(name: str) -> SSAValue:
        array = values[name]
        op = WeightOp.of(weights.add(array, name), tensor(array.shape, element_of(array.dtype)))
        network.block.add_op(op)
        return op.result

    def add(kind: str, *inputs: SSAValue, **attributes: object) -> SSAValue:
        node = f"{kind}{len(list(network.block.ops))}"
        op = BY_NAME[kind].build_from(inputs, attributes, node=node)  # type: ignore[arg-type]
        network.block.add_op(op)
        return op.result

    x = add("conv", network.block.args[0], weight("w1"), weight("b1"), pads=(1, 1, 1, 1))
    x = add("max_pool", add("relu", x), kernel=(2, 2), strides=(2, 2))
    d = add("conv", x, weight("w2"), weight("b2"), pads=(1, 1, 1, 1), group=8)
    d = add("relu", add("add", d, x))
    p = add("conv", d, weight("w3"), weight("b3"))
    n = add("lrn", d, size=5, alpha=0.1, beta=0.75, bias=2.0)
    joined = add("concat", add("tanh", p), n, axis=1)
    mean = add("average_pool", joined, kernel=(6, 6))
    flat = add("reshape", mean, shape=(2, 12))
    scores = add("matmul", flat, weight("fc"), weight("fb"))
    y = add("softmax", scores, axis=1)
    network.block.add_op(OutputOp.build(operands=[[y]]))
    return ModuleOp([network]), weights


def as_onnx(values: dict[str, Array]) -> onnx.ModelProto:
    """The same network in ONNX."""
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["m1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["m1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1], group=8),
        node("Add", ["c2", "m1"], ["a2"]),
        node("Relu", ["a2"], ["r2"]),
        node("Conv", ["r2", "w3", "b3"], ["c3"]),
        node("LRN", ["r2"], ["n2"], size=5, alpha=0.1, beta=0.75, bias=2.0),
        node("Tanh", ["c3"], ["t3"]),
        node("Concat", ["t3", "n2"], ["j"], axis=1),
        node("GlobalAveragePool", ["j"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "fc", "fb"], ["s"]),
        node("Softmax", ["s"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [2, 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 10])],
        [numpy_helper.from_array(array, name) for name, array in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
