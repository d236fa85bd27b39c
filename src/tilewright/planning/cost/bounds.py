"""Lower bounds of a kernel's cycles, whatever the schedule.

The **physical bound** is the largest of: compute at peak; compulsory bytes (every touched element
of every operand once) at full bandwidth; the same bytes through each engine that moves them, at the
speed of its moves; and the traffic that a finite on-chip memory makes inevitable. The **granule
bound** is the same with the machine's own whole-layer rounding, such as ceil(co / 16): what a
perfect schedule reaches on this machine. Both leave out latency.

Where operands stay in main memory behind caches, a kernel may find everything in the caches but
what exceeds them; positions of a window that lie outside the image may be skipped; and a
primitive's ``cycles`` is what its loops are expected to take, not a least time. There the bounds
count inner positions alone, bytes beyond the caches at the speed of main memory, and of the
rounding only that of the granules (``multiples``).

Finite memory: a product of M multiply-adds through S elements of fast memory moves at least
2 M / sqrt(S) - 2 S elements (Hong and Kung, "I/O complexity: the red-blue pebble game", STOC 1981;
constant of Smith et al., "Pushing the bounds for matrix-matrix multiplication", 2019). A
convolution reuses each input element in up to R = Kh Kw / (stride_h stride_w) sliding windows and
moves at least 2 M / sqrt(R S) - 2 S (Chen et al., "Communication lower bound in convolution
accelerators", HPCA 2020). Without R the figure is no bound for kernels larger than 1 x 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil, inf, sqrt
from typing import Any

import numpy as np

from tilewright.errors import refuse
from tilewright.machine import Machine, Memory, Primitive, parse_expression
from tilewright.numerics.operators import operators
from tilewright.planning.domain import Kernel
from tilewright.planning.own import in_turns
from tilewright.planning.space.footprint import path_of, whole_elements

PRODUCTS = operators("product")
"""Anchor operations that are sums of products, for which finite memory forces traffic."""


def main_bandwidth(machine: Machine) -> float:
    """Bytes that main memory moves in a cycle; infinite when the machine sets no limit."""
    return bandwidth_of(machine.main, machine)


def bandwidth_of(memory: str, machine: Machine) -> float:
    """Bytes that a memory that holds values moves in a cycle."""
    rate = machine.memory(memory).bytes_per_cycle
    if rate is not None:
        return rate
    moves = [m.bytes_per_cycle for m in machine.moves if memory in (m.source, m.target)]
    return sum(moves) or float("inf")


def compulsory_bytes(kernel: Kernel) -> int:
    """Bytes of every operand's touched elements, once; resident ones pass no main memory."""
    extents = kernel.anchor.extents
    moved = [operand for operand in kernel.operands if not operand.resident_in]
    return sum(whole_elements(o, extents) * o.element_bytes for o in moved)


def homes_bytes(kernel: Kernel, machine: Machine, internal: Collection[str] = ()) -> dict[str, int]:
    """The compulsory bytes by the memory that holds them, main memory first; without operands that
    are ``internal`` to a chain."""
    total = {machine.main: 0}
    for operand in kernel.operands:
        if not operand.resident_in and operand.name not in internal:
            home = machine.home(constant=operand.is_constant)
            size = whole_elements(operand, kernel.anchor.extents) * operand.element_bytes
            total[home] = total.get(home, 0) + size
    return total


def finite_memory_bytes(kernel: Kernel, machine: Machine, primitive: Primitive) -> float:
    """Bytes that the size of the on-chip memories makes inevitable; 0 where nothing is known."""
    if kernel.anchor.operation not in PRODUCTS:
        return 0.0
    memories: dict[str, Memory] = {}
    for operand in kernel.operands:
        storage = primitive.operands.get(operand.role)
        if storage is not None and operand.resident_in != storage.memory:
            outputs, home = operand is kernel.output, machine.home(constant=operand.is_constant)
            for move in path_of(operand, machine, home, storage.memory, output=outputs):
                name = move.source if outputs else move.target
                memories[name] = machine.memory_beside(primitive, name)
    limits = [memory.bytes for memory in memories.values()]
    if not limits or None in limits:
        return 0.0
    element = min(o.element_bytes for o in kernel.operands if o.role != "bias")
    fast = sum(limit for limit in limits if limit is not None) / element
    sliding = max(_sliding_reuse(kernel), 1.0)
    elements = 2 * kernel.anchor.iterations / sqrt(sliding * fast) - 2 * fast
    return max(elements, 0.0) * element


