"""A second opinion on schedules: every tile enumerated, every command timed.

Independent of the cost model: loops are run one by one, boxes come from the access maps at the
actual intervals, and the commands go through the event simulation (in-order load, store and
compute engines, queues, slots that are waited for, shared bandwidth, latencies).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from tilewright.machine import Machine, parse_expression
from tilewright.planning.domain import Interval, Kernel, Operand
from tilewright.planning.schedule import Schedule
from tilewright.planning.space.footprint import uses_of
from tilewright.simulate import timed_table
from tilewright.simulate.timing import Timeline, simulate


def _loops(kernel: Kernel, schedule: Schedule) -> list[tuple[str, int, int]]:
    """Level, dim and tile size of every loop, outermost first."""
    size = dict(kernel.anchor.extents)
    loops: list[tuple[str, int, int]] = []
    for number, level in enumerate(schedule.levels):
        for dim in level.order:
            step = level.size(dim, size[dim])
            assert step < size[dim], f"a loop of one trip over {dim}"
            loops.append((number, dim, step))  # type: ignore[arg-type]
        for dim in size:
            size[dim] = level.size(dim, size[dim])
    return loops


def _iterations(
    extents: dict[str, int], loops: list[tuple[str, int, int]]
) -> Iterator[tuple[tuple[int, ...], list[dict[str, Interval]]]]:
    """Loop indices, and the dims' intervals outside all loops and within each, in order."""

    def walk(depth: int, index: tuple[int, ...], scopes: list[dict[str, Interval]]) -> Any:
        if depth == len(loops):
            yield index, scopes
            return
        _, dim, step = loops[depth]
        start, size = scopes[-1][dim]
        for i, at in enumerate(range(start, start + size, step)):
            inner = {**scopes[-1], dim: (at, min(step, start + size - at))}
            yield from walk(depth + 1, (*index, i), [*scopes, inner])

    yield from walk(0, (), [{dim: (0, extent) for dim, extent in extents.items()}])


def box_elements(operand: Operand, dims: dict[str, Interval]) -> int:
    count = 1
    for axis, extent in zip(operand.access, operand.shape, strict=True):
        low, size = axis.interval(dims)
        count *= max(min(low + size, extent) - max(low, 0), 0)
    return count


