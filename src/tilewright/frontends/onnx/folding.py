"""Evaluate nodes whose inputs are all known, as shape arithmetic is, with ONNX's own reference.

Only operators whose cost is about linear in their operands and result, and that give the same
every time, are evaluated; the size of the result is worked out before anything is computed.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, numpy_helper

from tilewright.errors import TilewrightError
from tilewright.frontends.limits import too_large
from tilewright.frontends.onnx.limits import (
    MAX_CONSTANT_ELEMENTS,
    MAX_DIMENSIONS,
    MAX_FOLDED_BYTES,
    MAX_TEXT,
)
from tilewright.frontends.onnx.nodes import Node
from tilewright.frontends.onnx.tensors import DTYPES, Constant, array_of, type_name
from tilewright.ir.types import Array
from tilewright.system.extras import library

_FOLDED_NAMES = """
    Abs Add And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow
    Cast CastLike Ceil Clip Compress Concat ConstantOfShape Cos CumSum Div Equal Exp Expand EyeLike
    Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual HammingWindow HannWindow
    Identity ImageDecoder IsInf IsNaN Less LessOrEqual Log Max Mean MelWeightMatrix Min Mod Mul Neg
    NonMaxSuppression NonZero Not OneHot Or Pad Pow Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round ScatterElements
    ScatterND Shape Sigmoid Sign Sin Size Slice Split Sqrt Squeeze Sub Sum Tanh Tile TopK Transpose
    Trilu Unique Unsqueeze Where Xor
"""

# Quantised constants are left to the graph, whose passes may want to compute on the integers.
_FOLDED = frozenset(_FOLDED_NAMES.split())

_OF_TEXT = frozenset(("RegexFullMatch", "ai.onnx.ml.LabelEncoder"))
"""Operators that make numbers of texts, which are constants."""

_CHOICES = 8
"""Signs ``?`` and ``|`` of a pattern, each of which may double the time that a match takes."""

_BOUNDED_BY_INPUT = frozenset(("Compress", "NonMaxSuppression", "NonZero", "Unique"))
"""Operators whose result's shape depends on values, yet takes at most rank times the input."""

_WITHOUT_SHAPES = frozenset(("GreaterOrEqual", "LessOrEqual"))
"""Comparisons that ONNX defines by others up to operator set 15, without a rule for shapes."""

_BOXES = 2**14
"""Numbers that NonMaxSuppression compares, whose cost is quadratic."""


