"""Kernels in a row: those that run one after the other, the host none between them."""

from __future__ import annotations

from collections.abc import Container, Sequence

from tilewright.graph.dialect import KernelOp, NetworkOp
from tilewright.planning.canonical import canonical, renamed
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule


def kernel_rows(network: NetworkOp, accelerated: Container[str]) -> list[list[str]]:
    """The symbols of the kernels that the accelerator runs, by rows."""
    rows: list[list[str]] = [[]]
    for op in network.block.ops:
        if isinstance(op, KernelOp) and op.symbol.data in accelerated:
            rows[-1].append(op.symbol.data)
        elif isinstance(op, KernelOp):
            rows.append([])
    return rows


def alike(kernels: Sequence[tuple[Kernel, Schedule]]) -> object:
    """Kernels in a row without names: what they are, their schedules, what they share."""
    values: dict[str, int] = {}
    described: list[object] = []
    for kernel, schedule in kernels:
        form, names = canonical(kernel)
        shared = tuple(values.setdefault(name, len(values)) for name in names)
        described.append((form, renamed(schedule, names), shared))
    return tuple(described)
