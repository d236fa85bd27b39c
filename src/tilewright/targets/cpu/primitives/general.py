"""Slow and sure: any operation on any layout, stride and shape, one element after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import prod

from tilewright.codegen.c.address import Address, Extent
from tilewright.codegen.c.meaning import SHORT_FLOATS, element_expression
from tilewright.codegen.c.source import C_TYPES, Writer, literal
from tilewright.numerics.operators import has
from tilewright.targets.cpu.instance import Instance, Step
from tilewright.targets.cpu.primitives import indexing
from tilewright.targets.cpu.primitives.chain import write_maps
from tilewright.targets.cpu.primitives.code import KernelCode, accumulator, loops


def element_offset(instance: Instance, operand: Address, variables: Mapping[str, str]) -> str:
    """Offset, from the tile's first element, of the one at the given indices within the tile.

    Only for tiles whose other dims have one index.
    """
    still = {name: Extent(0, extent.size) for name, extent in instance.dims.items()}
    unpadded = replace(
        operand,
        window=tuple(replace(axis, offset=0) for axis in operand.window),
    )
    return unpadded.offset(still, variables)


def write_scalar_chain(
    writer: Writer, instance: Instance, value: str, variables: Mapping[str, str]
) -> str:
    """Write the steps after the anchor for one element; returns the last value's name."""

    def load(operand: Address) -> str:
        return f"{operand.pointer}[{element_offset(instance, operand, variables)}]"

    return write_maps(writer, instance, [value], load, value, form=SCALARS)


def scalar(instance: Instance, step: Step, arguments: Sequence[str]) -> str:
    """C expression of one map step on elements, numbers converted where it does so."""
    fractions = list(step.fractions) or [0] * (len(arguments) + 1)
    if step.operation == "quantise":
        return f"quantise_s({arguments[0]}, {literal(2.0 ** fractions[-1])})"
    if step.operation == "dequantise":
        return f"(float){arguments[0]} * {literal(2.0 ** -fractions[0])}"
    elements, result = instance.elements(step), step.result.element
    return element_expression(step.operation, arguments, step.attributes, elements, result)


SCALARS = C_TYPES.__getitem__, scalar
"""The form in which chains write single elements: C types, and scalar functions."""


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write loops over the tile's elements, in place of a function."""
    del code
    names = {
        dim: f"{dim}_" if str(instance.dims[dim].start) == dim else dim
        for dim in instance.dims
        if instance.size(dim) > 1
    }
    parallel = [dim for dim in instance.dims if dim not in instance.reduction and dim in names]
    reduced = [dim for dim in instance.reduction if dim in names]
    if instance.split:
        raise instance.cannot("the reduction must be whole")
    if instance.anchor.operation == "softmax":
        raise instance.cannot("softmax has a primitive of its own")
    counts = [(names[dim], instance.size(dim)) for dim in parallel]
    with loops(writer, counts), writer.block():
        _element(writer, instance, {dim: names[dim] for dim in parallel}, reduced, names)


def _element(
    writer: Writer,
    instance: Instance,
    variables: Mapping[str, str],
    reduced: list[str],
    names: Mapping[str, str],
) -> None:
    anchor, operation = instance.anchor, instance.anchor.operation
    inside = {**variables, **{dim: names[dim] for dim in reduced}}
    if operation in indexing.EMITTERS:
        indexing.EMITTERS[operation](writer, instance, variables)
    elif instance.reduction:
        kind = _accumulator(anchor.result.element)
        writer.line(f"{kind} t = {_start(operation, kind)};")
        mean = operation == "average_pool"
        if mean:
            writer.line("long taps = 0;")
        # Padding leaves the innermost loop, so there has to be one.
        once = nullcontext() if reduced else writer.block("for (int once = 0; once < 1; once++)")
        # A dim that ends earlier in a run is summed up to there.
        counts = [(names[dim], instance.ends.get(dim, instance.size(dim))) for dim in reduced]
        with loops(writer, counts), once:
            operands = anchor.inputs[:2]
            loads = [_widened(o, _load(writer, instance, o, inside, mean)) for o in operands]
            _accumulate(writer, operation, loads, kind)
        _complete(writer, instance, variables)
    else:
        arguments = [_load(writer, instance, o, variables, False) for o in anchor.inputs]
        writer.line(f"const {anchor.result.c_type} t = {scalar(instance, anchor, arguments)};")
    value = _chain(writer, instance, "t", variables)
    writer.line(f"{indexing.element(instance, instance.output, variables)} = {value};")


_LIMITS = {
    "float": ("-INFINITY", "INFINITY"),
    "double": ("-INFINITY", "INFINITY"),
    "int64_t": ("INT64_MIN", "INT64_MAX"),
    "uint64_t": ("0", "UINT64_MAX"),
}
"""Least and greatest value of an element, by the accumulator's type."""

_SUFFIX = {"float": "s", "double": "d", "int64_t": "i", "uint64_t": "u"}


def _accumulator(element: str) -> str:
    """C type in which a reduction adds up; floats of 16 bits widen."""
    return "float" if element in SHORT_FLOATS else accumulator(element)


def _widened(operand: Address | int, place: str) -> str:
    """An element of a reduction's operand as C computes on it."""
    if isinstance(operand, Address) and operand.element in SHORT_FLOATS:
        return f"float_of_{SHORT_FLOATS[operand.element]}({place})"
    return place


