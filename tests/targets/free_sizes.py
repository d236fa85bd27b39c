"""Models with free dims, and inputs of given sizes for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright import frontends
from tilewright.graph.dialect import network_of
from tilewright.graph.free_axes import same_but_for
from tilewright.graph.operations import context
from tilewright.graph.passes.take_steps import TakeSteps
from tilewright.graph.run_sizes import OutputEnd, Sample, end_inputs
from tilewright.ir.types import Array

EXAMPLES = Path(__file__).parents[2] / "examples" / "dynamic"

Shapes = Mapping[str, Sequence[int | str]]

node = helper.make_node


def saved(path: Path, text: Sequence[onnx.NodeProto], shapes: Shapes, **weights: Array) -> Path:
    """A model of nodes in float32, from inputs of these shapes to ``y``."""
    graph = helper.make_graph(
        text,
        "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def random(*shape: int) -> Array:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) / 4).astype(np.float32)


def convolutions(path: Path) -> Path:
    """Images, as many as come: a residual block, pools, and fully connected layers."""
    nodes = [
        node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w1"], ["c"], pads=[1] * 4),
        node("Add", ["c", "b"], ["d"]),
        node("MaxPool", ["d"], ["e"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["e"], ["f"]),
        node("Flatten", ["f"], ["g"]),
        node("Gemm", ["g", "w2", "b2"], ["h"]),
        node("Softmax", ["h"], ["y"]),
    ]
    weights = {"w0": random(20, 3, 3, 3), "w1": random(20, 20, 3, 3)}
    weights |= {"w2": random(20, 10), "b2": random(10)}
    return saved(path, nodes, {"x": ["batch", 3, 12, 10]}, **weights)


def scores(path: Path) -> Path:
    """Rows of two inputs: a softmax along one length, its extremes, sums and products, and a mean
    along both."""
    nodes = [
        node("MatMul", ["q", "w0"], ["a"]),
        node("MatMul", ["k", "w1"], ["b"]),
        node("Transpose", ["b"], ["c"], perm=[0, 2, 1]),
        node("MatMul", ["a", "c"], ["s"]),
        node("Tanh", ["s"], ["t"]),
        node("Softmax", ["t"], ["p"], axis=-1),
        node("ReduceMax", ["p"], ["m"], axes=[2], keepdims=1),
        node("ReduceMin", ["p"], ["n"], axes=[1], keepdims=1),
        node("ReduceSum", ["p", "along"], ["o"], keepdims=1),
        node("Add", ["m", "n"], ["r"]),
        node("Mul", ["r", "o"], ["u"]),
        node("ReduceMean", ["u"], ["v"], axes=[1, 2], keepdims=1),
        node("Sub", ["u", "v"], ["y"]),
    ]
    # ReduceMean and others take axes as attributes up to operator set 17 alone.
    graph_inputs = {"q": [2, "rows", 24], "k": [2, "keys", 24]}
    weights = {"w0": random(24, 17), "w1": random(24, 17), "along": np.array([1], np.int64)}
    made = saved(path, nodes, graph_inputs, **weights)
    model = onnx.load(made)
    model.opset_import[0].version = 17
    onnx.save(model, made)
    return made


def flattened(path: Path) -> Path:
    """Rows of all texts as one matrix for each product, and heads of all as one batch."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "i0", "i2"], ["bn"]),
        node("Slice", ["s", "i1", "i2"], ["length"]),
        node("Concat", ["bn", "heads"], ["apart"], axis=0),
        node("Concat", ["minus", "length", "eight"], ["batched"], axis=0),
        node("Concat", ["bn", "sixteen"], ["whole"], axis=0),
        node("Reshape", ["x", "rows"], ["a"]),
        node("MatMul", ["a", "w0"], ["b"]),
        node("Reshape", ["b", "apart"], ["c"]),
        node("Transpose", ["c"], ["d"], perm=[0, 2, 1, 3]),
        node("Reshape", ["d", "batched"], ["e"]),
        node("Transpose", ["e"], ["f"], perm=[0, 2, 1]),
        node("MatMul", ["e", "f"], ["g"]),
        node("Softmax", ["g"], ["h"], axis=-1),
        node("MatMul", ["h", "e"], ["i"]),
        node("Reshape", ["i", "split"], ["j"]),
        node("Transpose", ["j"], ["k"], perm=[0, 2, 1, 3]),
        node("Reshape", ["k", "rows"], ["l"]),
        node("MatMul", ["l", "w1"], ["m"]),
        node("Relu", ["m"], ["o"]),
        node("Reshape", ["o", "whole"], ["y"]),
    ]
    # The heads are split by a size that is computed, as -1 stands for one dim alone.
    nodes.insert(15, node("Concat", ["minus", "two", "length", "eight"], ["split"], axis=0))
    numbers = {"i0": [0], "i1": [1], "i2": [2], "heads": [2, 8], "minus": [-1], "eight": [8]}
    numbers |= {"two": [2], "sixteen": [16], "rows": [-1, 16]}
    weights = {"w0": random(16, 16), "w1": random(16, 16)}
    weights |= {name: np.array(row, np.int64) for name, row in numbers.items()}
    return saved(path, nodes, {"x": ["batch", "length", 16]}, **weights)


