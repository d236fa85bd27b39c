"""The chain after a primitive's anchor, on vectors: activation, residual, any other map."""

from __future__ import annotations

from tilewright.targets.cpu.address import Address
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.meaning import expression
from tilewright.targets.cpu.source import Writer, plus, total


def vector_at(
    instance: Instance, operand: Address, lane: str, position: str, count: int, pointer: str = ""
) -> str:
    """C expression that loads ``count`` lanes of an operand at ``position`` elements in.

    Lanes run along dim ``lane``; an operand that does not depend on it is repeated.
    """
    name = plus(pointer or operand.pointer, position)
    if lane not in operand.dims():
        return f"splat(*({name}))" if " " in name else f"splat(*{name})"
    stride = operand.stride(lane, min(instance.size(lane), instance.lanes), instance.dims)
    if stride is None:
        raise instance.cannot(f"operand {operand.pointer} has no fixed stride along {lane}")
    if stride != 1 and count > 1:
        return f"gather({name}, {stride}, {count})"
    whole = count == instance.lanes or operand.padded(lane, instance.lanes)
    return f"load({name})" if whole else f"load_part({name}, {count})"


def store_at(instance: Instance, value: str, lane: str, position: str, count: int) -> str:
    """C statement that writes ``count`` lanes of the output at ``position`` elements in."""
    operand = instance.output
    name = plus(operand.pointer, position)
    stride = operand.stride(lane, min(instance.size(lane), instance.lanes), instance.dims)
    if stride is None:
        raise instance.cannot(f"the output has no fixed stride along {lane}")
    if stride != 1 and count > 1:
        return f"scatter({name}, {stride}, {value}, {count});"
    if count == instance.lanes or operand.padded(lane, instance.lanes):
        return f"store({name}, {value});"
    return f"store_part({name}, {value}, {count});"


def write_chain(
    writer: Writer,
    instance: Instance,
    value: str,
    lane: str,
    position_of: PositionOf,
    count: int,
) -> str:
    """Write the steps after the anchor for one vector; returns the name of the last value.

    ``value`` is the C variable of the anchor's result; it is overwritten where it is not needed
    again.
    """
    names = [value]
    for number, step in enumerate(instance.steps[1:], 1):
        arguments = [
            names[operand]
            if isinstance(operand, int)
            else vector_at(instance, operand, lane, position_of(operand), count)
            for operand in step.inputs
        ]
        text = expression(step.operation, arguments, step.attributes, "v")
        later = {
            operand
            for following in instance.steps[number + 1 :]
            for operand in following.inputs
            if isinstance(operand, int)
        }
        if later <= {number} and number < len(instance.steps):
            writer.line(f"{names[number - 1]} = {text};")
            names.append(names[number - 1])
        else:
            writer.line(f"vec {value}{number} = {text};")
            names.append(f"{value}{number}")
    return names[-1]


class PositionOf:
    """Gives an operand's offset within the tile, for C variables that run over parts of dims.

    ``moves`` are (dim, count, C variable): the variable counts indices of the dim from the tile's
    start. ``lane_block`` is the variable that counts blocks of lanes along the lane dim.
    """

    def __init__(
        self, instance: Instance, lane: str, block: str, moves: list[tuple[str, int, str]]
    ) -> None:
        self.instance = instance
        self.lane = lane
        self.block = block
        self.moves = moves

    def __call__(self, operand: Address) -> str:
        """The offset's C expression; refuses an operand without fixed strides."""
        instance = self.instance
        terms: list[tuple[int, str]] = []
        size = instance.size(self.lane)
        step = operand.block_stride(self.lane, instance.lanes, size, instance.dims)
        if step is None:
            raise instance.cannot(f"operand {operand.pointer} has no stride between blocks")
        if self.block != "0":
            terms.append((step, self.block))
        for dim, count, variable in self.moves:
            stride = operand.stride(dim, count, instance.dims)
            if stride is None:
                raise instance.cannot(f"operand {operand.pointer} has no stride along {dim}")
            if variable != "0":
                terms.append((stride, variable))
        return total(terms)
