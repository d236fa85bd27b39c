"""A model's inputs and outputs: names, element types, and shapes once open sizes are settled.

Inputs may be given a value for good, so that sizes and branches may depend on them:
constants={"sizes": [1, 3, 64, 64]} in Python, --constant sizes=1,3,64,64 on the command line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import GraphProto, TensorProto, TypeProto, ValueInfoProto

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.frontends.limits import shown
from tilewright.frontends.onnx.tensors import DTYPES, checked_size, type_name
from tilewright.ir import TensorType
from tilewright.ir.types import Array, element_of, tensor
from tilewright.shapes.forms import Bounds, Shapes
from tilewright.shapes.settlement import Settled, Signature, TensorDims, settle

Shape = tuple[int, ...]

Type = TensorType[Any]


def signature_of(graph: GraphProto, constants: Collection[str] = ()) -> Signature:
    """Return the inputs and outputs that a model states, without inputs that ``constants`` names.

    What import refuses is left as it is.
    """
    stored = {tensor.name for tensor in graph.initializer} | set(constants)
    return Signature(
        tuple(_stated(value) for value in graph.input if value.name not in stored),
        tuple(_stated(value) for value in graph.output),
        computed_names(graph),
    )


def computed_names(graph: GraphProto) -> frozenset[str]:
    """Names of the values that a graph's nodes compute."""
    return frozenset(name for node in graph.node for name in node.output if name)


def _stated(value: ValueInfoProto) -> TensorDims:
    """The dims of an input or output; one without a size or name of its own is ``NAME.AXIS``.

    Exporters write 0 for a batch that they do not know: a first size of 0 is open, any other is of
    a tensor without elements."""
    of, listed = tensor_type_of(value.type)
    kind = of.tensor_type
    element = DTYPES.get(kind.elem_type)
    dtype = "" if element is None else str(element)
    if not kind.HasField("shape"):
        return TensorDims(value.name, None, dtype, listed=listed)
    dims = tuple(
        dim.dim_value
        if dim.dim_value > 0 or (axis and dim.HasField("dim_value") and not dim.dim_value)
        else _named(dim.dim_param) or f"{value.name}.{axis}"
        for axis, dim in enumerate(kind.shape.dim)
    )
    return TensorDims(value.name, dims, dtype, listed=listed)


def tensor_type_of(kind: TypeProto) -> tuple[TypeProto, bool]:
    """The type of what an optional or a sequence holds, and True for a sequence."""
    inner = kind.optional_type.elem_type if kind.HasField("optional_type") else kind
    listed = inner.HasField("sequence_type")
    return (inner.sequence_type.elem_type if listed else inner), listed


def _named(dim: str) -> str:
    """The name of a dim; "" for a placeholder: exporters write ``?`` for what they do not know."""
    return "" if dim.strip() in ("?", "_") else dim


def inputs_of(
    graph: GraphProto,
    constants: set[str],
    shapes: Shapes | None,
    problems: list[Problem],
    notes: list[str],
) -> tuple[dict[str, Type | None], Settled]:
    """Types of the inputs, in the model's order, without those that ``constants`` names; and all
    that ``shapes`` settles. Of a sequence each element is an input.

    A free dim that is only ever first becomes 1, or the least that its bounds allow, which is
    added to ``notes``; other free dims need ``shapes``. What is refused is added to ``problems``,
    and its type is None.
    """
    proper = [value for value in graph.input if value.name not in constants]
    settled = settle([_stated(value) for value in proper], shapes, problems, computed_names(graph))
    proper = [element for value in proper for element in _elements(value, settled.lengths)]
    counts = Counter(value.name for value in proper)
    for name in (name for name, count in counts.items() if count > 1):
        problems.append(
            Problem("onnx-duplicate-name", "it is declared twice", f"input {shown(name)}")
        )
    leading = settled.leading()
    inputs: dict[str, Type | None] = {}
    for value in proper:
        try:
            dims = settled.inputs.get(value.name)
            shape = _shape(value, dims, settled.free, leading, notes)
            element = DTYPES[value.type.tensor_type.elem_type]
            inputs[value.name] = tensor(shape, element_of(element))
        except TilewrightError as error:
            problems.extend(error.problems)
            inputs[value.name] = None
    return inputs, settled


def _elements(value: ValueInfoProto, lengths: Mapping[str, int]) -> list[ValueInfoProto]:
    """An input as tensors: what it holds, or, of a sequence, all elements."""
    kind, listed = tensor_type_of(value.type)
    names = [f"{value.name}.{n}" for n in range(lengths.get(value.name, 0))]
    return [ValueInfoProto(name=n, type=kind) for n in (names if listed else [value.name])]


