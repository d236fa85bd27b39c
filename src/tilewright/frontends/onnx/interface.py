"""A model's inputs and outputs: names, element types, and shapes once open sizes are settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any

from onnx import GraphProto, TensorProto, ValueInfoProto

from tilewright.errors import Problem, TilewrightError
from tilewright.frontends.limits import shown
from tilewright.frontends.onnx.tensors import DTYPES, checked_size, type_name
from tilewright.ir import TensorType
from tilewright.ir.types import element_of, tensor
from tilewright.shapes import Bounds, Shapes, Signature, TensorDims, settle

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
    )


def _stated(value: ValueInfoProto) -> TensorDims:
    """The dims of an input or output; one without a size or name of its own is ``NAME.AXIS``."""
    kind = value.type.tensor_type
    element = DTYPES.get(kind.elem_type)
    dtype = "" if element is None else str(element)
    if not kind.HasField("shape"):
        return TensorDims(value.name, None, dtype)
    dims = tuple(
        dim.dim_value if dim.dim_value > 0 else _named(dim.dim_param) or f"{value.name}.{axis}"
        for axis, dim in enumerate(kind.shape.dim)
    )
    return TensorDims(value.name, dims, dtype)


def _named(dim: str) -> str:
    """The name of a dim; "" where it is none: exporters write ``?`` for what they do not know."""
    return "" if dim.strip() in ("?", "_") else dim


def inputs_of(
    graph: GraphProto,
    constants: set[str],
    shapes: Shapes | None,
    problems: list[Problem],
    notes: list[str],
) -> dict[str, Type | None]:
    """Types of the inputs, in the model's order, without those that ``constants`` names.

    A free dim that is only ever first becomes 1, or the least that its bounds allow, which is
    added to ``notes``; other free dims need ``shapes``. What is refused is added to ``problems``,
    and its type is None.
    """
    proper = [value for value in graph.input if value.name not in constants]
    counts = Counter(value.name for value in proper)
    for name in (name for name, count in counts.items() if count > 1):
        problems.append(
            Problem("onnx-duplicate-name", "it is declared twice", f"input {shown(name)}")
        )
    settled = settle([_stated(value) for value in proper], shapes, problems)
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
    return inputs


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
                f"give it: --shape {dim}={max(free[dim].low, min(free[dim].high, 64))}, or shapes",
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
