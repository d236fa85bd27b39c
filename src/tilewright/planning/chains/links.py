"""Links: how the dims of a kernel's producer follow from the kernel's own.

A kernel reads a producer's result through an access map, such as ``[n, ci, oh + kh - 1, ow + kw -
1]``; the producer writes it by dims of its own, ``[n, co, oh, ow]``. Where both are one lone dim of
the same extent, the two dims are one: here ``n``, and the producer's ``co`` with the kernel's
``ci``. Other dims of the producer get names of their own, and are bound to the expression with
which the kernel reads: ``oh_1 = oh + kh - 1``. So a tile of the kernel says which part of the
producer's domain it needs, halo included (DNNVM, section 4.3; Halide's bounds inference).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.machine import Machine, Move
from tilewright.planning.domain import Affine, Kernel, Operand, substitute


@dataclass(frozen=True)
class Link:
    """One producer of a kernel."""

    producer: Kernel
    operand: Operand
    """The producer's result, as the kernel reads it."""
    names: Mapping[str, str]
    """The names of the producer's dims in a program of both."""
    bound: Mapping[str, Affine]
    """By these names, the expressions over the kernel's dims to which dims are bound."""
    number: int
    """The producer's number in the program, from 1."""


def links_of(kernel: Kernel, count: int = 0) -> tuple[Link, ...]:
    """A kernel's producers, each with its dims; refuses (``kernel-chain``) what has no such map.

    ``count`` is the number of producers that have names of their own already.
    """
    links: list[Link] = []
    for producer in kernel.producers:
        links.append(_link(kernel, producer, count + 1))
        count += 1 + len(producer.produced)
    return tuple(links)


def _link(kernel: Kernel, producer: Kernel, number: int) -> Link:
    result = producer.output
    reads = [o for stage in kernel.stages for o in stage.inputs if o.name == result.name]
    if len(reads) != 1 or reads[0] not in kernel.anchor.inputs:
        raise refuse(
            "kernel-chain",
            f"{result.name} is computed on the chip, and not read just once, by the first stage",
            kernel.symbol,
        )
    operand = reads[0]
    names: dict[str, str] = {}
    bound: dict[str, Affine] = {}
    for axis, (written, read) in enumerate(zip(result.access, operand.access, strict=True)):
        dim = written.lone
        extent = 1 if dim is None else producer.anchor.extents[dim]
        if dim is None or extent != result.shape[axis] or dim in names:
            raise refuse(
                "kernel-chain",
                f"axis {axis} of {result.name} is written by {written}, not by one dim",
                producer.symbol,
            )
        other = read.lone
        if other is not None and kernel.anchor.extents[other] == extent:
            names[dim] = other
        else:
            names[dim] = f"{dim}_{number}"
            bound[names[dim]] = read
    for dim in producer.anchor.extents:
        names.setdefault(dim, f"{dim}_{number}")
    return Link(producer, operand, names, bound, number)


def renamed_axes(axes: tuple[Affine, ...], names: Mapping[str, str]) -> tuple[Affine, ...]:
    """Expressions with their dims renamed."""
    meaning = {old: Affine(((new, 1),)) for old, new in names.items()}
    return tuple(substitute(axis, meaning) for axis in axes)


def waiting_memory(machine: Machine, path: Sequence[Move], memory: str) -> str:
    """The memory on a path between two primitives in which what one has made waits for the other,
    whose operand lies in ``memory``: the one in which the operand arrives from main memory, too,
    where the path passes it, as it holds whole tiles and the memories before it parts of them;
    else the first one on the way."""
    arrival = machine.path(machine.main, memory)[0].target
    passed = [move.target for move in path]
    return arrival if arrival in passed else passed[0]
