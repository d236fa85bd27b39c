"""Machines of the cpu target with other costs."""

from tilewright.machine import Machine
from tilewright.targets.cpu.planning.capabilities import facts_of
from tilewright.targets.cpu.planning.costs import CacheCosts


def costs_of(machine: Machine) -> CacheCosts:
    return facts_of(machine).cache_costs


def with_costs(machine: Machine, costs: CacheCosts) -> Machine:
    own = facts_of(machine).model_copy(update={"cache_costs": costs})
    return machine.model_copy(update={"own": own})
