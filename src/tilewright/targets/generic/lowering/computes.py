"""Computes to instructions: one function per family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.numerics import fixed
from tilewright.planning.domain import Affine
from tilewright.targets.generic.fields import Column
from tilewright.targets.generic.functions import FUNCTIONS, bits_of
from tilewright.targets.generic.isa import Instruction
from tilewright.targets.generic.lowering.locations import (
    BufferPlace,
    Seen,
    buffer_op,
    dim_stride,
)
from tilewright.targets.generic.lowering.steps import (
    Tables,
    elements,
    fraction,
    is_wide,
    parameters,
    step_columns,
)
from tilewright.tile.boxes import Boxes, box_columns
from tilewright.tile.dialect import BufferOp, ComputeOp, StageOp, windows_of
from tilewright.tile.iteration import Order, Rows

Fields = dict[str, Any]
"""Field -> column, or one number for all."""


@dataclass(frozen=True)
class Context:
    """A compute, and what it takes to lower it."""

    op: ComputeOp
    order: Order
    machine: Machine
    part: Primitive
    one: Instruction
    places: Callable[[BufferOp], BufferPlace]
    tables: Tables

    @property
    def where(self) -> str:
        """The kernel, for messages."""
        return self.order.program.symbol.data

    @cached_property
    def rows(self) -> Rows:
        """The executions."""
        return self.order.rows(self.op)

    @property
    def anchor(self) -> StageOp:
        """The first stage."""
        return self.op.stages[0]

    @cached_property
    def extents(self) -> dict[str, int]:
        """Extents of the program's dims."""
        return self.order.program.extents

    def size(self, dim: str) -> Column | int:
        """Size of a dim in every execution; 1 for a dim that the program lacks."""
        return self.rows.size(dim) if dim in self.extents else 1

    def start(self, dim: str) -> Column | int:
        """First index of a dim in every execution."""
        return self.rows.start(dim) if dim in self.extents else 0

    def operand(self, stage: StageOp, index: int) -> Operand:
        """An input of a stage, in a buffer."""
        return self._operand(stage.inputs[index], windows_of(stage)[index].data)

    @cached_property
    def output(self) -> Operand:
        """The result's buffer."""
        return self._operand(self.op.output, windows_of(self.op.stages[-1])[-1].data)

    def _operand(self, value: Any, window: Sequence[Affine]) -> Operand:
        place = self.places(buffer_op(value, self.where))
        return Operand(place, place.seen_by(self.op), window, self.rows)


@dataclass(frozen=True)
class Operand:
    """An operand of a compute: its buffer and the box of its window in every execution."""

    place: BufferPlace
    seen: Seen
    window: Sequence[Affine]
    rows: Rows

    @cached_property
    def dims(self) -> frozenset[str]:
        """The dims on which the address depends."""
        return frozenset(name for axis in self.window for name in axis.dims)

    @cached_property
    def boxes(self) -> Boxes:
        """The boxes of the window."""
        return box_columns(self.window, self.place.op.tensor_shape, self.rows)

    def stride(self, dim: str) -> int:
        """Bytes from one index of a dim to the next; 0 if no execution has a second index.

        Such a stride may exceed the buffer, and its field: it steps to data that is elsewhere.
        """
        if dim not in self.dims or int(self.rows.size(dim).max(initial=1)) <= 1:
            return 0
        return dim_stride(self.window, self.place.strides, dim)

    def fields(self, name: str, dims: Mapping[str, str]) -> Fields:
        """Address and strides as fields ``name.axis``, where ``dims[axis]`` is the axis's dim."""
        found: Fields = {f"{name}.address": self.seen.address(self.boxes)}
        for axis, dim in dims.items():
            found[f"{name}.{axis}"] = self.stride(dim)
        return found

    def axis_of(self, dims: Sequence[str]) -> int | None:
        """The axis whose index depends on any of some dims."""
        for axis, expression in enumerate(self.window):
            if any(dim in expression.dims for dim in dims):
                return axis
        return None


def lower_compute(context: Context) -> Fields:
    """All fields of a compute but its waits; refuses what the instructions cannot say."""
    columns = _LOWER[context.one.family.name](context)
    output = context.output
    _, result = elements(context.op.stages[-1])
    fields = context.one.format.by_name
    if "output.wide" in fields:
        columns["output.wide"] = int(is_wide(result))
    unknown = [name for name in columns if name not in fields]
    if unknown:
        raise refuse("lower-field", f"{context.one.mnemonic} lacks {unknown}", context.where)
    if output.place.memory != context.part.operands["output"].memory:
        raise refuse("lower-place", f"the result lies in {output.place.memory}", context.where)
    return columns


