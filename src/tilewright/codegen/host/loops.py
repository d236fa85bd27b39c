"""Loops in packages of C that run on their own: their calls, and what each round copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from msgspec.structs import replace

from tilewright.codegen.c.parameters import Place
from tilewright.codegen.c.source import Writer
from tilewright.codegen.host.calls import KernelCall
from tilewright.codegen.host.copies import ArrayInC, write_copy
from tilewright.codegen.host.ports import Port
from tilewright.codegen.program.bodies import Bases
from tilewright.codegen.program.interface import Compilation, CompiledKernel, LoopBody
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.operations.loops import LoopOp, loop_in, loop_operands
from tilewright.ir import SSAValue

Pointer = Callable[[Place], str]
"""C of the pointer to the bytes at a place."""


@dataclass(frozen=True)
class LoopCall:
    """A loop of the network, with the calls of its body's kernels."""

    kernel: CompiledKernel
    loop: LoopBody
    calls: tuple[KernelCall | LoopCall, ...]


def port_at(bases: Bases, name: str, value: SSAValue) -> Port:
    """The port of a value, in its package's arenas, of a network that has its own at ``bases``."""
    port = Port.of(name, value)
    arena, offset = bases.place((port.arena, port.offset))
    return replace(port, arena=arena, offset=offset)


@dataclass(frozen=True)
class LoopCopies:
    """C statements of a loop around the steps of its body; ``round`` is the number of the round."""

    begin: Writer
    """C that copies, before the first round, the first values of what is carried."""
    enter: Writer
    """C that copies, before each round, the body's inputs."""
    leave: Writer
    """C that copies, after each round, the body's results."""


def copies_of(
    op: KernelOp, body: Compilation, outer: Bases, inner: Bases, pointer: Pointer
) -> LoopCopies:
    """The copies of a kernel that is a loop. Values that are carried from round to round lie in the
    loop's result, where they stay after the last one."""
    loop = loop_in(op)
    assert loop is not None
    network = network_of(body.network)
    begin, enter, leave = Writer(), Writer(), Writer()
    result = port_at(outer, "result", op.result)
    inputs = [port_at(inner, name, value) for name, value in network.inputs]
    outputs = [port_at(inner, name, value) for name, value in network.outputs]
    operands = [
        port_at(outer, f"operand {number}", value)
        for number, value in enumerate(loop_operands(op, loop))
    ]
    indices = _indices(loop)
    for number, (port, operand) in enumerate(zip(inputs, operands, strict=True)):
        source = _array(operand, pointer, constant=True)
        if number < loop.states:
            carried = _part(result, loop.parts[number], pointer)
            write_copy(begin, port.c_type, carried, source)
            source = carried
        elif number in indices:
            source = source.part(*indices[number])
        write_copy(enter, port.c_type, _array(port, pointer), source)
    stacks = [f"{loop.count - 1} - round" if back else "round" for back in loop.stacks]
    for number, port in enumerate(outputs):
        to = _part(result, loop.parts[number], pointer)
        if number >= loop.states:
            to = to.part(0, f"({stacks[number - loop.states]})")
        write_copy(leave, port.c_type, to, _array(port, pointer, constant=True))
    return LoopCopies(begin, enter, leave)


def _indices(loop: LoopOp) -> Mapping[int, tuple[int, str]]:
    """The axis and C of the index that a round reads of each sequence, by the operand's number."""
    return {
        loop.states + number: (axis, f"({loop.count - 1} - round)" if back else "round")
        for number, (axis, back) in enumerate(loop.sequences)
    }


def _array(port: Port, pointer: Pointer, *, constant: bool = False) -> ArrayInC:
    """The array of a port."""
    qualified = "const " if constant else ""
    place = pointer((port.arena, port.offset))
    return ArrayInC.of(port, f"({qualified}{port.c_type} *)({place})")


def _part(result: Port, part: tuple[int, tuple[int, ...]], pointer: Pointer) -> ArrayInC:
    """The array of a part of a loop's flat result, from an element on."""
    start, shape = part
    place = result.arena, result.offset + start * result.bytes // max(prod(result.shape), 1)
    return ArrayInC.dense(f"({result.c_type} *)({pointer(place)})", shape)