class Folder:
    """Evaluates constant nodes within a budget for the whole model."""

    def __init__(self) -> None:
        self._left = MAX_FOLDED_BYTES

    def folds(self, node: Node, operands: Sequence[Constant | None] = ()) -> bool:
        """Return True if nodes of this operator are evaluated when their inputs are known.

        Quantised weights stay quantised: only numbers are dequantised here.
        """
        if node.operator == "DequantizeLinear" and any(
            value is not None and value.array.size > 1 for value in operands
        ):
            return False
        return node.key in _FOLDED or node.key in _OF_TEXT

    def fold(self, node: Node, operands: Sequence[Constant | None]) -> list[Constant]:
        """The results of a node; raises TilewrightError if they are too large or not defined."""
        if node.operator == "ConstantOfShape":
            results = [self._constant_of_shape(node, operands)]
        elif node.operator == "Identity" and operands and operands[0] is not None:
            results = [operands[0].array]  # The reference would copy it.
        else:
            _check_pattern(node)
            self._spend(node, self._bytes_of(node, operands))
            results = self._evaluate(node, operands)
        return [Constant(a, name) for a, name in zip(results, node.outputs, strict=True)]

    def _spend(self, node: Node, size: int) -> None:
        """Take bytes off the budget; raises TilewrightError when it is used up."""
        self._left -= size
        if self._left < 0:
            raise _too_large(node)

    def _constant_of_shape(self, node: Node, operands: Sequence[Constant | None]) -> Array:
        """One value seen at every index: takes no memory until it is used."""
        shape = operands[0].array if operands and operands[0] is not None else None
        if shape is None or shape.ndim != 1 or shape.dtype != np.int64 or (shape < 0).any():
            raise node.refuse("its input is not a shape", code="onnx-shape")
        sizes = tuple(int(size) for size in shape)
        if too_large(sizes, MAX_CONSTANT_ELEMENTS) or len(sizes) > MAX_DIMENSIONS:
            raise _too_large(node)
        value = np.zeros(1, np.float32)
        for attribute in node.proto.attribute:
            value = array_of(attribute.t)
        if value.size != 1:
            raise node.refuse("its value is not one number")
        array = np.broadcast_to(value.reshape(()), sizes)
        self._spend(node, array.nbytes)
        return array

    def _bytes_of(self, node: Node, operands: Sequence[Constant | None]) -> int:
        """Bytes that the results take, by ONNX's shape inference on the known inputs."""
        arrays = {
            name: value.array
            for name, value in zip(node.inputs, operands, strict=True)
            if value is not None
        }
        if node.operator == "Range" and len(arrays) == 3:
            return _range_count(node, list(arrays.values())) * 8
        if node.operator == "NonMaxSuppression" and max(a.size for a in arrays.values()) > _BOXES:
            raise _too_large(node)
        if node.operator == "ImageDecoder" and len(arrays) == 1:
            return _image_bytes(node, *arrays.values())
        if node.operator in _BOUNDED_BY_INPUT:
            return sum(array.size * max(array.ndim, 4) * 8 for array in arrays.values())
        if node.operator in _WITHOUT_SHAPES and len(arrays) == 2:
            try:
                shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
            except ValueError as error:
                raise node.refuse(str(error), code="onnx-shape") from error
            if too_large(shape, MAX_CONSTANT_ELEMENTS):
                raise _too_large(node)
            return math.prod(shape)
        types = infer_types(node, {n: type_of(a) for n, a in arrays.items()}, arrays)
        total = 0
        for name in filter(None, node.outputs):
            shape = shape_of_type(types[name]) if name in types else None
            if shape is None:
                raise node.refuse(
                    "it is constant, and the size of its result is not known beforehand",
                    code="onnx-shape",
                    help="simplify the model, which folds constants",
                )
            kind = types[name].tensor_type.elem_type
            if kind not in DTYPES:
                raise node.refuse(
                    f"elements of {type_name(kind)} are not computed", code="onnx-dtype"
                )
            if too_large(shape, MAX_CONSTANT_ELEMENTS):
                raise _too_large(node)
            total += math.prod(shape) * DTYPES[kind].itemsize
        return total

    def _evaluate(self, node: Node, operands: Sequence[Constant | None]) -> list[Array]:
        """The reference evaluator's results."""
        from onnx.reference import ReferenceEvaluator

        if node.operator == "Pad" and len(operands) > 1:
            operands = _cut_by_pads(operands)

        if node.operator == "GatherElements" and operands[0] and operands[1]:
            axis = next((item.i for item in node.proto.attribute if item.name == "axis"), 0)
            return [_gather_elements(node, operands[0].array, operands[1].array, axis)]
        names = [f"i{index}" if value is not None else "" for index, value in enumerate(operands)]
        proto = onnx.NodeProto()
        proto.CopyFrom(node.proto)
        del proto.input[:], proto.output[:]
        proto.input.extend(names)
        proto.output.extend(f"o{index}" if n else "" for index, n in enumerate(node.outputs))
        feeds = {
            name: value.array
            for name, value in zip(names, operands, strict=True)
            if value is not None
        }
        graph = onnx.helper.make_graph(
            [proto],
            "constant",
            [onnx.ValueInfoProto(name=name) for name in feeds],
            [onnx.ValueInfoProto(name=name) for name in proto.output if name],
        )
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                arrays = ReferenceEvaluator(graph, {node.domain: node.version}).run(None, feeds)
        except Exception as error:  # The reference raises whatever its NumPy code meets.
            reason = " ".join(str(error).split())[:200]
            raise node.refuse(f"it is constant and cannot be evaluated: {reason}") from error
        results = iter(arrays)
        return [np.asarray(next(results)) if name else np.zeros(0) for name in proto.output]


def _check_pattern(node: Node) -> None:
    """Refuse a pattern that a text may be matched with in many ways, one after another."""
    for pattern in (item.s for item in node.proto.attribute if item.name == "pattern"):
        repeated = re.findall(rb"\)?[*+{]", pattern)
        choices = pattern.count(b"?") + pattern.count(b"|")
        groups = any(sign[:1] == b")" for sign in repeated) or b"(?" in pattern
        if len(repeated) > 1 or groups or choices > _CHOICES:
            raise node.refuse("its pattern repeats a group or several parts, or has many choices")