def _start(operation: str, kind: str) -> str:
    if operation in ("max_pool", "reduce_max"):
        return _LIMITS[kind][0]
    if operation == "reduce_min":
        return _LIMITS[kind][1]
    number = 1 if operation == "reduce_product" else 0
    return f"{number}.0f" if kind == "float" else str(number)


def _accumulate(writer: Writer, operation: str, loads: list[str], kind: str) -> None:
    match operation:
        case "conv" | "depthwise_conv" | "matmul":
            writer.line(f"t += ({kind}){loads[0]} * {loads[1]};")
        case "max_pool":
            writer.line(f"t = {loads[0]} > t ? {loads[0]} : t;")
        case "reduce_max" | "reduce_min":
            name = operation.removeprefix("reduce_")
            writer.line(f"t = {name}_{_SUFFIX[kind]}({loads[0]}, t);")
        case "reduce_product":
            writer.line(f"t *= {loads[0]};")
        case "lrn":
            writer.line(f"t += {loads[0]} * {loads[0]};")
        case _:
            writer.line(f"t += {loads[0]};")


def _load(
    writer: Writer,
    instance: Instance,
    operand: Address | int,
    variables: Mapping[str, str],
    counting: bool,
) -> str:
    """An operand's element; write the conditions under which it lies in the tensor."""
    if isinstance(operand, int):
        raise instance.cannot("the anchor's operands must be tensors")
    checks: list[str] = []
    counted: list[str] = []
    pads = list(instance.anchor.attributes.get("counted", (0, 0, 0, 0)))
    for axis, (begins, ends) in enumerate(instance.inside(operand)):
        index = operand.index(axis, instance.dims, variables)
        before, after = (pads[axis - 2], pads[axis]) if counting and axis in (2, 3) else (0, 0)
        if not begins:
            checks.append(f"{index} >= 0")
        if not ends:
            checks.append(f"{index} < {operand.shape[axis]}")
        if counting and not begins:
            counted.append(f"{index} >= {-before}")
        if counting and not ends:
            counted.append(f"{index} < {operand.shape[axis] + after}")
    place = indexing.element(instance, operand, variables)
    if counting:
        writer.line(f"taps += {' && '.join(counted)};" if counted else "taps++;")
    if not checks:
        return place
    condition = " && ".join(checks)
    if instance.anchor.operation == "pad":
        return f"{condition} ? {place} : {_around(instance, variables)}"
    writer.line(f"if (!({condition}))")
    writer.line("    continue;")
    return place


def _around(instance: Instance, variables: Mapping[str, str]) -> str:
    """Return the C expression of the value that pads a tensor."""
    computed = instance.anchor.inputs[1:]
    if computed and isinstance(computed[0], Address):
        return indexing.element(instance, computed[0], variables)
    return literal(float(instance.anchor.attributes.get("value", 0.0)))


def _complete(writer: Writer, instance: Instance, variables: Mapping[str, str]) -> None:
    """From the reduction's value to the anchor's result."""
    anchor, attributes = instance.anchor, instance.anchor.attributes
    operation = anchor.operation
    if has(operation, "product") and len(anchor.inputs) > 2:
        bias = anchor.inputs[2]
        if isinstance(bias, Address):
            place = indexing.element(instance, bias, variables)
            writer.line(f"t += {_widened(bias, place)};")
    elif operation == "average_pool":
        writer.line(f"t /= ({_accumulator(anchor.result.element)})taps;")
    elif operation == "reduce_mean":
        fixed = [dim for dim in instance.reduction if dim not in instance.ends]
        count = literal(float(prod(instance.extents[dim] for dim in fixed)))
        ends = [instance.ends[dim] for dim in instance.reduction if dim in instance.ends]
        writer.line(f"t /= {' * '.join([count, *ends])};")
    elif operation == "lrn":
        x = instance.tensor(0)
        operand = replace(x, window=instance.anchor.result.window)
        scale = literal(float(attributes["alpha"]) / int(attributes["size"]))
        bias, beta = (literal(float(attributes[name])) for name in ("bias", "beta"))
        place = _widened(x, indexing.element(instance, operand, variables))
        suffix = _SUFFIX[_accumulator(anchor.result.element)]
        writer.line(f"t = {place} / pow_{suffix}(t * {scale} + {bias}, {beta});")


def finish(writer: Writer, instance: Instance) -> None:
    """Write the steps after the anchor for the one element ``t``, and store it.

    Pointers are at the tile's first element.
    """
    value = write_scalar_chain(writer, instance, "t", {})
    writer.line(f"{instance.output.pointer}[0] = {value};")


def _chain(writer: Writer, instance: Instance, value: str, variables: Mapping[str, str]) -> str:
    result = instance.anchor.result
    first = f"({result.c_type}){value}"
    text = instance.anchor.operation in indexing.EMITTERS  # Which is copied as it is.
    if instance.reduction and result.element in SHORT_FLOATS and not text:
        first = f"{SHORT_FLOATS[result.element]}_of_float({value})"

    def load(operand: Address) -> str:
        return indexing.element(instance, operand, variables)

    return write_maps(writer, instance, [first], load, value, form=SCALARS)
