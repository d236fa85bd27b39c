"""The predicted time of a network's steps on the host that a machine file describes.

    [host]
    name = "Cortex-A53"
    clock_hz = 1.2e9
    cycles_per_operation = 0.5
    cycles_per_element = 4

Where ``cpu`` names a processor of the cpu target, a kernel takes what that target's cost model says
of its best schedule. What the model does not plan, and a host without ``cpu``, is charged for every
iteration of each of its operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod

from tilewright.codegen.host.steps import steps_of
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, NetworkOp
from tilewright.graph.operation import Operation
from tilewright.ir.types import shape_of
from tilewright.machine import Machine
from tilewright.machine.host import Host
from tilewright.planning import Planner
from tilewright.planning.chains.plans import kernels_of
from tilewright.planning.domain import Kernel
from tilewright.targets.base import find_target

PER_OPERATION = 1.0
"""Cycles of an iteration of what sums, where a host's file says nothing."""

PER_ELEMENT = 4.0
"""Cycles of an element of any other result, likewise."""


def host_seconds(
    network: NetworkOp, kernels: Mapping[str, Kernel], machine: Machine
) -> dict[int, float]:
    """Seconds of each step of the host by its place in the network; {} without a described host.

    ``kernels`` are those on the host, by symbol. Raises TilewrightError (``option-cpu``) for a
    processor that does not exist.
    """
    host = machine.host
    if host is None:
        return {}
    planner = Planner(find_target("cpu").variant(host.cpu)) if host.cpu else None
    seconds: dict[int, float] = {}
    for number, op in steps_of(network):
        if isinstance(op, KernelOp):
            if op.symbol.data in kernels:
                cycles = _kernel_cycles(kernels[op.symbol.data], host, planner)
                seconds[number] = cycles / host.clock_hz
        elif isinstance(op, Operation):
            name = op.name.removeprefix("graph.")
            cycles = _rate(host, name, sums=False) * prod(shape_of(op.result))
            seconds[number] = cycles / host.clock_hz
    return seconds


def _kernel_cycles(kernel: Kernel, host: Host, planner: Planner | None) -> float:
    """Cycles of a kernel by the cost model of the host's processor, or else by its iterations."""
    names = [stage.operation for unit in kernels_of(kernel) for stage in unit.stages]
    if planner is not None and not host.cycles.keys() & set(names):
        try:
            cycles = planner.plan(kernel).cycles
        except TilewrightError:
            cycles = inf
        if cycles < inf:
            return cycles
    return sum(
        _rate(host, stage.operation, sums=bool(stage.reduction)) * stage.iterations
        for unit in kernels_of(kernel)
        for stage in unit.stages
    )


def _rate(host: Host, operation: str, *, sums: bool) -> float:
    """Cycles of an iteration of an operation."""
    general = host.cycles_per_operation if sums else host.cycles_per_element
    default = PER_OPERATION if sums else PER_ELEMENT
    return host.cycles.get(operation, default if general is None else general)
