"""A model's inputs and outputs: names, element types, and shapes once open sizes are settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, ValueInfoProto

from tilewright.errors import Problem, TilewrightError
from tilewright.frontends.onnx.limits import shown
from tilewright.frontends.onnx.tensors import DTYPES, checked_size, type_name
from tilewright.ir import TensorType
from tilewright.types import element_of, tensor

Shape = tuple[int, ...]

Type = TensorType[Any]


def inputs_of(
    graph: GraphProto,
    constants: set[str],
    shapes: Mapping[str, Sequence[int]] | None,
    problems: list[Problem],
    notes: list[str],
) -> dict[str, Type | None]:
    """Types of the inputs, in the model's order, without those that ``constants`` names.

    A first size that is open becomes 1, which is added to ``notes``; other open sizes need
    ``shapes``. What is refused is added to ``problems``, and its type is None.
    """
    wanted = dict(shapes or {})
    proper = [value for value in graph.input if value.name not in constants]
    names = [value.name for value in proper]
    counts = Counter(names)
    for name in (name for name, count in counts.items() if count > 1):
        problems.append(
            Problem("onnx-duplicate-name", "it is declared twice", f"input {shown(name)}")
        )
    for name in wanted:
        if name not in counts:
            known = ", ".join(shown(other) for other in names[:20])
            problems.append(
                Problem(
                    "onnx-shape",
                    f"shapes are given for {shown(name)}, which is no input",
                    help=f"the inputs are {known}",
                )
            )
    symbols = _symbols(proper, wanted)
    found: dict[str, Type | None] = {}
    for value in proper:
        try:
            shape = _shape(value, wanted.get(value.name), symbols, notes)
            element = DTYPES[value.type.tensor_type.elem_type]
            found[value.name] = tensor(shape, element_of(element))
        except TilewrightError as error:
            problems.extend(error.problems)
            found[value.name] = None
    return found


def _symbols(
    inputs: Sequence[ValueInfoProto], wanted: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """Sizes of named open dims that ``shapes`` settles for one input and so for all."""
    symbols: dict[str, int] = {}
    for value in inputs:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, wanted.get(value.name, ()), strict=False):
            if dim.dim_param and _is_size(size):
                symbols.setdefault(dim.dim_param, int(size))
    return symbols


def _is_size(size: object) -> bool:
    """Whether a size that the caller gives is a positive integer, of Python's or of NumPy's."""
    return isinstance(size, int | np.integer) and int(size) >= 1


def _shape(
    value: ValueInfoProto,
    wanted: Sequence[int] | None,
    symbols: Mapping[str, int],
    notes: list[str],
) -> Shape:
    """The shape of one input."""
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
    dims = kind.shape.dim
    if not kind.HasField("shape") and wanted is None:
        raise bad("onnx-shape", "the model does not state its shape", "give it in shapes")
    if wanted is not None and kind.HasField("shape") and len(wanted) != len(dims):
        raise bad("onnx-shape", f"{list(wanted)} is given for a tensor of rank {len(dims)}")
    sizes: list[int] = []
    for axis in range(len(dims) if kind.HasField("shape") else len(wanted or ())):
        stated = dims[axis].dim_value if kind.HasField("shape") else 0
        symbol = dims[axis].dim_param if kind.HasField("shape") else ""
        if wanted is not None:
            size = wanted[axis]
            if not _is_size(size):
                raise bad("onnx-shape", f"size {size!r} is not a positive integer")
            if stated > 0 and stated != int(size):
                raise bad("onnx-shape", f"size {size} is given for axis {axis}, which is {stated}")
            sizes.append(int(size))
        elif stated > 0:
            sizes.append(stated)
        elif symbol in symbols:
            sizes.append(symbols[symbol])
        elif axis == 0:
            sizes.append(1)
            notes.append(f"{where}: the first size is open and was taken as 1")
        else:
            raise bad(
                "onnx-shape",
                f"the size of axis {axis}" + (f", {shown(symbol)}," if symbol else "") + " is open",
                f"give the shape of {shown(value.name)} in shapes",
            )
    checked_size(sizes, where)
    return tuple(sizes)


def outputs_of(graph: GraphProto, problems: list[Problem]) -> list[str]:
    """Names of the outputs, in the model's order; what is refused is added to ``problems``."""
    names = [value.name for value in graph.output]
    if not names:
        problems.append(Problem("onnx-missing-output", "the model has no outputs"))
    seen: set[str] = set()
    for value in graph.output:
        where = f"output {shown(value.name)}"
        if not value.name:
            problems.append(Problem("onnx-missing-output", "it has no name", where))
        if value.name in seen:
            problems.append(Problem("onnx-duplicate-name", "it is listed twice", where))
        seen.add(value.name)
        kind = value.type.tensor_type.elem_type
        if kind != TensorProto.UNDEFINED and kind not in DTYPES:
            reason = f"elements of {type_name(kind)} are not computed"
            problems.append(Problem("onnx-dtype", reason, where))
    return names
