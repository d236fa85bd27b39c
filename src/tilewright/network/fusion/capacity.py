"""The check that a group's tensors fit on chip together: DNNVM's conditions (section 4.3).

Of residency ``tile``: there is a tile of the last results for which, derived backwards through the
access maps (halos included), a tile of every tensor and of every kernel's parameters lie in their
memories at once. The smallest tile decides that. Of residency ``whole``: all of them do untiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.errors import Problem
from tilewright.graph.dialect import KernelOp
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.ir import SSAValue
from tilewright.machine import Fusion, Machine, Primitive
from tilewright.network.fusion.forms import described
from tilewright.planning.domain import Interval, Kernel, Operand

Box = tuple[Interval, ...]
"""Start and size along each axis of a tensor."""


def shortage(kernels: Sequence[KernelOp], fusion: Fusion, machine: Machine) -> Problem | None:
    """The memory that is too small for a group in the network's order, and by how much.

    None where all fits, and where the fusion names no memory between the kernels.
    """
    if not fusion.between:
        return None
    needed: dict[tuple[str, ...], int] = {}
    for names, size in _bytes(kernels, fusion, machine).values():
        needed[names] = needed.get(names, 0) + size
    what = "all tensors" if fusion.residency == "whole" else "the smallest tile of each tensor"
    for names, size in needed.items():
        memories = [machine.memory(name) for name in names]
        rooms = [memory.room for memory in memories if memory not in machine.caches]
        room = sum(part or 0 for part in rooms)
        if len(rooms) == len(names) and None not in rooms and size > room:
            first = memories[0]
            return Problem(
                "fusion-capacity",
                f"{what} of the group: {size:,} bytes of {' and '.join(names)}, {size - room:,} "
                "more than there are",
                kernels[-1].symbol.data,
                f"--set memory.{first.name}.bytes={(first.bytes or 0) + size - room}",
            )
    return None


def _bytes(
    kernels: Sequence[KernelOp], fusion: Fusion, machine: Machine
) -> dict[SSAValue, tuple[tuple[str, ...], int]]:
    """Return the memories in which each value that the group touches may lie, and its bytes."""
    inner = {kernel.result for kernel in kernels[:-1]}
    boxes: dict[SSAValue, Box] = {}
    sizes_of: dict[SSAValue, tuple[tuple[str, ...], int]] = {}

    def note(value: SSAValue, operand: Operand, box: Box, primitive: Primitive) -> None:
        boxes[value] = box = _hull(box, boxes.get(value, box))
        storage = primitive.operands.get(operand.role) or primitive.operands["output"]
        between = value in inner
        granules = [
            max((storage.multiples.get(dim, 1) for dim in axis.dims), default=1)
            for axis in operand.access
        ]
        sizes = [
            -(-size // granule) * granule for (_, size), granule in zip(box, granules, strict=True)
        ]
        places = storage.places
        if between and fusion.between not in places:
            places = (fusion.between,)
        elif operand.role != "output" and machine.main not in places:
            # Next to the primitive there are parts of what passes a memory on its way.
            path = machine.path(machine.home(constant=operand.is_constant), places[0])
            places = (path[0].target,) if len(path) > 1 else places
        sizes_of[value] = tuple(sorted(places)), prod(sizes) * operand.element_bytes

    for kernel in reversed(kernels):
        primitive = serving(candidate(kernel.anchor), machine)[0]
        plain = described(kernel, machine, primitive)
        whole = fusion.residency == "whole"
        box = boxes.get(kernel.result) or _last(plain, primitive, whole)
        note(kernel.result, plain.output, box, primitive)
        dims = _dims(plain, box, primitive)
        for operand in plain.inputs:
            number = int(operand.name.split("_")[0].removeprefix("v"))
            note(kernel.inputs[number], operand, _read(operand, dims), primitive)
    return sizes_of


def _last(kernel: Kernel, primitive: Primitive, whole: bool) -> Box:
    """The smallest tile of a kernel's result, or all of it."""
    extents = kernel.anchor.extents
    dims = {
        dim: (0, extent if whole or dim in primitive.whole else 1)
        for dim, extent in extents.items()
    }
    return _read(kernel.output, dims)


def _dims(kernel: Kernel, box: Box, primitive: Primitive) -> dict[str, Interval]:
    """The iterations that a tile of a result takes: all that the box does not cut."""
    dims = {dim: (0, extent) for dim, extent in kernel.anchor.extents.items()}
    for axis, interval in zip(kernel.output.access, box, strict=True):
        if len(axis.terms) == 1 and axis.terms[0][1] == 1 and not axis.offset:
            (name, _), *_ = axis.terms
            if name not in primitive.whole:
                dims[name] = interval
    return dims


def _read(operand: Operand, dims: dict[str, Interval]) -> Box:
    """Return the box of an operand that iterations touch, clamped to the tensor."""
    box: list[Interval] = []
    for axis, extent in zip(operand.access, operand.shape, strict=True):
        start, size = axis.interval(dims)
        first, last = max(start, 0), min(start + size, extent)
        box.append((first, max(last - first, 0)))
    return tuple(box)


def _hull(first: Box, second: Box) -> Box:
    """The smallest box around two."""
    box: list[Interval] = []
    for (a, m), (b, n) in zip(first, second, strict=True):
        start = min(a, b)
        box.append((start, max(a + m, b + n) - start))
    return tuple(box)
