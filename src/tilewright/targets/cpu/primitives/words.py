"""Maps from rows of pixels to words of four channels, a byte each.

Lanes run along a row: each channel of a word is computed for as many pixels as there are lanes, and
the four are put together. So images of floats become the bytes that first convolutions read.
"""

from __future__ import annotations

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.chain import vector_at, write_maps
from tilewright.targets.cpu.primitives.code import loops

WORD = 4


def emit(instance: Instance, writer: Writer) -> bool:
    """Write the loops if the instance is such a map; whether it is."""
    dims = _dims(instance)
    if dims is None:
        return False
    channel, column = dims
    width, lanes, output = instance.size(column), instance.lanes, instance.output
    full, rest = divmod(width, lanes)
    outer = {
        dim: extent.size
        for dim, extent in instance.dims.items()
        if dim not in (channel, column) and extent.size > 1
    }
    variables = {dim: f"{dim}_" for dim in outer}
    with writer.block(), loops(writer, zip(variables.values(), outer.values(), strict=True)):

        def words(at: str, count: int) -> None:
            for first in range(0, instance.size(channel), WORD):
                channels = range(first, min(first + WORD, instance.size(channel)))
                with writer.block():
                    for number, index in enumerate(channels):
                        inside = {**variables, channel: str(index), column: at}

                        def load(operand: Address, inside: dict[str, str] = inside) -> str:
                            position = operand.offset(instance.dims, inside)
                            return vector_at(instance, operand, column, position, count)

                        name = write_maps(writer, instance, [], load, f"c{number}_")
                        part = f"({name} & 255)"
                        part = f"{part} << {8 * number}" if number else part
                        writer.line(f"{'word |=' if number else 'ivec word ='} {part};")
                    inside = {**variables, channel: str(first), column: at}
                    place = output.first(instance.dims, inside)
                    if count == lanes:
                        writer.line(f"store_int32((int32_t *)({place}), word);")
                    else:
                        writer.line(f"store_part_int32((int32_t *)({place}), word, {count});")

        if full:
            with writer.block(f"for (long i = 0; i < {full * lanes}; i += {lanes})"):
                words("i", lanes)
        if rest:
            words(str(full * lanes), rest)
    return True


def _dims(instance: Instance) -> tuple[str, str] | None:
    """The dims of the channels, all of which the tile has, and of the pixels of a row."""
    output = instance.output
    if output.element not in ("uint8", "int8") or instance.reduction:
        return None
    channel = column = ""
    for window, factors in zip(output.window, output.axes, strict=True):
        if len(window.terms) != 1 or window.terms[0][1] != 1 or window.offset:
            return None
        dim = window.terms[0][0]
        if factors[0][1] == 1 and (factors[0][0].modulus in (0, WORD)):
            channel = dim
        elif factors[0][1] == WORD and len(factors) == 1:
            column = dim
    block = any(factor.modulus == WORD for factor in output.layout.factors)
    if not block or not channel or not column or channel == column:
        return None
    if instance.size(channel) != instance.extents[channel] or instance.size(column) < 2:
        return None
    for step in instance.steps:
        for operand in step.inputs:
            if not isinstance(operand, Address) or column not in operand.dims():
                continue
            if operand.stride(column, instance.size(column), instance.dims) != 1:
                return None
            if any(window.offset for window in operand.window):
                return None
    return channel, column
