"""Small models whose dims are free, or whose sizes data decide.

    python examples/dynamic/make_models.py

writes, beside this file, ``encoder.onnx`` (a causal attention block over tokens [batch, sequence],
and a mean over the sequence), ``words.onnx`` (the block alone), ``pixels.onnx`` (a network that
labels the pixels of images [batch, 3, height, width]), and ``detector.onnx`` (boxes of an image, as
many as non-maximum suppression leaves).
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WORDS, LONGEST, WIDTH, HEADS = 32, 64, 16, 2


def model(name, nodes, inputs, outputs, constants):
    """A checked model; inputs and outputs are (name, element type, dims)."""
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(array, key) for key, array in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def node(operator, inputs, output, **attributes):
    return helper.make_node(operator, inputs.split(), [output], name=output, **attributes)


def encoder(name="encoder", sentence=True):
    """Tokens to vectors: positions, mask and the split into heads are made from the shape."""
    random = np.random.default_rng(0)

    def weight(*shape):
        return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    constants = {
        "words": weight(WORDS, WIDTH) * 5,
        "places": weight(LONGEST, WIDTH) * 5,
        **{f"w_{name}": weight(WIDTH, WIDTH) for name in ("query", "key", "value", "out")},
        "w_up": weight(WIDTH, 4 * WIDTH),
        "w_down": weight(4 * WIDTH, WIDTH),
        "gain": np.ones(WIDTH, np.float32),
        "shift": np.zeros(WIDTH, np.float32),
        "scale": np.array(1 / np.sqrt(WIDTH // HEADS), np.float32),
        "far": np.array(-64, np.float32),
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.int64),
        "first": np.array([0], np.int64),
        "second": np.array([1], np.int64),
        "heads": np.array([HEADS], np.int64),
        "per_head": np.array([WIDTH // HEADS], np.int64),
        "width": np.array([WIDTH], np.int64),
    }
    nodes = [
        node("Shape", "tokens", "sizes"),
        node("Gather", "sizes first", "batch_"),
        node("Gather", "sizes second", "length_"),
        node("Gather", "sizes one", "length"),
        # Positions 0, 1, ... of the sequence.
        node("Range", "zero length one", "steps"),
        node("Gather", "places steps", "place"),
        node("Gather", "words tokens", "word"),
        node("Add", "word place", "x"),
        node("LayerNormalization", "x gain shift", "norm", axis=-1),
        # What lies ahead is masked: a square of the far value above the diagonal.
        node("Concat", "length_ length_", "square", axis=0),
        node("ConstantOfShape", "square", "ones",
             value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])),
        node("Trilu", "ones one", "ahead", upper=1),
        node("Mul", "ahead far", "mask_"),
        node("Concat", "batch_ second length_ length_", "mask_sizes", axis=0),
        node("Expand", "mask_ mask_sizes", "mask"),
        node("Concat", "batch_ length_ heads per_head", "split", axis=0),
        node("Concat", "batch_ length_ width", "joined", axis=0),
    ]  # fmt: skip
    for part in ("query", "key", "value"):
        order = [0, 2, 3, 1] if part == "key" else [0, 2, 1, 3]
        nodes += [
            node("MatMul", f"norm w_{part}", f"{part}_"),
            node("Reshape", f"{part}_ split", f"{part}_heads"),
            node("Transpose", f"{part}_heads", part, perm=order),
        ]
    nodes += [
        node("MatMul", "query key", "scores_"),
        node("Mul", "scores_ scale", "scores"),
        node("Add", "scores mask", "masked"),
        node("Softmax", "masked", "share", axis=-1),
        node("MatMul", "share value", "seen_"),
        node("Transpose", "seen_", "seen_heads", perm=[0, 2, 1, 3]),
        node("Reshape", "seen_heads joined", "seen"),
        node("MatMul", "seen w_out", "told"),
        node("Add", "x told", "y"),
        node("MatMul", "y w_up", "up"),
        node("Relu", "up", "bent"),
        node("MatMul", "bent w_down", "down"),
        node("Add", "y down", "hidden"),
    ]
    outputs = [("hidden", TensorProto.FLOAT, ["batch", "sequence", WIDTH])]
    if sentence:
        nodes.append(node("ReduceMean", "hidden", "sentence", axes=[1], keepdims=0))
        outputs.append(("sentence", TensorProto.FLOAT, ["batch", WIDTH]))
    return model(
        name, nodes, [("tokens", TensorProto.INT64, ["batch", "sequence"])], outputs, constants
    )


def pixels():
    """Images to a label for each pixel: the result is resized to the image's own size."""
    random = np.random.default_rng(1)

    def weight(*shape):
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    constants = {
        "w1": weight(8, 3, 3, 3),
        "b1": weight(8, 1)[:, 0],
        "w2": weight(8, 8, 3, 3),
        "w3": weight(2, 8, 1, 1),
        "none": np.zeros(0, np.float32),
        "two": np.array([2], np.int64),
        "four": np.array([4], np.int64),
        "classes": np.array([2], np.int64),
        "first": np.array([0], np.int64),
        "rest": np.array([-1], np.int64),
    }
    nodes = [
        node("Conv", "image w1 b1", "c1", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", "c1", "r1"),
        node("MaxPool", "r1", "p1", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("Conv", "p1 w2", "c2", pads=[1, 1, 1, 1]),
        node("Relu", "c2", "r2"),
        node("Add", "p1 r2", "a2"),
        node("Conv", "a2 w3", "c3"),
        node("Shape", "image", "sizes"),
        node("Slice", "sizes two four", "area"),
        node("Gather", "sizes first", "batch_"),
        node("Concat", "batch_ classes area", "wanted", axis=0),
        node("Resize", "c3 none none wanted", "labels", mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("GlobalAveragePool", "a2", "mean_"),
        node("Concat", "batch_ rest", "flat", axis=0),
        node("Reshape", "mean_ flat", "mean"),
    ]  # fmt: skip
    return model(
        "pixels",
        nodes,
        [("image", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [
            ("labels", TensorProto.FLOAT, ["batch", 2, "height", "width"]),
            ("mean", TensorProto.FLOAT, ["batch", 8]),
        ],
        constants,
    )


def detector():
    """An image to boxes: as many as non-maximum suppression leaves."""
    random = np.random.default_rng(2)

    def weight(*shape):
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    constants = {
        "w1": weight(8, 3, 3, 3),
        "w2": weight(4, 8, 3, 3),
        "w3": weight(2, 8, 3, 3),
        "four_rows": np.array([1, 4, 16], np.int64),
        "two_rows": np.array([1, 2, 16], np.int64),
        "rows": np.array([16, 4], np.int64),
        "most": np.array([5], np.int64),
        "overlap": np.array([0.5], np.float32),
        "least": np.array([0.3], np.float32),
        "place": np.array(2, np.int64),
    }
    nodes = [
        node("Conv", "image w1", "c1", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2", "c2", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Reshape", "c2 four_rows", "sides"),
        node("Transpose", "sides", "all_boxes", perm=[0, 2, 1]),
        node("Conv", "r1 w3", "c3", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Sigmoid", "c3", "s3"),
        node("Reshape", "s3 two_rows", "scores"),
        node("NonMaxSuppression", "all_boxes scores most overlap least", "chosen"),
        node("Gather", "chosen place", "places", axis=1),
        node("Reshape", "all_boxes rows", "list"),
        node("Gather", "list places", "boxes"),
    ]
    return model(
        "detector",
        nodes,
        [("image", TensorProto.FLOAT, [1, 3, 16, 16])],
        [("chosen", TensorProto.INT64, ["found", 3]), ("boxes", TensorProto.FLOAT, ["found", 4])],
        constants,
    )


def main():
    folder = Path(__file__).parent
    onnx.save(encoder(), folder / "encoder.onnx")
    onnx.save(encoder("words", sentence=False), folder / "words.onnx")
    onnx.save(detector(), folder / "detector.onnx")
    onnx.save(pixels(), folder / "pixels.onnx")


if __name__ == "__main__":
    main()