def _steps(context: Context, dims: Mapping[str, str]) -> Fields:
    """The steps, and the residual over the result's axes."""
    columns, residual = step_columns(context.part, context.op.stages, context.tables)
    found: Fields = dict(columns)
    if residual is not None:
        stage, index = residual
        operand = context.operand(stage, index)
        found |= operand.fields("residual", dims)
        if "residual.wide" in context.one.format.by_name:
            found["residual.wide"] = int(is_wide(elements(stage)[0][index]))
    return found


def _sum(context: Context) -> Fields:
    first, last = context.order.reduction(context.op)
    return {"first": first.astype(np.int64), "last": last.astype(np.int64)}


def _window(context: Context, x: Operand) -> Fields:
    """Steps of the window, rows and columns, and the input's address and spatial strides."""
    found: Fields = {}
    spatial: list[int] = []
    for axis, out, kernel, low, held in (
        ("h", "oh", "kh", "row", "rows"),
        ("w", "ow", "kw", "column", "columns"),
    ):
        place = x.axis_of((out, kernel))
        if place is None:
            continue
        spatial.append(place)
        terms = dict(x.window[place].terms)
        found[f"stride.{axis}"] = terms.get(out, 1)
        found[f"dilation.{axis}"] = terms.get(kernel, 1)
        found[low] = x.boxes.start[place] - x.seen.start[place]
        found[held] = x.seen.held[place]
        found[f"input.{axis}"] = x.place.strides[place]
    found["input.address"] = x.seen.address(x.boxes, skip=spatial)
    return found


def _product(context: Context) -> Fields:
    dims = {"n": "n", "g": "g", "h": "oh", "w": "ow", "c": "co"}
    if "m" in context.extents:
        batch = [dim for dim in context.extents if dim not in ("m", "co", "ci")]
        if len([dim for dim in batch if context.extents[dim] > 1]) > 1:
            raise refuse("lower-rank", "a product with several batch dims", context.where)
        chosen = next((dim for dim in batch if context.extents[dim] > 1), "b0")
        dims |= {"n": "m", "g": chosen}
    x, weight = context.operand(context.anchor, 0), context.operand(context.anchor, 1)
    found = _window(context, x)
    for axis, dim in (("n", dims["n"]), ("g", dims["g"]), ("c", "ci")):
        found[f"input.{axis}"] = x.stride(dim)
    names = {"g": dims["g"], "co": "co", "kh": "kh", "kw": "kw", "ci": "ci"}
    found |= weight.fields("weight", names)
    if len(context.anchor.inputs) == 3:
        found |= context.operand(context.anchor, 2).fields("bias", dims)
        found["bias"] = 1
    found |= context.output.fields("output", dims)
    for name, dim in (("n", dims["n"]), ("g", dims["g"])):
        found[name] = context.size(dim)
    for dim in ("co", "oh", "ow", "ci", "kh", "kw"):
        found[dim] = context.size(dim)
    return found | _sum(context) | _steps(context, dims)


_IMAGE = {"n": "n", "h": "oh", "w": "ow", "c": "c"}


def _depthwise(context: Context) -> Fields:
    x, weight = context.operand(context.anchor, 0), context.operand(context.anchor, 1)
    found = _window(context, x)
    found |= {f"input.{axis}": x.stride(axis) for axis in ("n", "c")}
    found |= weight.fields("weight", {"c": "c", "kh": "kh", "kw": "kw"})
    if len(context.anchor.inputs) == 3:
        found |= context.operand(context.anchor, 2).fields("bias", {"c": "c"})
        found["bias"] = 1
    found |= context.output.fields("output", _IMAGE)
    found |= {dim: context.size(dim) for dim in ("n", "c", "oh", "ow", "kh", "kw")}
    return found | _sum(context) | _steps(context, _IMAGE)


