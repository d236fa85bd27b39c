"""Primitives for products with computed weights: each with the copy that it needs."""

from __future__ import annotations

from math import inf

from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp
from tilewright.graph.passes.reanchoring import plain_kernel, with_layouts
from tilewright.machine import Machine, Primitive
from tilewright.planning import Planner
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.space.operand_layouts import operand_layout


def by_price(
    kernel: KernelOp, machine: Machine, primitives: list[Primitive], planner: Planner
) -> list[Primitive]:
    """The primitives that serve a product, the one of least predicted cycles first.

    Computed weights are laid out each time that the network runs: to read them as they lie takes
    no copy, and longer for many rows. ``planner`` is one by the cost model.
    """
    described = plain_kernel(kernel)

    def price(primitive: Primitive) -> float:
        laid = with_layouts(described, machine, primitive)
        try:
            cycles = planner.plan(laid).predicted_cycles
            for operand in described.anchor.inputs:
                layout = operand_layout(machine, primitive, operand)
                if operand.role == "weight" and layout not in ("", "any"):
                    cycles += planner.plan(_copy(operand, layout)).predicted_cycles
        except TilewrightError:
            return inf  # It does not take this kernel after all.
        return cycles

    prices = {primitive.name: price(primitive) for primitive in primitives}
    return sorted(primitives, key=lambda primitive: prices[primitive.name])


def _copy(operand: Operand, layout: str) -> Kernel:
    """The kernel that lays a row-major operand out."""
    names = [f"d{axis}" for axis in range(len(operand.shape))]
    access = tuple(Affine(((name, 1),)) for name in names)
    source = Operand("source", operand.shape, access, operand.element)
    result = Operand("result", operand.shape, access, operand.element, "output", layout=layout)
    dims = tuple(Dim(name, extent) for name, extent in zip(names, operand.shape, strict=True))
    return Kernel("copy", (Stage("convert_layout", dims, (source,), result),))
