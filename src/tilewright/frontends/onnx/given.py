"""Inputs that the caller makes constant: sizes and branches may depend on them.

constants={"sizes": [1, 3, 64, 64]}         in Python
--constant sizes=1,3,64,64                  on the command line
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from onnx import GraphProto, ValueInfoProto

from tilewright.errors import refuse
from tilewright.frontends.limits import shown
from tilewright.frontends.onnx.tensors import DTYPES, type_name
from tilewright.ir.types import Array

Constants = Mapping[str, ArrayLike | str]
"""An input's name -> its value; text lists numbers, separated by commas, as ``1,3,64,64``."""


def given_arrays(graph: GraphProto, constants: Constants | None) -> dict[str, Array]:
    """The values as arrays of the inputs' element types and ranks.

    One number is also a list of one, where the model asks for a list. Raises TilewrightError
    (``input-name``, ``input-dtype``, ``input-shape``, ``onnx-dtype``).
    """
    declared = {value.name: value for value in graph.input}
    arrays: dict[str, Array] = {}
    for name, value in (constants or {}).items():
        if name not in declared:
            listed = ", ".join(shown(each) for each in list(declared)[:20])
            raise refuse("input-name", f"the model has no input {shown(name)}", "constants", listed)
        arrays[name] = _array(declared[name], value)
    return arrays


def _array(declared: ValueInfoProto, value: ArrayLike | str) -> Array:
    where = f"constant {shown(declared.name)}"
    kind = declared.type.tensor_type
    if kind.elem_type not in DTYPES:
        raise refuse("onnx-dtype", f"elements are {type_name(kind.elem_type)}", where)
    wanted = DTYPES[kind.elem_type]
    array = _numbers(value, where) if isinstance(value, str) else np.asarray(value)
    if array.dtype.kind not in "biuf" and array.dtype not in DTYPES.values():
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
