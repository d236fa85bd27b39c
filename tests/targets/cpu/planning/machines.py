"""Machines of the cpu target with other costs, and products to plan on them."""

from tilewright.machine import Machine
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.targets.cpu.planning.capabilities import facts_of
from tilewright.targets.cpu.planning.costs import CacheCosts


def costs_of(machine: Machine) -> CacheCosts:
    return facts_of(machine).cache_costs


def with_costs(machine: Machine, costs: CacheCosts) -> Machine:
    own = facts_of(machine).model_copy(update={"cache_costs": costs})
    return machine.model_copy(update={"own": own})


def product(rows: int, depth: int, channels: int, weights: str, layout: str = "") -> Kernel:
    """A matrix product; ``weights`` are the dims of the weights' axes."""
    extents = {"n": rows, "co": channels, "ci": depth}

    def operand(name: str, dims: str, role: str, layout: str = "") -> Operand:
        named = dims.split()
        access = tuple(Affine(((dim, 1),)) for dim in named)
        shape = tuple(extents[dim] for dim in named)
        return Operand(name, shape, access, role=role, layout=layout)  # type: ignore[arg-type]

    dims = tuple(
        Dim(name, extent, "reduction" if name == "ci" else "parallel")
        for name, extent in extents.items()
    )
    inputs = (operand("x", "n ci", "input"), operand("w", weights, "weight", layout))
    return Kernel("k", (Stage("matmul", dims, inputs, operand("y", "n co", "output")),))
