"""Computes to instructions: one function per family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.codegen.program.elements import elements, fraction
from tilewright.codegen.program.operands import Computed, Fields, Operand
from tilewright.errors import refuse
from tilewright.ir.types import Array, element_name
from tilewright.machine import Machine, Primitive
from tilewright.numerics import fixed
from tilewright.numerics.element_types import ELEMENTS
from tilewright.numerics.sparse import steps_of
from tilewright.targets.generic.families.layer_norm import OTHERS
from tilewright.targets.generic.families.product import TAPS
from tilewright.targets.generic.families.sparse import lanes_of
from tilewright.targets.generic.functions import FUNCTIONS, bits_of
from tilewright.targets.generic.isa import Instruction
from tilewright.targets.generic.lowering.steps import (
    Tables,
    element_columns,
    parameters,
    step_columns,
)
from tilewright.tile.dialect import BufferOp, TensorOp


@dataclass(frozen=True)
class Context(Computed):
    """A compute, and what it takes to lower it."""

    machine: Machine
    part: Primitive
    instruction: Instruction
    tables: Tables
    content: Callable[[TensorOp], Array]
    """Function that gives a weight's values; raises TilewrightError where they are not known."""


def lower_compute(context: Context) -> Fields:
    """All fields of a compute but its waits; refuses what the instructions cannot say."""
    _check_operands(context)
    columns = _LOWER[context.instruction.family.name](context)
    output = context.output
    _, result = elements(context.op.stages[-1])
    fields = context.instruction.format.by_name
    written, name = context.part.operands["output"].elements, element_name(result)
    if written and name not in written:
        kinds = ", ".join(written)
        raise refuse(
            "lower-element",
            f"{context.part.name} writes {kinds}, and the kernel's result is {name}",
            context.where,
            "add it to operands.output.elements, or the step that converts to the epilogue",
        )
    _check_element(context, "output", name)
    columns |= element_columns(fields, "output", result)
    unknown = [name for name in columns if name not in fields]
    if unknown:
        raise refuse(
            "lower-field", f"{context.instruction.mnemonic} lacks {unknown}", context.where
        )
    if output.place.memory != context.part.operands["output"].memory:
        raise refuse("lower-place", f"the result lies in {output.place.memory}", context.where)
    return columns


MULTIPLYING = ("product", "sparse", "depthwise")
"""Families whose inputs are factors, never sums."""


def _check_operands(context: Context) -> None:
    """Refuse (``lower-element``) operands in buffers whose elements the unit does not read."""
    for stage in context.op.stages:
        for value, kind in zip(stage.inputs, elements(stage)[0], strict=True):
            owner = value.owner
            if isinstance(owner, BufferOp) and owner.role is not None:
                _check_element(context, owner.role.data, element_name(kind))


def _check_element(context: Context, role: str, element: str) -> None:
    """Refuse an element type that is neither the machine's, nor one that the operand names, nor,
    for operands that are added up, the accumulator's."""
    machine, storage = context.machine, context.part.operands.get(role)
    named = () if storage is None else storage.elements
    real = machine.number.kind == "integer" and ELEMENTS[element].is_plain
    factor = role in ("input", "weight") and context.instruction.family.name in MULTIPLYING
    sums = element == machine.accumulator and not factor
    if real or sums or element in (machine.element, *named):
        return
    kinds = ", ".join(dict.fromkeys((machine.element, *named)))
    raise refuse(
        "lower-element",
        f"{context.part.name} computes on {kinds}, and its {role} is {element}",
        context.where,
        f"add it to operands.{role}.elements where the unit takes it",
    )


def _result(context: Context, dims: Mapping[str, str]) -> Fields:
    """The result, the steps, and the residual over the result's axes."""
    columns, residual = step_columns(context.part, context.op.stages, context.tables)
    fields = context.output.fields("output", dims) | columns
    if residual is not None:
        stage, index = residual
        operand = context.operand(stage, index)
        fields |= operand.fields("residual", dims)
        kind = elements(stage)[0][index]
        fields |= element_columns(context.instruction.format.by_name, "residual", kind)
    return fields


def _sum(context: Context) -> Fields:
    first, last = context.order.reduction(context.op)
    return {"first": first.astype(np.int64), "last": last.astype(np.int64)}


def _window(context: Context, x: Operand) -> Fields:
    """Steps of the window, rows and columns, and the input's address and spatial strides."""
    fill = context.anchor.parameters.get("fill", 0)
    if fill and "fill" not in context.instruction.format.by_name:
        raise refuse("lower-fill", f"{context.instruction.mnemonic} pads with 0", context.where)
    fields = x.window_fields("input")
    return fields | {"fill": fill} if fill else fields