def _shape(
    value: ValueInfoProto,
    dims: Sequence[int | str] | None,
    free: Mapping[str, Bounds],
    leading: Container[str],
    notes: list[str],
) -> Shape:
    """The shape of one input; raises TilewrightError."""
    where = f"input {shown(value.name)}"

    def bad(code: str, reason: str, help: str = "") -> TilewrightError:
        return TilewrightError(Problem(code, reason, where, help))

    if not value.name:
        raise bad("onnx-missing-input", "it has no name")
    if not value.type.HasField("tensor_type"):
        raise bad("onnx-dtype", "it is not a tensor")
    kind = value.type.tensor_type
    if kind.elem_type not in DTYPES:
        raise bad("onnx-dtype", f"elements of {type_name(kind.elem_type)} are not computed")
    if dims is None:
        raise bad("onnx-shape", "the model does not state its shape", "give it in shapes")
    sizes: list[int] = []
    for axis, dim in enumerate(dims):
        if isinstance(dim, int):
            sizes.append(dim)
        elif dim in leading:
            sizes.append(max(1, free[dim].low))
            notes.append(f"{where}: the first size is open and was taken as {sizes[-1]}")
        else:
            raise bad(
                "onnx-shape",
                f"the size of axis {axis}, {shown(dim)}, is open",
                f"give it: --shape {dim}={free[dim].near(64)}, or shapes",
            )
    checked_size(sizes, where)
    return tuple(sizes)


def outputs_of(graph: GraphProto, problems: list[Problem]) -> list[str]:
    """Names of the outputs, each once, in the model's order; refusals are added to ``problems``."""
    names = list(dict.fromkeys(value.name for value in graph.output))
    if not names:
        problems.append(Problem("onnx-missing-output", "the model has no outputs"))
    for value in graph.output:
        where = f"output {shown(value.name)}"
        if not value.name:
            problems.append(Problem("onnx-missing-output", "it has no name", where))
        kind = value.type.tensor_type.elem_type
        if kind != TensorProto.UNDEFINED and kind not in DTYPES:
            reason = f"elements of {type_name(kind)} are not computed"
            problems.append(Problem("onnx-dtype", reason, where))
    return names


Constants = Mapping[str, ArrayLike | str | None]
"""An input's name -> its value; text lists numbers, separated by commas, as ``1,3,64,64``. None, or
``none``, is an optional that holds nothing."""


def given_arrays(graph: GraphProto, constants: Constants | None) -> dict[str, Array | None]:
    """The values as arrays of the inputs' element types and ranks; None for absent optionals.

    One number is also a list of one, where the model asks for a list. Raises TilewrightError
    (``input-name``, ``input-dtype``, ``input-shape``, ``onnx-dtype``).
    """
    declared = {value.name: value for value in graph.input}
    arrays: dict[str, Array | None] = {}
    for name, value in (constants or {}).items():
        if name not in declared:
            listed = ", ".join(shown(each) for each in list(declared)[:20])
            raise refuse("input-name", f"the model has no input {shown(name)}", "constants", listed)
        arrays[name] = _array(declared[name], value)
    return arrays


def _array(declared: ValueInfoProto, value: ArrayLike | str | None) -> Array | None:
    where = f"constant {shown(declared.name)}"
    of, listed = tensor_type_of(declared.type)
    kind = of.tensor_type
    if value is None or (isinstance(value, str) and value == "none"):
        if not declared.type.HasField("optional_type"):
            raise refuse("input-dtype", "only an optional may hold nothing", where)
        return None
    if listed:
        raise refuse("onnx-dtype", "a sequence is not made constant", where)
    text = kind.elem_type == TensorProto.STRING
    if kind.elem_type not in DTYPES and not text:
        raise refuse("onnx-dtype", f"elements are {type_name(kind.elem_type)}", where)
    wanted = np.dtype(object) if text else DTYPES[kind.elem_type]
    array = _numbers(value, where) if isinstance(value, str) and not text else np.asarray(value)
    if text:
        array = array.astype(np.str_).astype(object)
    elif array.dtype.kind not in "biuf" and array.dtype not in DTYPES.values():
        raise refuse("input-dtype", f"{str(value)[:80]!r} is not of numbers", where)
    with np.errstate(all="ignore"):
        cast: Array = array.astype(wanted)
        # Floats may lose digits, as any number written in text does; integers may not change.
        exact = wanted.kind == "f" or bool((cast.astype(array.dtype) == array).all())
    if not exact:
        raise refuse("input-dtype", f"{str(value)[:80]!r} does not fit {wanted}", where)
    if not kind.HasField("shape"):
        return cast
    sizes = [dim.dim_value for dim in kind.shape.dim]
    if cast.size == 1 and len(sizes) < 2:
        cast = cast.reshape((1,) * len(sizes))
    if not _fits(cast.shape, sizes):
        text = ", ".join(str(size) if size > 0 else "?" for size in sizes)
        raise refuse(
            "input-shape", f"has shape {list(cast.shape)}, the model takes [{text}]", where
        )
    return cast


def _fits(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    """Return True if a shape is what the model declares; what is not positive is open."""
    return len(shape) == len(sizes) and all(
        size <= 0 or size == have for size, have in zip(sizes, shape, strict=True)
    )


def _numbers(text: str, where: str) -> Array:
    """Numbers separated by commas; raises TilewrightError."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    booleans = {"true": True, "false": False}
    try:
        if all(word.lower() in booleans for word in words) and words:
            return np.array([booleans[word.lower()] for word in words])
        if any(set(word.lower()) & set(".einf") for word in words):
            return np.array([float(word) for word in words], np.float64)
        return np.array([int(word) for word in words], np.int64)
    except (ValueError, OverflowError) as error:
        raise refuse(
            "input-dtype", f"{text[:80]!r} is no list of numbers", where, "write 1,3,64,64"
        ) from error