def commands_of(kernel: Kernel, schedule: Schedule, machine: Machine) -> Any:
    """The TIMED records of a kernel under a schedule."""
    primitive = machine.primitive(schedule.primitive)
    cycles = parse_expression(primitive.cycles)
    uses = uses_of(kernel, machine, primitive)
    loops = _loops(kernel, schedule)
    levels = {level.memory: n for n, level in enumerate(schedule.levels)}
    reduction = set(kernel.anchor.reduction)
    depth: dict[str, int] = {}  # number of loops around the operand's move
    for use in uses:
        level = levels.get(use.memory.name, len(schedule.levels) - 1)
        around = [
            n + 1
            for n, (at, dim, _) in enumerate(loops)
            if int(at) <= level and dim in use.operand.dims
        ]
        depth[use.name] = max(around, default=0)
    output = next(use for use in uses if use.output)
    first = next((n for n, (_, dim, _) in enumerate(loops) if dim in reduction), len(loops))
    assert depth[output.name] <= first, "a reduction loop outside the output's residency"
    for use in uses:
        if use.host:
            depth[use.name] = depth[use.host]
    engines = [engine.name for engine in machine.engines]
    moves = [move.name for move in machine.moves]
    loads = [use for use in uses if not use.output and not use.host]
    loads.sort(key=lambda use: depth[use.name])
    records: list[tuple[int, int, int, int, int, dict[int, int]]] = []
    done = dict.fromkeys(engines, 0)
    last: dict[str, tuple[int, ...]] = {}
    computes: dict[str, list[int]] = {use.name: [] for use in uses}
    ready: dict[str, int] = {}
    stores: list[int] = []  # per residency, the store's number

    def emit(engine: str, move: int, size: int, busy: int, latency: int, waits: dict[int, int]):
        done[engine] += 1
        records.append((engines.index(engine), move, size, busy, latency, waits))
        return done[engine]

    steps = list(_iterations(kernel.anchor.extents, loops))
    compute_engine = engines.index(primitive.engine)
    store_number = 0
    for step, (index, scopes) in enumerate(steps):
        for use in loads:
            key = index[: depth[use.name]]
            if last.get(use.name) == key:
                continue
            last[use.name] = key
            slots = schedule.slots(use.name)
            used = computes[use.name]
            waits = {compute_engine: used[-slots]} if len(used) >= slots else {}
            used.append(0)
            size = sum(
                box_elements(u.operand, scopes[depth[u.name]]) * u.operand.element_bytes
                for u in uses
                if use.name in (u.name, u.host)
            )
            assert use.move is not None
            at = moves.index(use.move.name)
            ready[use.name] = emit(use.move.engine, at, size, 0, use.move.latency, waits)
        waits = {}
        for use in loads:
            assert use.move is not None
            engine = engines.index(use.move.engine)
            waits[engine] = max(waits.get(engine, 0), ready.get(use.name, 0))
        key = index[: depth[output.name]]
        new = last.get(output.name) != key
        assert output.move is not None
        if new:
            last[output.name] = key
            store_number += 1
            slots = schedule.slots(output.name)
            if store_number > slots:
                waits[engines.index(output.move.engine)] = stores[store_number - 1 - slots]
        tile = {dim: size for dim, (_, size) in scopes[-1].items()}
        number = emit(primitive.engine, -1, 0, int(np.ceil(cycles.evaluate(tile))), 0, waits)
        for use in loads:
            if last.get(use.name) == index[: depth[use.name]]:
                computes[use.name][-1] = number
        following = steps[step + 1][0][: depth[output.name]] if step + 1 < len(steps) else None
        if following != key:
            at = moves.index(output.move.name)
            size = box_elements(output.operand, scopes[depth[output.name]])
            size *= output.operand.element_bytes
            wait = {compute_engine: number}
            stores.append(emit(output.move.engine, at, size, 0, output.move.latency, wait))
    table = timed_table(len(records))
    for row, (engine, move, size, busy, latency, waits) in zip(table, records, strict=True):
        row["engine"], row["move"], row["bytes"] = engine, move, size
        row["cycles"], row["latency"] = busy, latency
        for other, count in waits.items():
            row["waits"][other] = count
    return table


def run(kernel: Kernel, schedule: Schedule, machine: Machine) -> Timeline:
    """The timeline of a kernel under a schedule."""
    return simulate(commands_of(kernel, schedule, machine), machine)


def timer(machine: Machine) -> Any:
    """A timer for plan()."""
    return lambda kernel, schedule: float(run(kernel, schedule, machine).cycles)


def buffer_bytes(kernel: Kernel, schedule: Schedule, machine: Machine) -> dict[str, int]:
    """Bytes that a schedule's buffers take in every memory, from all tiles' largest boxes."""
    primitive = machine.primitive(schedule.primitive)
    loops = _loops(kernel, schedule)
    levels = {level.memory: n for n, level in enumerate(schedule.levels)}
    split = any(dim in kernel.anchor.reduction for _, dim, _ in loops)
    total: dict[str, int] = {}
    for use in uses_of(kernel, machine, primitive):
        level = levels.get(use.memory.name, len(schedule.levels) - 1)
        tile = dict(kernel.anchor.extents)
        for n, dim, step in loops:
            if int(n) <= level:
                tile[dim] = step
        lengths = [0] * len(use.operand.shape)
        ranges = [range(0, kernel.anchor.extents[d], tile[d]) for d in tile]
        for starts in product(*ranges):
            dims = {
                d: (s, min(tile[d], kernel.anchor.extents[d] - s))
                for d, s in zip(tile, starts, strict=True)
            }
            for a, (axis, extent) in enumerate(
                zip(use.operand.access, use.operand.shape, strict=True)
            ):
                low, size = axis.interval(dims)
                lengths[a] = max(lengths[a], min(low + size, extent) - max(low, 0))
        wide = 4 if use.output and split else use.operand.element_bytes
        count = wide
        for length, multiple in zip(lengths, use.multiples, strict=True):
            count *= -(-length // multiple) * multiple
        granule = use.memory.granule
        slot = -(-count // granule) * granule
        total[use.memory.name] = total.get(use.memory.name, 0) + slot * schedule.slots(use.name)
    return total
