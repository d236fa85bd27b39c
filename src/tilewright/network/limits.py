"""The limits of a whole network on a machine: a bound on its cycles, and what limits its kernels.

A kernel's own bounds count what it reads and writes. If every intermediate stayed on the chip, main
memory would move the constants, the network's inputs and outputs, and what the host takes or gives,
each once; and if all of that overlapped with all computes, the busiest engine would set the time::

    bound = max(computes and moves of each engine, bytes that must move / bandwidth)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.codegen.program.interface import CompiledKernel
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp
from tilewright.graph.kernels import operand_values
from tilewright.graph.operation import Operation
from tilewright.graph.passes.editing import bytes_of
from tilewright.graph.values import value_names
from tilewright.ir import SSAValue
from tilewright.machine import Machine
from tilewright.planning.chains.plans import kernels_of
from tilewright.planning.cost.bounds import bandwidth_of, engine_flows, primitives_for
from tilewright.planning.cost.loads import loads_of


@dataclass(frozen=True)
class NetworkLimits:
    """A network's bound with every intermediate on the chip, and what limits its kernels."""

    cycles: float
    resource: str
    """The engine, or the memory, whose work the bound is."""
    kernels: Mapping[str, int]
    """By resource, the kernels that it limits, with what they load and store themselves."""
    work: Mapping[str, float]
    """By engine that computes, the cycles of its work."""

    def times(self, rounds: int) -> NetworkLimits:
        """The limits of ``rounds`` runs, one after the other."""
        work = {engine: cycles * rounds for engine, cycles in self.work.items()}
        return NetworkLimits(self.cycles * rounds, self.resource, self.kernels, work)

    def then(self, other: NetworkLimits) -> NetworkLimits:
        """The limits of this network and of another after it."""
        kernels, work = Counter(self.kernels), dict(self.work)
        kernels.update(other.kernels)
        for engine, cycles in other.work.items():
            work[engine] = work.get(engine, 0.0) + cycles
        longer = self if self.cycles >= other.cycles else other
        cycles = self.cycles + other.cycles
        return NetworkLimits(cycles, longer.resource, dict(kernels.most_common()), work)


def network_limits(
    network: NetworkOp, kernels: Mapping[str, CompiledKernel], machine: Machine
) -> NetworkLimits:
    """The limits of a network of which ``kernels``, by symbol, run on the accelerator."""
    work: dict[str, float] = {}
    limited: Counter[str] = Counter()
    for item in kernels.values():
        kernel = item.kernel
        internal = {*(operand.name for operand in kernel.produced), *_staying(item)}
        loads = loads_of(kernels_of(kernel), machine, internal)
        asked = {name: size / bandwidth_of(name, machine) for name, size in loads.moved.items()}
        for engine in loads.granule.keys() | loads.moving.keys():
            asked[engine] = loads.granule.get(engine, 0) + loads.moving.get(engine, 0)
        limited[max(asked, key=lambda name: asked[name])] += 1
        for engine, cycles in loads.granule.items():
            work[engine] = work.get(engine, 0.0) + cycles / machine.cores
    moved, moving = dict.fromkeys(machine.homes, 0), Counter[str]()
    for value, (size, flows) in _needed(network, kernels, machine).items():
        moved[machine.home(constant=isinstance(value.owner, WeightOp))] += size
        moving.update(flows)
    flows = {name: size / bandwidth_of(name, machine) for name, size in moved.items()}
    engines = {name: work.get(name, 0) + moving[name] / machine.cores for name in work | moving}
    asked = {**flows, **engines}
    resource = max(asked, key=lambda name: asked[name])
    return NetworkLimits(asked[resource], resource, dict(limited.most_common()), work)


def _staying(item: CompiledKernel) -> set[str]:
    """The operands of a kernel that it neither loads nor stores, as they stay on the chip."""
    stays = () if item.schedule is None else item.schedule.stays
    return {
        each.operand for each in stays if each.live_in or each.operand == item.kernel.output.name
    }


Flows = Mapping[str, float]
"""By engine, the cycles in which it moves a tensor once."""


def _needed(
    network: NetworkOp, kernels: Mapping[str, CompiledKernel], machine: Machine
) -> dict[SSAValue, tuple[int, Flows]]:
    """The tensors that pass main memory even if every intermediate stays on the chip, the bytes of
    each that do, and the engines' cycles for them.

    Of several kernels that read a tensor, each engine's cheapest counts: one load may serve all.
    """
    needed: dict[SSAValue, tuple[int, Flows]] = {}
    for value, size, flows in _moved(network, kernels, machine):
        if value in needed:
            most, least = needed[value]
            size = max(size, most)
            flows = {e: min(flows[e], least[e]) for e in flows.keys() & least}
        needed[value] = size, flows
    return needed


def _moved(
    network: NetworkOp, kernels: Mapping[str, CompiledKernel], machine: Machine
) -> Iterator[tuple[SSAValue, int, Flows]]:
    """Yield each use of a tensor that passes main memory, with its bytes and engines' cycles."""
    made: dict[SSAValue, Flows] = {}
    names = value_names(network)
    for op in network.block.ops:
        if isinstance(op, KernelOp) and op.symbol.data in kernels:
            flows = _kernel_flows(op, kernels[op.symbol.data], names, machine)
            for argument, value in op.outside.items():
                for root in _roots(value):
                    if root not in made:
                        size = min(bytes_of(root), _read(argument))
                        part = size / max(bytes_of(value), size)
                        times = {e: n * part for e, n in flows.get(value, {}).items()}
                        yield root, size, times
            made[op.result] = flows.get(op.result, {})
        elif isinstance(op, KernelOp) or not isinstance(op, Operation):
            for value in op.operands:
                for root in _roots(value):
                    if root in made:
                        yield root, bytes_of(root), made[root]


def _kernel_flows(
    op: KernelOp, item: CompiledKernel, names: Mapping[SSAValue, str], machine: Machine
) -> dict[SSAValue, Flows]:
    """By each of a kernel's tensors, the cycles of the engines that move all of it once, on the
    primitive whose engine takes least."""
    flows: dict[SSAValue, Flows] = {}
    values = operand_values(op, names)
    for unit in kernels_of(item.kernel):
        primitives = primitives_for(unit, machine)
        operands = {operand.name for operand in unit.operands}
        for name in operands & values.keys():
            ways = [
                {engine: sum(each.values()) for engine, each in way.items()}
                for way in (engine_flows(unit, machine, p, operands - {name}) for p in primitives)
            ]
            flows[values[name]] = {e: min(way.get(e, 0) for way in ways) for e in ways[0]}
    return flows


def _read(argument: SSAValue) -> int:
    """The bytes that a kernel reads of an argument: of a table, the rows that are looked up."""
    uses = [(use.operation, use.index) for use in argument.uses]
    if all(op.name == "graph.gather" and not index for op, index in uses):
        return sum(bytes_of(op.results[0]) for op, _ in uses)
    return bytes_of(argument)


def _roots(value: SSAValue) -> Iterator[SSAValue]:
    """Yield the tensors of which a value is a view."""
    owner = value.owner
    if isinstance(owner, Operation) and not isinstance(owner, KernelOp):
        for source in owner.inputs:
            yield from _roots(source)
    else:
        yield value