def floats(shapes: Shapes) -> Callable[[Mapping[str, int]], dict[str, Array]]:
    """Makes inputs of given sizes."""

    def make(sizes: Mapping[str, int]) -> dict[str, Array]:
        generator = np.random.default_rng(sum(sizes.values()))
        return {
            name: generator.standard_normal(
                [sizes[n] if isinstance(n, str) else n for n in shape]
            ).astype(np.float32)
            for name, shape in shapes.items()
        }

    return make


def tokens(sizes: Mapping[str, int]) -> dict[str, Array]:
    generator = np.random.default_rng(sum(sizes.values()))
    return {"tokens": generator.integers(0, 50, (sizes["batch"], sizes["sequence"]))}


def ended(
    path: Path, largest: Mapping[str, int], least: Mapping[str, int] | None = None, rows: int = 1
) -> tuple[frontends.Imported, tuple[OutputEnd, ...]]:
    """The network of a model at its largest sizes, of which a run gives its own as inputs."""
    one = frontends.load(path, shapes=dict(largest))
    TakeSteps().apply(context(), one.module)
    network, axes = network_of(one.module), dict[str, dict[str, tuple[int, ...]]]()
    seen, samples = (network, one.weights), list[Sample]()
    for name, size in largest.items():
        low = max(2, size // 3) if least is None else least[name]
        others = {*range(max(low, size - rows), size), low}
        for less in sorted(others - {size}):
            sizes = {**largest, name: less}
            other = frontends.load(path, shapes=dict(sizes))
            TakeSteps().apply(context(), other.module)
            pairs = {(largest[each], sizes[each]) for each in largest}
            there = network_of(other.module), other.weights
            samples.append(Sample(sizes, same_but_for(seen, there, pairs, any_extents=True)))
        differing = samples[-1].differing
        axes[name] = {
            tensor: tuple(differing.axes.get(value, ())) for tensor, value in network.inputs
        }
    return one, end_inputs(network, one.weights, largest, axes, samples).run()


def filled(
    run: Mapping[str, Array],
    largest: Mapping[str, Array],
    sizes: Mapping[str, int],
    noise: np.random.Generator | None,
) -> dict[str, Array]:
    """Inputs of a run in arrays as large as those of the largest one, and its sizes; after the ends
    zeros, or numbers that would show."""
    given = {f"size_{name}": np.array(number) for name, number in sizes.items()}
    for name, array in run.items():
        whole = np.zeros_like(largest[name])
        if noise is not None:
            whole = noise.integers(0, 40, whole.shape).astype(whole.dtype)
            if whole.dtype.kind == "f":
                whole[noise.random(whole.shape) < 0.2] = np.nan
        whole[tuple(map(slice, array.shape))] = array
        given[name] = whole
    return given
