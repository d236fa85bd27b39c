"""Facts of the final graph about a network's kernels: edges between them, and main memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.codegen.program.buffers import KernelBuffer, Occupant
from tilewright.graph.dialect import KernelOp, NetworkOp, OutputOp
from tilewright.graph.operation import Operation
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS, arenas_of, placement_of
from tilewright.graph.values import name_values
from tilewright.ir import SSAValue, VerifyException
from tilewright.ir.types import element_size, layout_of, shape_of, tensor_type
from tilewright.planning.layout import Layout

Window = tuple[str, float, float]
"""A kernel, and when it starts and ends."""


@dataclass(frozen=True)
class Edge:
    """A tensor that goes from one kernel to another."""

    source: str
    """The kernel that computes it; "" for an input of the network."""
    target: str
    """The kernel that reads it; "" for an output of the network."""
    tensor: str
    """The model's name for it."""
    bytes: int
    memory: str
    """The memory that holds it between the two."""


@dataclass(frozen=True)
class NetworkFigures:
    """The edges of a network, what lies in main memory when, and the model's names of tensors."""

    edges: tuple[Edge, ...]
    occupants: tuple[Occupant, ...]
    names: Mapping[str, str]
    """Name of a value in the final graph -> the model's name: its node, or the input."""


def network_figures(
    network: NetworkOp,
    windows: Sequence[Window],
    buffers: Mapping[str, Sequence[KernelBuffer]],
    main: str,
) -> NetworkFigures:
    """Figures of a network; ``windows`` has every kernel, ``main`` is main memory's name."""
    naming = name_values(network)
    names = _model_names(network, naming.names)
    return NetworkFigures(
        tuple(_edges(network, naming.names, names, buffers, main)),
        tuple(_occupants(network, naming.names, names, windows, main)),
        names,
    )


def _model_names(network: NetworkOp, identifiers: Mapping[SSAValue, str]) -> dict[str, str]:
    names = {identifiers[value]: name for name, value in network.inputs}
    for op in network.block.ops:
        inner = op.computed.owner if isinstance(op, KernelOp) else op
        if isinstance(inner, Operation) and inner.result_node:
            names[identifiers[op.results[0]]] = inner.result_node
    return names


def _edges(
    network: NetworkOp,
    identifiers: Mapping[SSAValue, str],
    names: Mapping[str, str],
    buffers: Mapping[str, Sequence[KernelBuffer]],
    main: str,
) -> Iterable[Edge]:
    """Edges in the order of the readers; a view leads to the kernels that computed its parts."""
    sources: dict[SSAValue, dict[tuple[str, SSAValue], None]] = {}
    for _, value in network.inputs:
        sources[value] = {("", value): None}
    for op in network.block.ops:
        target = op.symbol.data if isinstance(op, KernelOp) else ""
        found: dict[tuple[str, SSAValue], None] = {}
        for operand in op.operands:
            found |= sources.get(operand, {})
        if isinstance(op, KernelOp | OutputOp):
            for source, value in found:
                name = identifiers[value]
                memory = _stays(name, buffers.get(source, ()), buffers.get(target, ())) or main
                yield Edge(source, target, names.get(name, name), _bytes(value), memory)
        for result in op.results:
            sources[result] = {(target, result): None} if isinstance(op, KernelOp) else found


def _stays(name: str, written: Sequence[KernelBuffer], read: Sequence[KernelBuffer]) -> str:
    """The memory in which one kernel leaves a tensor and another finds it; "" for none."""
    places = {(b.memory, b.address) for b in written if b.stays and b.tensor == name}
    return next(
        (
            b.memory
            for b in read
            if b.stays and (b.memory, b.address) in places and b.tensor == name
        ),
        "",
    )


def _occupants(
    network: NetworkOp,
    identifiers: Mapping[SSAValue, str],
    names: Mapping[str, str],
    windows: Sequence[Window],
    main: str,
) -> Iterable[Occupant]:
    """The values of main memory, from the kernel that writes them to the last that reads them.

    Weights come after the activations, as one.
    """
    arenas = arenas_of(network)
    places = {symbol: number for number, (symbol, _, _) in enumerate(windows)}
    reached, uses, born = 0, dict[SSAValue, list[int]](), dict[SSAValue, int]()
    for _, value in network.inputs:
        born[value] = 0
    for op in network.block.ops:
        if isinstance(op, KernelOp):
            reached = places.get(op.symbol.data, reached)
        for operand in op.operands:
            uses.setdefault(operand, []).append(reached)
        for result in op.results:
            born[result] = reached
    last = len(windows) - 1
    for value, first in born.items() if windows else ():
        try:
            place = placement_of(value)
        except VerifyException:
            continue
        if place.arena != ACTIVATIONS:
            continue
        readers = uses.get(value, [])
        until = last if not readers else max(readers)
        yield Occupant(
            memory=main,
            tensor=names.get(identifiers[value], identifiers[value]),
            role="activation",
            address=place.offset,
            bytes=_bytes(value, place.strides),
            start=windows[first][1],
            end=max(windows[until][2], windows[first][1]),
            kernels=tuple(dict.fromkeys(windows[n][0] for n in (first, *readers))),
        )
    if windows and arenas.get(WEIGHTS):
        yield Occupant(
            memory=main,
            tensor="weights",
            role="weight",
            address=arenas.get(ACTIVATIONS, 0),
            bytes=arenas[WEIGHTS],
            start=0.0,
            end=max(end for _, _, end in windows),
            kernels=(),
            stays=True,
        )


def _bytes(value: SSAValue, strides: Sequence[int] | None = None) -> int:
    """Bytes of a value, or from its first to its last where it lies by strides."""
    shape = shape_of(value)
    physical = Layout.parse(layout_of(value), len(shape)).physical_shape(shape)
    size = element_size(tensor_type(value).element_type)
    if strides is None or not prod(physical):
        return prod(physical) * size
    reach = sum((extent - 1) * step for extent, step in zip(physical, strides, strict=True))
    return (reach + 1) * size