def _product(context: Context) -> Fields:
    dims = {"n": "n", "g": "g", "h": "oh", "w": "ow", "c": "co"}
    if "m" in context.extents:
        batch = [dim for dim in context.extents if dim not in ("m", "co", "ci")]
        covered = [dim for dim in batch if np.max(context.size(dim)) > 1]
        if len(covered) > 1:
            raise refuse("lower-rank", "a tile over several batch dims", context.where)
        dims |= {"n": "m", "g": (covered or ["b0"])[0]}
    x, weight = context.operand(context.anchor, 0), context.operand(context.anchor, 1)
    if context.part.operands["input"].gathered:
        columns = x.fields("input", {axis: dims.get(axis, axis) for axis in TAPS})
    else:
        columns = _window(context, x)
        for axis, dim in (("n", dims["n"]), ("g", dims["g"]), ("c", "ci")):
            columns[f"input.{axis}"] = x.stride(dim)
    names = {"g": dims["g"], "co": "co", "kh": "kh", "kw": "kw", "ci": "ci"}
    columns |= weight.fields("weight", names)
    if len(context.anchor.inputs) == 3:
        columns |= context.operand(context.anchor, 2).fields("bias", dims)
        columns["bias"] = 1
    for name, dim in (("n", dims["n"]), ("g", dims["g"])):
        columns[name] = context.size(dim)
    for dim in ("co", "oh", "ow", "ci", "kh", "kw"):
        columns[dim] = context.size(dim)
    return columns | _sum(context) | _result(context, dims)


def _sparse(context: Context) -> Fields:
    """Compressed weights; the depth of every execution follows from the streams themselves."""
    dims = {"n": "n", "h": "oh", "w": "ow", "c": "cl"}
    x, streams = context.operand(context.anchor, 0), context.operand(context.anchor, 1)
    fields = _window(context, x)
    fields |= {"input.n": x.stride("n"), "input.c": x.place.strides[1]}
    fields["weight.address"] = streams.seen.address(streams.boxes)
    fields["weight.block"], fields["weight.segment"] = streams.place.strides[:2]
    if len(context.anchor.inputs) == 3:
        bias = context.operand(context.anchor, 2)
        fields |= {"bias": 1, "bias.address": bias.seen.address(bias.boxes)}
        fields["bias.c"] = bias.place.strides[0]
    # The last block may reach beyond the result's channels.
    fields["co"] = context.output.boxes.clamped_size[1]
    fields["ci"] = x.boxes.clamped_size[1]
    fields |= {"blocks": context.size("cb"), "segments": context.size("cs")}
    fields["words"] = context.extents["e"]
    fields |= {dim: context.size(dim) for dim in ("n", "oh", "ow", "kh", "kw")}
    lanes = lanes_of(context.part)
    steps = steps_of(context.content(streams.place.op.tensor_op), lanes)
    # Sums of every element's steps over the blocks and segments before, so that a box is four.
    sums = np.zeros((steps.shape[0] + 1, steps.shape[1] + 1, lanes), np.int64)
    sums[1:, 1:] = steps.cumsum(axis=0).cumsum(axis=1)
    (b, s), (b2, s2) = streams.boxes.start[:2], (streams.boxes.start + streams.boxes.size)[:2]
    fields["depth"] = (sums[b2, s2] - sums[b, s2] - sums[b2, s] + sums[b, s]).max(axis=1)
    return fields | _sum(context) | _result(context, dims)


_IMAGE = {"n": "n", "h": "oh", "w": "ow", "c": "c"}


def _depthwise(context: Context) -> Fields:
    x, weight = context.operand(context.anchor, 0), context.operand(context.anchor, 1)
    fields = _window(context, x)
    fields |= {f"input.{axis}": x.stride(axis) for axis in ("n", "c")}
    fields |= weight.fields("weight", {"c": "c", "kh": "kh", "kw": "kw"})
    if len(context.anchor.inputs) == 3:
        fields |= context.operand(context.anchor, 2).fields("bias", {"c": "c"})
        fields["bias"] = 1
    fields |= {dim: context.size(dim) for dim in ("n", "c", "oh", "ow", "kh", "kw")}
    return fields | _sum(context) | _result(context, _IMAGE)


def _pool(context: Context) -> Fields:
    stage = context.anchor
    x = context.operand(stage, 0)
    fields = _window(context, x)
    fields |= {f"input.{axis}": x.stride(axis) for axis in ("n", "c")}
    fields |= {dim: context.size(dim) for dim in ("n", "c", "oh", "ow", "kh", "kw")}
    selector = context.instruction.format.by_name["function"]
    fields["function"] = selector.choices.index(stage.operation.data)
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
            fields[f"window.{axis}"] = context.extents[kernel]
            fields[f"window.{low}"] = (
                fields[low] - context.start(kernel) * fields[f"dilation.{axis}"]
            )
            ends = (-counted[number], x.place.op.tensor_shape[place] + counted[number + 2])
            for name, end in zip(names, ends, strict=True):
                # Positions of the window lie well inside the field's range.
                fields[name] = np.clip(
                    end - origin, *context.instruction.format.by_name[name].range
                )
    return fields | _sum(context) | _result(context, _IMAGE)


