"""Give every buffer its size and its address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np

from tilewright.errors import refuse
from tilewright.ir import Operation, integer
from tilewright.ir.types import element_size, layout_of
from tilewright.machine import Machine, Memory, Storage
from tilewright.memory import Buffer, Problem, align_up, place, shared
from tilewright.numerics.element_types import size_of
from tilewright.planning.domain import Affine
from tilewright.planning.layout import Layout
from tilewright.planning.space.levels import on_the_way
from tilewright.tile.circular import circle_of
from tilewright.tile.dependences import visits
from tilewright.tile.dialect import (
    BufferOp,
    ComputeOp,
    LoopOp,
    ProgramOp,
    enclosing_loops,
    enclosing_scopes,
    program_of,
    scopes_of,
)
from tilewright.tile.iteration import nest_rows
from tilewright.tile.passes.base import TilePass
from tilewright.tile.queues import computes_of, users_of


@dataclass(frozen=True)
class Allocate(TilePass):
    """Sets ``shape``, ``bytes`` and ``address`` of each buffer.

    ``shape`` is the largest box that lies inside the tensor, its axes rounded up where an operand
    is padded. ``bytes`` is that of one slot: the box rounded along the dims for which the
    primitive's storage names multiples, in accumulators if the reduction is split, rounded up to
    the memory's granule; the slots follow one another.
    Boxes on their way to a primitive have whole blocks of the tensor's layout, and results on their
    way out are rounded as where the primitive writes them.
    A circular buffer takes one place, of as many rows as its slots' visits need at once.
    An operand that is spread over banks is rounded by its multiples so that the banks fill
    evenly. Buffers lie side by side; only if they do not all fit do buffers that are never alive
    together share an address.

    Before::

        %w_sb = tile.buffer "w" of %w [co, ci, kh, kw] in "sb" slots 2 role "weight"

    After::

        %w_sb = tile.buffer "w" of %w [co, ci, kh, kw] in "sb" slots 2 role "weight"
            shape [16, 64, 3, 3] address 0 bytes 18432

    ``avoid`` tells which bytes the kernel before uses to its end, as ``last_used`` gives them. A
    memory's buffers lie at its end instead of its start if their first slots then meet fewer of
    those bytes, so that the first tiles load while the kernel before still computes.

    Refuses (``tile-capacity``) what does not fit, with every buffer's size and the limit.
    """

    name = "allocate"
    avoid: tuple[str, ...] = ()

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Place one program's buffers."""
        memories: dict[str, list[BufferOp]] = {}
        extents = program.extents
        for op in program.walk():
            if isinstance(op, BufferOp):
                _measure(op, machine, extents)
                if op.stays is None:
                    memories.setdefault(op.memory, []).append(op)
        for name, buffers in memories.items():
            memory = _left(buffers, machine.memory(name), machine)
            memory = _below_residents(memory, program)
            _pack(buffers, memory, program, self.offsets)
            _keep_away(buffers, memory, self.avoid)

    def offsets(self, problem: Problem) -> list[int]:
        """Return offsets side by side, so that no buffer waits for another; used while there is
        room."""
        return _side_by_side(problem)


def _below_residents(memory: Memory, program: ProgramOp) -> Memory:
    """The part of a memory before the tensors that stay there for other kernels."""
    room = program.room_of.get(memory.name)
    if room is None or memory.bytes is None:
        return memory
    return memory.model_copy(update={"bytes": min(memory.bytes, room)})


def largest_box(buffer: BufferOp, extents: Mapping[str, int]) -> tuple[int, ...]:
    """Largest extent, inside the tensor, of the buffer's boxes along each axis; along a circular
    one, the rows that have to stay."""
    if buffer.circular is not None:
        return circle_of(buffer, nest_rows(enclosing_scopes(buffer), extents)).shape
    loops = enclosing_loops(buffer)
    sizes = dict(extents)
    for loop in loops:
        dim = loop.dim.data
        sizes[dim] = min(loop.step_size, min(loop.upper_bound, sizes[dim]) - loop.lower_bound)
    return tuple(
        _largest(axis, extent, buffer, sizes, extents)
        for axis, extent in zip(buffer.window.data, buffer.tensor_shape, strict=True)
    )


def _largest(
    axis: Affine,
    extent: int,
    buffer: BufferOp,
    sizes: Mapping[str, int],
    extents: Mapping[str, int],
) -> int:
    _, size = axis.interval({dim: (0, sizes[dim]) for dim in axis.dims})
    low, span = axis.interval({dim: (0, extents[dim]) for dim in axis.dims})
    relevant = scopes_of(buffer, axis.dims)
    looped = all(isinstance(scope, LoopOp) for scope in relevant)
    if looped and ((low >= 0 and low + span <= extent) or not relevant):
        # Nothing of any box is padding (or there is one box): the largest tile has the largest.
        return size if low >= 0 and low + span <= extent else _inside(low, span, extent)
    start, length = nest_rows(relevant, extents).interval(axis)
    inside = np.minimum(start + length, extent) - np.maximum(start, 0)
    return int(max(inside.max(), 0))


