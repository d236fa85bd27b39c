"""The networks that benchmarks run: real topologies with seeded random weights.

The ONNX package carries the topologies of well-known networks with constant weights, whose outputs
say nothing. Here the weights are replaced by random ones, scaled so that signals neither vanish
nor blow up and outputs depend on the input (``tests/frontends/onnx/test_benchmark_models.py``
holds that). ResNet-18, ResNet-34, MobileNet-v2 and the transformers are built from their tables.

    from benchmarks import models

    name, model = models.build("resnet50")
    image = models.images(model, count=1)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper

from benchmarks.dense_prediction import fcn, ssd
from benchmarks.exports import unet
from benchmarks.networks import mobilenet_v2, resnet, yolov3_tiny
from benchmarks.transformers import bert_base, bert_small, gpt2_step, vit_b16, vit_small

SEED = 20240

INTEGER = "-int8"
"""Ends the names of networks in 8 bits."""

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def build(name: str) -> tuple[str, ModelProto]:
    """The network of that name, and its name; raises KeyError.

    ``resnet50-int8`` is ``resnet50`` in 8 bits.
    """
    if name.endswith(INTEGER):
        from benchmarks.quantised import quantised

        model = BUILDERS[name.removesuffix(INTEGER)]()
        return name, quantised(model, images(model, count=4, seed=100))
    return name, BUILDERS[name]()


def save(name: str, folder: Path) -> Path:
    """Write a network to ``folder`` unless it is there, and return its path."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        onnx.save(build(name)[1], partial)
        partial.rename(path)
    return path