def physical_bound(kernel: Kernel, machine: Machine, primitive: Primitive) -> float:
    """Cycles that no schedule on this machine's memories can go below, at peak compute."""
    compute = least_compute(kernel, machine, primitive)
    if in_place(kernel, machine, primitive):
        return max(compute, _cached_cycles(kernel, machine))
    return max(compute, moving_cycles(kernel, machine, primitive))


def least_compute(kernel: Kernel, machine: Machine, primitive: Primitive) -> float:
    """The part of the physical bound that is the computes', at peak."""
    if in_place(kernel, machine, primitive):
        return _evaluate(primitive.peak, kernel.anchor.extents) * inside_fraction(kernel)
    return peak_cycles(kernel, primitive)


def granule_bound(kernel: Kernel, machine: Machine, primitive: Primitive) -> float:
    """The physical bound with the machine's rounding of the whole layer."""
    extents = kernel.anchor.extents
    cycles = _evaluate(primitive.cycles, extents)
    if in_place(kernel, machine, primitive):
        granules = primitive.multiples
        rounded = {d: ceil(e / granules.get(d, 1)) * granules.get(d, 1) for d, e in extents.items()}
        # Not every granule is one of the compute's: the primitive's own expression knows.
        compute = min(cycles, _evaluate(primitive.peak, rounded)) * inside_fraction(kernel)
        return max(compute, physical_bound(kernel, machine, primitive))
    compute = compute_cycles(kernel, primitive)
    return max(compute, moving_cycles(kernel, machine, primitive))


def compute_cycles(kernel: Kernel, primitive: Primitive) -> float:
    """Cycles of the primitive's engine for the whole layer, with its rounding."""
    return _evaluate(primitive.cycles, kernel.anchor.extents) * _met(kernel, primitive)


def peak_cycles(kernel: Kernel, primitive: Primitive) -> float:
    """Cycles of the primitive's engine for the whole layer, at peak."""
    return _evaluate(primitive.peak, kernel.anchor.extents) * _met(kernel, primitive)


def traffic_cycles(kernel: Kernel, machine: Machine, primitive: Primitive) -> float:
    """Cycles of main memory, or of another that holds operands, for the bytes that a kernel moves
    at least."""
    finite = finite_memory_bytes(kernel, machine, primitive)
    homes = homes_bytes(kernel, machine)
    if len(homes) == 1:
        return max(compulsory_bytes(kernel), finite) / main_bandwidth(machine)
    rates = {name: bandwidth_of(name, machine) for name in homes}
    longest = max(size / rates[name] for name, size in homes.items())
    return max(longest, finite / sum(rates.values()))


def moving_cycles(kernel: Kernel, machine: Machine, primitive: Primitive) -> float:
    """Cycles of main memory, or of the engine that moves longest, for the bytes moved at least."""
    engines = engine_flows(kernel, machine, primitive)
    longest = max((sum(flows.values()) for flows in engines.values()), default=0.0)
    return max(traffic_cycles(kernel, machine, primitive), longest)


def engine_flows(
    kernel: Kernel, machine: Machine, primitive: Primitive, internal: Collection[str] = ()
) -> dict[str, dict[str, float]]:
    """By engine and move, the cycles in which every touched element passes once; operands that are
    ``internal`` to a chain are left out."""
    engines: dict[str, dict[str, float]] = {}
    for operand in kernel.operands:
        storage = primitive.operands.get(operand.role)
        if storage is None or operand.resident_in or operand.name in internal:
            continue
        size = whole_elements(operand, kernel.anchor.extents) * operand.element_bytes
        outputs, home = operand is kernel.output, machine.home(constant=operand.is_constant)
        for move in path_of(operand, machine, home, storage.memory, output=outputs):
            flows = engines.setdefault(move.engine, {})
            flows[move.name] = flows.get(move.name, 0.0) + size / move.bytes_per_cycle
    return engines