def _inside(start: int, size: int, extent: int) -> int:
    return max(min(start + size, extent) - max(start, 0), 0)


def _beside(buffer: BufferOp) -> list[tuple[ComputeOp, BufferOp]]:
    """The computes that read or write a buffer, or what is of it, and their buffers."""
    beside = [(user, buffer) for user in computes_of(buffer)]
    for use in buffer.result.uses:
        if isinstance(use.operation, BufferOp):
            beside += _beside(use.operation)
    return beside


def _left(buffers: Sequence[BufferOp], memory: Memory, machine: Machine) -> Memory:
    """A memory as the primitives that use the buffers leave it."""
    names = {user.primitive.data for buffer in buffers for user in computes_of(buffer)}
    left = [machine.memory_beside(machine.primitive(name), memory.name) for name in names]
    return max(left, key=lambda user: user.reserved, default=memory)


def _measure(buffer: BufferOp, machine: Machine, extents: Mapping[str, int]) -> None:
    shape = _padded(buffer, largest_box(buffer, extents), machine)
    buffer.set("shape", shape)
    buffer.bytes = integer(slot_bytes(buffer, shape, machine))


def _padded(buffer: BufferOp, shape: tuple[int, ...], machine: Machine) -> tuple[int, ...]:
    """A box whose axes are as long as the granules of primitives whose operands are padded."""
    padded = list(shape)
    for user in computes_of(buffer):
        storage = _storage(buffer, user, machine)
        if storage is not None and storage.padded:
            granules = _multiples(buffer, user, machine)
            padded = [align_up(*axis) for axis in zip(padded, granules, strict=True)]
    return tuple(padded)


def slot_bytes(buffer: BufferOp, shape: Sequence[int], machine: Machine) -> int:
    """Bytes of one slot for a box of ``shape``, rounded as the machine asks."""
    beside = _beside(buffer)
    near = [(user, op) for user, op in beside if op is buffer or user.output is op.result]
    ends = [user for user, _ in beside]
    rounded = (
        [1] * len(shape) if near else list(map(align_up, shape, _blocks(buffer, ends, machine)))
    )
    stated = [(op, user, _storage(op, user, machine)) for user, op in beside]
    # Weights that become diagonals are whole blocks of them on the way, too.
    for user, op in near or [(u, op) for op, u, each in stated if each and each.element_bytes]:
        lengths, granules = _windows(op, shape, user, machine), _multiples(op, user, machine)
        written = [align_up(*axis) for axis in zip(lengths, granules, strict=True)]
        rounded = [max(pair) for pair in zip(rounded, written, strict=True)]
    item = element_size(buffer.result.type.of.element_type)
    item = max((each.element_bytes or item for _, _, each in stated if each), default=item)
    if buffer.accumulates is not None:
        item = max(item, size_of(machine.accumulator))
    return align_up(prod(rounded) * item, machine.memory(buffer.memory).granule)


def _blocks(buffer: BufferOp, ends: Sequence[ComputeOp], machine: Machine) -> list[int]:
    """Per axis, the indices that pass a buffer together on the way to computes."""
    layout = Layout.parse(layout_of(buffer.tensor_op.result), len(buffer.tensor_shape))
    blocks = [1] * len(buffer.tensor_shape)
    for user in ends:
        covered, names = machine.primitive(user.primitive.data).whole, user.primitive_names
        whole = [dim for dim in buffer.window.dims if names.get(dim, dim) in covered]
        natural = on_the_way(layout, buffer.tensor_shape, buffer.window.data, whole)
        blocks = list(map(max, blocks, natural))
    return blocks


def _windows(
    buffer: BufferOp, shape: Sequence[int], user: ComputeOp, machine: Machine
) -> list[int]:
    """A box's lengths as a compute reads or writes it: along an axis whose windows are moved one by
    one, their number."""
    apart = _apart(buffer, user, machine)
    lengths, names = list(shape), user.primitive_names
    for number, axis in enumerate(buffer.window.data):
        if any(names.get(dim, dim) in apart for dim in axis.dims):
            program = program_of(buffer)
            assert program is not None
            rows = nest_rows(enclosing_scopes(buffer), program.extents)
            dims = [dim for dim in axis.dims if names.get(dim, dim) not in apart]
            lengths[number] = prod(int(rows.size(dim).max()) for dim in dims)
    return lengths


def _multiples(buffer: BufferOp, user: ComputeOp, machine: Machine) -> list[int]:
    """Per axis, the granule of a buffer's extent for a compute that reads or writes it."""
    storage, apart = _storage(buffer, user, machine), _apart(buffer, user, machine)
    multiples = {} if storage is None else storage.multiples
    window, names = buffer.window.data, user.primitive_names
    if user.output is buffer.result:
        window = user.stages[-1].windows.data[-1].data
    return [axis.granule(multiples, apart, names) for axis in window]


