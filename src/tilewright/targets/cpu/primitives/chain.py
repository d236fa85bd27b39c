"""The chain after a primitive's anchor, on vectors: activation, residual, any other map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.meaning import AFFINE, affine_expression, expression
from tilewright.codegen.c.source import Writer, plus, total
from tilewright.targets.cpu.instance import Instance, Step


def vector_at(
    instance: Instance, operand: Address, lane: str, position: str, count: int, pointer: str = ""
) -> str:
    """C expression that loads ``count`` lanes of an operand at ``position`` elements in.

    Lanes run along dim ``lane``; an operand that does not depend on it is repeated. Integers
    become lanes of 32 bits.
    """
    name = plus(pointer or operand.pointer, position)
    suffix = lane_suffix(instance, operand)
    if lane not in operand.dims():
        repeat = splat_name(operand.element)
        return f"{repeat}(*({name}))" if " " in name else f"{repeat}(*{name})"
    stride = operand.stride(lane, min(instance.size(lane), instance.lanes), instance.dims)
    if stride is None:
        raise instance.cannot(f"operand {operand.pointer} has no fixed stride along {lane}")
    if stride != 1 and count > 1:
        return loaded(instance, suffix, name, count, stride)
    whole = operand.padded(lane, instance.lanes)
    return loaded(instance, suffix, name, instance.lanes if whole else count)


def loaded(instance: Instance, suffix: str, place: str, count: int, stride: int | None = 1) -> str:
    """C expression that loads ``count`` lanes which lie ``stride`` apart."""
    if stride != 1 and count > 1:
        return f"gather{suffix}({place}, {stride}, {count})"
    if count == instance.lanes:
        return f"load{suffix}({place})"
    return f"load_part{suffix}({place}, {count})"


def stored(instance: Instance, suffix: str, place: str, value: str, count: int) -> str:
    """C statement that writes ``count`` lanes side by side."""
    if count == instance.lanes:
        return f"store{suffix}({place}, {value});"
    return f"store_part{suffix}({place}, {value}, {count});"


def lane_suffix(instance: Instance, operand: Address) -> str:
    """Return the suffix of loads' and stores' names for an element type: "" for float32."""
    if operand.element == "float32":
        return ""
    if operand.element not in LANE_ELEMENTS:
        raise instance.cannot(f"vectors of {operand.element} are not computed")
    return f"_{operand.element}"


FLOAT_LANES = ("float32", "float16", "bfloat16")
"""Element types whose lanes are floats: those of 16 bits widen as they are loaded."""

LANE_ELEMENTS = (*FLOAT_LANES, "int32", "int16", "uint8", "int8")
"""Element types of which there are vectors; integers have lanes of 32 bits."""


def lane_type(element: str) -> str:
    """C's type of a vector of lanes."""
    return "vec" if element in FLOAT_LANES else "ivec"


def splat_name(element: str) -> str:
    """C's function that repeats one element in every lane."""
    if element == "float32":
        return "splat"
    return f"splat_{element}" if element in FLOAT_LANES else "splat_int"


def weights_at(instance: Instance, w: Address, position: str, count: int, pointer: str) -> str:
    """C expression of a vector of weights along ``co`` or ``c``; integers of 16 bits as floats."""
    lane = "co" if "co" in instance.dims else "c"
    value = vector_at(instance, w, lane, position, count, pointer)
    return f"__builtin_convertvector({value}, vec)" if w.element == "int16" else value


def lane_expression(instance: Instance, step: Step, arguments: Sequence[str]) -> str:
    """The C expression of a map step on vectors."""
    if step.operation == "cast":
        element = step.result.element
        return arguments[0] if element == "float32" else f"round_{element}_v({arguments[0]})"
    if step.operation not in AFFINE:
        return expression(step.operation, arguments, step.attributes, "v")
    elements, result = instance.elements(step), step.result.element
    return affine_expression(step.operation, arguments, step.attributes, elements, result, "v")


def store_at(instance: Instance, value: str, lane: str, position: str, count: int) -> str:
    """C statement that writes ``count`` lanes of the output at ``position`` elements in."""
    operand = instance.output
    name, suffix = plus(operand.pointer, position), lane_suffix(instance, operand)
    stride = operand.stride(lane, min(instance.size(lane), instance.lanes), instance.dims)
    if stride is None:
        raise instance.cannot(f"the output has no fixed stride along {lane}")
    if stride != 1 and count > 1:
        return f"scatter{suffix}({name}, {stride}, {value}, {count});"
    whole = operand.padded(lane, instance.lanes)
    return stored(instance, suffix, name, value, instance.lanes if whole else count)


def write_maps(
    writer: Writer,
    instance: Instance,
    names: Sequence[str],
    load: Callable[[Address], str],
    prefix: str,
    end: int | None = None,
    form: tuple[Callable[[str], str], Callable[[Instance, Step, Sequence[str]], str]] = (
        lane_type,
        lane_expression,
    ),
) -> str:
    """Write the steps after those whose results are named, each a variable; the last one's name.

    ``load`` gives an operand's C, ``form`` C's type of an element and the expression of a step.
    """
    known, (type_of, expression_of) = list(names), form
    for number, step in list(enumerate(instance.steps))[len(known) : end]:
        arguments = [
            known[operand] if isinstance(operand, int) else load(operand) for operand in step.inputs
        ]
        text = expression_of(instance, step, arguments)
        known.append(f"{prefix}{number}")
        writer.line(f"const {type_of(step.result.element)} {known[-1]} = {text};")
    return known[-1]


@dataclass(frozen=True)
class Lanes:
    """A vector of ``count`` indices of dim ``lane``, as operands hold it within a tile."""

    instance: Instance
    lane: str
    block: str
    """C of the number of the lane dim's block."""
    count: int
    moves: Sequence[tuple[str, int, str]] = ()
    """(dim, count, C variable): the variable counts indices of the dim from the tile's start."""

    def place(self, operand: Address) -> str:
        """C of an operand's offset; refuses an operand without fixed strides."""
        terms = [(self.instance.block_step(operand, self.lane), self.block)]
        for dim, count, variable in self.moves:
            terms.append((self.instance.step(operand, dim, count), variable))
        return total([term for term in terms if term[1] != "0"])

    def load(self, operand: Address) -> str:
        """C of an operand's vector."""
        return vector_at(self.instance, operand, self.lane, self.place(operand), self.count)

    def store(self, value: str) -> str:
        """The C statement that writes the output's vector."""
        place = self.place(self.instance.output)
        return store_at(self.instance, value, self.lane, place, self.count)

    def chain(self, writer: Writer, value: str, steps: slice | None = None) -> str:
        """Write the steps after the anchor; returns the name of the last value.

        ``value`` is the C variable of the anchor's result, with what is summed first; or of the
        result of the step before those of ``steps``.
        """
        steps = steps or slice(1 + len(self.instance.summed_first), None)
        names = [value] * steps.start
        return write_maps(writer, self.instance, names, self.load, value, steps.stop)

    def finish(self, writer: Writer, value: str, steps: slice | None = None) -> None:
        """Write the same, and the statement that stores the last value."""
        writer.line(self.store(self.chain(writer, value, steps)))