_POINTS = {f"d{axis}": f"d{axis}" for axis in range(4)}


def _check_rank(context: Context, names: Sequence[str]) -> None:
    beyond = [d for d, extent in context.extents.items() if d not in names and extent > 1]
    if beyond:
        raise refuse(
            "lower-rank",
            f"{context.instruction.mnemonic} has no dims {', '.join(beyond)}",
            context.where,
        )


def _points(context: Context) -> Fields:
    _check_rank(context, tuple(_POINTS))
    stage = context.anchor
    kinds, _ = elements(stage)
    fields = context.instruction.format.by_name
    columns: Fields = {"function": fields["function"].choices.index(stage.operation.data)}
    columns |= parameters(stage, "function", context.tables)
    memory = context.part.operands["input"].memory
    names = ["input", "other"] if FUNCTIONS[stage.operation.data].binary else ["input"]
    for index, name in enumerate(names):
        operand = context.operand(stage, index)
        if operand.place.memory != memory:
            raise refuse("lower-place", f"{name} lies in {operand.place.memory}", context.where)
        columns |= operand.fields(name, _POINTS)
        columns |= element_columns(fields, name, kinds[index])
    columns |= {dim: context.size(dim) for dim in _POINTS}
    return columns | _result(context, _POINTS)


def _lrn(context: Context) -> Fields:
    dims = {dim: dim for dim in ("n", "c", "h", "w")}
    stage = context.anchor
    x = context.operand(stage, 0)
    whole = context.extents["c"]
    if np.any(np.asarray(context.size("c")) != whole):
        raise refuse("lower-whole", "lrn needs all channels in a tile", context.where)
    fields: Fields = {"input.address": x.seen.address(x.boxes)}
    fields |= {f"input.{dim}": x.stride(dim) for dim in dims}
    fields |= {dim: context.size(dim) for dim in dims}
    fields["j"] = context.extents["j"]
    values = stage.parameters
    size, alpha, beta, bias = (values[name] for name in ("size", "alpha", "beta", "bias"))
    kinds, result = elements(stage)
    if context.machine.fixed_bits:
        fields["point.in"], fields["point.out"] = fraction(kinds[0]), fraction(result)
        fields["alpha"] = round(alpha / size * 2**30)
        fields["bias"] = max(round(bias * 2**20), 1)
        mantissas, factors, shifts = fixed.lrn_tables(float(beta))
        data = b"".join(part.astype("<u2").tobytes() for part in (mantissas, factors, shifts))
        fields["table"] = context.tables.address_of(data)
    else:
        for name, value in (("alpha", alpha / size), ("bias", bias), ("beta", beta)):
            fields[name] = bits_of(float(value))
    return fields | _result(context, dims)


_ALONG = {**_POINTS, "axis": "axis"}


def _along(context: Context) -> Fields:
    """The fields of a function along an axis."""
    _check_rank(context, tuple(_ALONG))
    if np.any(np.asarray(context.size("axis")) != context.extents["axis"]):
        name = context.anchor.operation.data
        raise refuse("lower-whole", f"{name} needs its whole axis in a tile", context.where)
    fields = context.operand(context.anchor, 0).fields("input", _ALONG)
    fields |= {dim: context.size(dim) for dim in _ALONG}
    return fields | _result(context, _ALONG)


def _softmax(context: Context) -> Fields:
    fields = _along(context)
    if context.machine.fixed_bits:
        kinds, result = elements(context.anchor)
        fields["point.in"], fields["point.out"] = fraction(kinds[0]), fraction(result)
    return fields


def _layer_norm(context: Context) -> Fields:
    fields, stage = _along(context), context.anchor
    fields["others"] = len(stage.inputs) - 1
    for number, role in enumerate(OTHERS[: len(stage.inputs) - 1], 1):
        fields |= context.operand(stage, number).fields(role, {"axis": "axis"})
    fields["epsilon"] = bits_of(float(stage.parameters.get("epsilon", 1e-5)))
    fields["centred"] = int(bool(stage.parameters.get("centred", True)))
    return fields


_LOWER: Mapping[str, Callable[[Context], Fields]] = {
    "product": _product,
    "sparse": _sparse,
    "depthwise": _depthwise,
    "pool": _pool,
    "points": _points,
    "lrn": _lrn,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
}