def _range_count(node: Node, operands: Sequence[Array]) -> int:
    """Return the number of elements of a Range; raises TilewrightError."""
    if any(array.size != 1 for array in operands):
        raise node.refuse("its operands are not one number each", code="onnx-shape")
    start, limit, step = (float(array.reshape(-1)[0]) for array in operands)
    if not all(map(math.isfinite, (start, limit, step))) or step == 0:
        raise node.refuse(f"there is no range from {start} to {limit} by {step}")
    count = (limit - start) / step
    if count > MAX_CONSTANT_ELEMENTS:
        raise _too_large(node)
    return max(0, math.ceil(count))


def _image_bytes(node: Node, encoded: Array) -> int:
    """The bytes of an image once it is decoded; raises TilewrightError."""
    pillow = library("PIL.Image", "images", "onnx-unsupported-operator", "encoded images")
    try:
        with pillow.open(io.BytesIO(encoded.tobytes())) as image:
            return image.width * image.height * 4
    except Exception as error:  # Pillow's readers raise whatever damaged files make them meet.
        raise node.refuse(f"its input is no image: {str(error)[:200]}") from error


def _cut_by_pads(operands: Sequence[Constant | None]) -> list[Constant | None]:
    """Operands of a Pad once negative pads, which the reference lacks, have cut the data."""
    data, pads, axes = operands[0], operands[1], operands[3] if len(operands) > 3 else None
    if data is None or pads is None or pads.array.ndim != 1 or (pads.array >= 0).all():
        return list(operands)
    rank, count = data.array.ndim, pads.array.size // 2
    places = range(rank) if axes is None else [int(axis) % rank for axis in axes.array.reshape(-1)]
    if pads.array.size % 2 or len(places) != count:
        return list(operands)
    index = [slice(None)] * rank
    for place, first, last in zip(places, pads.array[:count], pads.array[count:], strict=True):
        end = data.array.shape[place] - max(0, -int(last))
        index[place] = slice(max(0, -int(first)), max(0, end))
    cut = Constant(np.ascontiguousarray(data.array[tuple(index)]), data.name)
    return [cut, Constant(np.maximum(pads.array, 0), pads.name), *operands[2:]]


def _gather_elements(node: Node, data: Array, indices: Array, axis: int) -> Array:
    """Elements along an axis; the reference takes only data of at most 64 entries along it."""
    try:
        axis = range(data.ndim)[axis]
        lead = tuple(
            slice(None) if i == axis else slice(0, extent) for i, extent in enumerate(indices.shape)
        )
        return np.take_along_axis(data[lead], indices, axis)
    except (IndexError, ValueError) as error:
        raise node.refuse(f"it is constant and cannot be evaluated: {error}") from error


def infer_types(
    node: Node,
    types: Mapping[str, TypeProto],
    arrays: Mapping[str, Array] | None = None,
) -> dict[str, TypeProto]:
    """Types of a node's results as far as ONNX's shape inference knows them."""
    if any(len(attribute.s) > MAX_TEXT for attribute in node.proto.attribute):
        return {}
    try:
        schema = onnx.defs.get_schema(node.operator, node.version, node.domain)
        data: dict[str, TensorProto] = {
            name: numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape))
            for name, array in (arrays or {}).items()
            if array.size <= 1024
        }
        return dict(
            onnx.shape_inference.infer_node_outputs(
                schema,
                node.proto,
                dict(types),
                data,
                opset_imports=[onnx.helper.make_opsetid("", node.version)],
            )
        )
    except Exception:  # It has several error types; not knowing is the answer to all.
        return {}


def shape_of_type(kind: TypeProto) -> tuple[int, ...] | None:
    """The shape of a tensor type if all of it is known."""
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)


def type_of(array: Array) -> TypeProto:
    """The type of an array."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_type_proto(kind, array.shape)


def _too_large(node: Node) -> TilewrightError:
    return node.refuse(
        f"it is constant, and evaluating it passes the limit of {MAX_CONSTANT_ELEMENTS} elements "
        f"or {MAX_FOLDED_BYTES} bytes",
        code="onnx-too-large",
    )