def slow_move(kernel: Kernel, machine: Machine, primitive: Primitive) -> str:
    """The move that a kernel's bounds are the time of; "" where compute, or main memory, takes at
    least as long."""
    if kernel.producers or in_place(kernel, machine, primitive):
        return ""
    engines = engine_flows(kernel, machine, primitive)
    longest = max(engines.values(), key=lambda flows: sum(flows.values()), default={})
    others = compute_cycles(kernel, primitive), traffic_cycles(kernel, machine, primitive)
    if sum(longest.values()) <= max(others):
        return ""
    return max(longest, key=lambda move: longest[move])


def _met(kernel: Kernel, primitive: Primitive) -> float:
    """The part of a kernel's work that takes time on a primitive."""
    return inside_fraction(kernel) if primitive.own.skips_padding() else 1.0


def in_place(kernel: Kernel, machine: Machine, primitive: Primitive) -> bool:
    """Return True if a primitive leaves all operands of a kernel in main memory, behind caches."""
    return all(
        primitive.operands[operand.role].memory == machine.main
        for operand in kernel.operands
        if operand.role in primitive.operands
    )


def inside_fraction(kernel: Kernel) -> float:
    """The part of all positions of a window that lie inside the image."""
    extents, fraction = kernel.anchor.extents, 1.0
    reduction = set(kernel.anchor.reduction)
    source = next((o for o in kernel.inputs if o.role == "input"), None)
    for axis, extent in zip(source.access, source.shape, strict=True) if source else ():
        if len(axis.terms) < 2 or not any(name in reduction for name, _ in axis.terms):
            continue
        places = np.array([axis.offset])
        for name, step in axis.terms:
            places = (places[:, None] + step * np.arange(extents[name])).ravel()
        fraction *= float(np.mean((places >= 0) & (places < extent)))
    return fraction


def primitives_for(kernel: Kernel, machine: Machine) -> tuple[Primitive, ...]:
    """The primitives that compute a kernel's anchor, and have its numbers where they have numbers
    of their own, but for those that cores compute in turns; refuses when there is none."""
    anchor, operands = kernel.anchor, (*kernel.anchor.inputs, kernel.output)
    primitives = tuple(
        p
        for p in machine.primitives
        if p.serves(anchor.operation, anchor.extents)
        and (p.element is None or all(p.takes(o.role, o.element) for o in operands))
        and not in_turns(p)
    )
    if not primitives:
        raise refuse("plan-primitive", f"{machine.name} has no {anchor.operation}", kernel.symbol)
    return primitives


def _cached_cycles(kernel: Kernel, machine: Machine) -> float:
    """Every byte passes the innermost cache, and main memory gives what the caches cannot hold."""
    total = compulsory_bytes(kernel)
    caches = [memory for memory in machine.caches if memory.granule == 1]
    cached = sum(cache.bytes or 0 for cache in caches)
    fastest = max((cache.bytes_per_cycle or inf for cache in caches), default=inf)
    return max(total / fastest, (total - cached) / main_bandwidth(machine))


def _evaluate(expression: str, extents: Mapping[str, int]) -> float:
    value: Any = parse_expression(expression).evaluate(extents)
    return float(value)


def _sliding_reuse(kernel: Kernel) -> float:
    """R: how many windows an input element takes part in, from the input's access maps."""
    extents, reuse = kernel.anchor.extents, 1.0
    reduction = set(kernel.anchor.reduction)
    source = next((o for o in kernel.inputs if o.role == "input"), None)
    for axis in source.access if source else ():
        inner = [extents[name] for name, _ in axis.terms if name in reduction]
        steps = [abs(c) for name, c in axis.terms if name not in reduction]
        if inner and steps:
            reuse *= max(inner[0] / max(steps[0], 1), 1.0)
    return reuse