def _storage(buffer: BufferOp, user: ComputeOp, machine: Machine) -> Storage | None:
    """Return what a primitive says of the operand in a buffer that it reads or writes."""
    role = "output" if user.output is buffer.result else buffer.get("role", "")
    return machine.primitive(user.primitive.data).operands.get(role)


def _apart(buffer: BufferOp, user: ComputeOp, machine: Machine) -> tuple[str, ...]:
    """Return the dims of windows that are moved one by one into a buffer that a compute reads."""
    storage = _storage(buffer, user, machine)
    read = storage is not None and user.output is not buffer.result
    return storage.own.windows_apart() if storage is not None and read else ()


def _size(buffer: BufferOp) -> int:
    return buffer.get("bytes") * buffer.places


def _pack(
    buffers: Sequence[BufferOp],
    memory: Memory,
    program: ProgramOp,
    offsets: Callable[[Problem], list[int]],
) -> None:
    limit = memory.room
    problem = _problem(buffers, program)
    addresses = offsets(problem)
    if limit is not None and problem.peak(addresses) > limit:
        addresses = _overlaid(problem)
        top = problem.peak(addresses)
        if top > limit:
            sizes = ", ".join(
                f"{b.symbol.data} {b.places} x {b.get('bytes')} for {list(b.get('shape'))}"
                for b in buffers
            )
            raise refuse(
                "tile-capacity",
                f"{memory.name} of {program.machine.data} holds {limit} bytes, "
                f"the buffers take {top}: {sizes}",
                program.symbol.data,
                "choose smaller tiles or fewer slots, or set "
                f"memory.{memory.name}.bytes to {top} or more",
            )
    for address, buffer in zip(addresses, buffers, strict=True):
        buffer.address = integer(address)


def last_used(program: ProgramOp) -> dict[str, tuple[str, ...]]:
    """Per memory, the slots in which its buffers' last tiles lie, each as ``memory start end``."""
    names_by_buffer: dict[str, tuple[str, ...]] = {}
    for op in program.walk():
        if isinstance(op, BufferOp) and op.address is not None:
            slot = (visits(op) - 1) % op.places
            start = op.get("address") + slot * op.get("bytes")
            text = f"{op.memory} {start} {start + op.get('bytes')}"
            names_by_buffer[op.memory] = (*names_by_buffer.get(op.memory, ()), text)
    return names_by_buffer


def _keep_away(buffers: Sequence[BufferOp], memory: Memory, avoid: Sequence[str]) -> None:
    """Move the buffers to the end of their memory where that meets fewer bytes to avoid."""
    texts = [text.split() for text in avoid]
    taken = [(int(start), int(end)) for name, start, end in texts if name == memory.name]
    if memory.room is None or not taken:
        return
    top = max(buffer.get("address") + _size(buffer) for buffer in buffers)
    shift = (memory.room - top) // memory.granule * memory.granule

    def met(by: int) -> int:
        slots = [(b.get("address") + by, b.get("address") + by + b.get("bytes")) for b in buffers]
        return sum(shared(*slot, *used) for slot in slots for used in taken)

    if met(shift) < met(0):
        for buffer in buffers:
            buffer.address = integer(buffer.get("address") + shift)


def _side_by_side(problem: Problem) -> list[int]:
    return [0, *accumulate(problem.sizes)][:-1]


def _problem(buffers: Sequence[BufferOp], program: ProgramOp) -> Problem:
    """The buffers of one memory with all their slots; sizes are rounded already."""
    spans = live_spans(buffers, program)
    return Problem(
        tuple(
            Buffer(buffer.symbol.data, _size(buffer), *span)
            for buffer, span in zip(buffers, spans, strict=True)
        ),
        alignment=1,
    )


def _overlaid(problem: Problem) -> list[int]:
    """First fit, largest first; buffers share addresses if they are never alive together."""
    sizes = problem.sizes
    return place(problem, sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)))


def live_spans(buffers: Sequence[BufferOp], program: ProgramOp) -> list[tuple[int, int]]:
    """First and last position in the program's text at which each buffer is alive.

    A buffer is alive from where it stands to the last use in its block; a use inside a loop of
    that block keeps it alive to the loop's end. A circular buffer is alive in all of the innermost
    loop around it.
    """
    position: dict[Operation, int] = {op: i for i, op in enumerate(program.walk())}
    spans: list[tuple[int, int]] = []
    for buffer in buffers:
        if buffer.circular is not None:
            (loop,) = enclosing_loops(buffer)[-1:]
            spans.append((position[loop], max(position[inner] for inner in loop.walk())))
            continue
        last = position[buffer]
        for user in users_of(buffer):
            op: Operation | None = user
            while op is not None and op.parent_block() is not buffer.parent_block():
                op = op.parent_op()
            if op is not None:
                last = max(last, max(position[inner] for inner in op.walk()))
        spans.append((position[buffer], last))
    return spans