def images(model: ModelProto, count: int = 1, seed: int = 0) -> NDArray[np.float32]:
    """Random images for the model's input (``smooth``)."""
    _, *shape = (d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    return smooth((count, *shape), seed)


def smooth(shape: Sequence[int], seed: int = 0) -> NDArray[np.float32]:
    """Random images [n, c, h, w]: smooth blobs of colour, some texture, unit variance.

    White noise would average out in the network and give nearly one output for all inputs.
    """
    count, channels, height, width = shape
    rng = np.random.default_rng((SEED, seed))
    total = np.zeros((count, channels, height, width))
    for cells, strength in ((1, 0.5), (3, 0.8), (7, 0.6), (28, 0.4)):
        coarse = rng.standard_normal((count, channels, cells, cells)) * strength
        rows = np.arange(height) * cells // height
        columns = np.arange(width) * cells // width
        total += coarse[:, :, rows[:, None], columns[None, :]]
    total += rng.standard_normal(total.shape) * 0.2
    return (total / total.std()).astype(np.float32)


def feeds(model: ModelProto, seed: int = 0) -> dict[str, NDArray[np.generic]]:
    """One run's inputs by name: an image, or random tokens of which the mask keeps most, with keys
    and values of those before."""
    first = model.graph.input[0]
    shape = [d.dim_value for d in first.type.tensor_type.shape.dim]
    if len(shape) == 4:
        return {first.name: images(model, 1, seed)}
    words = next(tensor for tensor in model.graph.initializer if "embeddings.word" in tensor.name)
    rng = np.random.default_rng((SEED, seed))
    arrays: dict[str, NDArray[np.generic]] = {}
    arrays[first.name] = rng.integers(0, words.dims[0], shape, np.int64)
    for value in model.graph.input[1:]:
        sizes = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if len(sizes) == 4:
            arrays[value.name] = rng.standard_normal(sizes, np.float32)
            continue
        arrays[value.name] = (np.arange(shape[1])[None] < shape[1] * 7 // 8).astype(np.int64)
    return arrays


def _generator(name: str) -> np.random.Generator:
    """A generator of its own for every tensor, so that weights do not depend on their order."""
    return np.random.default_rng((SEED, zlib.crc32(name.encode())))


def randomise(model: ModelProto) -> ModelProto:
    """Replace constant weights by random ones, and keep weights out of the inputs.

    Weights of a tensor are those that a ConstantOfShape makes or an initializer holds; what they
    are follows from the node that reads them.
    """
    graph = model.graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    sources = {node.output[0]: node for node in graph.node if node.op_type == "ConstantOfShape"}
    for name, node in sources.items():
        sizes = numpy_helper.to_array(stored[node.input[0]])
        shapes[name] = tuple(int(size) for size in sizes)
    # GoogLeNet's classifier reshapes its weights before it reads them, DenseNet's scales get axes.
    views = {n.output[0]: n.input[0] for n in graph.node if n.op_type in ("Reshape", "Unsqueeze")}
    adders = {name for n in graph.node if n.op_type in ("Sum", "Add") for name in n.input}
    fresh: dict[str, np.ndarray] = {}
    for node in graph.node:
        for index, read in enumerate(node.input):
            name = views.get(read, read)
            if name in shapes and name not in fresh:
                array = _weights(node, index, name, shapes[name], adders)
                if array is not None:
                    fresh[name] = array
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    used = {name for node in kept for name in node.input}
    constants = [t for name, t in stored.items() if name in used and name not in fresh]
    constants += [numpy_helper.from_array(array, name) for name, array in fresh.items()]
    inputs = [value for value in graph.input if value.name not in stored]
    result = helper.make_model(
        helper.make_graph(kept, graph.name, inputs, list(graph.output), constants),
        opset_imports=list(model.opset_import),
        ir_version=8,
    )
    onnx.checker.check_model(result)
    return result


def _weights(
    node: NodeProto, index: int, name: str, shape: tuple[int, ...], adders: set[str]
) -> np.ndarray | None:
    """Random weights for one input of a node; None if it is no weight."""
    rng = _generator(name)
    if node.op_type == "BatchNormalization" and index:
        if index == 1:
            # A branch that is added to its input is damped, or the sums would grow block by block.
            centre = 0.4 if node.output[0] in adders else 1.0
            values = centre * rng.uniform(0.8, 1.2, shape)
        elif index == 4:
            values = rng.uniform(0.6, 1.4, shape)
        else:
            values = 0.1 * rng.standard_normal(shape)
        return values.astype(np.float32)
    if node.op_type in ("Add", "Mul", "LayerNormalization", "Gather", "Concat"):
        if not shape or (node.op_type == "Gather" and index):
            return None
        scales = node.op_type == "Mul" or (node.op_type == "LayerNormalization" and index == 1)
        if scales:
            return rng.uniform(0.8, 1.2, shape).astype(np.float32)
        deviation = 1.0 if node.op_type == "Gather" else 0.05
        return np.float32(deviation) * rng.standard_normal(shape, np.float32)
    if node.op_type not in ("Conv", "Gemm", "MatMul") or index == 0:
        return None
    if index == 2:
        return (0.05 * rng.standard_normal(shape)).astype(np.float32)
    if node.op_type == "MatMul":
        # Glorot and Bengio, Understanding the difficulty of training: signals keep their variance.
        return rng.standard_normal(shape, np.float32) * np.float32(shape[-2] ** -0.5)
    transposed = node.op_type == "Conv" or any(a.name == "transB" and a.i for a in node.attribute)
    axes = tuple(range(1, len(shape))) if node.op_type == "Conv" else (-1 if transposed else -2,)
    values = rng.standard_normal(shape, np.float32)
    inputs = int(np.prod([shape[axis] for axis in axes]))
    # He et al., Delving Deep into Rectifiers, equation 10.
    variance = 2 / inputs
    if inputs >= 64:
        # Rectified signals have a mean, which all inputs share and which would drown what tells
        # them apart. Weights that sum to zero remove it, and with it 1/pi of the power.
        values -= values.mean(axis=axes, keepdims=True)
        variance /= 1 - 1 / np.pi
    return values * np.float32(np.sqrt(variance))


def _light(name: str) -> ModelProto:
    return onnx.load(LIGHT / f"light_{name}.onnx")


def _vgg16() -> ModelProto:
    """VGG-19 without the fourth convolution of stages 3, 4 and 5."""
    model = _light("vgg19")
    stage, convolutions = 1, 0
    renamed: dict[str, str] = {}
    kept: list[NodeProto] = []
    dropping = False
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = renamed.get(name, name)
        if node.op_type == "MaxPool":
            stage, convolutions = stage + 1, 0
        if node.op_type == "Conv":
            convolutions += 1
            dropping = stage >= 3 and convolutions == 4
        if dropping and node.op_type in ("Conv", "Relu"):
            renamed[node.output[0]] = node.input[0]
            dropping = node.op_type == "Conv"
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.graph.name = "vgg16"
    return model


def _lenet5() -> ModelProto:
    """The trained example, as it is."""
    return onnx.load(Path(__file__).parent.parent / "examples" / "lenet5" / "lenet5.onnx")


BUILDERS: Mapping[str, Callable[[], ModelProto]] = {
    "lenet5": _lenet5,
    "alexnet": lambda: randomise(_light("bvlc_alexnet")),
    "vgg16": lambda: randomise(_vgg16()),
    "vgg19": lambda: randomise(_light("vgg19")),
    "resnet18": lambda: randomise(resnet("resnet18", (2, 2, 2, 2))),
    "resnet34": lambda: randomise(resnet("resnet34", (3, 4, 6, 3))),
    "resnet50": lambda: randomise(_light("resnet50")),
    "googlenet": lambda: randomise(_light("inception_v1")),
    "inception_v2": lambda: randomise(_light("inception_v2")),
    "densenet121": lambda: randomise(_light("densenet121")),
    "zfnet": lambda: randomise(_light("zfnet512")),
    "squeezenet": lambda: randomise(_light("squeezenet")),
    "shufflenet": lambda: randomise(_light("shufflenet")),
    "mobilenet_v2": lambda: randomise(mobilenet_v2()),
    "yolov3_tiny": lambda: randomise(yolov3_tiny()),
    "ssd": ssd,
    "fcn": fcn,
    "unet": unet,
    "bert_small": lambda: randomise(bert_small()),
    "bert_base": lambda: randomise(bert_base()),
    "vit_b16": lambda: randomise(vit_b16()),
    "vit_small": lambda: randomise(vit_small()),
    "gpt2_step": lambda: randomise(gpt2_step()),
}
"""Builders by name."""
