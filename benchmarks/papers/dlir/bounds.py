"""Lower bounds beside the planner's: of a kernel with latencies, and of a whole network.

The latency bound is the granule bound with the latencies that no schedule hides: a transfer is no
larger than the memory that it fills, and those of one engine pay for their latencies one after the
other, as many at a time as the move has in flight.

A network's kernels compute one after the other. The sum of their bounds is none where operands of a
kernel come while those before it compute: three kernels that take 10 cycles to compute and three
that take 10 to load need 30 together, not 60. Here compute and traffic are counted apart.

Be c_k the least compute of kernel k, t_k its least traffic, T(j, k) the traffic of kernels j to k,
and a what all on-chip memories hold, in cycles of main memory. When kernel j - 1 ends, at most a of
what is to come has been loaded; when kernel k ends, at most a of what it made waits to be stored.
So the end E_k of kernel k's compute is no earlier than

    E_k = max(E_(k-1) + c_k, max over j <= k of E_(j-1) + T(j, k) - 2 a),   E_0 = 0,

and the network's no earlier than E_n or its whole traffic. Latency is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from tilewright.machine import Machine, Primitive
from tilewright.planning.cost.bounds import (
    compute_cycles,
    granule_bound,
    main_bandwidth,
    traffic_cycles,
)
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.space.footprint import uses_of, whole_elements


def network_bound(kernels: Sequence[Kernel], machine: Machine) -> float:
    """Cycles that no schedule of these kernels, in this order, goes below.

    Values that a kernel holds on the chip are no traffic. Weights that several kernels read count
    for each of them, as if none kept them for the next.
    """
    parts = [(kernel, agreeing(kernel, machine)) for kernel in kernels]
    computes = [
        min(compute_cycles(k, primitive) for primitive in primitives) for k, primitives in parts
    ]
    traffic = [
        min(traffic_cycles(k, machine, primitive) for primitive in primitives)
        for k, primitives in parts
    ]
    return chained(computes, traffic, ahead(machine))


def ahead(machine: Machine) -> float:
    """Return the capacity of the on-chip memories in cycles of main memory; infinite without a
    limit."""
    own = [m.bytes for m in machine.memories if m.name != machine.main]
    if any(size is None for size in own):
        return float("inf")
    return sum(size for size in own if size is not None) / main_bandwidth(machine)


def chained(computes: Sequence[float], traffic: Sequence[float], capacity: float) -> float:
    """The bound; ``capacity`` is that of on-chip memories, in cycles as all arguments."""
    ends = [0.0]
    for last, compute in enumerate(computes):
        moved, end = 0.0, ends[-1] + compute
        for first in range(last, -1, -1):
            moved += traffic[first]
            end = max(end, ends[first] + moved - 2 * capacity)
        ends.append(end)
    return max(ends[-1], sum(traffic))


def latency_bound(kernel: Kernel, machine: Machine, primitive: Primitive) -> float:
    """The granule bound with the latencies that transfers pay one after the other."""
    busy: dict[str, float] = {}
    uses = uses_of(kernel, machine, primitive)
    for use in uses:
        if use.move is None or use.host:
            continue
        travelling = [other for other in uses if use.name in (other.name, other.host)]
        size = sum(
            whole_elements(other.operand, kernel.anchor.extents) * other.operand.element_bytes
            for other in travelling
        )
        transfers = 1 if use.memory.room is None else ceil(size / use.memory.room)
        flow = size / use.move.bytes_per_cycle
        waited = (transfers * use.move.latency + flow) / use.move.in_flight
        engine = use.move.engine
        busy[engine] = busy.get(engine, 0.0) + max(flow, waited)
    return max(granule_bound(kernel, machine, primitive), *busy.values(), 0.0)
