"""Training: kernels of networks, alone and fused, are simulated, and a cost is fitted to them.

The simulator takes far longer than all else, so of all groups of kernels that the search would
price only some are taken: of each form (operations and primitives of a group) in turn the next
that differs from those before, unless it has very many instructions. Which comes next follows from
a hash of the kernels, so that the same networks give the same samples, and a network more changes
few of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, NetworkOp
from tilewright.graph.operations import Operation
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.machine import Machine
from tilewright.network.fusion.capacity import shortage
from tilewright.network.fusion.cost import CostOracle
from tilewright.network.fusion.embeddings import candidates_of
from tilewright.network.fusion.forms import described
from tilewright.network.fusion.graph import graph_of
from tilewright.network.fusion.learned.fitting import Sample
from tilewright.network.fusion.learned.pipeline import instructions_of
from tilewright.network.fusion.run import members_of
from tilewright.planning import Plan, Planner, Timer
from tilewright.planning.canonical import canonical
from tilewright.planning.domain import Kernel
from tilewright.runtime.executable import Progress, quiet

MOST_INSTRUCTIONS = 3000
"""Of a kernel: larger ones have instructions of the same kinds, and take longer to simulate."""

Group = tuple[KernelOp, ...]


@dataclass
class Planned(CostOracle):
    """An oracle that remembers the kernels that it has planned."""

    priced: list[tuple[Kernel, Plan]] = field(default_factory=list[tuple[Kernel, Plan]])

    def planned(self, kernel: Kernel) -> Plan:
        """The plan of a kernel, as the oracle's cost has it."""
        plan = super().planned(kernel)
        self.priced.append((kernel, plan))
        return plan

    def of(self, group: Group) -> tuple[Kernel, Plan] | None:
        """The fastest kernel that a group can be, by planning; None if it can be none."""
        self.priced.clear()
        try:
            self.cost(group)
        except TilewrightError:
            return None
        return min(self.priced, key=lambda planned: planned[1].cycles, default=None)


def groups_of(networks: Sequence[NetworkOp], machine: Machine) -> list[Group]:
    """The groups that the search of some networks would price, no two alike, in the order in which
    they are to be simulated."""
    forms: dict[tuple[str, ...], dict[str, Group]] = {}
    for network in networks:
        dependences = graph_of(network)
        kernels = dependences.kernels
        groups: list[Group] = [(k,) for k in kernels if k is not None and not k.on_host]
        for merge in candidates_of(dependences.graph, machine.fusions):
            members = members_of(merge, kernels)
            if merge.problem is None and not shortage(members, merge.fusion, machine):
                groups.append(tuple(members))
        for group in groups:
            try:
                plain = [canonical(described(member, machine))[0] for member in group]
            except TilewrightError:
                continue  # No primitive computes it; the search prices it as nothing.
            text = "\n".join(map(repr, plain))
            form = tuple(operation.name for member in group for operation in member.operations)
            form += tuple(_primitive(member, machine) for member in group)
            forms.setdefault(form, {}).setdefault(sha256(text.encode()).hexdigest(), group)
    rows = [[group for _, group in sorted(groups.items())] for _, groups in sorted(forms.items())]
    longest = max((len(row) for row in rows), default=0)
    return [row[turn] for turn in range(longest) for row in rows if turn < len(row)]


def samples_of(
    groups: Sequence[Group],
    machine: Machine,
    timer: Timer,
    most: int,
    progress: Progress = quiet,
) -> Iterator[Sample]:
    """Instructions and simulated cycles of the first groups that can be planned and simulated."""
    oracle, count = Planned(Planner(machine)), 0
    for group in groups:
        progress("simulate kernels", count, min(most, len(groups)))
        fastest = oracle.of(group)
        if fastest is None:
            continue
        kernel, plan = fastest
        try:
            instructions = instructions_of(kernel, plan, machine)
            if instructions.kind.size > MOST_INSTRUCTIONS:
                continue
            cycles = timer(kernel, plan.schedule)
        except TilewrightError:
            continue  # No instructions say it.
        yield instructions, cycles
        count += 1
        if count == most:
            return


def _primitive(kernel: KernelOp, machine: Machine) -> str:
    """What computes a kernel, as ``described`` has it."""
    anchor = kernel.operations[0]
    assert isinstance(anchor, Operation)
    return serving(candidate(anchor), machine)[0].name