def _pool(context: Context) -> Fields:
    stage = context.anchor
    x = context.operand(stage, 0)
    found = _window(context, x)
    found |= {f"input.{axis}": x.stride(axis) for axis in ("n", "c")}
    found |= {dim: context.size(dim) for dim in ("n", "c", "oh", "ow", "kh", "kw")}
    selector = context.one.format.by_name["function"]
    found["function"] = selector.choices.index(stage.operation.data)
    if stage.operation.data == "average_pool":
        counted = stage.parameters.get("counted", (0, 0, 0, 0))
        for number, (axis, kernel, low, names) in enumerate(
            (
                ("h", "kh", "row", ("count.top", "count.bottom")),
                ("w", "kw", "column", ("count.left", "count.right")),
            )
        ):
            place = 2 + number
            origin = x.seen.start[place]
            found[f"window.{axis}"] = context.extents[kernel]
            found[f"window.{low}"] = found[low] - context.start(kernel) * found[f"dilation.{axis}"]
            ends = (-counted[number], x.place.op.tensor_shape[place] + counted[number + 2])
            for name, end in zip(names, ends, strict=True):
                # Positions of the window lie well inside the field's range.
                found[name] = np.clip(end - origin, *context.one.format.by_name[name].range)
    found |= context.output.fields("output", _IMAGE)
    return found | _sum(context) | _steps(context, _IMAGE)


_POINTS = {f"d{axis}": f"d{axis}" for axis in range(4)}


def _check_rank(context: Context, names: Sequence[str]) -> None:
    beyond = [d for d, extent in context.extents.items() if d not in names and extent > 1]
    if beyond:
        raise refuse(
            "lower-rank", f"{context.one.mnemonic} has no dims {', '.join(beyond)}", context.where
        )


def _points(context: Context) -> Fields:
    _check_rank(context, tuple(_POINTS))
    stage = context.anchor
    kinds, _ = elements(stage)
    fields = context.one.format.by_name
    found: Fields = {"function": fields["function"].choices.index(stage.operation.data)}
    found |= parameters(stage, "function", context.tables)
    memory = context.part.operands["input"].memory
    names = ["input", "other"] if FUNCTIONS[stage.operation.data].binary else ["input"]
    for index, name in enumerate(names):
        operand = context.operand(stage, index)
        if operand.place.memory != memory:
            raise refuse("lower-place", f"{name} lies in {operand.place.memory}", context.where)
        found |= operand.fields(name, _POINTS)
        if f"{name}.wide" in fields:
            found[f"{name}.wide"] = int(is_wide(kinds[index]))
    found |= {dim: context.size(dim) for dim in _POINTS}
    found |= context.output.fields("output", _POINTS)
    return found | _steps(context, _POINTS)


def _lrn(context: Context) -> Fields:
    dims = {dim: dim for dim in ("n", "c", "h", "w")}
    stage = context.anchor
    x = context.operand(stage, 0)
    whole = context.extents["c"]
    if np.any(np.asarray(context.size("c")) != whole):
        raise refuse("lower-whole", "lrn needs all channels in a tile", context.where)
    found: Fields = {"input.address": x.seen.address(x.boxes)}
    found |= {f"input.{dim}": x.stride(dim) for dim in dims}
    found |= {dim: context.size(dim) for dim in dims}
    found["j"] = context.extents["j"]
    values = stage.parameters
    size, alpha, beta, bias = (values[name] for name in ("size", "alpha", "beta", "bias"))
    kinds, result = elements(stage)
    if context.machine.element == "fixed16":
        found["point.in"], found["point.out"] = fraction(kinds[0]), fraction(result)
        found["alpha"] = round(alpha / size * 2**30)
        found["bias"] = max(round(bias * 2**20), 1)
        mantissas, factors, shifts = fixed.lrn_tables(float(beta))
        data = b"".join(part.astype("<u2").tobytes() for part in (mantissas, factors, shifts))
        found["table"] = context.tables.address_of(data)
    else:
        for name, value in (("alpha", alpha / size), ("bias", bias), ("beta", beta)):
            found[name] = bits_of(float(value))
    found |= context.output.fields("output", dims)
    return found | _steps(context, dims)


def _softmax(context: Context) -> Fields:
    dims = {**_POINTS, "axis": "axis"}
    _check_rank(context, tuple(dims))
    stage = context.anchor
    if np.any(np.asarray(context.size("axis")) != context.extents["axis"]):
        raise refuse("lower-whole", "softmax needs its whole axis in a tile", context.where)
    found = context.operand(stage, 0).fields("input", dims)
    found |= {dim: context.size(dim) for dim in dims}
    if context.machine.element == "fixed16":
        kinds, result = elements(stage)
        found["point.in"], found["point.out"] = fraction(kinds[0]), fraction(result)
    found |= context.output.fields("output", dims)
    return found | _steps(context, dims)


_LOWER: Mapping[str, Callable[[Context], Fields]] = {
    "product": _product,
    "depthwise": _depthwise,
    "pool": _pool,
    "points": _points,
    "lrn": _lrn,
    "softmax": _softmax,
}
